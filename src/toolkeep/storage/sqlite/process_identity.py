"""Identity of a process: PID, start time and PID namespace.

A PID alone may have been reused. Processes of another PID namespace, such as a container, are not visible.
"""

import os
from pathlib import Path


def this_process() -> str:
    """The identity of this process."""
    pid = os.getpid()
    return f"{pid}-{_started(pid)}-{_namespace()}"


def is_alive(process: str) -> bool:
    """Whether exactly this process still runs, as far as is visible."""
    pid, _, rest = process.partition("-")
    started, _, _ = rest.partition("-")
    return bool(started) and pid.isdecimal() and _started(int(pid)) == started


def is_gone(process: str) -> bool:
    """Whether this process is known to have ended; False where that is not visible."""
    _, _, namespace = process.rpartition("-")
    try:
        return namespace == _namespace() and not is_alive(process)
    except OSError:  # for example no descriptor left: nothing is known
        return False


def _started(pid: int) -> str:
    """The start time of a process, in ticks since boot; empty where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(b")")[2].split()
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()  # a zombie


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino)
