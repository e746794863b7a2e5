"""The folder that holds a keep's state: outside the project, and nobody else's (POL-7).

What a project brings along can never stand in for a person's acceptance, so the folder counts only if it
lies outside the project, belongs to this user and is open to nobody else.
"""

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from toolkeep.errors import StateUnusable
from toolkeep.files import is_there
from toolkeep.storage.atomic import sync_folder


def state_folder(project: Path, environment: Mapping[str, str], home: Path | None) -> Path | None:
    """Where the state of a project lies; nothing is made. `TOOLKEEP_HOME` names the folder itself.

    None for a user without a home, who can remember nothing.
    """
    root = Path(os.path.realpath(project))
    if named := environment.get("TOOLKEEP_HOME"):
        folder = Path(named).absolute()
    else:
        base = environment.get("XDG_STATE_HOME") or (home and home / ".local" / "state")
        if not base:
            return None
        digest = hashlib.sha256(os.fsencode(root)).hexdigest()[:32]
        folder = Path(base).absolute() / "toolkeep" / digest
    is_inside = _holds(root, folder)
    holds_home = home is not None and _holds(root, home)
    if is_inside and not holds_home:  # nobody clones a home folder, or what holds it
        raise StateUnusable(
            str(folder),
            "lies inside the project, which could then accept itself",
            hint="set TOOLKEEP_HOME to a folder outside",
        )
    return folder


def protected_folder(folder: Path) -> Path:
    """What no tool may touch: the state of this project, and of every other one beside it."""
    return folder.parent if folder.parent.name == "toolkeep" else folder


def _holds(root: Path, folder: Path) -> bool:
    real = Path(os.path.realpath(folder))  # unlike Path.resolve it takes links that lead in a circle
    return root in (real, *real.parents)


def make_private(folder: Path) -> None:
    """Make the folder if it is missing; raise where it is not this user's alone."""
    try:
        # Missing parents too: `parents=True` would leave them open to others.
        for missing in [one for one in reversed((folder, *folder.parents)) if not is_there(one)]:
            missing.mkdir(mode=0o700, exist_ok=True)
            sync_folder(missing.parent)  # else all that is durable in it may be gone with its name
    except OSError as error:
        reason = f"cannot be made: {error.strerror}"
        raise StateUnusable(str(folder), reason, hint="set TOOLKEEP_HOME to a folder of yours") from error
    check_private(folder)


def check_private(folder: Path) -> None:
    """Raise where the folder belongs to somebody else or is open to others."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StateUnusable(str(folder), "is no folder", hint="move it away, or set TOOLKEEP_HOME")
    if status.st_uid != os.geteuid():
        raise StateUnusable(str(folder), "belongs to another user", hint="set TOOLKEEP_HOME to one of yours")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise StateUnusable(str(folder), "is open to other users", hint=f"run: chmod 700 {folder}")
