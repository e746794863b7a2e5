"""A witness in a folder: its key, the logs it knows, and the last checkpoint that it cosigned of each.

Run it under another account or on another machine than the logs: otherwise an attacker who rolls a log back
rolls the witness back, too. Requests come through `answer`, or as files through `answer_requests`.

A log that contradicts what it signed before is an error in the witness's own log (`toolkeep.audit`). Two
signed roots of one size prove it, and the second note is kept as evidence (`.fork`). A smaller log, or a
missing proof, does not: anybody who has an old checkpoint, from a receipt, can send that. It is an error once
the log itself has not shown better for a while.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import WitnessReason, WitnessRefused
from toolkeep.audit.signed_note import Algorithm, Note, Signature, Signer, VerifierKey
from toolkeep.audit.witness_protocol import REQUEST_BYTES, Answer, Request, consider, origin_of, refusal
from toolkeep.events import AuditAlarm
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import write_once, write_whole
from toolkeep.storage.state_folder import make_private

log = logging.getLogger("toolkeep.audit")

_KEY_BYTES = 32
"""Size of an Ed25519 seed (RFC 8032)."""
SETTLE_SECONDS: Final = 20.0
"""How long a smaller or unproven checkpoint may be somebody else's: a log sends its newest more often."""
_REQUEST, _COSIGNATURE, _REFUSED = ".request", ".cosignature", ".refused"


Alarm = Callable[[AuditAlarm], None]
"""Raises an alarm about a log."""


def log_alarm(alarm: AuditAlarm) -> None:
    """Raise an alarm in the program's own log alone."""
    fields = {"origin": alarm.origin, "witness": alarm.witness, "reason": alarm.reason}
    log.error(alarm.alarm, extra=fields)


class Answered(NamedTuple):
    """How many requests were cosigned and refused."""

    cosigned: int = 0
    refused: int = 0


