"""Becomes an ordinary user and runs a command: as_ordinary.py ID COMMAND…; started by root.

Where the interpreter lies in a folder that only root may pass (`/root`), an empty one is put over that folder,
with the interpreter in it, in a mount namespace of this process alone.
"""

import os
import stat
import sys
from pathlib import Path

from toolkeep.sandbox.guest import linux


def show(place: str) -> None:
    """Make a folder reachable for everyone."""
    closed = [parent for parent in reversed(Path(place).parents) if not parent.stat().st_mode & stat.S_IXOTH]
    if closed:
        tree = linux.clone_tree(place)
        linux.mount("tmpfs", str(closed[0]), "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "mode=755")
        Path(place).mkdir(parents=True)
        linux.attach_tree(tree, place)


def main(user: int, command: list[str]) -> None:
    """Give up everything and run it."""
    linux.unshare(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    show(os.path.realpath(sys.base_prefix))
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execv(command[0], command)  # noqa: S606 -- that is its purpose


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
