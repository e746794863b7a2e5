"""The seam to each vendor: how a definition is shaped, a response read and an answer written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Reply
from toolkeep.providers.turns import StreamReader, Turn


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as a provider is to be told of it."""

    alias: str
    definition: ToolDefinition
    schema: dict[str, Any]
    is_strict: bool = False
    """Whether the provider is asked to hold the model to the schema."""
    is_deferred: bool = False
    """Whether the model finds it by the provider's own search, instead of being told of it."""
    examples: tuple[dict[str, Any], ...] = ()

    @property
    def description(self) -> str:
        """What a model reads: the description, then the usage."""
        return self.definition.full_description

    def said(self, provider: str, key: str) -> Any:
        """What the definition's metadata says for one provider alone."""
        own = self.definition.metadata.get(provider)
        return own.get(key) if isinstance(own, dict) else None


Messages = list[dict[str, Any]]


def _as_they_are(tools: Messages) -> Messages:
    return tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """One provider."""

    profile: Profile
    shape: Callable[[Shown], dict[str, Any]]
    """One definition."""
    read: Callable[[dict[str, Any]], Turn]
    """A whole response."""
    stream: Callable[[], StreamReader] | None
    """A reader for the events of one; None where there are no streams."""
    write: Callable[[Sequence[Reply]], Messages]
    """The messages that answer every call of a response."""
    gather: Callable[[Messages], Messages] = _as_they_are
    """All definitions as one request has them."""
    features: frozenset[str] = field(default_factory=frozenset)
    """What it knows beyond the common: `examples`, `deferred`, `cache`, `callers`, `outputs`."""
    search_tool: dict[str, Any] | None = None
    """The provider's own tool by which deferred ones are found."""
    mark_cache: Callable[[Messages], Messages] = _as_they_are
    """The definitions with a mark up to which the provider caches them."""


CALLERS: Final = "allowed_callers"


def texts(value: Any) -> list[str] | None:
    """A list of texts out of metadata; None where it is none."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
        return list(value)
    return None
