"""Runner for tools of upstream MCP servers: a sandboxed persistent process (stdio) or a vetted URL (HTTP).

One session per server, agent and grant, so that no server can carry data from one agent to another. When a
session starts, the tools are listed again: a tool whose description differs from its pin is not called
(REG-3). A protocol violation ends the session; the next call reconnects.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs

from toolkeep.calls import Diagnosis, RecordedCall, RegisteredTool
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.definitions.vocabulary import CallKind
from toolkeep.errors import Code, ToolkeepError
from toolkeep.events import Event
from toolkeep.execution.contact_events import ContactEvents
from toolkeep.execution.diagnosis import without_hosts
from toolkeep.execution.isolation_check import IsolationCheck
from toolkeep.execution.persistent.confinement import confinement_for_call, level_of, worker_recipe
from toolkeep.execution.persistent.persistent_runner import denied_by_words, exceeded_limit, unstarted
from toolkeep.execution.persistent.pool import ProcessPool, ProcessStatus, User
from toolkeep.execution.persistent.spec import IdlePolicy
from toolkeep.execution.redact import redacted
from toolkeep.execution.runner import ProgramFailed, RunRefused, Timed
from toolkeep.limits import DEFAULT_PROCESS_IDLE_SECONDS
from toolkeep.mcp_protocol.jsonrpc import INVALID_PARAMS, NOT_FOUND_BEFORE_2026
from toolkeep.mcp_protocol.resource_uris import has_dot_segments, template_pattern
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism, in_use
from toolkeep.sandbox.persistent_process import ExitReason
from toolkeep.sandbox.plan import NotThere
from toolkeep.sandbox.trusted_paths import THIS_PROCESS, TrustedPaths
from toolkeep.sandbox.unconfined_process import UNCONFINED
from toolkeep.sandbox.worker_pool import Pool
from toolkeep.stores.sign_ins import MemorySignIns, SignInStore
from toolkeep.text.display import truncated_lines

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from toolkeep.mcp_client.elicitation import Answerer, Elicitations
    from toolkeep.mcp_client.elicitation_audit import Record
    from toolkeep.mcp_client.http_session import Access
    from toolkeep.mcp_client.pinned_tools import ListName
    from toolkeep.mcp_client.session import McpSession
    from toolkeep.mcp_client.transport import UpstreamFailed

log = logging.getLogger("toolkeep.execution")

MCP: Final = "mcp"
REMOTE: Final = "remote"
_REASON_CHARS: Final = 400
"""Characters of a server's failure in a refusal or log record: an error message of 300 with our words around
it."""


_NOT_FOUND: Final = (NOT_FOUND_BEFORE_2026, INVALID_PARAMS)
"""Errors of a server for a resource that it does not have; a read has no other parameter than the URI."""


class McpRunner:
    """Runner for upstream MCP tools."""

    def __init__(
        self,
        processes: ProcessPool,
        machine: IsolationCheck,
        contacts: ContactEvents,
        tell: Callable[[Event], None],
        record: "Record",
        trusted: TrustedPaths = THIS_PROCESS,
        sign_ins: SignInStore | None = None,
        answerer: "Answerer | None" = None,
    ) -> None:
        """No server may write `trusted` paths; `sign_ins` holds OAuth tokens.

        `answerer` handles elicitation; without one it is declined. `tell` emits events, `record` writes to
        the audit log.
        """
        self._tell = tell
        self._record = record
        self._answerer = answerer
        self._sign_ins = sign_ins or MemorySignIns()
        self._contacts = contacts
        self._processes = processes
        self._machine = machine
        self._trusted = trusted

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is a tool of an upstream MCP server that can be isolated as required."""
        if getattr(tool.runner, "kind", "") != MCP:
            return False
        stated = tool.definition.constraints.required_isolation
        # A remote server cannot be confined by us, so a definition that demands isolation is not run there.
        return stated is None or ("url" not in tool.runner.target and level_of(tool) is Isolation.STRICT)

    def isolation(self, tool: RegisteredTool) -> str:
        """The isolation level of its process, or `remote`."""
        if "url" in tool.runner.target:
            return REMOTE
        is_unconfined = self._machine.is_unconfined(tool, level_of(tool))
        return (Isolation.NONE if is_unconfined else level_of(tool)).value

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """The kernel mechanisms that confine its process."""
        if "url" in tool.runner.target:
            return ()
        if self._machine.is_unconfined(tool, level_of(tool)):
            return (UNCONFINED,)
        return in_use(level_of(tool), self._machine.tree_bound or Mechanism.MEMORY_WATCH)

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Timed) -> Any:
        """Call the tool on its server."""
        from toolkeep.mcp_client.transport import UpstreamFailed

        known = context()
        try:
            said = await self._said(call, known, slot)
        except UpstreamFailed as failed:
            raise _failed(call, failed, known) from failed
        except SandboxBroken as error:
            log.error("a server could not be confined", extra={"reason": error.message})  # noqa: TRY400 -- whole
            raise _not_run(call, error.code, "the sandbox could not be set up") from error
        except ToolkeepError as error:
            raise _not_run(call, error.code, error.message, Diagnosis(remedy=error.hint)) from error
        except (NotThere, OSError) as error:
            log.warning("a server could not be given its granted paths", extra={"reason": str(error)})
            raise _not_run(
                call, Code.TOUCHED_CHANGED, "a resource has changed since authorization"
            ) from error
        except ValueError as error:
            raise _not_run(call, Code.NOT_RUNNABLE, str(error)) from error
        try:
            return _value(call, said)
        except ToolFailed as error:
            if "url" in call.tool.runner.target:
                raise
            # The model reads the server's words; that a missing file is a denied one is for the operator.
            raise ProgramFailed(str(error), denied_by_words(call, str(error))) from error
        except UpstreamFailed as failed:
            reason = f"Tool '{call.tool.name}' gave no result: its server failed: {failed.reason}"
            raise RunRefused(Code.OUTPUT_INVALID, reason) from failed

    async def _said(self, call: RecordedCall, known: ToolContext, slot: Timed) -> dict[str, Any]:
        from toolkeep.mcp_client.elicitation_audit import ActiveCall

        target = call.tool.runner.target
        key, start, described = await self._wanted(call, known, slot)
        idle_s = float(target.get("idle_s", DEFAULT_PROCESS_IDLE_SECONDS))
        user = User(call.tool.name, call.request.agent)
        between_calls = IdlePolicy(target.get("between_calls", IdlePolicy.RUNNING))
        async with self._processes.use(
            key,
            start,
            user=user,
            idle_s=idle_s,
            is_shared=True,
            between_calls=between_calls,
            described=described,
        ) as session:
            # Per call, not per session: `list_changed` may have replaced the tool since the session began.
            await _check_pin(call, session)
            if session.egress is not None:
                session.egress.begin(call.tool, self._contacts.of(call))
            # A copy, so that nothing downstream can change the checked arguments.
            arguments = json.loads(json.dumps(call.checked.arguments))
            active_call = ActiveCall(call.request.id, slot.pause)
            if call.tool.definition.kind is CallKind.SUBSCRIPTION:
                await session.client.watch(arguments["uri"], active_call, known.on_progress)
            method, params = _request(call, arguments)
            return await session.client.call(method, params, active_call, known.on_progress)

    async def _wanted(
        self, call: RecordedCall, known: ToolContext, slot: Timed
    ) -> "tuple[tuple[Any, ...], Callable[[Pool], Awaitable[McpSession]], ProcessStatus | None]":
        target = call.tool.runner.target
        who = (MCP, target["upstream"], call.request.agent)
        if "url" in target:
            return (*self._by_http(call, known, who), None)
        from toolkeep.mcp_client.packages.package_trees import (
            check_packages,
            require_installed,
            server_spec,
        )
        from toolkeep.mcp_client.secret_injection import SecretInjection
        from toolkeep.mcp_client.session import start_stdio

        spec = server_spec(target)
        base = target["base"]
        injection = SecretInjection(known.secret)
        require_installed(target)
        program = spec.program(base, injection.secret)
        place = confinement_for_call(call.approved.permitted, program.path, spec, self._trusted, base)
        findings = await self._machine.findings(place.level)
        told = _digest(dict(program.environment))
        # The key covers everything that the process was given: a rotated secret or changed grant needs a new
        # one.
        key = (*who, program.argv, told, spec.between_calls, *place.key)
        protocol = target.get("protocol", "")

        async def start(pool: Pool) -> "McpSession":
            await check_packages(target)
            is_unconfined = self._machine.is_unconfined(call.tool, place.level)
            made = None if is_unconfined else worker_recipe(place, findings, spec.between_calls)
            told, questions = self._contacts.of(call), self._questions(call)
            # The time to start has its own limit, which may be longer than that of a call.
            with slot.pause():
                return await start_stdio(
                    pool,
                    made,
                    program,
                    place.hosts,
                    protocol,
                    questions,
                    injection.given,
                    told,
                    begin_s=target.get("start_timeout_s"),
                )

        return key, start, ProcessStatus(target["upstream"], self.isolation(call.tool), place.words)

    def _by_http(
        self, call: RecordedCall, known: ToolContext, who: tuple[str, ...]
    ) -> "tuple[tuple[Any, ...], Callable[[Pool], Awaitable[McpSession]]]":
        from toolkeep.execution.worker_grant import hosts_of
        from toolkeep.mcp_client.secret_injection import SecretInjection
        from toolkeep.mcp_client.session import start_http

        target = call.tool.runner.target
        hosts = hosts_of(call.approved.permitted)
        injection = SecretInjection(known.secret)
        headers = injection.headers(target.get("headers") or {})
        told = target.get("oauth") or {}
        own = known.secret(told["client_secret"]) if "client_secret" in told else ""
        # A digest in the key, not the values: a pool key may be shown, and must hold no secret.
        key = (*who, target["url"], str(hosts), _digest({**headers, "oauth": f"{own} {told}"}))
        protocol = target.get("protocol", "")
        access = self._access(target, known)
        return key, lambda _: start_http(
            target["url"],
            hosts,
            lambda: headers,
            protocol,
            access,
            self._questions(call),
            injection.given,
            begin_s=target.get("start_timeout_s"),
        )

    def _questions(self, call: RecordedCall) -> "Elicitations":
        """Elicitations of a new session, which serves one agent only."""
        from toolkeep.mcp_client.elicitation import Elicitations

        upstream = call.tool.runner.target["upstream"]
        return Elicitations(self._answerer, upstream, call.request.agent, self._tell, self._record)

    def _access(self, target: Mapping[str, Any], known: ToolContext) -> "Access | None":
        """Credentials for an upstream with `oauth` settings."""
        if "oauth" not in target:
            return None
        from toolkeep.mcp_client.oauth.client_registration import OAuthSettings
        from toolkeep.mcp_client.oauth.credentials import ClientCredentials, StoredCredentials

        told = target["oauth"]
        if told.get("grant") == "client_credentials":
            return ClientCredentials(
                target["url"], OAuthSettings.read(told, known.secret(told["client_secret"]))
            )
        return StoredCredentials(target["upstream"], target["url"], self._sign_ins)


