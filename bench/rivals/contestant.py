"""The seam between the benchmarks and a framework."""

from collections.abc import Callable
from typing import Any, Protocol

Function = Callable[..., Any]
Check = Callable[[Any], object]
"""From the text of a call to its validated arguments; raises when the framework refuses."""


class Contestant(Protocol):
    """One framework in one setting."""

    name: str
    package: str
    """The distribution that its version is asked of."""
    sent: str
    """The path that a call takes through it, for the footnote."""
    timed: str
    """The part of that path that is timed, for the footnote."""
    takes_text: bool
    """Whether its checks read `str`; the others read `bytes`."""

    def send(self, function: Function, raw: str) -> str:
        """Define the function as a tool and send it one call, as a model would.

        Comes back with what the model would read; raises only what the framework itself lets out.
        """

    def check(self, function: Function) -> Check:
        """The path to validated arguments alone, for timing."""


class Refused(Exception):
    """A check says no without an exception of its own."""