class Witness:
    """Cosigns a checkpoint only if it extends the last one of the same log."""

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        keys: Iterable[VerifierKey] = (),
        clock: Callable[[], float] = time.time,
        alarm: Alarm = log_alarm,
    ) -> None:
        """`keys` are trusted beside those in the folder, as long as this witness lives."""
        self._alarm = alarm
        self._folder = folder
        self._clock = clock
        self._given = tuple(keys)
        self._doubted: dict[str, float] = {}
        self._alarmed: set[tuple[str, WitnessReason]] = set()
        make_private(folder)
        key = folder / "witness.key"
        if not is_there(key):
            made = Signer(name=name, algorithm=Algorithm.COSIGNATURE, seed=os.urandom(_KEY_BYTES))
            write_once(key, made.to_text().encode())
        self._signer = Signer.parse(key.read_text())

    @property
    def public_key(self) -> VerifierKey:
        """The key that verifies its cosignatures."""
        return self._signer.verifier

    @property
    def knows_a_log(self) -> bool:
        """Whether it trusts the key of any log; otherwise it can only refuse."""
        return bool(self._given) or any(self._folder.glob("*.keys"))

    def trust(self, key: VerifierKey | str) -> None:
        """Trust a key for the log that it names, in addition to the keys trusted before."""
        key = VerifierKey.parse(key) if isinstance(key, str) else key
        with self._locked():
            known = {*self.keys_of(key.name), key}
            write_whole(self._file(key.name, "keys"), "".join(f"{each}\n" for each in known).encode())

    def last(self, origin: str) -> str | None:
        """The last cosigned checkpoint of a log: an outside checkpoint for `verify`."""
        try:
            return self._file(origin, "checkpoint").read_bytes().decode()
        except FileNotFoundError:
            return None

    def submit(self, old_size: int, proof: Sequence[bytes], checkpoint: str) -> Signature:
        """Cosign a checkpoint that extends the last one, of size `old_size`; raises `WitnessRefused`."""
        return self.answer(Request(old_size=old_size, proof=tuple(proof), checkpoint=checkpoint))

    def answer_requests(self, folder: Path) -> Answered:
        """Answer each `*.request` file in the folder by a `.cosignature` or `.refused` file; how many.

        Others write to the folder, so only regular files count: a link could name any file of the witness,
        and a pipe would block it. A request that cannot be read or answered does not stop the others.
        """
        cosigned = refused = 0
        for path in sorted(folder.glob(f"*{_REQUEST}")):
            try:
                if not stat.S_ISREG(path.lstat().st_mode):
                    continue
                if self._answer_file(path):
                    cosigned += 1
                else:
                    refused += 1
            except OSError as error:
                fields = {"request": path.name, "reason": error.strerror}
                log.warning("a request to the witness could not be answered", extra=fields)
        return Answered(cosigned=cosigned, refused=refused)

    def _answer_file(self, path: Path) -> bool:
        """Whether the request was cosigned; otherwise it was refused."""
        try:
            answer = str(self.answer(Request.parse(_read(path))))
            suffix = _COSIGNATURE
        except WitnessRefused as refusal:
            answer, suffix = f"{refusal.held}\n{refusal.message}\n", _REFUSED
        write_whole(path.with_suffix(suffix), answer.encode())
        path.unlink()
        return suffix == _COSIGNATURE

    def respond(self, request: str) -> Answer:
        """The answer to a request as text, in any thread or process."""
        try:
            return Answer(200, str(self.answer(Request.parse(request))))
        except WitnessRefused as refused:
            return refusal(refused)
        except Exception:
            # A witness whose memory was changed, or cannot be written, cosigns nothing.
            log.exception("the witness could not answer")
            return Answer(500, "")

    def answer(self, request: Request) -> Signature:
        """Cosign the checkpoint of a request, in any thread or process; raises `WitnessRefused`."""
        origin = origin_of(request.checkpoint)
        # Compare and replace under one lock: two concurrent requests could otherwise both extend the same
        # checkpoint, and the witness would have cosigned two histories.
        with self._locked():
            keys = self.keys_of(origin)
            if not keys:
                raise WitnessRefused(WitnessReason.UNKNOWN_LOG, origin)
            try:
                new = consider(request, self._last(origin), keys)
            except WitnessRefused as refused:
                self._doubt(origin, refused, request.checkpoint)
                raise
            self._trust_again(origin)
            cosignature = self._signer.sign(new.text, timestamp=int(self._clock()))
            others = [s for s in Note.parse(request.checkpoint).signatures if s.key_id != cosignature.key_id]
            note = Note(text=new.text, signatures=(*others, cosignature))
            write_whole(self._file(origin, "checkpoint"), str(note).encode())
            return cosignature

    def _doubt(self, origin: str, refused: WitnessRefused, checkpoint: str) -> None:
        """Raise the alarm if the log contradicts what it signed before."""
        reason, now = refused.reason, self._clock()
        if reason is WitnessReason.FORK:
            write_once(self._file(origin, "fork"), checkpoint.encode())
        else:
            is_doubtful = reason in (WitnessReason.ROLLBACK, WitnessReason.NOT_PROVEN)
            if not is_doubtful or now - self._doubted.setdefault(origin, now) < SETTLE_SECONDS:
                return
        if (origin, reason) not in self._alarmed:
            self._alarmed.add((origin, reason))
            self._alarm(
                AuditAlarm(
                    alarm="a log contradicts what it signed before",
                    origin=origin,
                    reason=refused.message,
                    checkpoints=tuple(filter(None, (self.last(origin), checkpoint))),
                )
            )

    def _trust_again(self, origin: str) -> None:
        self._doubted.pop(origin, None)
        self._alarmed -= {(origin, reason) for reason in WitnessReason}

    def _last(self, origin: str) -> Checkpoint | None:
        written = self.last(origin)
        if written is None:
            return None
        note = Note.parse(written)
        note.signers([self.public_key])
        return Checkpoint.parse(note.text)

    def keys_of(self, origin: str) -> list[VerifierKey]:
        """The keys that it trusts for the log of this name."""
        given = [key for key in self._given if key.name == origin]
        try:
            lines = self._file(origin, "keys").read_text().splitlines()
        except FileNotFoundError:
            return given
        return [*given, *map(VerifierKey.parse, lines)]

    def peers(self) -> list[str]:
        """The logs whose servers it knows as witnesses, too: those that share a database with this one."""
        files = self._folder.glob("*.keys")
        names = {VerifierKey.parse(line).name for file in files for line in file.read_text().splitlines()}
        return sorted(name for name in names if f"{name}/witness" in names)

    def _file(self, origin: str, kind: str) -> Path:
        return self._folder / f"{hashlib.sha256(origin.encode()).hexdigest()[:32]}.{kind}"

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _read(path: Path) -> str:
    """A request, read up to the longest valid length; a longer one is cut, and refused for it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags), "rb") as file:  # noqa: PTH123 -- a descriptor
        return file.read(REQUEST_BYTES).decode(errors="replace")