def _request(call: RecordedCall, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The method and parameters of a call."""
    kind, name = call.tool.definition.kind, call.tool.runner.target["tool"]
    if kind is CallKind.RESOURCE:
        if has_dot_segments(arguments["uri"]):
            raise _not_run(call, Code.CONSTRAINT, "its URI has a path segment that is . or ..")
        return "resources/read", {"uri": arguments["uri"]}
    if kind is CallKind.COMPLETION:
        of, item = _item_of(call)
        ref = (
            {"type": "ref/prompt", "name": item} if of == "prompts" else {"type": "ref/resource", "uri": item}
        )
        argument = {"name": arguments["argument"], "value": arguments["value"]}
        context = {"context": {"arguments": arguments["arguments"]}} if arguments.get("arguments") else {}
        return "completion/complete", {"ref": ref, "argument": argument, **context}
    method = "prompts/get" if kind is CallKind.PROMPT else "tools/call"
    return method, {"name": name, "arguments": arguments}


def _value(call: RecordedCall, said: dict[str, Any]) -> Any:
    """The value of an answer; raises `UpstreamFailed`."""
    from toolkeep.mcp_client.client import value_of
    from toolkeep.mcp_client.item_results import completion_value, prompt_value, resource_value

    upstream = call.tool.runner.target["upstream"]
    match call.tool.definition.kind:
        case CallKind.PROMPT:
            return prompt_value(said, upstream)
        case CallKind.RESOURCE:
            return resource_value(said, call.checked.arguments["uri"], upstream)
        case CallKind.COMPLETION:
            return completion_value(said)
    return value_of(said, wants_structure=call.tool.definition.output_schema is not None)


def _item_of(call: RecordedCall) -> "tuple[ListName, str]":
    """The entry of a server's list that a call is about."""
    target, arguments = call.tool.runner.target, call.checked.arguments
    match call.tool.definition.kind:
        case CallKind.COMPLETION:
            prefix, _, item = arguments["of"].partition(":")
            if prefix == CallKind.PROMPT.value:
                return "prompts", item
            return "templates", item if prefix == CallKind.RESOURCE.value else ""
        case CallKind.SUBSCRIPTION:
            import re2

            uri, templates = arguments["uri"], target["items"].get("templates", {})
            # A linear engine: the server chose the template, the client the URI.
            matching = (one for one in templates if re2.fullmatch(template_pattern(one), uri))
            if uri not in target["items"].get("resources", {}) and not has_dot_segments(uri):
                return "templates", next(matching, "")
            return "resources", uri
    return target.get("list", "tools"), target["tool"]


async def _check_pin(call: RecordedCall, session: "McpSession") -> None:
    """Raise if the tool's description differs from its pin (rug pull)."""
    target = call.tool.runner.target
    of, item = _item_of(call)
    pin = target["items"].get(of, {}).get(item) if "items" in target else target["pin"]
    if pin is None:
        raise _not_run(call, Code.CONSTRAINT, "its server passes on nothing of that name for this")
    now = (await session.pins(of)).get(item)
    if now == pin:
        return
    changed = "is no longer there" if now is None else "has changed"
    hint = f"run `toolkeep add mcp {target['upstream']} --refresh` to review it"
    raise _not_run(call, Code.TOOL_QUARANTINED, f"on its server it {changed}; {hint}")


def _not_run(call: RecordedCall, code: Code, why: str, diagnosis: Diagnosis | None = None) -> RunRefused:
    return RunRefused(code, f"Tool '{call.tool.name}' was not run: {why}", diagnosis=diagnosis)


def _failed(call: RecordedCall, failed: "UpstreamFailed", known: ToolContext) -> RunRefused:
    from toolkeep.mcp_client.transport import UpstreamError

    over = failed.exited
    if over is not None and (limit := exceeded_limit(call, over)) is not None:
        return limit
    target, said = call.tool.runner.target, _without_secrets(failed.reason, known)
    # The message of a server is its own; reasons of ours may name hosts of the configuration.
    told = said if isinstance(failed, UpstreamError) else without_hosts(call, said)
    detail = "\n".join(filter(None, (failed.last_words, said)))
    diagnosis = structs.replace(denied_by_words(call, failed.last_words), detail=detail)
    if over is not None and over.why is ExitReason.UNSTARTED:
        diagnosis = unstarted(target["command"], over)
    what = f"Tool '{call.tool.name}' gave no result: its server '{target['upstream']}' failed: {told}"
    if isinstance(failed, UpstreamError):
        is_gone = call.tool.definition.kind is CallKind.RESOURCE and failed.code in _NOT_FOUND
        return RunRefused(Code.NOTHING_THERE if is_gone else Code.TOOL_FAILED, what, diagnosis=diagnosis)
    return RunRefused(Code.TOOL_FAILED, f"{what}; the next call starts a new one", diagnosis=diagnosis)


def _without_secrets(text: str, known: ToolContext) -> str:
    # Every secret, however short: an error text of a server is no place to be lenient.
    return truncated_lines(redacted(text, known.secrets.values(), shortest=1), _REASON_CHARS)


def _digest(texts: Mapping[str, str]) -> bytes:
    return hashlib.sha256(json.dumps(sorted(texts.items())).encode()).digest()
