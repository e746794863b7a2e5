"""Runs an HTTP tool call: request to its server, response to tool output or failure.

Input: a recorded call with the hosts that policy resolved. It reaches those hosts, at public addresses, and
nothing else; failure texts contain no addresses, headers or secrets.
"""

import asyncio
import codecs
from email.message import Message
from functools import partial
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.calls import Denied, Diagnosis, RecordedCall
from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.definitions.vocabulary import ResultType
from toolkeep.errors import Code, SecretUnavailable
from toolkeep.execution.diagnosis import without_hosts
from toolkeep.execution.redact import KnownSecrets, redacted
from toolkeep.execution.runner import RunRefused
from toolkeep.limits import OUTPUT_CAP_BYTES, REDIRECTS, RETRY_SECONDS
from toolkeep.network.allowlist import READING, HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import AnswerTooBig, HostTooSlow, HostUnreachable, NetworkError, NetworkRefused
from toolkeep.network.fetch import Answer, fetch
from toolkeep.network.hosts import HostRefused, HostScope, read_url
from toolkeep.network.http_endpoint import Endpoint, Request, basic
from toolkeep.network.parameter_styles import ArgumentUnfit
from toolkeep.sandbox.frames import FrameRefused, check_limits, decode, in_thread_if_large
from toolkeep.text.display import excerpt

_QUOTED_CHARS: Final = 300
"""Characters of a server's error message that a model reads."""
_LOOKED_AT_CHARS: Final = 10 * _QUOTED_CHARS
"""Characters of it that are processed."""

_NOT_THERE: Final = frozenset({502, 503, 504})
"""Gateway errors: the server behind is unavailable."""

_CHARSETS: Final = frozenset(
    codecs.lookup(name).name
    for name in (
        *("utf-8", "utf-8-sig", "ascii", "utf-16", "utf-16-le", "utf-16-be", "utf-32"),
        *(f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))),
        *(f"cp{number}" for number in range(1250, 1259)),
        *("koi8-r", "shift_jis", "euc_jp", "gbk", "gb18030", "big5", "euc_kr"),
    )
)
"""Text encodings. Python's codec registry also holds codecs that decompress or are very slow, which a hostile
server could name."""


async def ask(call: RecordedCall, context: ToolContext) -> Any:
    """The answer of a tool's server. Cancellation closes the connection."""
    endpoint, given = _endpoint(call), KnownSecrets(context.secret)
    request, allowlist = _request(call, endpoint, given), _allowlist(call)
    # Also in the form that was sent: a server may echo the Authorization header.
    secrets = (*given.given, *map(basic, given.given))
    try:
        answer = await _fetched(request, allowlist, _budget(call, endpoint.retries), endpoint.retries)
    except NetworkError as error:
        raise _refused(call, request, error, secrets) from error
    answer = replace(answer, host=redacted(answer.host, secrets))  # Its name comes from a redirect.
    if answer.status >= 300:
        raise _failed(call, answer, secrets)
    return await in_thread_if_large(len(answer.body), partial(_value, call, answer, secrets))


async def _fetched(request: Request, allowlist: HostAllowlist, budget: Budget, retries: int) -> Answer:
    """The answer; idempotent requests are retried with exponential backoff if the server is away."""
    for attempt in range(retries):
        try:
            answer = await fetch(request, allowlist, budget, OUTPUT_CAP_BYTES)
        except HostUnreachable:
            pass
        else:
            if answer.status not in _NOT_THERE:
                return answer
        await asyncio.sleep(RETRY_SECONDS * 2**attempt)
    return await fetch(request, allowlist, budget, OUTPUT_CAP_BYTES)


def _endpoint(call: RecordedCall) -> Endpoint:
    try:
        return Endpoint.read(call.tool.runner.target)
    except ValueError as error:
        reason = f"Tool '{call.tool.name}' was not run: its run.http {error}"
        raise RunRefused(Code.NOT_RUNNABLE, reason) from error


def _request(call: RecordedCall, endpoint: Endpoint, given: KnownSecrets) -> Request:
    name = call.tool.name
    try:
        # The definition must require its host: otherwise policy never saw it, and nobody granted it.
        if not any(scope.contains(endpoint.host) for scope in _allowlist(call).for_method(endpoint.method)):
            reason = f"Tool '{name}' was not run: its definition does not require {endpoint.needs}"
            raise RunRefused(Code.NOT_PERMITTED, reason)
        return endpoint.request(call.checked.arguments, given.secret)
    except ArgumentUnfit as error:
        raise ToolFailed(f"Tool '{name}' was not run: {error}") from error
    except SecretUnavailable as error:
        raise RunRefused(error.code, f"Tool '{name}' was not run: {error.message}") from error
    except ValueError as error:
        raise RunRefused(Code.NOT_RUNNABLE, f"Tool '{name}' was not run: its run.http {error}") from error


