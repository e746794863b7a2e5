"""Who takes part. A rival that is not installed is named as absent, never stood in for."""

import importlib
import importlib.metadata
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rivals.contestant import Contestant


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A name on the list, with what to load for it."""

    name: str
    module: str
    make: Callable[[Any], Contestant]


ENTRIES = (
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """The contestants that are installed, and the names of those that are not."""

    present: tuple[Contestant, ...]
    absent: tuple[str, ...]


def gather() -> Field:
    """Load every contestant whose package is here."""
    present: list[Contestant] = []
    absent: list[str] = []
    for entry in ENTRIES:
        try:
            present.append(entry.make(importlib.import_module(entry.module)))
        except ModuleNotFoundError as error:
            if _is_installed(error.name or ""):
                raise  # the rival is here, and has moved what we use
            absent.append(entry.name)
    return Field(present=tuple(present), absent=tuple(absent))


def _is_installed(module: str) -> bool:
    return importlib.util.find_spec(module.partition(".")[0]) is not None


def version_of(contestant: Contestant) -> str:
    """The installed version."""
    return importlib.metadata.version(contestant.package)
