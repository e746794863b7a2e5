"""Who takes part. A rival that is not installed is named as absent, never stood in for."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from rivals.contestant import Contestant
from rivals.registry import Registry


class Packaged(Protocol):
    """Something with a distribution that its version is asked of."""

    package: str


T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry(Generic[T]):
    """A name on the list, with what to load for it."""

    name: str
    module: str
    make: Callable[[Any], T]


ENTRIES: tuple[Entry[Contestant], ...] = (
    Entry(name="toolkeep", module="rivals.toolkeep_keep", make=lambda module: module.ToolkeepKeep()),
    Entry(name="mcp", module="rivals.mcp_sdk", make=lambda module: module.McpSdk()),
    Entry(
        name="fastmcp", module="rivals.fastmcp_server", make=lambda module: module.FastMcpServer("default")
    ),
    Entry(
        name="fastmcp strict",
        module="rivals.fastmcp_server",
        make=lambda module: module.FastMcpServer("strict"),
    ),
    Entry(
        name="pydantic-ai", module="rivals.pydantic_ai_agent", make=lambda module: module.PydanticAiAgent()
    ),
    Entry(name="langchain-core", module="rivals.langchain_tool", make=lambda module: module.LangchainTool()),
    Entry(
        name="openai-agents",
        module="rivals.openai_agents_tool",
        make=lambda module: module.OpenAiAgentsTool(),
    ),
)


REGISTRIES: tuple[Entry[type[Registry]], ...] = (
    Entry(
        name="toolkeep",
        module="rivals.toolkeep_registry",
        make=lambda module: module.ToolkeepRegistry,
    ),
    Entry(name="mcp", module="rivals.mcp_registry", make=lambda module: module.McpRegistry),
    Entry(name="fastmcp", module="rivals.fastmcp_registry", make=lambda module: module.FastMcpRegistry),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Generic[T]):
    """The contestants that are installed, and the names of those that are not."""

    present: tuple[T, ...]
    absent: tuple[str, ...]


def gather() -> Field[Contestant]:
    """Load every contestant whose package is here."""
    return _load(ENTRIES)


def gather_registries() -> Field[type[Registry]]:
    """Load every registry whose package is here."""
    return _load(REGISTRIES)


def _load(entries: Sequence[Entry[T]]) -> Field[T]:
    present: list[T] = []
    absent: list[str] = []
    for entry in entries:
        try:
            present.append(entry.make(importlib.import_module(entry.module)))
        except ModuleNotFoundError as error:
            if _is_installed(error.name or ""):
                raise  # the rival is here, and has moved what we use
            absent.append(entry.name)
    return Field(present=tuple(present), absent=tuple(absent))


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def version_of(contestant: Packaged) -> str:
    """The installed version."""
    return importlib.metadata.version(contestant.package)
