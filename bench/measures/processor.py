"""Processor time of a process with all that it started, from /proc."""

import os
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process_id: int) -> float:
    """User and system time of a process, its living descendants, and those that it waited for."""
    total, waiting, children = 0.0, [process_id], _children()
    while waiting:
        one = waiting.pop()
        fields = _fields(one)
        if fields:
            total += sum(map(int, fields[11:15])) / _TICKS
        waiting += children.get(one, ())
    return total


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        fields = _fields(int(path.name)) if path.name.isdecimal() else []
        if fields:
            found.setdefault(int(fields[1]), []).append(int(path.name))
    return found


def _fields(process_id: int) -> list[str]:
    """What stands behind the name of a process in its `stat`."""
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return []
