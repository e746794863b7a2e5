"""The state folder of a keep: outside the project, and private to this user (POL-7).

It holds what a person accepted. A repository must not bring its own acceptance along, so the folder counts
only if it lies outside the project, belongs to this user and is closed to others.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from toolkeep.errors import StateUnusable
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import sync_folder, write_once


def state_folder(project: Path, environment: Mapping[str, str], home: Path | None) -> Path | None:
    """The path of a project's state; creates nothing. `TOOLKEEP_HOME` names the folder itself.

    None for a user without a home: nothing can be stored.
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
    if is_inside and not holds_home:  # nobody clones their home folder, or one above it
        raise StateUnusable(
            str(folder),
            "is inside the project, which could then accept itself",
            hint="set TOOLKEEP_HOME to a folder outside",
        )
    return folder


def protected_folder(folder: Path) -> Path:
    """What no tool may touch: the state of this project, and of every other project beside it."""
    return folder.parent if folder.parent.name == "toolkeep" else folder


_PROJECT: Final = "project"
"""File of a state folder whose name is a hash: the path of the project."""


def note_project(folder: Path, project: Path) -> None:
    """Store which project a state folder beside others is for: a command can then name the project."""
    if folder.parent.name == "toolkeep" and not is_there(folder / _PROJECT):
        make_private(folder)
        write_once(folder / _PROJECT, os.fsencode(os.path.realpath(project)))


def other_projects(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The state folders beside this one, each with its project, as far as they are noted."""
    if folder.parent.name != "toolkeep" or not is_there(folder.parent):
        return
    for other in sorted(folder.parent.iterdir()):
        if other != folder and is_there(other / _PROJECT):
            yield other, Path(os.fsdecode((other / _PROJECT).read_bytes()))


def _holds(root: Path, folder: Path) -> bool:
    # The real path: a link inside the project, or to it, would otherwise hide where the state lies. Unlike
    # `Path.resolve`, `realpath` accepts links that form a circle.
    real = Path(os.path.realpath(folder))
    return root in (real, *real.parents)


def make_private(folder: Path) -> None:
    """Create the folder if it is missing; raises where it is not private to this user."""
    try:
        # Each missing parent by itself: `parents=True` would make them with the default mode, open to others.
        for missing in [one for one in reversed((folder, *folder.parents)) if not is_there(one)]:
            missing.mkdir(mode=0o700, exist_ok=True)
            sync_folder(missing.parent)  # otherwise a crash may lose the name, with all that is in it
    except OSError as error:
        reason = f"cannot be made: {error.strerror}"
        raise StateUnusable(
            str(folder), reason, hint="set TOOLKEEP_HOME to a folder that only you can write"
        ) from error
    check_private(folder)


def newer_format(path: Path | str, found: int, known: int) -> StateUnusable:
    """The refusal of a file that a later release wrote.

    Each store has a version of its own, and refuses one above it before it reads or writes anything else: an
    older program would drop what it does not know, or take a record for something that it no longer means.
    """
    reason = f"has format {found}, but this toolkeep supports only up to {known}"
    return StateUnusable(str(path), reason, hint="use the toolkeep that wrote it, or a later one")


def check_private(folder: Path) -> None:
    """Raise where the folder belongs to another user or is open to others.

    Another user could otherwise read keys, or plant an acceptance. `lstat`: a link is refused, not followed.
    """
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise StateUnusable(str(folder), "is not a folder", hint="move it away, or set TOOLKEEP_HOME")
    if status.st_uid != os.geteuid():
        raise StateUnusable(str(folder), "belongs to another user", hint="set TOOLKEEP_HOME to one of yours")
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise StateUnusable(str(folder), "is open to other users", hint=f"run: chmod 700 {folder}")
