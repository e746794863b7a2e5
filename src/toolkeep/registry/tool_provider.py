"""Tool providers: the names of toolkeep's own, and the Protocol for others."""

from collections.abc import Iterable
from typing import Any, Final, Protocol

CODE: Final = "code"
"""The host's own code."""
CORE: Final = "core"
"""The built-in tools, which cannot be replaced."""
CONFIG: Final = "config"
"""The user's configuration."""
PROJECT: Final = "project"
"""The project's configuration, whose tools give way to all others."""

FILES: Final = "tools-file"
"""Python files of tools that a command names."""
STORE: Final = "store"
"""The definitions created at run time."""

OURS: Final = frozenset({CODE, CORE, CONFIG, PROJECT, FILES, STORE})
"""Names that no other provider may have: it could impersonate toolkeep's own."""


class ToolProvider(Protocol):
    """Brings tools to a keep when it opens."""

    @property
    def name(self) -> str:
        """Its name in configuration and logs."""

    @property
    def priority(self) -> int:
        """Lower is loaded first, and the first provider of a name keeps it. The project's file comes last."""

    # A provider of all that an upstream offers also has `lists_whole_set = True`: what it brings later
    # under a new name waits for a person, so that no rename dodges a pin.

    def get_tool_definitions(self) -> Iterable[Any]:
        """Functions made with `@tool`, agent-tool classes, definitions, or definitions as data."""
