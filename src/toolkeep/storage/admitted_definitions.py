"""The definitions that this program admitted before, in the state folder: their warnings by definition hash.

An entry says that the schemas compiled quickly and that nothing in the text was suspicious. It was made under
the same limits by the same program and schema engine (`checking_program`), so that both would decide the same
again. Refusals are not stored.
"""

import dataclasses
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.errors import Problem
from toolkeep.limits import Limits
from toolkeep.storage.cache_folder import CacheFolder, checking_program

_FORMAT: Final = 1
_KEPT: Final = 4
"""Files: the command line and programs with limits of their own may use one state."""
_ENTRIES: Final = 20_000
"""Definitions of a file; the ones that were used last are kept."""

Entries = dict[str, tuple[Problem, ...]]


class AdmittedDefinitions:
    """The definitions that were admitted for one state under some limits."""

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
        self._used[definition_hash] = warnings
        self._is_changed = True

    def save(self) -> None:
        """Write what was added, and forget everything: later definitions are checked as they come."""
        if self._is_changed and self._facts is not None:
            kept = islice({**self._used, **(self._known or {})}.items(), _ENTRIES)
            self._cache.write(self._facts, msgspec.json.encode(dict(kept)))
        self._known, self._used, self._is_changed = {}, {}, False

    def _read(self) -> Entries:
        try:
            self._facts = [_FORMAT, *checking_program(), dataclasses.asdict(self._limits)]
            raw = self._cache.read(self._facts)
            return {} if raw is None else msgspec.json.decode(raw, type=Entries)
        except (OSError, ValueError):  # msgspec's errors are ValueErrors
            return {}
