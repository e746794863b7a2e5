"""Hooks of the host's program (EXE-1): they may change arguments before validation, and results before the
output check.

In: parsed arguments that nobody checked yet, or a tool's output as JSON data without the tool's own secrets.
Out: what the hooks returned, with the hash of what they were given, or a refusal. A hook that raises, passes
its deadline or returns something else than arguments ends the call. Hooks are trusted like the host itself.
"""

import asyncio
import hashlib
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from toolkeep.calls import RawOutput, Refusal, RegisteredTool, ToolCall, Unreadable, refuse
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.errors import Code
from toolkeep.execution.execute import said, stop
from toolkeep.execution.redact import redacted
from toolkeep.execution.runner import Held
from toolkeep.execution.thread_pool import ThreadPool
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.limits import BRACKETS, Limits
from toolkeep.results.output_check import is_large, plain_output
from toolkeep.validation.parse import NotStrictJson, Snapshot, as_bytes, parse_json_fully
from toolkeep.validation.validate import Arguments

log = logging.getLogger("toolkeep.execution")

_ANY_LENGTH: Final = 1
"""Secrets of any length are redacted for hooks: nobody processes the difference."""


class HookCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call as a hook sees it: never the secrets of its tool."""

    tool: str
    version: str
    agent: str
    conversation: str
    session: str
    correlation_id: str
    arguments: dict[str, Any]
    """Before the call: parsed, not validated. After it: as validated, with defaults."""
    data: Mapping[str, Any]
    """The per-call data of the host."""

    def __repr__(self) -> str:
        """Without the arguments: some may be secret."""
        return f"<call of {self.tool!r} by {self.agent!r}>"


BeforeHook = Callable[[HookCall], "Mapping[str, Any] | Awaitable[Mapping[str, Any]]"]
"""Returns the arguments that count from now on. `ToolFailed` refuses the call with words for the model."""
AfterHook = Callable[[HookCall, Any], Any]
"""Gets the output as JSON data or bytes, and returns the one that counts from now on."""


class Hooks:
    """The hooks of one keep, in order."""

    def __init__(
        self,
        before: Sequence[BeforeHook],
        after: Sequence[AfterHook],
        *,
        threads: ThreadPool,
        timeout_s: float,
        sealed: Callable[[bytes], str],
    ) -> None:
        """`timeout_s` is the deadline of each; `sealed` hashes arguments that hold secrets."""
        self.before = tuple(before)
        self.after = tuple(after)
        self._threads = threads
        self._timeout_s = timeout_s
        self._sealed = sealed

    async def prepare(
        self, request: ToolCall, tool: RegisteredTool, limits: Limits, slot: Held
    ) -> ToolCall | Refusal:
        """The request with the arguments that the hooks return."""
        parsed = parsed_arguments(request.arguments, limits)
        if isinstance(parsed, Unreadable):
            return replace(request, arguments=parsed)  # validation refuses it, in its own words
        arguments = parsed
        has_secrets = tool.arguments.secrecy.has_secrets
        body = canonical_bytes(arguments)
        digest = self._sealed(body) if has_secrets else hashlib.sha256(body).hexdigest()
        for hook in self.before:
            call = _seen(request, tool, arguments)
            try:
                returned = await self._run(partial(hook, call), hook, slot)
                if not isinstance(returned, Mapping):
                    kind = type(returned).__name__
                    raise TypeError(f"a before_call hook returns the arguments, not {kind}")  # noqa: TRY301 -- as if it raised
            except Exception as error:  # noqa: BLE001 -- whatever a hook raises refuses the call
                return _refused(request, tool, hook, error, has_run=False)
            arguments = dict(returned)
        return replace(request, arguments=arguments, argument_hash_before=digest)

    async def finish(
        self, raw: RawOutput, secrets: Mapping[str, str], slot: Held
    ) -> tuple[RawOutput, str] | Refusal:
        """The output that the hooks return, and the hash of the one that they were given."""
        call = raw.call
        found = await asyncio.to_thread(plain_output, raw) if is_large(raw.value) else plain_output(raw)
        if type(found) is Refusal:
            return found
        value, body = found
        if secrets:
            value = redacted(value, secrets.values(), shortest=_ANY_LENGTH)
            body = value if isinstance(value, bytes) else canonical_bytes(value)
        digest = hashlib.sha256(body).hexdigest()
        for hook in self.after:
            seen = _seen(call.request, call.tool, call.checked.arguments)
            try:
                before, value = value, await self._run(partial(hook, seen, value), hook, slot)
                if value is None and before is not None:
                    raise TypeError("an after_call hook returns the output, not None")  # noqa: TRY301 -- as if it raised
            except Exception as error:  # noqa: BLE001 -- whatever a hook raises withholds the result
                return _refused(call.request, call.tool, hook, error, has_run=True)
        return replace(raw, value=value), digest

    async def _run(self, work: Callable[[], Any], hook: Callable[..., Any], slot: Held) -> Any:
        """Run a hook until its deadline; a thread that cannot be stopped keeps the slot."""
        task = asyncio.get_running_loop().create_task(self._started(work, hook, slot))
        try:
            await asyncio.wait({task}, timeout=self._timeout_s)
        except asyncio.CancelledError:
            await stop(task, slot)
            raise
        if not task.done():
            await stop(task, slot)
            raise TimeoutError(f"it took more than {self._timeout_s:g} s")
        if task.cancelled():
            raise RuntimeError("it was cancelled")
        return task.result()

    async def _started(self, work: Callable[[], Any], hook: Callable[..., Any], slot: Held) -> Any:
        is_async = inspect.iscoroutinefunction(hook) or inspect.iscoroutinefunction(type(hook).__call__)
        try:
            value = work() if is_async else await self._threads.run(work, slot, may_stop=False)
            return await value if inspect.isawaitable(value) else value
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"it raised {type(error).__name__}") from error


def parsed_arguments(arguments: Arguments, limits: Limits) -> dict[str, Any] | Unreadable:
    """The arguments as data of our own; what cannot be read, validation must refuse."""
    depth, most = limits.argument_depth, limits.argument_bytes
    try:
        if type(arguments) is Unreadable:
            return arguments
        if isinstance(arguments, (str, bytes, bytearray, memoryview)):
            raw = as_bytes(arguments)
            if len(raw) > most:
                reason = f"arguments are longer than {most} bytes"
                return Unreadable(Code.ARGUMENTS_TOO_BIG, reason, "send less data")
            value = parse_json_fully(raw, depth=depth)
        else:
            value = Snapshot(arguments, depth=depth, values=most, containers=BRACKETS).value
    except NotStrictJson as error:
        return Unreadable(error.code, error.reason, error.fix)
    if type(value) is not dict:
        return Unreadable(Code.WRONG_TYPE, "the arguments are not an object", "send an object")
    return value


def _seen(request: ToolCall, tool: RegisteredTool, arguments: dict[str, Any]) -> HookCall:
    return HookCall(
        tool=tool.name,
        version=tool.version,
        agent=request.agent,
        conversation=request.conversation,
        session=request.session,
        correlation_id=request.correlation_id,
        arguments=arguments,
        data=request.data,
    )


def _refused(
    request: ToolCall, tool: RegisteredTool, hook: Callable[..., Any], error: Exception, *, has_run: bool
) -> Refusal:
    """The refusal for the model; the traceback goes to the operator's log, unless it may show a secret."""
    name = getattr(hook, "__qualname__", type(hook).__qualname__)
    said_so = said(error) if isinstance(error, ToolFailed) else ""
    if not said_so:
        shown = None if tool.arguments.secrecy.has_secrets else error
        fields = {"hook": name, "error_type": type(error).__name__, "tool_name": tool.name}
        log.error("a hook failed", exc_info=shown, extra={**fields, "correlation_id": request.correlation_id})
    if has_run:
        message = said_so or f"Tool '{tool.name}' ran, and a hook of the host failed; the result is withheld"
        suggestion = "Do not call it again: it would run twice. Tell the operator."
        return refuse(request, Code.RESULT_WITHHELD, message, suggestion)
    message = said_so or f"Tool '{tool.name}' was not run: a hook of the host failed"
    suggestion = "Change the call, or do without it." if said_so else "Tell the operator."
    return refuse(request, Code.HOOK_REFUSED, message, suggestion)
