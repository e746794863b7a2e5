"""What a start found out, in the state folder, for the next one: which definitions it admitted, by hash, and
what large configuration files say.

The same program and libraries found it out (`checking_program`), and would find the same again. What a
configuration says is still checked each time, and must be accepted.
"""

import dataclasses
import hashlib
import json
import os
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.errors import Problem
from toolkeep.json_values.yaml import Document, read_yaml
from toolkeep.limits import KIB, Limits
from toolkeep.storage.cache_folder import CacheFolder, checking_program

_FORMAT: Final = 1
_KEPT: Final = 4
"""Files: the command line and programs with limits of their own may use one state."""
_ENTRIES: Final = 20_000
"""Definitions of a file; the ones that were used last are kept."""

Entries = dict[str, tuple[Problem, ...]]


class AdmittedDefinitions:
    """The warnings about each definition that was admitted for one state under some limits.

    An entry says that its schemas compiled quickly and that nothing in its text was suspicious. Refusals are
    not stored.
    """

    def __init__(self, state_folder: Path, limits: Limits) -> None:
        self._cache = CacheFolder(state_folder / "admitted", kept=_KEPT)
        self._limits = limits
        self._facts: list[Any] | None = None
        self._known: Entries | None = None
        self._used: Entries = {}
        self._is_changed = False

    def warnings_of(self, definition_hash: str) -> tuple[Problem, ...] | None:
        """The warnings about the schemas of a definition that was admitted before."""
        if self._known is None:
            self._known = self._read()
        warnings = self._known.get(definition_hash)
        if warnings is not None:
            self._used[definition_hash] = warnings
        return warnings

    def add(self, definition_hash: str, warnings: tuple[Problem, ...]) -> None:
        """Note that a definition was admitted."""
        if len(self._used) < _ENTRIES:  # a server that runs for long admits many
            self._used[definition_hash] = warnings
            self._is_changed = True

    def save(self) -> None:
        """Write what was added."""
        if self._is_changed and self._facts is not None:
            kept = islice({**self._used, **(self._known or {})}.items(), _ENTRIES)
            self._cache.write(self._facts, msgspec.json.encode(dict(kept)))
        self._is_changed = False

    def _read(self) -> Entries:
        try:
            self._facts = [_FORMAT, *checking_program(), dataclasses.asdict(self._limits)]
            raw = self._cache.read(self._facts)
            return {} if raw is None else msgspec.json.decode(raw, type=Entries)
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return {}


_PARSED_FILES: Final = 8
"""Files: those of the user and the project, and their last edits."""
_LARGE: Final = 64 * KIB
"""From here on, parsing takes longer than finding out whether the program is the same."""


@lru_cache(maxsize=4)  # a command reads its configuration more than once, and nobody changes a document
def parse_once(state_folder: Path, raw: bytes, path: str) -> Document:
    """The parsed file; raises `FileUnreadable` as `read_yaml` does. Makes no state folder."""
    if len(raw) < _LARGE or not os.path.isdir(state_folder):  # noqa: PTH112 -- never raises
        return read_yaml(raw, path)
    cache = CacheFolder(state_folder / "parsed", kept=_PARSED_FILES)
    try:
        facts = [_FORMAT, *checking_program(), hashlib.sha256(raw).hexdigest()]
    except OSError:
        return read_yaml(raw, path)
    try:
        return Document.of_data(json.loads(cache.read(facts) or b""), raw, path)
    except ValueError:
        document = read_yaml(raw, path)
        cache.write(facts, json.dumps(document.data).encode())
        return document
