"""How a run of a WASM module can end without a result."""

from enum import StrEnum

from toolkeep.calls import Denied


class Ending(StrEnum):
    """Kinds of endings."""

    UNUSABLE = "unusable"
    """The module cannot be run at all; the text says why, and what to do."""
    FAILED = "failed"
    """It exited and reported failure; the text is its own."""
    DIED = "died"
    """It trapped, or exceeded a limit."""
    STOPPED = "stopped"
    """It was stopped from outside: deadline or cancellation."""
    TOO_BIG = "too_big"
    """Its output exceeds the limit."""
    BROKEN = "broken"
    """Its output is not an answer."""


class WasmEnded(Exception):
    """No result; `text` is ours, except for FAILED, where it is the module's."""

    def __init__(
        self, ending: Ending, text: str, *, denied: Denied | None = None, limit: str = "", detail: str = ""
    ) -> None:
        """`denied` and `limit` say which limit ended it; `detail` is for the operator."""
        super().__init__(text)
        self.ending = ending
        self.text = text
        self.denied = denied
        self.limit = limit
        self.detail = detail
