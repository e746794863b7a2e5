"""The last checkpoint of a log that each of its witnesses cosigned: a file each in `cosigned/`.

Receipts are made with them. With the position of the log at that checkpoint, the proof for the next one reads
only what was added since. Nothing here is trusted: signatures are verified where they count, and the witness
refuses a wrong proof.
"""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.errors import AuditBroken, NoteInvalid
from toolkeep.audit.merkle_tree import HASH_BYTES, Frontier, growth
from toolkeep.audit.signed_note import Note, VerifierKey
from toolkeep.storage.log.resume_point import find_place, save_place, saved_checkpoint
from toolkeep.storage.log.segments import Place, read_leaves
from toolkeep.storage.state_folder import make_private

if TYPE_CHECKING:
    from toolkeep.storage.log.audit_log import AuditLog


def cosigned_folder(state: Path) -> Path:
    """The folder of the cosigned checkpoints."""
    return state / "cosigned"


def cosigned_notes(state: Path) -> list[Note]:
    """A note for each cosigned checkpoint, with the signatures of all its witnesses; unverified."""
    merged: dict[str, Note] = {}
    for path in sorted(cosigned_folder(state).glob("*.json")):
        try:
            note = Note.parse(saved_checkpoint(path) or "")
            Checkpoint.parse(note.text)
        except NoteInvalid:
            continue
        before = merged.get(note.text, note)
        signatures = {(one.name, one.key_id): one for one in (*before.signatures, *note.signatures)}
        merged[note.text] = Note(text=note.text, signatures=tuple(signatures.values()))
    return list(merged.values())


def covering(state: Path, index: int, origin: str) -> str | None:
    """The checkpoint of a log over a record that most witnesses cosigned; None if none did."""
    best: tuple[int, int, str | None] = (0, 0, None)
    for note in cosigned_notes(state):
        checkpoint = Checkpoint.parse(note.text)
        if checkpoint.origin == origin and checkpoint.size > index:
            best = max(best, (len(note.signatures), checkpoint.size, str(note)))
    return best[2]


class CosignedCheckpoint:
    """The last checkpoint of a log that one witness cosigned, and proofs that later ones extend it."""

    def __init__(self, log: "AuditLog", witness: VerifierKey) -> None:
        self._log = log
        self._witness = witness
        self._audit = log.folder / "audit"
        name = hashlib.sha256(str(witness).encode()).hexdigest()[:32]
        self._file = cosigned_folder(log.folder) / f"{name}.json"
        self._proven: tuple[Place, Frontier] | None = None

    def size(self) -> int:
        """The size that the witness cosigned last; 0 if that is not known."""
        try:
            note = Note.parse(saved_checkpoint(self._file) or "")
            note.signers([self._witness])
            return Checkpoint.parse(note.text).size
        except NoteInvalid:
            return 0  # the witness then says from which size to go on

    def prove_growth(self, old_size: int, checkpoint: str) -> list[bytes]:
        """The consistency proof from a size to a checkpoint; raises `AuditBroken` if the log is another."""
        new = Checkpoint.parse(Note.parse(checkpoint).text)
        place, frontier = self._place(old_size)
        if not old_size:
            self._read(place, frontier, new.size)
            proof = []
        else:
            added = b"".join(read_leaves(self._audit, place, new.size))
            leaves = [added[at : at + HASH_BYTES] for at in range(0, len(added), HASH_BYTES)]
            proof = growth(frontier, leaves)
            frontier.extend(leaves)
        if frontier.root() != new.root:
            reason = f"the first {new.size} records are not those it signed"
            raise AuditBroken(str(self._audit / "checkpoint"), reason)
        self._proven = place, frontier
        return proof

    def save(self, note: Note) -> None:
        """Store what the witness cosigned, which was proven last."""
        if self._proven is not None:
            make_private(self._file.parent)
            save_place(self._file, *self._proven, str(note))

    def _place(self, size: int) -> tuple[Place, Frontier]:
        """The position in the log at a size: from the last cosigned one on, or from the start of the log."""
        found = find_place(self._file, self._audit, self._log.public_key())
        place, frontier = found if found and found[0].size <= size else (Place(), Frontier())
        self._read(place, frontier, size)
        return place, frontier

    def _read(self, place: Place, frontier: Frontier, stop: int) -> None:
        for leaves in read_leaves(self._audit, place, stop):
            frontier.extend(leaves[at : at + HASH_BYTES] for at in range(0, len(leaves), HASH_BYTES))
