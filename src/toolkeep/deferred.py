"""Values that are worked out when they are first read: words of a refusal that most callers never look at."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Deferred(Generic[T]):
    """Gives what a function makes of its arguments, worked out once.

    The function must not depend on anything that changes: two threads that read at the same time may both
    call it. It is let go of afterwards, with its arguments.
    """

    __slots__ = ("_made", "_source")

    def __init__(self, make: Callable[..., T], *arguments: Any) -> None:
        self._source: tuple[Callable[..., T], tuple[Any, ...]] | None = (make, arguments)
        self._made: T | None = None

    def get(self) -> T:
        """The value."""
        source = self._source  # read once: another thread may be done with it in between
        if source is not None:
            make, arguments = source
            self._made = make(*arguments)
            self._source = None
        return self._made  # type: ignore[return-value]  # made by now
