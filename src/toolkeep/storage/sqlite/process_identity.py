"""Identity of a process: PID, start time and PID namespace.

A PID alone may have been reused. Processes of another PID namespace, such as a container, are not visible.
"""

import functools
import os
import sys
from pathlib import Path
from typing import Final

_UNKNOWN: Final = "0"
"""Start time and namespace on systems without /proc."""


def this_process() -> str:
    """The identity of this process."""
    return _own_identity(os.getpid())


@functools.lru_cache(maxsize=1)
def _own_identity(pid: int) -> str:
    """Worked out once; a forked child has another PID."""
    return process_identity(pid)


def process_identity(pid: int) -> str:
    """The identity of a process."""
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
    if not _has_proc():
        return _UNKNOWN if _is_there(pid) else ""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = stat.rpartition(b")")[2].split()
    return "" if fields[0] in (b"Z", b"X") else fields[19].decode()  # a zombie


def _namespace() -> str:
    return str(Path("/proc/self/ns/pid").stat().st_ino) if _has_proc() else _UNKNOWN


def _has_proc() -> bool:
    return sys.platform == "linux"


def _is_there(pid: int) -> bool:
    """Whether some process has this PID. A reused one counts as alive, so that nothing runs twice."""
    if sys.platform == "win32":
        return True  # There, signal 0 is Ctrl-C.
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True
