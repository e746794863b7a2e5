"""Finds the program that a configuration names, the folders that it needs beside itself, and its data."""

import functools
import os
import shutil
from collections.abc import Iterator
from typing import Final

from toolkeep.sandbox.trusted_paths import search_path
from toolkeep.text.display import visible

_SQLITE: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = len(_SQLITE)
"""Bytes of a file that tell a database; the name of DuckDB's stands in them too."""
_DUCKDB: Final = b"DUCK"
"""After a checksum of eight bytes."""
_CODE_SUFFIXES: Final = frozenset((".py", ".pyz", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".sh"))
"""A database that an interpreter takes for a script is none: Python runs a zip archive with any beginning."""
_DATABASES: Final = frozenset((".db", ".db3", ".sqlite", ".sqlite3", ".duckdb"))
"""Of empty files: databases that hold nothing yet."""
_TABLES: Final = frozenset((".csv", ".tsv", ".jsonl", ".ndjson", ".log"))


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
    yield from _settings_of_java(real)
    for place in dict.fromkeys((path, real)):
        before, middle, _ = place.partition("/node_modules/")
        if middle:
            yield os.path.realpath(f"{before}/node_modules")
        above = os.path.dirname(os.path.dirname(place))
        if os.path.isfile(f"{above}/pyvenv.cfg"):
            yield os.path.realpath(above)
            yield from _interpreter_of(above)


def _settings_of_java(program: str) -> Iterator[str]:
    """The folder below /etc in which a distribution keeps the files of a JDK's `conf`."""
    if program.startswith("/usr/lib/jvm/") and os.path.basename(program) == "java":
        home = os.path.dirname(os.path.dirname(program))
        settings = os.path.dirname(os.path.realpath(f"{home}/conf/net.properties"))
        if settings.startswith("/etc/java"):
            yield settings


def _interpreter_of(environment: str) -> Iterator[str]:
    """The Python installation that a virtual environment was made from."""
    real = os.path.realpath(f"{environment}/bin/python")
    installation = os.path.dirname(os.path.dirname(real))
    # A dangling symlink could name any folder, which would then be shown to the program.
    is_program = os.path.isfile(real) and os.access(real, os.X_OK)
    if is_program and not real.startswith("/usr/") and os.path.isdir(f"{installation}/lib"):
        yield installation


def is_data(path: str, position: int) -> bool:
    """Whether an argument names a database, a log or a table: what a program writes, and nothing runs.

    In doubt a file is code: a program that writes its own code would be another one at its next start, for
    whichever agent starts it, without a person who accepted it. Settings count as code, since many name
    programs; so do pickles and other binary files, which some programs run.
    """
    real = os.path.realpath(path)
    suffixes = {os.path.splitext(name)[1].lower() for name in (path, real)}
    if os.access(real, os.X_OK) or suffixes & _CODE_SUFFIXES:
        return False
    try:
        with open(real, "rb") as file:
            beginning = file.read(_HEADER_BYTES)
    except OSError:
        return False
    if beginning.startswith(_SQLITE) or beginning[8:12] == _DUCKDB:
        return True
    # `python x`: what stands right behind an interpreter is run, whatever its name.
    if position == 1 or beginning.startswith(b"#!"):
        return False
    return bool(suffixes & (_TABLES if beginning else _DATABASES))
