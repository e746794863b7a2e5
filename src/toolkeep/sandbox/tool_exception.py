"""An exception of a tool as its worker reports it (`guest/exception_report.py`): untrusted, for the operator.

A tool can forge all of it. It decides which of our own sentences a model reads, and no word of them. Nothing
is escaped here: secrets are redacted first (`execution/diagnosis.py`).
"""

from typing import Any, Final

import msgspec

from toolkeep.sandbox.frames import FrameRefused
from toolkeep.sandbox.guest.exception_report import CHAINED, FRAMES, NAME_CHARS, PATH_CHARS, TEXT_CHARS

_OPERATIONS: Final = frozenset({"", "file", "memory", "network", "process", "processor", "thread"})
_KEYS: Final = frozenset({"raised", "where", "chain", "errno", "during", "subject"})


class Raised(msgspec.Struct, frozen=True):
    """One exception of a chain."""

    kind: str
    text: str
    places: tuple[str, ...]


class ToolException(msgspec.Struct, frozen=True):
    """A chain of exceptions, oldest first, and the operation that failed."""

    chain: tuple[Raised, ...] = ()
    during: str = ""
    """Operation that a limit or the kernel ended; empty if it is not known."""
    errno: int = 0
    subject: str = ""
    """Path, program or host of that operation."""

    @classmethod
    def read(cls, said: dict[str, Any]) -> "ToolException":
        """Read what a worker sent beside type and place."""
        during, number, subject = said.get("during", ""), said.get("errno", 0), said.get("subject", "")
        chain = said.get("chain", [])
        is_known = isinstance(during, str) and during in _OPERATIONS and said.keys() <= _KEYS
        if (
            not is_known
            or type(number) is not int
            or not isinstance(subject, str)
            or not isinstance(chain, list)
        ):
            raise FrameRefused("it is no exception")
        return cls(tuple(map(_raised, chain[-CHAINED:])), during, number, subject[:PATH_CHARS])

    def traceback(self, *, has_texts: bool) -> str:
        """All of it as Python prints it, with or without the texts of the exceptions."""
        lines: list[str] = []
        for one in self.chain:
            lines += (f"  {place}" for place in one.places)
            lines.append(f"{one.kind}: {one.text}" if one.text and has_texts else one.kind)
        return "\n".join(lines)


def _raised(said: Any) -> Raised:
    match said:
        case [str(kind), str(text), [*places]] if all(isinstance(place, str) for place in places):
            shown = tuple(place[:NAME_CHARS] for place in places[-FRAMES:])
            return Raised(kind[:NAME_CHARS], text[:TEXT_CHARS], shown)
        case _:
            raise FrameRefused("it is no exception")
