"""The interface to each vendor: how a definition is formatted, a response read and a result written."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.providers.model_turn import StreamReader, Turn
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Reply


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A tool as it is sent to a provider."""

    alias: str
    definition: ToolDefinition
    schema: dict[str, Any]
    is_strict: bool = False
    """Whether the provider is asked to enforce the schema."""
    is_deferred: bool = False
    """Whether the model finds it by the provider's search instead of seeing it at once."""
    examples: tuple[dict[str, Any], ...] = ()
    note: str = ""
    """What its schema cannot say."""

    @property
    def description(self) -> str:
        """What a model reads: the description, then the usage."""
        return "\n\n".join(filter(None, (self.definition.full_description, self.note)))

    def said(self, provider: str, key: str) -> Any:
        """The definition's metadata for one provider only."""
        own = self.definition.metadata.get(provider)
        return own.get(key) if isinstance(own, dict) else None


Messages = list[dict[str, Any]]


def _is_any(_: dict[str, Any]) -> bool:
    return True


def _as_they_are(tools: Messages) -> Messages:
    return tools


@dataclass(frozen=True, slots=True, kw_only=True)
class Vendor:
    """The format of one LLM vendor."""

    profile: Profile
    shape: Callable[[Shown], dict[str, Any]]
    """One definition."""
    missing: Callable[[dict[str, Any]], str]
    """The name of a field that each response has, if the data lacks it; such data is no response."""
    read: Callable[[dict[str, Any]], Turn]
    """A whole response."""
    is_event: Callable[[dict[str, Any]], bool] = _is_any
    """Whether data is an event of a stream."""
    stream: Callable[[], StreamReader] | None
    """A reader for a stream; None if there are no streams."""
    write: Callable[[Sequence[Reply]], Messages]
    """The messages that answer every call of a response."""
    gather: Callable[[Messages], Messages] = _as_they_are
    """All definitions in the form of one request."""
    features: frozenset[str] = field(default_factory=frozenset)
    """Optional features: `examples`, `deferred`, `cache`, `callers`, `outputs`."""
    search_tool: dict[str, Any] | None = None
    """The provider's own tool for finding deferred tools."""
    mark_cache: Callable[[Messages], Messages] = _as_they_are
    """The definitions with a mark up to which the provider caches them."""


CALLERS: Final = "allowed_callers"


def texts(value: Any) -> list[str] | None:
    """A list of texts from metadata; None if it is none."""
    if isinstance(value, (list, tuple)) and value and all(isinstance(item, str) for item in value):
        return list(value)
    return None
