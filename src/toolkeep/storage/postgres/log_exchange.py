"""Servers that share a PostgreSQL watch each other's logs.

Each publishes its newest checkpoint once a second, asks the others to cosign it, and cosigns theirs if they
extend the last one that it remembers on its own disk (`witness/`): what the database says about the past
decides nothing. The keys of another server are trusted on first sight of a row with a valid MAC, and
remembered on disk, too. An alarm is raised about a log that contradicts what it signed, that is signed with
another key, that its own server found broken, that a living server no longer publishes, or whose row is gone;
and if logs cannot be exchanged at all.

Whoever controls the database can show a server as if it had ended, or to some servers only, and cause false
alarms. A server that has ended is not asked, and raises none.
"""

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Sequence
from typing import Final

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.signed_note import Note, VerifierKey
from toolkeep.events import AuditAlarm
from toolkeep.limits import UNSEEN_SERVER_SECONDS
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.witness_client import WitnessClient
from toolkeep.storage.log.witness_folder import Alarm, Witness
from toolkeep.storage.postgres.log_copier import LogCopier
from toolkeep.storage.postgres.log_table import TOPIC, LogTable, PublishedLog, SeenLog
from toolkeep.storage.postgres.shared_changes import SharedChanges

log = logging.getLogger("toolkeep.audit")

EVERY_SECONDS: Final = 1.0
"""How often a server publishes its log, and looks at the others."""
SILENT_SECONDS: Final = 45.0
"""How long a living server may publish nothing before that is an alarm, which has a minute in all."""
_HIDDEN: Final = "the database no longer shows the log of a server"
_CLOSE_SECONDS: Final = 5.0
"""How long closing waits for the last checkpoint to be published: as long as a change is repeated."""


