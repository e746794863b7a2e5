"""A program that a configuration names: where it is found, and what it needs beside itself."""

import functools
import os
import shutil
from collections.abc import Iterator

from toolkeep.sandbox.trusted import search_path


def find_program(word: str, base: str) -> str:
    """The path of a program, links and all: Python knows its environment by the link that leads to it.

    ValueError where there is none.
    """
    path = absolute(word, base)
    found = shutil.which(os.path.join(base, path) if "/" in path else path, path=search_path())
    if found is None:
        raise ValueError("the program that its configuration names is not there, or cannot be executed")
    return os.path.abspath(found)


def absolute(word: str, base: str) -> str:
    """A word that names a place here as an absolute path; any other as it is."""
    if word.startswith("~/"):
        return os.path.expanduser(word)
    return os.path.normpath(f"{base}/{word}") if word.startswith(("./", "../")) else word


@functools.cache
def surroundings(path: str) -> tuple[str, ...]:
    """The real paths of a program and, where its place says so, of all that was installed with it.

    Worked out once, before any tool runs: these folders are shown to the program. Worked out for each call, a
    `pyvenv.cfg` that a tool wrote beside the program would show it whatever folder the tool chose.
    """
    return tuple(_surroundings(path))


def _surroundings(path: str) -> Iterator[str]:
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
    """The installation of Python that an environment was made from."""
    real = os.path.realpath(f"{environment}/bin/python")
    installation = os.path.dirname(os.path.dirname(real))
    # A link that leads nowhere names any folder that somebody chose: it would be shown to the program.
    is_program = os.path.isfile(real) and os.access(real, os.X_OK)
    if is_program and not real.startswith("/usr/") and os.path.isdir(f"{installation}/lib"):
        yield installation
