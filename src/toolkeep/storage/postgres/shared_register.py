"""A small set that decides something and rarely changes, such as tokens, switches and rules: one sealed row.

A MAC covers the whole set, its version and the tokens of its last changes. Versions only rise, and a server
remembers on its disk the highest one that it has seen, with its token: a later one must follow on that. So
whoever has only the credential of the database can delete a set, and then nothing is decided until it is
back, but can neither write one nor put an older one back, also not by way of a server that has not seen the
newer one, unless that makes as many changes as there are tokens.
"""

import contextlib
import fcntl
import logging
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from toolkeep.errors import StoreUnavailable
from toolkeep.storage.atomic_files import write_whole
from toolkeep.storage.postgres.shared_changes import announce
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.state_folder import make_private

log = logging.getLogger("toolkeep.store")

Item = TypeVar("Item")
Answer = TypeVar("Answer")

REGISTERS: Final = "registers"
"""The topic of their changes; the key is the kind."""
VERSIONS: Final = "shared-versions"
"""Below the state folder; a file for each set."""
_TOKENS: Final = 16
"""The last changes, by token: one of them that is repeated after a lost answer is not made twice."""

_ADD = "INSERT INTO shared_registers (kind) VALUES (%s) ON CONFLICT DO NOTHING"
_LOCK = "SELECT version, content, mac, changes FROM shared_registers WHERE kind = %s FOR UPDATE"
_PUT = "UPDATE shared_registers SET version = %s, content = %s, mac = %s, changes = %s WHERE kind = %s"
# The content only where it is news.
_READ = """
SELECT version, CASE WHEN version <> %s OR changes <> %s THEN content END, mac, changes
FROM shared_registers WHERE kind = %s
"""


class SharedRegister(Generic[Item]):
    """One set of items by name, the same on all servers."""

    def __init__(
        self, kind: str, item: type[Item], database: SharedDatabase, key: RowKey, folder: Path | None
    ) -> None:
        """`folder` is the state folder of the server, where versions are remembered."""
        self._kind = kind
        self._decoder = msgspec.json.Decoder(dict[str, item])  # type: ignore[valid-type]  # known at run time
        self._database = database
        self._key = key
        self._seen = SeenVersion(folder, kind) if folder else None
        self._known: tuple[int, str, dict[str, Item]] = (0, "", {})

    def read(self) -> dict[str, Item]:
        """The items now; raises `StoreUnavailable`."""
        version, changes, items = self._known
        query = version, changes, self._kind
        row = self._database.read(
            lambda connection: connection.execute(_READ, query).fetchone(), patience_s=0.5
        )
        found, content, mac, made = row or (0, b"", None, "")
        if (found, made) != (version, changes):
            items = self._checked(found, content, mac, made)
            version, changes, _ = self._known = found, made, items
        self._remember(version, changes)
        return items

    def change(self, edit: Callable[[dict[str, Item]], Answer]) -> Answer:
        """Change the items in one transaction, on all servers; raises `StoreUnavailable`.

        `edit` changes a copy, and its answer is returned. Where it leaves everything as it was, nothing is
        written.
        """
        token, answers = secrets.token_hex(8), list[Answer]()

        def work(connection: Any) -> tuple[int, str, dict[str, Item]]:
            connection.execute(_ADD, (self._kind,))
            version, content, mac, changes = connection.execute(_LOCK, (self._kind,)).fetchone()
            items = self._checked(version, content, mac, changes)
            # Before the change: on top of an older set it would have a new version.
            self._remember(version, changes)
            if version and token in changes.split():
                # Made before its answer was lost. It is written again, so that it is replicated when we know.
                connection.execute(_PUT, (version, content, mac, changes, self._kind))
                return version, changes, items
            answers[:] = [edit(items)]
            encoded = msgspec.json.encode(items)
            if encoded != content:
                version += 1
                changes = " ".join([*(changes.split() if version > 1 else ()), token][-_TOKENS:])
                mac = self._key.mac(*self._parts(version, encoded, changes))
                connection.execute(_PUT, (version, encoded, mac, changes, self._kind))
                announce(connection, REGISTERS, self._kind)
            return version, changes, items

        self._known = self._database.change(work)
        self._remember(*self._known[:2])
        return answers[0]

    def _parts(self, version: int, content: bytes, changes: str) -> tuple[str | bytes, ...]:
        # With the tokens: one that is added would pass for a change that was made.
        return "register", self._kind, str(version), content, changes

    def _checked(self, version: int, content: bytes, mac: bytes | None, changes: str) -> dict[str, Item]:
        """The items of a row; raises if a server did not write it."""
        if not version:
            return {}
        if not self._key.is_authentic(mac, *self._parts(version, content, changes)):
            log.error("a shared set was not written by a server of this keep", extra={"kind": self._kind})
            hint = "check that all servers have the same database.key; restore the database if they do"
            raise StoreUnavailable(
                self._database.place.shown, f"its {self._kind} do not carry the servers' MAC", hint=hint
            )
        return self._decoder.decode(content)

    def _remember(self, version: int, changes: str) -> None:
        if self._seen is None:
            return
        try:
            highest = self._seen.rise(version, changes.split() if version else ())
        except Forked as forked:
            highest, relation = forked.seen, "another version"
        else:
            if highest <= version:
                return
            relation = "version"
        log.error(
            "a shared set is older than before",
            extra={"kind": self._kind, "version": version, "seen": highest},
        )
        hint = "if you restored a backup of the database on purpose, run: toolkeep database restored"
        reason = f"its {self._kind} have version {version}, and this server has seen {relation} {highest}"
        raise StoreUnavailable(self._database.place.shown, reason, hint=hint)


class Forked(Exception):
    """A version that does not follow on the one that was seen."""

    def __init__(self, seen: int) -> None:
        super().__init__(f"version {seen} is another one")
        self.seen = seen


class SeenVersion:
    """The highest version of a set that any process of this server has seen, and the token of its change."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._file = folder / VERSIONS / kind
        self._highest = (-1, "")

    def remembered(self) -> int:
        """The highest version on disk."""
        return self._read()[0]

    def rise(self, version: int, changes: Sequence[str] = ()) -> int:
        """Remember a version, with the tokens of the last changes up to it; the highest one now.

        Raises `Forked` where one that was seen is not among them.
        """
        last = changes[-1] if changes else ""
        if version > self._highest[0] or (version == self._highest[0] and last != self._highest[1]):
            with self._locked():
                highest, token = self._highest = self._read()
                since = version - highest
                if token and 0 <= since < len(changes) and changes[-1 - since] != token:
                    raise Forked(highest)
                if since > 0:
                    write_whole(self._file, f"{version} {last}".strip().encode())
                    self._highest = version, last
        return self._highest[0]

    def _read(self) -> tuple[int, str]:
        try:
            version, _, token = self._file.read_text().partition(" ")
        except FileNotFoundError:
            return 0, ""
        return int(version), token

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        make_private(self._file.parent)
        descriptor = os.open(self._file.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def forget_versions(folder: Path) -> list[str]:
    """Accept what the database has now, as after a restore; the kinds whose versions were forgotten."""
    files = sorted((folder / VERSIONS).glob("[!.]*")) if (folder / VERSIONS).is_dir() else []
    for file in files:
        file.unlink()
    return [file.name for file in files]
