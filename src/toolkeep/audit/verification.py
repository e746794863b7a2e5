"""Verifies a scanned log against its signed checkpoints: those beside it, and external ones.

Trusts one public key, given or the keep's own, and follows key rotations: a rotation is a record that names
the next key, covered by a checkpoint that both keys signed. No I/O.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.findings import Finding, Kind, Report
from toolkeep.audit.log_scan import Rotation, Scan
from toolkeep.audit.merkle_tree import HASH_BYTES, Tree
from toolkeep.audit.signed_note import Note, VerifierKey


class VerificationInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The checkpoints of a log and the key to verify them with."""

    log: str
    key: VerifierKey | None
    key_source: str
    newest: str | None
    remembered: str | None
    """The last signed checkpoint as stored outside the log (`keys/log.signed`): detects a rolled-back log."""
    is_own: bool
    """Whether this is the keep's own log, so that `keys/log.signed` must exist."""
    kept: Sequence[str]
    outside: Mapping[str, str]
    """External checkpoints by their origin."""
    cosigned: Sequence[str] = ()
    """The stored checkpoints that witnesses cosigned."""
    witnesses: Sequence[VerifierKey] = ()
    """Witnesses that must have cosigned one of them."""


class _KeyValidity(msgspec.Struct):
    """A trusted key and the range of log sizes that it may sign."""

    key: VerifierKey
    first: int = 0
    last: float = float("inf")


class _Signed(msgspec.Struct, frozen=True):
    name: str
    note: Note
    checkpoint: Checkpoint


def verify_scan(scan: Scan, given: VerificationInputs) -> Report:
    """Verify a scanned log and report."""
    verifier = _Verifier(scan, given)
    verifier.verify()
    key = f"{given.key.name}+{given.key.key_id.hex()}, {given.key_source}" if given.key else "none"
    return Report(
        log=given.log,
        origin=given.key.name if given.key else "",
        records=scan.entries,
        covered=verifier.covered,
        torn_bytes=scan.torn_bytes,
        key=key,
        outside=tuple(verifier.used),
        cosigned=tuple(verifier.cosigned),
        findings=(*scan.findings, *verifier.findings),
        open_calls=len(scan.open_calls),
        unsigned_answers=len(scan.workers.unsigned),
    )


