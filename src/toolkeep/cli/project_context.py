"""The tools, agents and folders of a project, to evaluate policies against."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.cli.tool_selection import keep_with, named_tools
from toolkeep.events import Bus
from toolkeep.flow.flow_settings import NO_FLOW, FlowSettings
from toolkeep.keep.keep import KNOWN_AGENTS, Keep
from toolkeep.keep.open import (
    offered_by_project,
    open_state,
    project_folder,
    read_configuration,
    read_proposed,
)
from toolkeep.policy.active_policies import ActivePolicies
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.decision_explain import Holder
from toolkeep.policy.policy_settings import DEFAULT_GRANT, Example, Grant, PolicySource
from toolkeep.storage.state_folder import protected_folder
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import validate


class ProjectContext:
    """A project for policy evaluation; `is_accepted` treats its file as accepted. Nothing is run."""

    def __init__(
        self,
        project: Path | None,
        definitions: Sequence[Path] = (),
        tools: Sequence[str] = (),
        *,
        is_accepted: bool = False,
    ) -> None:
        self.root = project_folder(project)
        self.state = open_state(self.root)
        read = read_proposed if is_accepted else read_configuration
        self.settings = read(self.root, self.state)
        self.keep: Keep = keep_with(definitions, project, tools=named_tools(tools, project))
        self.grants: dict[str, Grant] = {
            **dict.fromkeys(KNOWN_AGENTS, DEFAULT_GRANT),
            **{
                name: Grant(capabilities=held.capabilities, permissions=held.permissions)
                for name, held in self.settings.agents.items()
            },
        }
        self._offered = self._offered_by_upstreams() if is_accepted else ()
        self._refusals = RefusalHistory(bus=Bus())

    def tools(self) -> list[RegisteredTool]:
        """The tools of the keep, and those that it would import if the project's file were accepted."""
        known = self.keep.tools(kind=None)
        names = {tool.name for tool in known}
        return [*known, *(tool for tool in self._offered if tool.name not in names)]

    def _offered_by_upstreams(self) -> tuple[RegisteredTool, ...]:
        if all(file.counts for file in self.settings.files):
            return ()
        with offered_by_project(self.root).keep as keep:
            return tuple(keep.tools(kind=None))

    def holder(self, agent: str) -> Holder:
        """An agent and its grant."""
        return Holder(
            name=agent,
            grant=self.grants.get(agent),
            project=str(self.root),
            state_folder=self._state_folder,
            trusted=self.keep.trusted,
        )

    @property
    def flow(self) -> FlowSettings:
        """How the project guards what passes between calls."""
        return self.settings.flow or NO_FLOW

    def watches(self, authorizer: Authorizer) -> bool:
        """Whether a keep with these policies watches what passes between calls."""
        return self.settings.flow is not None or authorizer.active_policies.reads_flow

    def authorizer(
        self, sources: Sequence[PolicySource], examples: Iterable[Example] = (), *, is_trial: bool = False
    ) -> Authorizer:
        """An authorizer for these policies; in a trial, those in shadow decide too."""
        return Authorizer(
            ActivePolicies(
                sources,
                held_back=self.settings.policies_held_back,
                is_flow_standard=self.flow.is_standard,
                measures=self.flow.measures,
                is_trial=is_trial,
            ),
            agents=self.grants,
            project=str(self.root),
            state_folder=self._state_folder,
            trusted=self.keep.trusted,
            tools=self.tools,
            examples=examples,
            check=self.check,
        )

    def stored_sources(self) -> list[PolicySource]:
        """The policies of the state."""
        return [PolicySource(name=one.name, text=one.text) for one in self.keep.stored_policies]

    def check(self, tool: RegisteredTool, arguments: Mapping[str, Any]) -> CheckedCall | Refusal:
        """Validate arguments of a tool in any state."""
        return validate(tool, dict(arguments), self._refusals, "example")

    @property
    def _state_folder(self) -> str | None:
        return str(protected_folder(self.state.folder)) if self.state else None
