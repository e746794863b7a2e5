"""The seam between the benchmarks and a framework's way to run a tool in this process."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from workloads.calls import Work

Made = Callable[[], Awaitable[Any]]
"""A call with its arguments, ready to be awaited once."""

Prepare = Callable[[int], Made]
"""Makes the call of a number. What a framework is handed is made here, which is not timed."""


class Caller(Protocol):
    """One way through one framework."""

    name: str
    package: str
    """The distribution that its version is asked of."""
    timed: str
    """What is awaited, for the footnote."""

    def open(self, work: Work) -> AbstractAsyncContextManager[Prepare]:
        """The tool defined in the framework's ordinary way, default settings."""

    def is_expected(self, answer: Any) -> bool:
        """Whether a call came back as it should."""
