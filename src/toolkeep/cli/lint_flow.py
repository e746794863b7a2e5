"""`toolkeep lint --flow`: roles and labels that nobody declared, and what that costs."""

from collections.abc import Iterator, Sequence

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.flow.flow_plan import make_plan
from toolkeep.flow.undeclared import arguments_without_role, places_without_label
from toolkeep.limits import LISTED_NAMES
from toolkeep.registry.admit import admit
from toolkeep.text.display import visible


def undeclared_flow(definition: ToolDefinition) -> Iterator[dict[str, str]]:
    """The findings about one tool, which must be without problems."""
    plan = make_plan(admit(definition))
    if names := arguments_without_role(plan, definition):
        yield {
            "rule": "no-role",
            "field": "parameters",
            "message": f"{_listed(names)}: no role, so calls ask unless the user or a service named it",
            "fix": _fix(definition, "a role such as x-flow: content"),
        }
    if places := places_without_label(plan, definition):
        shown = _listed([place or "the whole result" for place in places])
        yield {
            "rule": "no-label",
            "field": "flow",
            "message": f"{shown}: text without a label, so a result opens the session",
            "fix": _fix(definition, 'a label, "text" if anybody may have written it'),
        }


def _fix(definition: ToolDefinition, what: str) -> str:
    source = definition.source
    if source.is_by_hand:
        return f"declare {what}"
    named = f"upstreams.{source.origin}.flow.{source.name or definition.name}"
    return f"declare {what}, under {visible(named)} or on the page"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
    return ", ".join(map(visible, names[:LISTED_NAMES])) + more
