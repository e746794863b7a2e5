"""Where configuration files are. A light module: a keep without any file imports nothing else."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROJECT_FILE = Path(".agent") / "config.yml"
USER_FILES = (Path(".acode") / "config.yml", Path(".agent") / "config.yml")
"""Below the home folder; later files override earlier ones."""


class ConfigPaths(NamedTuple):
    """The files that may exist."""

    user: tuple[Path, ...]
    project: Path | None
    """None if the project is the home folder: then the file is the user's own."""

    @property
    def exist(self) -> bool:
        """Whether there is anything to read."""
        return any(_may_exist(path) for path in (*self.user, self.project) if path)


def _may_exist(path: Path) -> bool:
    """Whether there is a file, or something that prevents us from knowing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def home_folder() -> Path | None:
    """The user's home folder; None for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        return None


def find_project(start: Path, home: Path | None) -> Path:
    """The nearest folder with a configuration, from `start` up to below the home folder; else `start`."""
    return next(_configured(start, home), start)


def outer_projects(project: Path, home: Path | None) -> list[Path]:
    """The folders with a configuration above a project, nearest first."""
    # Resolved: a working folder has no symlinks in its path, so a named folder must not have any either.
    start = Path(os.path.realpath(project))
    return [folder for folder in _configured(start, home) if folder != start]


def _configured(start: Path, home: Path | None) -> Iterator[Path]:
    homes = (home, Path(os.path.realpath(home))) if home else ()
    for folder in (start, *start.parents):
        if folder in homes:
            return
        if os.path.lexists(folder / PROJECT_FILE) and (folder == start or _is_ours(folder)):
            yield folder


def _is_ours(folder: Path) -> bool:
    """Whether a folder above the working folder may configure it: not one that another user created.

    In a shared folder such as /tmp anybody could otherwise place a configuration above your project.
    """
    ours = (os.geteuid(), 0)
    try:
        return all(
            os.lstat(part).st_uid in ours for part in (folder, folder / ".agent", folder / PROJECT_FILE)
        )
    except OSError:
        return False


def config_paths(project: Path, home: Path | None) -> ConfigPaths:
    """The files of a project and of its user."""
    is_home = home is not None and os.path.realpath(project) == os.path.realpath(home)
    user = tuple(home / name for name in USER_FILES) if home else ()
    return ConfigPaths(user, None if is_home else project / PROJECT_FILE)
