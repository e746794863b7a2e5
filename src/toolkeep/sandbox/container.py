"""Whether this is a container, and what it must be started with.

Docker's defaults forbid what a sandbox is made of: its filter of system calls denies namespaces and mounts to
all but the machine's own root, and its AppArmor profile denies mounts. The kernel itself allows both to any
user, inside a user namespace.
"""

from pathlib import Path
from typing import Final

FLAGS: Final = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined"
"""What `docker run` and `podman run` need for every level."""

PROC_FLAG: Final = "--security-opt systempaths=unconfined"
"""What they need beyond that for attacks: a new /proc is given only to who sees the whole of the old one."""

_MARKS: Final = (".dockerenv", "run/.containerenv")
_NAMES: Final = ("docker", "kubepods", "containerd", "libpod", "lxc")


def is_container(root: Path = Path("/")) -> bool:
    """Whether somebody put this process into a container; a guess that only words depend on."""
    if any((root / mark).exists() for mark in _MARKS):
        return True
    try:
        groups = (root / "proc/1/cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(name in groups for name in _NAMES)
