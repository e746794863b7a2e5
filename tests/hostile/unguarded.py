"""Runs an attack without toolkeep's guard, in a process of its own, to show that it is one."""

import subprocess
import sys
from typing import Literal

Outcome = Literal["ended", "crashed", "never ends"]


def outcome(code: str, *, seconds: float = 3.0) -> Outcome:
    """What becomes of a program within a time that an honest call needs a thousandth of."""
    try:
        done = subprocess.run([sys.executable, "-c", code], timeout=seconds, capture_output=True, check=False)
    except subprocess.TimeoutExpired:
        return "never ends"
    return "ended" if done.returncode == 0 else "crashed"
