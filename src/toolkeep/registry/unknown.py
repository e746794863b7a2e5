"""The answer to a name that no tool has: the nearest names, the count, and "did you mean" (VAL-8)."""

import logging
import secrets
from collections.abc import Iterable

from toolkeep.calls import Refusal, Violation
from toolkeep.errors import Code
from toolkeep.limits import LISTED_NAMES
from toolkeep.validation.nearest import nearest_name, nearest_names
from toolkeep.wording import echo_name, listing

log = logging.getLogger("toolkeep.registry")


def unknown_tool(name: str, visible: Iterable[str], *, correlation_id: str = "") -> Refusal:
    """The refusal, naming only tools that the agent may see."""
    names = list(visible)
    near = nearest_names(name, names, LISTED_NAMES)
    meant = nearest_name(name, names)
    shown = echo_name(name)
    count = "the only tool" if len(names) == 1 else f"one of {len(names)} tools"
    expected = f"{count}: {listing(near, len(names), LISTED_NAMES)}" if names else "no tool is registered"
    suggestion = f"Did you mean '{meant}'?" if meant else "Use one of the tools that are listed."
    error = Violation("", Code.UNKNOWN_TOOL, f"Unknown tool '{shown}'", expected, None, suggestion)
    refusal_id = correlation_id or secrets.token_hex(8)
    log.warning("unknown tool", extra={"tool_name": "unknown", "correlation_id": refusal_id})
    return Refusal(tool=shown, errors=(error,), correlation_id=refusal_id)
