"""Witness protocol (c2sp.org/tlog-witness): the request of a log, the checks of the witness, its answer.

A witness remembers the last checkpoint of each log. A new one must be signed by the log and come with a
consistency proof that extends the last. The holder of the log's key could fork the history; the witness
refuses the fork. No I/O: requests and answers are text, however they are exchanged.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint, parse_size
from toolkeep.audit.errors import NoteInvalid, WitnessReason, WitnessRefused
from toolkeep.audit.merkle_tree import EMPTY_ROOT, is_consistent
from toolkeep.audit.signed_note import NOTE_BYTES, Note, VerifierKey, decode_hash, encode_hash

REQUEST_BYTES: Final = 2 * NOTE_BYTES
"""A checkpoint, and more than the longest proof."""
PROOF_LINES: Final = 63
"""Maximum length of a consistency proof (tlog-witness): one hash for each bit of a size."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A cosigning request from a log."""

    old_size: int
    proof: tuple[bytes, ...]
    checkpoint: str

    @classmethod
    def parse(cls, text: str) -> "Request":
        """Parse the text form."""
        head, blank, checkpoint = text.partition("\n\n")
        old, *proof = head.split("\n")
        if not blank or not old.startswith("old ") or len(proof) > PROOF_LINES:
            raise WitnessRefused(WitnessReason.MALFORMED, "this is not a witness request")
        try:
            size, hashes = parse_size(old.removeprefix("old ")), tuple(map(decode_hash, proof))
        except NoteInvalid as error:
            raise WitnessRefused(WitnessReason.MALFORMED, error.message) from error
        return cls(old_size=size, proof=hashes, checkpoint=checkpoint)

    def __str__(self) -> str:
        proof = "".join(f"{encode_hash(node)}\n" for node in self.proof)
        return f"old {self.old_size}\n{proof}\n{self.checkpoint}"


class Answer(NamedTuple):
    """The answer of a witness: an HTTP status, and text."""

    status: int
    text: str


_STATUS: Final = {
    WitnessReason.MALFORMED: 400,
    WitnessReason.NOT_SIGNED: 403,
    WitnessReason.UNKNOWN_LOG: 404,
    WitnessReason.OTHER_SIZE: 409,
    WitnessReason.ROLLBACK: 409,
    WitnessReason.FORK: 409,
    WitnessReason.NOT_PROVEN: 422,
}


def refusal(refused: WitnessRefused) -> Answer:
    """The answer of a witness that does not cosign: at 409 the size that it holds, else the reason."""
    status = _STATUS[refused.reason]
    return Answer(status, f"{refused.held if status == 409 else refused.message}\n")


def origin_of(checkpoint: str) -> str:
    """The origin that a checkpoint claims; nothing is verified."""
    try:
        return Checkpoint.parse(Note.parse(checkpoint).text).origin
    except NoteInvalid as error:
        raise WitnessRefused(WitnessReason.MALFORMED, error.message) from error


def consider(request: Request, last: Checkpoint | None, keys: Iterable[VerifierKey]) -> Checkpoint:
    """Verify a request; returns the checkpoint to cosign or raises `WitnessRefused`.

    `last` is the one cosigned before, `keys` are the log's.
    """
    held = last or Checkpoint(origin=origin_of(request.checkpoint), size=0, root=EMPTY_ROOT)
    try:
        new = open_checkpoint(request.checkpoint, keys)
    except NoteInvalid as error:
        raise WitnessRefused(WitnessReason.NOT_SIGNED, error.message, held=held.size) from error
    if new.origin != held.origin:
        raise WitnessRefused(WitnessReason.UNKNOWN_LOG, new.origin, held=held.size)
    if request.old_size > new.size:
        detail = f"a proof from size {request.old_size} to {new.size}"
        raise WitnessRefused(WitnessReason.MALFORMED, detail, held=held.size)
    # Checked before the proof: a smaller tree is a rollback, whatever it proves.
    if new.size < held.size:
        detail = f"{new.size} records, and {held.size} were cosigned"
        raise WitnessRefused(WitnessReason.ROLLBACK, detail, held=held.size)
    # The log must prove growth from what *this* witness holds; from another size the proof would be beside
    # the point.
    if request.old_size != held.size:
        detail = f"{held.size}, not {request.old_size}"
        raise WitnessRefused(WitnessReason.OTHER_SIZE, detail, held=held.size)
    if new.size == held.size and new.root != held.root:
        raise WitnessRefused(WitnessReason.FORK, f"size {new.size}", held=held.size)
    if not is_consistent(held.size, held.root, new.size, new.root, request.proof):
        detail = f"from size {held.size} to {new.size}"
        raise WitnessRefused(WitnessReason.NOT_PROVEN, detail, held=held.size)
    return new


def cosign(checkpoint: str, answer: str, key: VerifierKey) -> Note:
    """The checkpoint with the cosignature from the answer of a witness; raises `NoteInvalid` without one.

    Signatures of other keys in the answer are ignored, as the protocol demands.
    """
    note = Note.parse(checkpoint)
    given = Note.parse(f"{note.text}\n{answer}").signatures
    # Verified here: a witness that answers with anything else has not seen the checkpoint.
    found = next((signature for signature in given if key.has_signed(note.text, signature)), None)
    if found is None:
        raise NoteInvalid(f"{key.name} did not cosign the checkpoint")
    others = (signature for signature in note.signatures if signature.key_id != key.key_id)
    return Note(text=note.text, signatures=(*others, found))
