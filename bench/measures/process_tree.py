"""Processor time, memory and number of a process with all that it started, from /proc."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def processor_seconds(process_id: int) -> float:
    """User and system time of a process, its living descendants, and those that they waited for."""
    return sum(sum(map(int, fields[11:15])) for _, fields in _tree(process_id)) / _TICKS


def descendants(process_id: int) -> list[int]:
    """Every living process that it started, directly or not."""
    return [one for one, fields in _tree(process_id) if one != process_id and fields[0] != "Z"]


def ended_children(process_id: int) -> list[int]:
    """Its own children that have ended and that it has not waited for."""
    return [one for one, fields in _tree(process_id) if fields[0] == "Z" and int(fields[1]) == process_id]


def proportional_bytes(process_id: int) -> float:
    """Pss of a process: shared pages count by their part. Zero if it has ended, NaN if it may not be read."""
    try:
        rollup = Path(f"/proc/{process_id}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    except PermissionError:
        return math.nan
    return next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) * 1024


def _tree(process_id: int) -> Iterator[tuple[int, list[str]]]:
    stats = {int(path.name): _fields(path) for path in Path("/proc").iterdir() if path.name.isdecimal()}
    children: dict[int, list[int]] = {}
    for one, fields in stats.items():
        if fields:
            children.setdefault(int(fields[1]), []).append(one)
    waiting = [process_id]
    while waiting:
        one = waiting.pop()
        if stats.get(one):
            yield one, stats[one]
        waiting += children.get(one, ())


def _fields(process: Path) -> list[str]:
    """What stands behind the name of a process in its `stat`."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return []
