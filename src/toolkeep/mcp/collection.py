"""How often a process that serves looks for garbage."""

import gc
from typing import Final

_OBJECTS: Final = 10_000
"""So many more are made than go before somebody looks. Python has 700: a few dozen calls in flight."""


def collect_rarely() -> None:
    """Leave alone what stands when the serving begins, and look seldom through what comes and goes.

    What a call makes goes when nobody refers to it. With 32 in flight the collector took it for what stays,
    and went through the whole heap every 1,500 calls: 39 µs of a call, 56 with 1,000 tools; 1 µs now.
    """
    gc.freeze()
    gc.set_threshold(_OBJECTS, *gc.get_threshold()[1:])