class LogExchange:
    """One server's side, in a thread of its own."""

    def __init__(
        self, audit: AuditLog, table: LogTable, copier: LogCopier, changes: SharedChanges, alarm: Alarm
    ) -> None:
        self._audit = audit
        self._copier = copier
        self._table = table
        self._changes = changes
        self._alarm = alarm
        self._witness: Witness | None = None
        self._clients: dict[str, WitnessClient] = {}
        self._raised: dict[str, str] = {}
        self._handover = ("", "")
        self._trouble = ""
        self._late = ""
        self._covered_at = 0.0
        self._newest: str | None = ""
        self._is_told = False
        self._shown: set[str] = set()
        """The logs that this process has seen in the database."""
        self._exchanged_at = time.monotonic()
        self._origin = ""
        self._due = 0.0
        self._is_asked = False
        self._is_behind = False
        self._is_over = threading.Event()
        self._wake = threading.Event()
        self._thread = threading.Thread(target=self._run, name="toolkeep-logs", daemon=True)
        self._thread.start()

    def witnesses(self) -> Sequence[WitnessClient]:
        """The other servers, as witnesses of this one's log."""
        return list(self._clients.values())

    def close(self) -> None:
        """Publish the last checkpoint, unless the log was open for a moment only; then stop."""
        self._is_over.set()
        self._wake.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        if self._is_over.wait(EVERY_SECONDS):
            return
        unwatch = self._changes.watch(TOPIC, self._heard)
        while not self._is_over.is_set():
            self._wake.clear()
            self._attempt()
            self._wake.wait(max(0.0, self._due - time.monotonic()))
        unwatch()
        self._due, until = 0.0, time.monotonic() + _CLOSE_SECONDS
        with contextlib.suppress(Exception):  # logged by the attempt
            while not self._trouble and not self._is_copied() and time.monotonic() < until:
                pass
        self._attempt()

    def _heard(self, key: str) -> None:
        if key == self._origin:
            self._is_asked = True
            self._wake.set()

    def _attempt(self) -> None:
        try:
            self._round()
            self._is_told, self._exchanged_at = False, time.monotonic()
            self._raise("", "", "")
        except Exception as error:  # noqa: BLE001 -- the next round may succeed
            now = time.monotonic()
            self._due = now + EVERY_SECONDS
            if not self._is_told:
                log.warning("the logs of servers are not exchanged", extra={"reason": str(error)})
            self._is_told = True
            if now - self._exchanged_at > SILENT_SECONDS:
                reason = f"for {SILENT_SECONDS:.0f} s: {type(error).__name__}"
                self._raise("", "the logs of servers are not exchanged", reason)

    def _round(self) -> None:
        witness = self._witness or self._begin()
        is_due = time.monotonic() >= self._due
        if (is_due or self._is_behind) and not self._trouble:
            self._is_behind = not self._is_copied()
            if self._is_behind:
                self._wake.set()
        if is_due:
            self._due = time.monotonic() + EVERY_SECONDS
            self._table.publish(self._own(witness))
            published = self._table.published()
            for seen in published:
                if seen.log.origin != self._origin:
                    self._look(seen, witness)
            for origin in self._shown - {seen.log.origin for seen in published}:
                self._raise(origin, _HIDDEN, "its row is gone")
        if is_due or self._is_asked:  # a notice may be lost
            self._is_asked = False
            self._table.answer(self._origin, witness.respond)

    def _begin(self) -> Witness:
        try:
            self._copier.begin()
        except AuditBroken as broken:
            self._trouble = broken.message
        self._origin = self._audit.public_key().name
        if self._trouble:
            self._raise(self._origin, "this log contradicts what it signed", self._trouble)
        folder = self._audit.folder / "witness"
        self._witness = Witness(folder, name=f"{self._origin}/witness", alarm=self._alarm)
        return self._witness

    def _is_copied(self) -> bool:
        """Copy some of the log; whether that was the rest."""
        newest = self._audit.newest_checkpoint()
        is_all = newest is None or self._copier.copy(newest)
        now, is_newer = time.monotonic(), newest != self._newest
        # A busy log always has records after its newest checkpoint.
        if is_newer or not is_all or not self._copier.has_more():
            self._covered_at, self._newest = now, newest
        self._late = ""
        if now - self._covered_at > SILENT_SECONDS:
            self._late = f"no checkpoint has covered its last records for {SILENT_SECONDS:.0f} s"
        self._raise(self._origin, "this log is no longer signed", self._late)
        return is_all

    def _own(self, witness: Witness) -> PublishedLog:
        key = str(self._audit.public_key())
        if self._handover[0] != key:
            self._handover = key, _handover(self._origin, self._audit.kept_checkpoints())
        return PublishedLog(
            origin=self._origin,
            key=key,
            witness_key=str(witness.public_key),
            checkpoint=self._audit.newest_checkpoint() or "",
            handover=self._handover[1],
            trouble=self._trouble or self._late,
            server="" if self._is_over.is_set() else self._table.server,
            name=socket.gethostname(),
            copied=self._copier.copied,
        )

    def _look(self, seen: SeenLog, witness: Witness) -> None:
        """Raise the alarm about a log where something is wrong, once; ask its server to cosign where not."""
        published = seen.log
        wrong = ("", "")
        if not seen.is_authentic:
            alarm = _HIDDEN if published.origin in self._shown else ""
            wrong = alarm, "its row in the database carries no MAC of a server"
        elif reason := distrust(published, witness):
            wrong = "the log of a server is signed with another key", reason
        elif published.trouble:
            wrong = "a server found its own log broken", published.trouble
        elif seen.is_seen and seen.age_s > SILENT_SECONDS:
            wrong = "a server no longer publishes its log", f"it lives, and did so {seen.age_s:.0f} s ago"
        if seen.is_authentic:
            self._shown.add(published.origin)
        self._raise(published.origin, *wrong)
        if wrong[1] or not published.server or seen.age_s > UNSEEN_SERVER_SECONDS:
            self._clients.pop(published.origin, None)
        elif published.origin not in self._clients:
            self._clients[published.origin] = WitnessClient(
                self._audit,
                VerifierKey.parse(published.witness_key),
                self._table.asking(self._origin, published.origin),
                alarm=self._alarm,
            )

    def _raise(self, origin: str, alarm: str, reason: str) -> None:
        """Raise an alarm once, until something else is wrong or nothing is."""
        if not reason:
            self._raised.pop(origin, None)
        elif self._raised.get(origin) != alarm:
            self._raised[origin] = alarm
            if alarm:
                self._alarm(AuditAlarm(alarm=alarm, origin=origin or self._origin, reason=reason))
            else:
                log.warning("the log of a server is left out", extra={"origin": origin, "reason": reason})


def distrust(published: PublishedLog, witness: Witness) -> str:
    """Why the keys of a log are not the remembered ones; those of a log seen for the first time are."""
    try:
        keys = VerifierKey.parse(published.key), VerifierKey.parse(published.witness_key)
    except NoteInvalid as error:
        return error.message
    if (keys[0].name, keys[1].name) != (published.origin, f"{published.origin}/witness"):
        return "its keys have names of another log"
    for key in keys:
        known = witness.keys_of(key.name)
        if key not in known:
            if known and not _is_handed_over(published.handover, known, key):
                return f"{key.name}+{key.key_id.hex()} is not {known[-1].key_id.hex()}, which is remembered"
            witness.trust(key)
    return ""


def _is_handed_over(handover: str, known: Sequence[VerifierKey], key: VerifierKey) -> bool:
    """Whether a remembered key signed a checkpoint of the log together with the new one."""
    try:
        note = Note.parse(handover)
        return key in note.signers([*known, key]) and bool(note.signers(known)) and _origin(note) == key.name
    except NoteInvalid:
        return False


def _handover(origin: str, kept: Sequence[str]) -> str:
    """The last checkpoint that two keys of a log signed."""
    for written in reversed(kept):
        if sum(signature.name == origin for signature in Note.parse(written).signatures) > 1:
            return written
    return ""


def _origin(note: Note) -> str:
    return Checkpoint.parse(note.text).origin
