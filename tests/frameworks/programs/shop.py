"""A keep with tools that work, fail, want approval and show pictures; and what calls of them leave behind."""

import base64
from collections.abc import Sequence
from typing import Any, ClassVar

from tests.providers.alike import records
from toolkeep import Keep, ToolFailed, tool
from toolkeep.approval.question import Answer, Question
from toolkeep.stores.records import MemoryRecord

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ran: list[str] = []


@tool(side_effects=["None"])
async def look(place: str, config: int = 0) -> str:
    """Look somewhere.

    Args:
        place: Where.
        config: A name that frameworks like to take for themselves.
    """
    ran.append(place)
    return f"seen {place} {config}"


@tool(side_effects=["None"])
async def fall(place: str) -> str:
    """Fall down.

    Args:
        place: Where.
    """
    raise ToolFailed("it is slippery")


@tool(danger="high", side_effects=["None"])
async def burn(place: str) -> str:
    """Burn something.

    Args:
        place: Where.
    """
    ran.append(f"burnt {place}")
    return "ashes"


@tool(side_effects=["None"], result_type="binary", metadata={"mcp": {"mime_type": "image/png"}})
async def picture() -> bytes:
    """Take a picture."""
    return PNG


CALLS: list[tuple[str, dict[str, Any]]] = [
    ("look", {"place": "a", "config": 3}),
    ("look", {"plaec": "a"}),
    ("burn", {"place": "b"}),
    ("fall", {"place": "c"}),
]
"""One that works, one that is refused, one that nobody approves, one that fails."""


def deny(_: Question) -> Answer:
    return Answer(verdict="deny", approver="ada", way="desk", reason="No fire here.")


class Desk:
    """Denies everything, and notes how many calls it is asked about at once."""

    asked: ClassVar[list[int]] = []

    def __call__(self, question: Question) -> Answer:
        self.asked.append(1)
        return deny(question)

    def ask_all(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked.append(len(questions))
        return list(map(deny, questions))


BURNS: list[tuple[str, dict[str, Any]]] = [("burn", {"place": place}) for place in "xyz"]
"""Calls of one response that a person is asked about at once."""


def opened() -> tuple[Keep, MemoryRecord]:
    ran.clear()
    Desk.asked.clear()
    record = MemoryRecord()
    keep = Keep(approver=Desk(), record=record)
    keep.register(look, fall, burn, picture)
    return keep, record


async def directly() -> list[Any]:
    """The records of the same calls made by `keep.call`."""
    keep, record = opened()
    for name, arguments in CALLS:
        await keep.call(name, arguments, session="s1")
    return sorted(map(str, records(record)))


async def cut_directly() -> list[Any]:
    """The records of a call that was cut, made by `keep.answer`."""
    keep, record = opened()
    block = {"type": "tool_use", "id": "t1", "name": "look", "input": {"place": "a"}}
    await keep.answer("anthropic", {"content": [block], "stop_reason": "max_tokens"}, session="s1")
    codes = [entry for entry in records(record) if "ACODE-TSR-050" in str(entry)]
    return [len(records(record)), len(codes)]


def left(record: MemoryRecord) -> list[Any]:
    return sorted(map(str, records(record)))
