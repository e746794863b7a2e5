"""Code that asks for isolation, for the tests of whether another process would find it."""

from typing import Any, ClassVar

from pydantic import BaseModel

from toolkeep import InvokeResult, ToolContext, tool

STRICT: dict[str, Any] = {"side_effects": ["None"], "constraints": {"required_isolation": "strict"}}


class Size(BaseModel):
    width: int


@tool(**STRICT)
def lend(size: Size) -> int:
    """Lend."""
    return size.width


def bare(number: int = 1) -> int:
    return number


def measure(size: Size) -> int:
    return size.width


def shadowed() -> int:
    return 1


shadowed_before = shadowed


def shadowed() -> int:  # type: ignore[no-redef]
    return 2


class Room:
    @classmethod
    def open(cls) -> str:
        return cls.__name__

    def look(self) -> int:
        return 1


class Ledger:
    pass


class _Tool:
    TOOL_USAGE_METADATA = "To try."
    TOOL_FIELDS: ClassVar[dict[str, Any]] = STRICT
    TOOL_NAME = ""
    is_tool_fully_executed_on_server = True

    @property
    def name(self) -> str:
        return self.TOOL_NAME

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        return InvokeResult.ok("1")


def schema(name: str) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {}, "required": []}
    return {"type": "function", "name": name, "description": "A tool.", "parameters": parameters}


class Desk(_Tool):
    TOOL_NAME = "desk"

    def __init__(self, place: str = "door") -> None:
        self.place = place

    @staticmethod
    def get_schema() -> dict[str, Any]:
        return schema("desk")


class Clerk(_Tool):
    TOOL_NAME = "clerk"

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    @staticmethod
    def get_schema() -> dict[str, Any]:
        return schema("clerk")


class Bell(_Tool):
    TOOL_NAME = "bell"
    rung: bool

    @staticmethod
    def get_schema() -> dict[str, Any]:
        return schema("bell")
