"""`Registry`: what code that works with tools needs of a keep. Depend on it, and test with a twin."""

from typing import Any, Protocol

from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.definitions.vocabulary import Category
from toolkeep.validation.validate import Arguments


class Registry(Protocol):
    """Tools by name, and the check of their calls. A `Keep` is one; `toolkeep.testing` has a twin of it."""

    def register(self, *tools: Any) -> None:
        """Add tools, all or none."""

    def unregister(self, name: str) -> None:
        """Take a tool out."""

    def enable(self, name: str) -> None:
        """Let a tool answer."""

    def disable(self, name: str) -> None:
        """Keep a tool from answering."""

    def get(self, name: str) -> RegisteredTool:
        """The tool of that name; raises `UnknownTool`."""

    def try_get(self, name: str) -> RegisteredTool | None:
        """As `get`, or None."""

    def versions(self, name: str) -> tuple[RegisteredTool, ...]:
        """Every version of a tool, newest first."""

    def tools(
        self,
        *,
        enabled: bool | None = None,
        category: Category | str | None = None,
        capability: str | None = None,
    ) -> list[RegisteredTool]:
        """Tools by category, then by name."""

    def search(self, text: str, *, limit: int = 5) -> list[RegisteredTool]:
        """The enabled tools that fit the words best."""

    def try_validate_arguments(
        self, name: str, arguments: Arguments, *, agent: str = "local"
    ) -> CheckedCall | Refusal:
        """Check a call; never raises."""

    def validate_arguments(self, name: str, arguments: Arguments, *, agent: str = "local") -> dict[str, Any]:
        """The parsed arguments; raises `ArgumentsRefused`."""

    def __contains__(self, name: object) -> bool:
        """Whether a tool of that name is registered."""

    def __len__(self) -> int:
        """How many tools are registered."""