class _Verifier:
    def __init__(self, scan: Scan, given: VerificationInputs) -> None:
        self._scan = scan
        self._given = given
        self._tree = Tree(scan.leaves)
        self._key_validity = [_KeyValidity(given.key)] if given.key else []
        self.findings: list[Finding] = []
        self.used: list[str] = []
        self.cosigned: list[str] = []
        self.covered = 0

    def verify(self) -> None:
        given = self._given
        beside = [f"kept checkpoint {number}" for number, _ in enumerate(given.kept, start=1)]
        kept = [self._read(name, text) for name, text in zip(beside, given.kept, strict=True)]
        newest = self._read("the checkpoint", given.newest) if given.newest is not None else None
        remembered = (
            self._read("the remembered checkpoint", given.remembered)
            if given.remembered is not None
            else None
        )
        outside = [self._read(name, text) for name, text in given.outside.items()]
        # Rotations first: a checkpoint signed by the next key is invalid until that key is trusted.
        self._follow_keys([signed for signed in (*kept, newest, remembered) if signed])
        self._check_presence([*kept, remembered], newest)
        for signed in (*kept, newest, remembered):
            if signed:
                self._check(signed)
        for signed in outside:
            # A checkpoint of another log says nothing about this one.
            if signed and (given.key is None or signed.checkpoint.origin == given.key.name):
                self.used.append(signed.name)
                self._check(signed)
        self._check_cosigned()

    def _check_cosigned(self) -> None:
        """Check the log against what witnesses cosigned, and that each of the given ones did."""
        origin = self._given.key.name if self._given.key else ""
        found = [self._read("a cosigned checkpoint", text) for text in self._given.cosigned]
        notes = [signed for signed in found if signed and signed.checkpoint.origin == origin]
        for signed in notes:
            self._check(signed)
        for witness in self._given.witnesses:
            times = [
                (signature.timestamp, signed.checkpoint.size)
                for signed in notes
                for signature in signed.note.signatures
                if witness.has_signed(signed.note.text, signature)
            ]
            if not times:
                self._found(Kind.CHECKPOINT, f"{witness.name} cosigned no checkpoint that is stored here")
                continue
            at, size = max(times)
            said = datetime.fromtimestamp(at, UTC).isoformat()
            self.cosigned.append(f"{witness.name}, {size} records at {said}")

    def _check_presence(self, earlier: "Sequence[_Signed | None]", newest: _Signed | None) -> None:
        """Check that checkpoints exist: an empty log is signed already, so a log without one lost it."""
        given, records = self._given, self._scan.entries
        was_signed = given.kept or given.outside or (given.newest, given.remembered) != (None, None)
        if given.key is None and was_signed:
            self._found(Kind.KEY, "there is no key to check the checkpoints with")
        largest = max((signed.checkpoint.size for signed in earlier if signed), default=-1)
        if given.newest is None and records and largest < 0:
            self._found(Kind.CHECKPOINT, f"there are {records} records and no checkpoint")
        if largest >= 0 and (given.newest is None or (newest and newest.checkpoint.size < largest)):
            self._found(Kind.CHECKPOINT, f"the newest is gone or older than one signed at size {largest}")
        # The keep writes `keys/log.signed` with its first checkpoint. Whoever removes it wants a rollback to
        # go unseen.
        if given.is_own and given.remembered is None and (records or (newest and newest.checkpoint.size)):
            lost = "keys/log.signed is gone, or the log was made by a toolkeep that did not write it yet"
            self._found(Kind.CHECKPOINT, lost)

    def _read(self, name: str, text: str) -> _Signed | None:
        try:
            note = Note.parse(text)
            return _Signed(name, note, Checkpoint.parse(note.text))
        except NoteInvalid as error:
            self._found(Kind.CHECKPOINT, f"{name}: {error.message}")
            return None

    def _check(self, signed: _Signed) -> None:
        checkpoint = signed.checkpoint
        try:
            # Limited to the key's own range: a retired key that leaks later must not sign newer history.
            valid = [one.key for one in self._key_validity if one.first <= checkpoint.size <= one.last]
            signed.note.signers([key for key in valid if key.name == checkpoint.origin])
        except NoteInvalid as error:
            self._found(Kind.CHECKPOINT, f"{signed.name}, of size {checkpoint.size}: {error.message}")
            return
        # More was signed than is here: the log was truncated or rolled back, even if the rest is intact.
        if checkpoint.size > self._scan.entries:
            lost = f"{checkpoint.size} records were signed, and {self._scan.entries} are here"
            self._found(Kind.CUT, f"{signed.name}: {lost}", index=self._scan.entries)
        # Leaves are collected up to the first gap only; beyond it no root can be computed.
        elif checkpoint.size > len(self._scan.leaves) // HASH_BYTES:
            self._found(Kind.ROOT, f"{signed.name}, of size {checkpoint.size}: records are missing before it")
        elif self._tree.root(checkpoint.size) != checkpoint.root:
            between = f"something before record {checkpoint.size} was changed"
            since = f", not before record {self.covered}" if 0 < self.covered < checkpoint.size else ""
            self._found(Kind.ROOT, f"{signed.name}: {between}{since}")
        else:
            self.covered = max(self.covered, checkpoint.size)

    def _follow_keys(self, notes: Sequence[_Signed]) -> None:
        """Extend trust to earlier and later keys along valid rotations."""
        for rotation in self._scan.rotations:
            self._apply_rotation(rotation, notes, is_forward=True)
        for rotation in reversed(self._scan.rotations):
            self._apply_rotation(rotation, notes, is_forward=False)

    def _apply_rotation(self, rotation: Rotation, notes: Sequence[_Signed], *, is_forward: bool) -> None:
        try:
            old, new = VerifierKey.parse(rotation.key), VerifierKey.parse(rotation.next_key)
            size = _size_of_rotation(rotation, old, new, notes)
        except NoteInvalid as error:
            # A rotation without a covering checkpoint is pending: the process may have died before it signed.
            if is_forward and any(signed.checkpoint.size > rotation.index for signed in notes):
                self._found(Kind.KEY, f"no checkpoint shows the hand-over: {error.message}", rotation.index)
            return
        trusted, other = (old, new) if is_forward else (new, old)
        validity = {one.key: one for one in self._key_validity}
        if trusted not in validity or other in validity:
            return
        before = validity[old] if is_forward else _KeyValidity(old)
        after = _KeyValidity(new) if is_forward else validity[new]
        before.last, after.first = size, size
        self._key_validity.append(after if is_forward else before)

    def _found(self, kind: Kind, message: str, index: int | None = None) -> None:
        self.findings.append(Finding(kind=kind, message=message, index=index))


def _size_of_rotation(
    rotation: Rotation, old: VerifierKey, new: VerifierKey, notes: Sequence[_Signed]
) -> int:
    """Size of the first checkpoint signed by both keys.

    A record alone proves no rotation: anyone who can append to the log's files could name a key of their own.
    """
    for signed in sorted(notes, key=lambda each: each.checkpoint.size):
        if signed.checkpoint.size > rotation.index and len(signed.note.signers([old, new])) == 2:
            return signed.checkpoint.size
    raise NoteInvalid(f"{old.name}+{old.key_id.hex()} and {new.key_id.hex()} did not sign one together")
