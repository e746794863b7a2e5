"""What policies are judged against: the tools, the agents and the folders of a project."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolkeep.assembly import open_state, project_folder, read_configuration, read_proposed
from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.cli.tools import keep_with
from toolkeep.events import Bus
from toolkeep.keep import KNOWN_AGENTS, Keep
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.explain import Holder
from toolkeep.policy.rulebook import Rulebook
from toolkeep.policy.settings import DEFAULT_GRANT, Example, Grant, PolicySource
from toolkeep.storage.folder import protected_folder
from toolkeep.validation.memory import RefusalMemory
from toolkeep.validation.validate import validate


class World:
    """A project as policies see it; `is_accepted`, as if a person had accepted its file. Nothing is run."""

    def __init__(
        self, project: Path | None, definitions: Sequence[Path] = (), *, is_accepted: bool = False
    ) -> None:
        self.root = project_folder(project)
        self.state = open_state(self.root)
        read = read_proposed if is_accepted else read_configuration
        self.settings = read(self.root, self.state)
        self.keep: Keep = keep_with(definitions, project)
        self.grants: dict[str, Grant] = {
            **dict.fromkeys(KNOWN_AGENTS, DEFAULT_GRANT),
            **{
                name: Grant(capabilities=held.capabilities, permissions=held.permissions)
                for name, held in self.settings.agents.items()
            },
        }
        self._refusals = RefusalMemory(bus=Bus())

    def holder(self, agent: str) -> Holder:
        """An agent with what it holds."""
        return Holder(
            name=agent,
            grant=self.grants.get(agent),
            project=str(self.root),
            state_folder=self._state_folder,
            trusted=self.keep.trusted,
        )

    def authorizer(self, sources: Sequence[PolicySource], examples: Iterable[Example] = ()) -> Authorizer:
        """Decides by these policies, about the tools and agents of the project."""
        return Authorizer(
            Rulebook(sources, held_back=self.settings.policies_held_back),
            agents=self.grants,
            project=str(self.root),
            state_folder=self._state_folder,
            trusted=self.keep.trusted,
            tools=self.keep.tools,
            examples=examples,
            check=self.check,
        )

    def check(self, tool: RegisteredTool, arguments: Mapping[str, Any]) -> CheckedCall | Refusal:
        """Arguments, if they are valid, of a tool in whatever state."""
        return validate(tool, dict(arguments), self._refusals, "example")

    @property
    def _state_folder(self) -> str | None:
        return str(protected_folder(self.state.folder)) if self.state else None
