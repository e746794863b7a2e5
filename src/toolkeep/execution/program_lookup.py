"""Finds the program that a configuration names, and the folders that it needs beside itself."""

import functools
import os
import shutil
from collections.abc import Iterator

from toolkeep.sandbox.trusted_paths import search_path
from toolkeep.text.display import visible


def find_program(word: str, base: str) -> str:
    """Path of a program, symlinks kept: Python finds its virtual environment by the symlink.

    Raises ValueError if there is none.
    """
    path = absolute(word, base)
    # search_path(): PATH as of the opening of the keep. A folder added later could hold a program under a
    # granted name.
    found = shutil.which(os.path.join(base, path) if "/" in path else path, path=search_path())
    if found is None:
        where = "" if "/" in path else ", on the PATH of toolkeep"
        why = "that its configuration names is not there, or cannot be executed"
        raise ValueError(f"the program {visible(word)!r} {why}{where}")
    return os.path.abspath(found)


def absolute(word: str, base: str) -> str:
    """A word that names a path here, as an absolute path; any other word unchanged."""
    if word.startswith("~/"):
        return os.path.expanduser(word)
    return os.path.normpath(f"{base}/{word}") if word.startswith(("./", "../")) else word


@functools.cache
def installed_with(path: str) -> tuple[str, ...]:
    """Real paths of a program and, judging by its location, of everything installed with it.

    Computed once, before any tool runs: these folders are shown to the program. Computed per call, a
    `pyvenv.cfg` that a tool wrote beside the program would show it any folder that the tool chose.
    """
    return tuple(_installed_with(path))


def _installed_with(path: str) -> Iterator[str]:
    real = os.path.realpath(path)
    yield real
    for place in dict.fromkeys((path, real)):
        before, middle, _ = place.partition("/node_modules/")
        if middle:
            yield os.path.realpath(f"{before}/node_modules")
        above = os.path.dirname(os.path.dirname(place))
        if os.path.isfile(f"{above}/pyvenv.cfg"):
            yield os.path.realpath(above)
            yield from _interpreter_of(above)


def _interpreter_of(environment: str) -> Iterator[str]:
    """The Python installation that a virtual environment was made from."""
    real = os.path.realpath(f"{environment}/bin/python")
    installation = os.path.dirname(os.path.dirname(real))
    # A dangling symlink could name any folder, which would then be shown to the program.
    is_program = os.path.isfile(real) and os.access(real, os.X_OK)
    if is_program and not real.startswith("/usr/") and os.path.isdir(f"{installation}/lib"):
        yield installation
