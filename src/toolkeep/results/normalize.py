"""Result stage: a `CheckedOutput` or a refusal becomes the `ToolResult` for the caller (EXE-2).

Text beyond the caller's limit is truncated at a character boundary and names a reference to the whole.
Objects, arrays and bytes are never truncated, because half an object is another value; they are returned by
reference.
"""

import time
from typing import Any, Final, Protocol

from toolkeep.calls import (
    Approval,
    ApprovedCall,
    CheckedOutput,
    PermittedCall,
    Refusal,
    RegisteredTool,
    ResourceUse,
    ToolCall,
    ToolResult,
    Truncation,
    refuse,
)
from toolkeep.errors import Code


class BodyStore(Protocol):
    """Content-addressed store of whole outputs."""

    def put(self, body: bytes) -> str:
        """Store a body; returns its SHA-256."""


def normalize(output: CheckedOutput, bodies: BodyStore) -> ToolResult | Refusal:
    """The result of a successful call; a refusal if it is too long to return and too secret to store."""
    raw = output.raw
    call = raw.call
    request, tool, approved = call.request, call.tool, call.approved
    value, truncation = output.value, None
    if len(output.body) > call.output_bytes:
        # No reference: to store the output would put a secret that the tool may echo beside the log (AUD-5).
        if tool.arguments.secrecy.has_secrets:
            message = f"Tool '{tool.name}' returned {len(output.body)} bytes; {call.output_bytes} are allowed"
            return refuse(request, Code.OUTPUT_TOO_BIG, message, "Ask for less.")
        value, truncation = _cut(output, bodies)
    # The first by position: with more than 15 keyword arguments CPython builds a dict, eight times as slow.
    return ToolResult(
        "ok",
        tool.name,
        request.id,
        request.agent,
        value,
        None,  # no error
        output.hash,
        approved.permitted.decision,
        approved.approval,
        truncation,
        tool.effect_names,
        raw.isolation,
        raw.enforced,
        raw.is_cached,
        execute_ms=raw.execute_ms,
        total_ms=_total_ms(request),
        version=tool.version,
        definition_hash=tool.definition_hash,
        argument_hash=call.argument_hash,
        correlation_id=request.correlation_id,
        conversation_id=request.conversation,
        session_id=request.session,
        resource_use=raw.resource_use,
        raw=output.unchanged if truncation is None else None,
    )


def refused(
    request: ToolCall,
    refusal: Refusal,
    *,
    tool: RegisteredTool | None = None,
    permitted: PermittedCall | None = None,
    approval: Approval | None = None,
    argument_hash: str = "",
    isolation: str = "",
    enforced: tuple[str, ...] = (),
    resource_use: ResourceUse | None = None,
) -> ToolResult:
    """The result of a call that was refused or failed at any stage."""
    return ToolResult(
        status="error",
        error=refusal,
        isolation=isolation,
        enforced=enforced,
        resource_use=resource_use,
        execute_ms=resource_use.wall_ms if resource_use else 0.0,
        decision=refusal.decision or (permitted.decision if permitted else None),
        approval=approval,
        argument_hash=argument_hash,
        **_about(request, tool),
    )


def pending(request: ToolCall, approved: ApprovedCall, value: Any, argument_hash: str) -> ToolResult:
    """The result of a call that the client executes itself."""
    permitted = approved.permitted
    return ToolResult(
        status="pending",
        value=value,
        decision=permitted.decision,
        approval=approved.approval,
        argument_hash=argument_hash,
        **_about(request, permitted.tool),
    )


def _about(request: ToolCall, tool: RegisteredTool | None) -> dict[str, Any]:
    return {
        "tool": tool.name if tool else request.tool,
        "call_id": request.id,
        "agent": request.agent,
        "version": tool.version if tool else "",
        "definition_hash": tool.definition_hash if tool else "",
        "correlation_id": request.correlation_id,
        "conversation_id": request.conversation,
        "session_id": request.session,
        "total_ms": _total_ms(request),
    }


def _total_ms(request: ToolCall) -> float:
    """Elapsed time of the call, in microsecond precision."""
    return (time.monotonic_ns() - request.began_ns) // 1000 / 1000


def _cut(output: CheckedOutput, bodies: BodyStore) -> tuple[Any, Truncation]:
    """Truncate the value, and store the whole."""
    limit = output.raw.call.output_bytes
    reference = f"sha256:{bodies.put(output.body)}"
    truncation = Truncation(full_bytes=len(output.body), reference=reference)
    if not isinstance(output.value, str):
        return None, truncation
    note = f"\n[cut: {{}} of {_utf8_bytes(output.value)} bytes shown; the whole is {reference}]"
    room = max(0, limit - len(note) - 10)
    # Sliced before encoding: only as much as can fit is encoded of a huge text.
    shown = output.value[:room].encode()[:room].decode(errors="ignore")
    return shown + note.format(len(shown.encode())), truncation


def _utf8_bytes(text: str) -> int:
    """Length in UTF-8, encoded in portions: the text may have a hundred megabytes."""
    if text.isascii():
        return len(text)
    return sum(len(text[start : start + _PORTION].encode()) for start in range(0, len(text), _PORTION))


_PORTION: Final = 1 << 18
