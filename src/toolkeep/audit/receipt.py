"""A receipt: one record of the log, and the proof that the log holds it, to be checked offline by anybody.

Comes in: an entry and its proof. Goes out: JSON data. Who checks it needs the log's public key and nothing
else. It shows that the log signed a history with this record in it, not that there is no other history: that,
a witness's cosignature on the checkpoint shows, as far as the witness is trusted.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint
from toolkeep.audit.entry import Entry
from toolkeep.audit.errors import NoteInvalid, ReceiptInvalid
from toolkeep.audit.note import Note, VerifierKey
from toolkeep.audit.proof import Proof
from toolkeep.audit.tree import leaf_hash

RECEIPT_VERSION: Final = 1
_FIELDS = {"receipt", "index", "previous", "record", "key", "proof"}


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A record with everything that proves it is in the log. Making one checks nothing."""

    entry: Entry
    key: str
    """The key that signed the checkpoint, as `name+id`: which public key to check with."""
    proof: str
    """The tlog-proof text: index, path, checkpoint."""

    @classmethod
    def of(cls, entry: Entry, proof: Proof) -> "Receipt":
        """The receipt for an entry."""
        note = Note.parse(proof.checkpoint)
        origin = Checkpoint.parse(note.text).origin
        # Witnesses may stand in front of the log.
        signature = next((one for one in note.signatures if one.name == origin), note.signatures[0])
        return cls(entry=entry, key=f"{signature.name}+{signature.key_id.hex()}", proof=str(proof))

    @classmethod
    def parse(cls, receipt: Mapping[str, Any] | str | bytes) -> "Receipt":
        """Read a receipt from JSON text or data."""
        # json, unlike faster readers, keeps the digits of large integers, which the hash is over.
        try:
            data = _read(receipt) if isinstance(receipt, str | bytes) else dict(receipt)
        except (ValueError, RecursionError) as error:
            raise ReceiptInvalid("it is not JSON") from error
        if not isinstance(data, dict) or data.keys() != _FIELDS or data["receipt"] != RECEIPT_VERSION:
            raise ReceiptInvalid("it is no receipt of a kind that is known here")
        try:
            entry = {name: data[name] for name in ("index", "previous", "record")}
            return msgspec.convert({"entry": entry, "key": data["key"], "proof": data["proof"]}, cls)
        except msgspec.ValidationError as error:
            raise ReceiptInvalid(str(error)) from error

    def to_dict(self) -> dict[str, Any]:
        """The receipt as JSON data."""
        return {
            "receipt": RECEIPT_VERSION,
            "index": self.entry.index,
            "previous": self.entry.previous,
            "record": self.entry.record,
            "key": self.key,
            "proof": self.proof,
        }


def _read(text: str | bytes) -> Any:
    return json.loads(text, object_pairs_hook=_each_once)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which no key stands twice: another reader would show the value that was not checked."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ReceiptInvalid("a key stands in it twice")
    return found


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What a receipt has been shown to prove."""

    origin: str
    index: int
    size: int
    """The size of the log that was signed."""
    record: dict[str, Any]
    witnesses: tuple[str, ...]
    """Those of the given witnesses that cosigned the checkpoint."""


def verify_receipt(
    receipt: Receipt | Mapping[str, Any] | str | bytes,
    public_key: VerifierKey | str,
    *,
    witnesses: Sequence[VerifierKey] = (),
) -> Verified:
    """Check a receipt with the log's public key alone; raises `ReceiptInvalid` where it proves nothing."""
    receipt = receipt if isinstance(receipt, Receipt) else Receipt.parse(receipt)
    try:
        key = VerifierKey.parse(public_key) if isinstance(public_key, str) else public_key
        proof = Proof.parse(receipt.proof)
        checkpoint = open_checkpoint(proof.checkpoint, [key])
        leaf = leaf_hash(receipt.entry.line)
        cosigned = Note.parse(proof.checkpoint).signers([key, *witnesses])
    except (NoteInvalid, TypeError, ValueError, RecursionError) as error:
        raise ReceiptInvalid(getattr(error, "message", str(error))) from error
    if proof.index != receipt.entry.index or not proof.has_leaf(leaf):
        raise ReceiptInvalid("the record is not the one that the checkpoint covers at this index")
    return Verified(
        origin=checkpoint.origin,
        index=proof.index,
        size=checkpoint.size,
        record=receipt.entry.record,
        witnesses=tuple(witness.name for witness in cosigned if witness != key),
    )
