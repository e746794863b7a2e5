"""`Registry`: what code that works with tools needs of a keep. Depend on it, and test with the fake."""

from typing import Any, Protocol

from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.definitions.vocabulary import Category
from toolkeep.validation.validate import Arguments


class Registry(Protocol):
    """Tools by name, and validation of their calls.

    A `Keep` is one; `toolkeep.testing` has an in-memory fake.
    """

    def register(self, *tools: Any) -> None:
        """Add tools, all or none."""

    def unregister(self, name: str) -> None:
        """Remove a tool."""

    def enable(self, name: str) -> None:
        """Enable a tool."""

    def disable(self, name: str) -> None:
        """Disable a tool."""

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
        """The enabled tools that match the words best."""

    def try_validate_arguments(
        self, name: str, arguments: Arguments, *, agent: str = "local"
    ) -> CheckedCall | Refusal:
        """Validate a call; never raises."""

    def validate_arguments(self, name: str, arguments: Arguments, *, agent: str = "local") -> dict[str, Any]:
        """The parsed arguments; raises `ArgumentsRefused`."""

    def __contains__(self, name: object) -> bool:
        """Whether a tool of that name is registered."""

    def __len__(self) -> int:
        """How many tools are registered."""