def _allowlist(call: RecordedCall) -> HostAllowlist:
    """The hosts that authorization resolved for this call."""
    found: dict[str, list[HostScope]] = {"net.read": [], "net.write": []}
    for one in call.approved.permitted.touched:
        if one.kind in found:
            found[one.kind] += one.hosts
    return HostAllowlist(reads=tuple(found["net.read"]), writes=tuple(found["net.write"]))


def _budget(call: RecordedCall, retries: int) -> Budget:
    """The tool's stated budget; by default derived from the output cap and the number of redirects."""
    stated = call.tool.definition.resource_bounds.max_network
    most = (REDIRECTS + 1) * (retries + 1)
    return Budget(stated or NetworkBounds(max_requests=most, max_bytes=2 * OUTPUT_CAP_BYTES))


def _refused(
    call: RecordedCall, request: Request, error: NetworkError, secrets: tuple[str, ...]
) -> RunRefused:
    code, kind, remedy = Code.TOOL_FAILED, None, ""
    if isinstance(error, NetworkRefused):
        code, kind, remedy = (
            Code.NOT_PERMITTED,
            Denied.HOST,
            error.remedy or "tool and agent need net.read or net.write of it",
        )
    elif isinstance(error, AnswerTooBig):
        code, kind = Code.OUTPUT_TOO_BIG, Denied.OUTPUT_SIZE
    elif isinstance(error, HostTooSlow):
        code, kind = Code.TIMED_OUT, Denied.TIME
    said = redacted(error.reason, secrets)
    reason = f"Tool '{call.tool.name}' got no answer: {without_hosts(call, said)}"
    # The model must not repeat a payment because the answer was lost.
    if error.was_sent and request.method not in READING:
        reason += "; whether what was asked for was done is not known"
    subject = redacted(error.target or str(_host(request)), secrets)
    diagnosis = Diagnosis(denied=kind, subject=subject, remedy=remedy, detail=said)
    return RunRefused(code, reason, diagnosis=diagnosis)


def _host(request: Request) -> str:
    try:
        return str(read_url(request.url))
    except HostRefused:
        return ""


def _failed(call: RecordedCall, answer: Answer, secrets: tuple[str, ...]) -> Exception:
    """Map an error status: 4xx has a reason that a better call could meet, 5xx has none."""
    said = f"Tool '{call.tool.name}': its server answered with status {answer.status}"
    if not 400 <= answer.status < 500:
        return RunRefused(Code.TOOL_FAILED, said, diagnosis=_answered(answer))
    try:
        complaint = _text(call, answer)
    except RunRefused:
        complaint = ""
    complaint = redacted(complaint, secrets, shortest=1)
    complaint = excerpt(" ".join(complaint[:_LOOKED_AT_CHARS].split()), _QUOTED_CHARS)
    return ToolFailed(f"{said}: {complaint}" if complaint else said)


def _value(call: RecordedCall, answer: Answer, secrets: tuple[str, ...]) -> Any:
    definition = call.tool.definition
    if definition.gives_bytes:
        return redacted(answer.body, secrets)
    if definition.result_type is ResultType.STRING:
        return redacted(_text(call, answer), secrets)
    kind = _content_type(answer).get_content_type()
    wants_json = definition.result_type in (ResultType.OBJECT, ResultType.ARRAY)
    if not answer.body and not wants_json:
        return None
    if wants_json or kind == "application/json" or kind.endswith("+json"):
        return redacted(_json(call, answer), secrets, answer.body)
    return redacted(_text(call, answer), secrets)


def _content_type(answer: Answer) -> Message:
    message = Message()
    message["Content-Type"] = answer.content_type
    return message


def _json(call: RecordedCall, answer: Answer) -> Any:
    try:
        check_limits(answer.body)
    except FrameRefused as refused:
        reason = f"Tool '{call.tool.name}': the JSON of its server is too much: {refused}"
        raise RunRefused(Code.OUTPUT_TOO_BIG, reason, diagnosis=_answered(answer)) from None
    try:
        return decode(answer.body.removeprefix(codecs.BOM_UTF8))
    except FrameRefused:
        reason = f"Tool '{call.tool.name}': what its server answered is not JSON"
        raise RunRefused(Code.OUTPUT_INVALID, reason, diagnosis=_answered(answer)) from None


def _text(call: RecordedCall, answer: Answer) -> str:
    charset = _content_type(answer).get_content_charset() or "utf-8"
    try:
        if codecs.lookup(charset).name in _CHARSETS:
            return answer.body.decode(charset)
    except (LookupError, ValueError):
        pass
    reason = f"Tool '{call.tool.name}': what its server answered is not text that can be read"
    raise RunRefused(Code.OUTPUT_INVALID, reason, diagnosis=_answered(answer))


def _answered(answer: Answer) -> Diagnosis:
    """Which server answered, and how: by redirects it may be another than the configuration names."""
    return Diagnosis(detail=f"{answer.host} answered with status {answer.status}")
