"""How a run of a WASM module can end without a result."""

from enum import StrEnum


class Ending(StrEnum):
    """What the text of a `WasmEnded` is about."""

    UNUSABLE = "unusable"
    """The module cannot be run at all; the text says why, and what to do."""
    FAILED = "failed"
    """It ended by itself and says that it failed; the text is its own."""
    DIED = "died"
    """It trapped, or passed a limit."""
    STOPPED = "stopped"
    """It was ended from outside: its time was up, or nobody waits for it any more."""
    TOO_BIG = "too_big"
    """It gave more than it may."""
    BROKEN = "broken"
    """What it gave is no answer."""


class WasmEnded(Exception):
    """No result came; `text` is a clause of ours, but where the module itself says that it failed."""

    def __init__(self, ending: Ending, text: str) -> None:
        super().__init__(text)
        self.ending = ending
        self.text = text
