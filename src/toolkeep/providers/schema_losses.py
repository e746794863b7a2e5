"""What happened to each part of a schema that a provider does not support as written.

Nothing is lost silently: what is weakened outside is still enforced by the keep's own validation.
"""

from typing import Any, Literal

import msgspec

Became = Literal["kept", "moved", "weakened", "refused"]
"""Kept in another form with the same meaning, moved into the description, weakened, or refused."""


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a definition that a provider gets in another form."""

    tool: str
    pointer: str
    """JSON Pointer into the parameters."""
    keyword: str
    became: Became
    note: str

    def __str__(self) -> str:
        return f"{self.tool} {self.pointer or '/'} {self.keyword}: {self.became}: {self.note}"

    def to_dict(self) -> dict[str, str]:
        """The loss as JSON data."""
        data: dict[str, str] = msgspec.structs.asdict(self)
        return data


class Losses:
    """Collects the losses of one tool, each once."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._noted: dict[Loss, None] = {}

    def note(self, pointer: str, keyword: str, became: Became, note: str) -> None:
        """Record what happened to a keyword."""
        loss = Loss(tool=self._tool, pointer=pointer, keyword=keyword, became=became, note=note)
        self._noted[loss] = None

    def take(self, others: "Losses") -> None:
        """Add the losses of others."""
        self._noted.update(others._noted)  # noqa: SLF001 -- its own kind

    def all(self) -> tuple[Loss, ...]:
        """Everything noted, in order."""
        return tuple(self._noted)


class NotExpressible(ValueError):
    """A provider cannot express this tool, or not in this mode."""

    def __init__(self, reason: str, fix: str, *, pointer: str = "") -> None:
        super().__init__(reason)
        self.reason, self.fix, self.pointer = reason, fix, pointer


def brief(value: Any, most: int = 200) -> str | None:
    """A value as JSON for a description; None if it is too long to read."""
    text = msgspec.json.encode(value).decode() if not _is_wide(value) else str(value)
    return text if len(text) <= most else None


def _is_wide(value: Any) -> bool:
    return isinstance(value, int) and value.bit_length() > 63
