"""The time, as the log writes it: UTC in milliseconds, `2026-11-15T13:13:15.396+00:00`."""

import time
from datetime import UTC, datetime

_second = (0, "")
"""The last second, and its words: they are the same for a thousand milliseconds."""


def now() -> str:
    """The time now; a third of the work of `datetime.isoformat`, twice for every call."""
    global _second  # noqa: PLW0603 -- a pair that is replaced whole: any thread may
    seconds, milliseconds = divmod(time.time_ns() // 1_000_000, 1000)
    known, words = _second
    if known != seconds:
        words = datetime.fromtimestamp(seconds, UTC).isoformat().removesuffix("+00:00")
        _second = (seconds, words)
    return f"{words}.{milliseconds:03d}+00:00"
