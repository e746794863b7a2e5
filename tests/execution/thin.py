"""Tools as a script writes them, with all that such a file imports and needs no pydantic for."""

import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any, ClassVar

from toolkeep import (
    Content,
    Depends,
    InvokeResult,
    Keep,
    Option,
    Secret,
    ToolContext,
    ToolFailed,
    Touches,
    open_keep,
    tool,
)

STRICT: dict[str, Any] = {"constraints": {"required_isolation": "strict"}, "side_effects": ["None"]}


def loaded() -> list[str]:
    """What of us and of what we use is imported."""
    ours = ("toolkeep", "pydantic", "pydantic_core", "msgspec", "docstring_parser")
    return sorted(name for name in sys.modules if name.partition(".")[0] in ours)


@tool(**STRICT)
def plain(words: list[str], limit: int | None = None) -> list[str]:
    """Look around.

    Args:
        words: Some words.
    """
    return loaded()


@tool(capabilities=["fs.read"], **{**STRICT, "side_effects": ["FsRead"]})
async def marked(
    context: ToolContext,
    path: Annotated[str | None, Touches("fs.read", only=True)] = None,
    key: Annotated[str, Secret()] = "",
    text: Annotated[str, Content()] = "",
    lines: Annotated[int, Option()] = 1,
) -> list[str]:
    """Look around."""
    context.check_cancelled()
    return loaded()


@tool(name="pieces", **STRICT)
def named_otherwise() -> Iterator[list[str]]:
    """Look around."""
    yield loaded()


@tool(**STRICT)
async def pieces_later() -> AsyncIterator[list[str]]:
    """Look around."""
    yield loaded()


class Agent:
    """An agent-tool class."""

    TOOL_NAME = "agent"
    TOOL_USAGE_METADATA = "To look around."
    TOOL_FIELDS: ClassVar[dict[str, Any]] = STRICT
    is_tool_fully_executed_on_server = True

    @property
    def name(self) -> str:
        """The same as the constant."""
        return self.TOOL_NAME

    @staticmethod
    def get_schema() -> dict[str, Any]:
        """Nothing."""
        parameters = {"type": "object", "properties": {}, "required": []}
        return {"type": "function", "name": "agent", "description": "Looks.", "parameters": parameters}

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        """Look around."""
        return InvokeResult.ok(json.dumps(loaded()))


MADE: list[int] = []


def open_shop(context: ToolContext) -> Iterator[dict[str, Any]]:
    """What was there when it was made, and in which process."""
    MADE.append(os.getpid())
    yield {"secret": context.secret("key"), "tenant": context.data["tenant"], "made": list(MADE)}
    context.progress(1, 1, "closed")


async def open_later(shop: Annotated[dict[str, Any], Depends(open_shop)]) -> AsyncIterator[dict[str, Any]]:
    """The same, later."""
    yield {**shop, "later": True}


@tool(**STRICT)
def shop(book: str, shop: Annotated[dict[str, Any], Depends(open_shop)]) -> dict[str, Any]:
    """Buy a book."""
    return {**shop, "book": book, "here": os.getpid(), "loaded": loaded()}


@tool(**STRICT)
def shop_later(later: Annotated[dict[str, Any], Depends(open_later)]) -> Iterator[dict[str, Any]]:
    """Buy books."""
    yield later


@tool(**STRICT)
def fail() -> str:
    """Say why it fails."""
    raise ToolFailed("told to")


@tool(**STRICT)
def unkept() -> list[object]:
    """Do all that one does with a decorated function, and with what was imported beside it."""
    from toolkeep import FunctionTool

    keep: Keep | None = Keep()
    assert callable(open_keep)
    assert isinstance(keep, Keep)
    keep.register(plain, named_otherwise)
    names = sorted(registered.name for registered in keep.tools())
    is_tool = isinstance(plain, FunctionTool)
    return [
        plain(["x"]) != [],
        vars(plain)["__name__"],
        repr(named_otherwise),
        pieces_later.kind,
        is_tool,
        names,
    ]
