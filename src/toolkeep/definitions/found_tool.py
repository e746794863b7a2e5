"""A tool as the module that defines it describes it, before anything of it is checked."""

from typing import Any

import msgspec

from toolkeep.errors import Problem


class FoundTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a confined worker describes it: untrusted."""

    reference: str
    """Its name in the module."""
    definition: dict[str, Any] | None = None
    problems: tuple[Problem, ...] = ()
