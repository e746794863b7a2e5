"""Which process holds something: named by its number, its start and the namespace of its number.

A number alone may be another's by now. What runs in another namespace, such as another container, cannot be
seen from here.
"""

import os
from pathlib import Path


def this_process() -> str:
    """The name of this process."""
    pid = os.getpid()
    return f"{pid}-{_started(pid)}-{_namespace()}"


def is_alive(process: str) -> bool:
    """Whether the very process of this name still runs, as far as can be seen."""
    pid, _, rest = process.partition("-")
    started, _, _ = rest.partition("-")
    return bool(started) and pid.isdecimal() and _started(int(pid)) == started


def is_gone(process: str) -> bool:
    """Whether the process of this name is known to run no more."""
    _, _, namespace = process.rpartition("-")
    try:
        return namespace == _namespace() and not is_alive(process)
    except OSError:  # no descriptor is left, say: nothing is known
        return False


def _started(pid: int) -> str:
    """When a process started, in ticks since the machine did; empty where it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(b")")[2].split()
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()  # dead, and not yet waited for


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)
