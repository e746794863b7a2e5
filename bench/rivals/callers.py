"""Who runs calls. A rival that is not installed is named as absent, never stood in for."""

from rivals.caller import Caller
from rivals.field import Entry, Field, _load
from rivals.toolkeep_calls import VARIANTS, Variant


def _guarded(variant: Variant) -> Entry[Caller]:
    return Entry(
        name=f"toolkeep, {variant}",
        module="rivals.toolkeep_calls",
        make=lambda module: module.ToolkeepCalls(variant),
    )


CALLERS: tuple[Entry[Caller], ...] = (
    *map(_guarded, VARIANTS),
    Entry(
        name="pydantic-ai",
        module="rivals.pydantic_ai_calls",
        make=lambda module: module.PydanticAiCalls(),
    ),
    Entry(
        name="langchain",
        module="rivals.langchain_calls",
        make=lambda module: module.LangchainCalls("ainvoke"),
    ),
    Entry(
        name="langchain invoke",
        module="rivals.langchain_calls",
        make=lambda module: module.LangchainCalls("invoke"),
    ),
    Entry(name="mcp", module="rivals.mcp_calls", make=lambda module: module.McpCalls("server")),
    Entry(name="mcp client", module="rivals.mcp_calls", make=lambda module: module.McpCalls("client")),
    Entry(name="fastmcp", module="rivals.fastmcp_calls", make=lambda module: module.FastMcpCalls("server")),
    Entry(
        name="fastmcp client",
        module="rivals.fastmcp_calls",
        make=lambda module: module.FastMcpCalls("client"),
    ),
)


def gather_callers() -> Field[Caller]:
    """Load every caller whose package is here."""
    return _load(CALLERS)
