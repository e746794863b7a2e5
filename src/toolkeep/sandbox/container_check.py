"""Detects containers, and says which flags they must be started with.

Docker's defaults forbid what a sandbox is built from: its seccomp profile denies namespaces and mounts
without CAP_SYS_ADMIN, and its AppArmor profile denies mounts. The kernel itself allows both to any user,
inside a user namespace.
"""

from pathlib import Path
from typing import Final

FLAGS: Final = "--security-opt seccomp=toolkeep-seccomp.json --security-opt apparmor=unconfined"
"""Flags of `docker run` and `podman run` that every level needs; `doctor --profile docker` prints that."""

PROC_FLAG: Final = "--security-opt systempaths=unconfined"
"""Needed by the escape suite too: the kernel mounts a new /proc only for who sees all of the old one."""

_MARKS: Final = (".dockerenv", "run/.containerenv")
_NAMES: Final = ("docker", "kubepods", "containerd", "libpod", "lxc")


def is_container(root: Path = Path("/")) -> bool:
    """Whether this process runs in a container. A guess: only hints depend on it, never a decision."""
    if any((root / mark).exists() for mark in _MARKS):
        return True
    try:
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(name in groups for name in _NAMES)
