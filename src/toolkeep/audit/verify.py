"""Holds a scanned log against its checkpoints: those beside it, and those that others kept.

Trusts one public key, the given one or the keep's own, and the keys it hands over to: a hand-over is a record
that names the next key, under a checkpoint that both keys signed. No I/O.
"""

from collections.abc import Mapping, Sequence

import msgspec

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.findings import Finding, Kind, Report
from toolkeep.audit.note import Note, VerifierKey
from toolkeep.audit.scan import Rotation, Scan
from toolkeep.audit.tree import HASH_BYTES, Tree


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What lies beside a log, and what it is checked with."""

    log: str
    key: VerifierKey | None
    key_source: str
    newest: str | None
    remembered: str | None
    """What was signed, as it is remembered outside the log."""
    is_own: bool
    """Whether the key of the keep lies beside the log, and with it what was signed."""
    kept: Sequence[str]
    outside: Mapping[str, str]
    """Checkpoints from elsewhere, by where they come from."""


class _Term(msgspec.Struct):
    """A trusted key, and the sizes of log that it may sign."""

    key: VerifierKey
    first: int = 0
    last: float = float("inf")


class _Signed(msgspec.Struct, frozen=True):
    name: str
    note: Note
    checkpoint: Checkpoint


def compare(scan: Scan, given: Given) -> Report:
    """The report on a log that was scanned."""
    judge = _Judge(scan, given)
    judge.compare()
    key = f"{given.key.name}+{given.key.key_id.hex()}, {given.key_source}" if given.key else "none"
    return Report(
        log=given.log,
        origin=given.key.name if given.key else "",
        records=scan.entries,
        covered=judge.covered,
        torn_bytes=scan.torn_bytes,
        key=key,
        outside=tuple(judge.used),
        findings=(*scan.findings, *judge.findings),
        open_calls=len(scan.open_calls),
    )


class _Judge:
    def __init__(self, scan: Scan, given: Given) -> None:
        self._scan = scan
        self._given = given
        self._tree = Tree(scan.leaves)
        self._terms = [_Term(given.key)] if given.key else []
        self.findings: list[Finding] = []
        self.used: list[str] = []
        self.covered = 0

    def compare(self) -> None:
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
        self._follow_keys([signed for signed in (*kept, newest, remembered) if signed])
        self._check_presence([*kept, remembered], newest)
        for signed in (*kept, newest, remembered):
            if signed:
                self._check(signed)
        for signed in outside:
            if signed and (given.key is None or signed.checkpoint.origin == given.key.name):
                self.used.append(signed.name)
                self._check(signed)

    def _check_presence(self, earlier: "Sequence[_Signed | None]", newest: _Signed | None) -> None:
        """A log is signed before its first record, so one without its checkpoints lost them."""
        given, records = self._given, self._scan.entries
        was_signed = given.kept or given.outside or (given.newest, given.remembered) != (None, None)
        if given.key is None and was_signed:
            self._found(Kind.KEY, "there is no key to check the checkpoints with")
        largest = max((signed.checkpoint.size for signed in earlier if signed), default=-1)
        if given.newest is None and records and largest < 0:
            self._found(Kind.CHECKPOINT, f"there are {records} records and no checkpoint")
        if largest >= 0 and (given.newest is None or (newest and newest.checkpoint.size < largest)):
            self._found(Kind.CHECKPOINT, f"the newest is gone or older than one signed at size {largest}")
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
            in_term = [term.key for term in self._terms if term.first <= checkpoint.size <= term.last]
            signed.note.signers([key for key in in_term if key.name == checkpoint.origin])
        except NoteInvalid as error:
            self._found(Kind.CHECKPOINT, f"{signed.name}, of size {checkpoint.size}: {error.message}")
            return
        if checkpoint.size > self._scan.entries:
            lost = f"{checkpoint.size} records were signed, and {self._scan.entries} are here"
            self._found(Kind.CUT, f"{signed.name}: {lost}", index=self._scan.entries)
        elif checkpoint.size > len(self._scan.leaves) // HASH_BYTES:
            self._found(Kind.ROOT, f"{signed.name}, of size {checkpoint.size}: records are missing before it")
        elif self._tree.root(checkpoint.size) != checkpoint.root:
            between = f"something before record {checkpoint.size} was changed"
            since = f", not before record {self.covered}" if 0 < self.covered < checkpoint.size else ""
            self._found(Kind.ROOT, f"{signed.name}: {between}{since}")
        else:
            self.covered = max(self.covered, checkpoint.size)

    def _follow_keys(self, notes: Sequence[_Signed]) -> None:
        """Trust the keys before and after the one we hold, as far as hand-overs lead."""
        for rotation in self._scan.rotations:
            self._hand_over(rotation, notes, is_forward=True)
        for rotation in reversed(self._scan.rotations):
            self._hand_over(rotation, notes, is_forward=False)

    def _hand_over(self, rotation: Rotation, notes: Sequence[_Signed], *, is_forward: bool) -> None:
        try:
            old, new = VerifierKey.parse(rotation.key), VerifierKey.parse(rotation.next_key)
            size = _size_of_hand_over(rotation, old, new, notes)
        except NoteInvalid as error:
            # What no checkpoint covers has not happened yet: whoever rotates may be stopped before it signs.
            if is_forward and any(signed.checkpoint.size > rotation.index for signed in notes):
                self._found(Kind.KEY, f"no checkpoint shows the hand-over: {error.message}", rotation.index)
            return
        trusted, other = (old, new) if is_forward else (new, old)
        terms = {term.key: term for term in self._terms}
        if trusted not in terms or other in terms:
            return
        before = terms[old] if is_forward else _Term(old)
        after = _Term(new) if is_forward else terms[new]
        before.last, after.first = size, size
        self._terms.append(after if is_forward else before)

    def _found(self, kind: Kind, message: str, index: int | None = None) -> None:
        self.findings.append(Finding(kind=kind, message=message, index=index))


def _size_of_hand_over(
    rotation: Rotation, old: VerifierKey, new: VerifierKey, notes: Sequence[_Signed]
) -> int:
    for signed in sorted(notes, key=lambda each: each.checkpoint.size):
        if signed.checkpoint.size > rotation.index and len(signed.note.signers([old, new])) == 2:
            return signed.checkpoint.size
    raise NoteInvalid(f"{old.name}+{old.key_id.hex()} and {new.key_id.hex()} did not sign one together")
