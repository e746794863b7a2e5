"""Receipts: one log record with its Merkle inclusion proof, verifiable offline by anybody.

In come an entry and its proof; out goes JSON data. A verifier needs only the log's public key. A receipt
proves that the log signed a history with this record. It does not prove that there is no other history (split
view); a witness's cosignature on the checkpoint does, as far as the witness is trusted.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint
from toolkeep.audit.entry import Entry
from toolkeep.audit.errors import NoteInvalid, ReceiptInvalid
from toolkeep.audit.inclusion_proof import Proof
from toolkeep.audit.merkle_tree import leaf_hash
from toolkeep.audit.signed_note import Note, VerifierKey

RECEIPT_VERSION: Final = 1
_FIELDS = {"receipt", "index", "previous", "record", "key", "proof"}


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """A record with its inclusion proof. Creating one verifies nothing."""

    entry: Entry
    key: str
    """The signing key as `name+id`: tells which public key to verify with."""
    proof: str
    """The tlog-proof text: index, audit path, checkpoint."""

    @classmethod
    def of(cls, entry: Entry, proof: Proof) -> "Receipt":
        """Make the receipt of an entry."""
        note = Note.parse(proof.checkpoint)
        origin = Checkpoint.parse(note.text).origin
        # Cosignatures of witnesses may precede the log's own signature.
        signature = next((one for one in note.signatures if one.name == origin), note.signatures[0])
        return cls(entry=entry, key=f"{signature.name}+{signature.key_id.hex()}", proof=str(proof))

    @classmethod
    def parse(cls, receipt: Mapping[str, Any] | str | bytes) -> "Receipt":
        """Parse a receipt from JSON text or data."""
        # The json module keeps the digits of large integers, which the hash covers; faster parsers do not.
        try:
            data = _read(receipt) if isinstance(receipt, str | bytes) else dict(receipt)
        except (ValueError, RecursionError) as error:
            raise ReceiptInvalid("it is not JSON") from error
        version = data.get("receipt") if isinstance(data, dict) else None
        if type(version) is int and version > RECEIPT_VERSION:
            raise ReceiptInvalid(
                f"it has format {version}, but this toolkeep supports only up to {RECEIPT_VERSION}"
            )
        # Unknown fields are refused: a reader could take them for part of what is proven.
        if not isinstance(data, dict) or data.keys() != _FIELDS or version != RECEIPT_VERSION:
            raise ReceiptInvalid("it is not a receipt of a known kind")
        try:
            entry = {name: data[name] for name in ("index", "previous", "record")}
            return msgspec.convert({"entry": entry, "key": data["key"], "proof": data["proof"]}, cls)
        except msgspec.ValidationError as error:
            raise ReceiptInvalid(str(error)) from error

    def to_dict(self) -> dict[str, Any]:
        """Serialize to JSON data."""
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
    """Refuse duplicate keys: another parser would show the value that was not verified."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ReceiptInvalid("a key appears twice")
    return found


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What a verified receipt proves."""

    origin: str
    index: int
    size: int
    """The tree size of the signed checkpoint."""
    record: dict[str, Any]
    witnesses: tuple[str, ...]
    """The given witnesses that cosigned the checkpoint."""


def verify_receipt(
    receipt: Receipt | Mapping[str, Any] | str | bytes,
    public_key: VerifierKey | str,
    *,
    witnesses: Sequence[VerifierKey] = (),
) -> Verified:
    """Verify a receipt with the log's public key; raises `ReceiptInvalid`."""
    receipt = receipt if isinstance(receipt, Receipt) else Receipt.parse(receipt)
    try:
        key = VerifierKey.parse(public_key) if isinstance(public_key, str) else public_key
        proof = Proof.parse(receipt.proof)
        # Verified with the caller's key. The key named inside the receipt is only a hint: a forger would name
        # their own.
        checkpoint = open_checkpoint(proof.checkpoint, [key])
        leaf = leaf_hash(receipt.entry.line)
        cosigned = Note.parse(proof.checkpoint).signers([key, *witnesses])
    except (NoteInvalid, TypeError, ValueError, RecursionError) as error:
        raise ReceiptInvalid(getattr(error, "message", str(error))) from error
    # The signature covers only the root. Without this check any record could be attached to a valid
    # checkpoint.
    if proof.index != receipt.entry.index or not proof.has_leaf(leaf):
        raise ReceiptInvalid("the record is not the one that the checkpoint covers at this index")
    return Verified(
        origin=checkpoint.origin,
        index=proof.index,
        size=checkpoint.size,
        record=receipt.entry.record,
        witnesses=tuple(witness.name for witness in cosigned if witness != key),
    )
