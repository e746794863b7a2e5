"""Tools that ask for isolation; a worker imports this file, so that it needs little."""

import json
import logging
import os
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel

from toolkeep import InvokeResult, ToolContext, ToolFailed, Touches, tool
from toolkeep.limits import OUTPUT_CAP_BYTES

READS: dict[str, Any] = {"capabilities": ["fs.read"], "side_effects": ["FsRead"]}
WRITES: dict[str, Any] = {"capabilities": ["fs.write"], "side_effects": ["FsWrite"], "danger": "low"}
NOTHING: dict[str, Any] = {"side_effects": ["None"]}


def at(level: str) -> dict[str, str]:
    return {"required_isolation": level}


@tool(constraints=at("standard"), **NOTHING)
def where_standard() -> int:
    """The process that it runs in."""
    return os.getpid()


@tool(constraints=at("strict"), **NOTHING)
def where_strict() -> int:
    """The process that it runs in."""
    return os.getpid()


@tool(constraints=at("restricted"), **NOTHING)
def where_restricted() -> int:
    """The process that it runs in."""
    return os.getpid()


@tool(constraints=at("strict"), **READS)
def read(path: Annotated[str, Touches("fs.read")], really: str = "") -> str:
    """Read a file, or another one than it says."""
    return Path(really or path).read_text()


@tool(constraints=at("strict"), **WRITES)
def write(path: Annotated[str, Touches("fs.write")], really: str = "") -> str:
    """Write a file, or another one than it says."""
    return str(Path(really or path).write_text("written"))


@tool(constraints=at("strict"), capabilities=["net.read"], side_effects=["NetRead"])
def fetch(url: Annotated[str, Touches("net.read")]) -> str:
    """Fetch a page."""
    return url


class Point(BaseModel):
    """A point."""

    x: int
    y: int


@tool(constraints=at("restricted"), **NOTHING)
async def length(point: Point) -> float:
    """How far a point is away."""
    return float((point.x**2 + point.y**2) ** 0.5)


@tool(constraints=at("strict"), **NOTHING)
def look_around(steps: int, context: ToolContext) -> list[str]:
    """Who calls, and with what."""
    for step in range(steps):
        context.check_cancelled()
        context.progress(step + 1, steps, f"step {step + 1}")
    ids = [context.agent, context.correlation_id, context.conversation_id, context.session_id]
    return [*ids, context.secret("key"), *sorted(context.secrets)]


@tool(constraints=at("strict"), **NOTHING)
def count_lines(to: int) -> Iterator[str]:
    """Some lines."""
    for number in range(to):
        yield f"{number}\n"


@tool(constraints=at("restricted"), **NOTHING)
async def count_rows(to: int) -> AsyncIterator[dict[str, int]]:
    """Some rows."""
    for number in range(to):
        yield {"n": number}


@tool(constraints=at("restricted"), result_type="binary", normalization="binary", **NOTHING)
def give_bytes() -> Iterator[bytes]:
    """Bytes."""
    yield from (b"a", b"\xff")


@tool(constraints=at("restricted"), **NOTHING)
def break_off() -> Iterator[object]:
    """Something, then no JSON."""
    yield "fine"
    yield {1, 2}


@tool(constraints=at("restricted"), **NOTHING)
def mumble(piece: str) -> str:
    """Tell a piece by hand, as no code of ours would."""
    body = f'{{"piece":{piece}}}'.encode()
    os.write(4, len(body).to_bytes(4, "big") + body)
    return "well"


@tool(constraints=at("strict"), **NOTHING)
def hoard() -> int:
    """Look for a secret in all that came in; it takes no context."""
    import gc

    return sum("not-a-real-key" in str(found) for found in gc.get_objects() if isinstance(found, dict))


class Tally:
    """An agent-tool class that asks for isolation."""

    TOOL_NAME = "tally"
    TOOL_USAGE_METADATA = "To count."
    TOOL_FIELDS: ClassVar[dict[str, Any]] = {"constraints": at("strict"), **NOTHING}
    is_tool_fully_executed_on_server = True

    def __init__(self, logger: logging.Logger, step: int = 1) -> None:
        self._logger = logger
        self._step = step

    @property
    def name(self) -> str:
        """The same as the constant."""
        return self.TOOL_NAME

    @staticmethod
    def get_schema() -> dict[str, Any]:
        """One number."""
        count = {"type": "integer", "description": "How far"}
        parameters = {"type": "object", "properties": {"to": count}, "required": ["to"]}
        return {"type": "function", "name": "tally", "description": "Counts.", "parameters": parameters}

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        """Count, or say why not."""
        to = json.loads(arguments_json)["to"]
        if to < 0:
            return InvokeResult.failed("cannot count down")
        if to > 100:
            raise KeyError("a secret value")
        context.progress(to, to)
        found = {"pid": os.getpid(), "agent": context.agent, "logger": self._logger.name, "step": self._step}
        return InvokeResult.ok(json.dumps(found))


@tool(
    constraints=at("strict"),
    resource_bounds={"max_memory": 256 << 20},
    capabilities=["process.spawn"],
    side_effects=["None"],
)
def take_memory(children: int = 0) -> int:
    """Start processes that take 100 MiB each."""
    for _ in range(children):
        if os.fork() == 0:
            taken = bytearray(b"x") * (100 << 20)
            time.sleep(60)
            os._exit(len(taken) & 0)
    time.sleep(5 if children else 0)
    return children


@tool(constraints=at("strict"), capabilities=["process.spawn"], side_effects=["None"])
def peek(really: str) -> str:
    """Read a file, where it is only to start programs."""
    return Path(really).read_text()


@tool(constraints=at("standard"), **NOTHING)
def misbehave(how: str) -> str:
    """Do what it is told not to."""
    if how == "say why":
        raise ToolFailed("told to")
    if how == "raise":
        raise KeyError("a secret value")
    if how == "leave":
        os._exit(0)
    if how == "sleep":
        time.sleep(60)
    if how == "talk":
        return "x" * (OUTPUT_CAP_BYTES + 100)
    return "well"
