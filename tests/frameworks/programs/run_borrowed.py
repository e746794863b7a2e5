"""Tools of other frameworks, registered as they are."""

from typing import Any

from fastmcp.tools import Tool as FastMcpTool  # type: ignore[import-not-found, unused-ignore]
from fastmcp.utilities.types import Image  # type: ignore[import-not-found, unused-ignore]
from langchain_core.tools import BaseTool, ToolException  # type: ignore[import-not-found, unused-ignore]
from langchain_core.tools import tool as langchain_tool
from mcp.server.mcpserver.tools.base import Tool as McpTool  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai import ModelRetry, RunContext  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai import Tool as PydanticTool

from tests.frameworks.programs.shop import PNG
from toolkeep import Keep, tool
from toolkeep.errors import DefinitionError

SAFE = tool(danger="safe", side_effects=["None"])


@langchain_tool  # type: ignore[untyped-decorator, unused-ignore]
def add(a: int, b: int = 2) -> int:
    """Add two numbers."""
    return a + b


@langchain_tool  # type: ignore[untyped-decorator, unused-ignore]
async def add_slowly(a: int) -> dict[str, int]:
    """Add, or not."""
    if a < 0:
        raise ToolException("only upwards")
    return {"sum": a}


class Shout(BaseTool):  # type: ignore[misc, unused-ignore]
    name: str = "shout"
    description: str = "Shout a word."

    def _run(self, word: str) -> str:
        return word.upper()


def multiply(a: int, b: list[int]) -> int:
    """Multiply.

    Args:
        a: How often.
        b: What.
    """
    return a * sum(b)


async def ask_again(a: int) -> str:
    """Ask again."""
    raise ModelRetry("another number, please")


def with_context(ctx: RunContext[int], a: int) -> int:
    """Need an agent."""
    return a


def double(a: int) -> int:
    """Double a number."""
    return 2 * a


def describe(a: int) -> dict[str, Any]:
    """Describe a number."""
    return {"number": a}


def paint() -> Image:
    """Paint."""
    return Image(data=PNG, format="png")


def triple(a: int) -> int:
    """Triple a number."""
    return 3 * a


TOOLS = [
    SAFE(add), SAFE(add_slowly), SAFE(Shout()), SAFE(PydanticTool(multiply)), SAFE(PydanticTool(ask_again)),
    SAFE(FastMcpTool.from_function(double)), SAFE(FastMcpTool.from_function(describe)),
    SAFE(FastMcpTool.from_function(paint)), SAFE(McpTool.from_function(triple)),
]  # fmt: skip
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("add", {"a": 1}), ("add", {"a": "1"}), ("add_slowly", {"a": 3}), ("add_slowly", {"a": -3}), ("shout", {"word": "hey"}),
    ("multiply", {"a": 2, "b": [1, 2]}), ("ask_again", {"a": 1}), ("double", {"a": 4}), ("describe", {"a": 4}),
    ("triple", {"a": 4}),
]  # fmt: skip


async def main() -> dict[str, Any]:
    keep = Keep()
    keep.register(*TOOLS)
    results = [await keep.call(name, arguments) for name, arguments in CALLS]
    painted = {"type": "tool_use", "id": "t1", "name": "paint", "input": {}}
    (message,) = await keep.answer("anthropic", {"content": [painted], "stop_reason": "tool_use"})
    as_they_are = Keep()
    as_they_are.register(add, PydanticTool(multiply), FastMcpTool.from_function(double))
    asked = await as_they_are.call("add", {"a": 1})
    try:
        keep.register(PydanticTool(with_context))
        refused = ""
    except DefinitionError as error:
        refused = str(error)
    return {
        "values": [result.value if result.ok else result.code for result in results],
        "painted": message["content"][0]["content"][1]["type"],
        "origins": [
            keep.get(name).definition.source.origin for name in ("add", "multiply", "double", "triple")
        ],
        "as they are": [as_they_are.get("add").definition.danger_level.value, asked.code],
        "context": refused,
    }
