"""Resolve a tool name, or refuse: unknown (VAL-8), disabled or quarantined."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from toolkeep.calls import Refusal, RegisteredTool, Violation
from toolkeep.definitions.vocabulary import CallKind, ToolState
from toolkeep.errors import Code
from toolkeep.events import Bus, ToolUnanswered
from toolkeep.limits import LISTED_NAMES
from toolkeep.registry.snapshot import Snapshot
from toolkeep.text.display import echo_name, listing
from toolkeep.text.nearest import nearest_by_alias, nearest_names

Sees = Callable[[RegisteredTool], bool]
"""Whether the caller may see a tool."""


class Suggestions(NamedTuple):
    """What the refusal of an unknown name may say."""

    tools: Iterable[RegisteredTool]
    """Those that the caller could call."""
    notice: str = ""
    """Why a tool may be missing."""


def resolve_name(
    name: str,
    snapshot: Snapshot,
    bus: Bus,
    suggest: Callable[[], Suggestions],
    *,
    correlation_id: str = "",
    sees: Sees | None = None,
    kind: CallKind = CallKind.TOOL,
) -> RegisteredTool | Refusal:
    """The tool of a name, or the refusal; publishes an event. What is of another kind is unknown.

    A tool that the caller may not see is reported as unknown, in the same words: otherwise an agent could
    find out which tools exist by trying names.
    """
    if sees is None and (answers := snapshot.answering.get(name)) is not None:
        return answers
    found = snapshot.find(name)
    if found is not None and (found.definition.kind is not kind or (sees is not None and not sees(found))):
        found = None
    if found is not None and found.is_enabled:
        return found
    if found is not None:
        refusal = unavailable_tool(found, correlation_id=correlation_id)
    else:
        visible = {
            n: tool.definition.aliases for n, tool in snapshot.answering.items() if sees is None or sees(tool)
        }
        refusal = unknown_tool(name, visible, suggestions=suggest(), correlation_id=correlation_id)
    unanswered = ToolUnanswered(
        tool_name=found.name if found else "unknown",
        error_code=refusal.code.value,
        correlation_id=refusal.correlation_id,
    )
    bus.tell(unanswered)
    return refusal


def unknown_tool(
    name: str,
    visible: Mapping[str, Sequence[str]],
    *,
    suggestions: "Suggestions | None" = None,
    correlation_id: str = "",
) -> Refusal:
    """The refusal of an unknown name: the nearest names, the count, and "did you mean".

    `visible` has the aliases of the tools that the agent may see, by their names; no others are named.
    """
    names = [tool.name for tool in suggestions.tools] if suggestions else list(visible)
    near = nearest_names(name, names, LISTED_NAMES)
    meant = nearest_by_alias(name, visible)
    shown = echo_name(name)
    count = "the only tool" if len(names) == 1 else f"one of {len(names)} tools"
    expected = f"{count}: {listing(near, len(names), LISTED_NAMES)}" if names else "no tool is registered"
    suggestion = f"Did you mean '{meant}'?" if meant else "Use one of the tools that are listed."
    suggestion = f"{suggestion} {suggestions.notice}".rstrip() if suggestions else suggestion
    error = Violation("", Code.UNKNOWN_TOOL, f"Unknown tool '{shown}'", expected, None, suggestion)
    return Refusal(tool=shown, errors=(error,), correlation_id=correlation_id or _new_id())


def unavailable_tool(tool: RegisteredTool, *, correlation_id: str = "") -> Refusal:
    """The refusal of a registered tool that is not enabled.

    The reason is for the operator, not for the model.
    """
    is_quarantined = tool.state is ToolState.QUARANTINED
    code = Code.TOOL_QUARANTINED if is_quarantined else Code.TOOL_DISABLED
    state = "quarantined until a person accepts it" if is_quarantined else "disabled"
    message = f"Tool '{tool.name}' is {state}"
    error = Violation("", code, message, "an enabled tool", None, "Do without it, or ask the operator.")
    return Refusal(tool=tool.name, errors=(error,), correlation_id=correlation_id or _new_id())


def _new_id() -> str:
    import secrets

    return secrets.token_hex(8)
