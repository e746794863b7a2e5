"""`toolkeep lint --flow`: roles and labels that nobody declared, and the questions that this costs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.calls import RegisteredTool
from toolkeep.cli.audit import bodies_of, log_of
from toolkeep.cli.options import say
from toolkeep.cli.progress import progress
from toolkeep.cli.tool_selection import keep_with
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import DefinitionError, NotRecorded
from toolkeep.flow.flow_plan import make_plan
from toolkeep.flow.flow_settings import NO_FLOW
from toolkeep.flow.recorded_sessions import RecordedSessions
from toolkeep.flow.undeclared import arguments_without_role, places_without_label
from toolkeep.flow.undeclared_cost import Cost, costs_of
from toolkeep.limits import LISTED_NAMES
from toolkeep.registry.admit import admit
from toolkeep.text.display import counted, visible


class FlowFindings:
    """Findings about definitions, with their costs in the recorded sessions of a project."""

    def __init__(
        self, definitions: Sequence[ToolDefinition], files: Sequence[Path], project: Path | None
    ) -> None:
        self._tools: dict[str, RegisteredTool] = {}
        for definition in definitions:
            try:
                self._tools[definition.name] = admit(definition)
            except DefinitionError:
                continue  # its problems are reported
        self._costs = self._recorded(files, project)

    def of(self, definition: ToolDefinition) -> Iterator[dict[str, Any]]:
        """What is undeclared about a tool without problems."""
        plan, cost = make_plan(self._tools[definition.name]), self._costs.get(definition.name, Cost())
        if names := arguments_without_role(plan, definition):
            yield {
                "rule": "no-role",
                "field": "parameters",
                "message": f"{_listed(names)}: no role, so calls ask unless the user or a service named it; "
                + _cost_of_roles(cost),
                "fix": _declare(definition, "their roles", " with x-flow"),
                "cost": {"calls": cost.calls, "asked": cost.by_role, "alone": cost.by_role_alone},
            }
        if places := places_without_label(plan, definition):
            yield {
                "rule": "no-label",
                "field": "flow",
                "message": f"{_listed([place or 'the whole result' for place in places])}: "
                f"text without a label, so a result opens the session; {_cost_of_labels(cost)}",
                "fix": _declare(definition, 'a label ("text" if anybody may have written it)'),
                "cost": {
                    "calls": cost.calls,
                    "sessions": cost.sessions,
                    "asked": cost.by_label,
                    "alone": cost.by_label_alone,
                },
            }

    def _recorded(self, files: Sequence[Path], project: Path | None) -> Mapping[str, Cost]:
        """Fold the sessions of the log by the tools as they are declared now."""
        try:
            with (
                keep_with(tuple(files), project) as keep,
                log_of(project) as log,
                bodies_of(project) as bodies,
                progress("Reading recorded sessions"),
            ):

                def body(digest: str) -> bytes | None:
                    try:
                        return bodies.get(digest)
                    except BodyUnavailable:
                        return None

                sessions = RecordedSessions(
                    msgspec.structs.replace(NO_FLOW, policy="standard"),
                    tool=lambda call: self._tools.get(call.tool) or keep.try_get(call.tool),
                    body=body,
                    is_as_recorded=False,
                )
                if sessions.flow is None:
                    return {}
                costs = costs_of(sessions.walk(entry.record for entry in log.read()), sessions.flow)
        except NotRecorded:
            return {}
        if sessions.unwatched:
            count = counted(len(sessions.unwatched), "session was", "sessions were")
            say(f"{count} recorded without flow: nothing there counts as named by the user", err=True)
        return costs


def _cost_of_roles(cost: Cost) -> str:
    if not cost.calls:
        return "no recorded calls"
    calls = counted(cost.calls, "recorded call")
    return f"{cost.by_role} of {calls} would ask, {cost.by_role_alone} for this alone"


def _cost_of_labels(cost: Cost) -> str:
    if not cost.calls:
        return "no recorded calls"
    if not cost.sessions:
        return f"it opened no session in {counted(cost.calls, 'recorded call')}"
    asked = f"{counted(cost.by_label, 'call')} there would ask, {cost.by_label_alone} for this alone"
    return f"it opened {counted(cost.sessions, 'recorded session')}, and {asked}"


def _declare(definition: ToolDefinition, what: str, by_hand: str = "") -> str:
    source = definition.source
    if source.is_by_hand:
        return f"declare {what}{by_hand}"
    named = f"upstreams.{source.origin}.flow.{source.name or definition.name}"
    return f"declare {what} under {visible(named)} or by toolkeep flow"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - LISTED_NAMES} more" if len(names) > LISTED_NAMES else ""
    return ", ".join(map(visible, names[:LISTED_NAMES])) + more
