"""Receipts: checked offline with the public key alone, and worth nothing once touched."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.entry import NO_PREVIOUS, Entry
from toolkeep.audit.errors import ReceiptInvalid
from toolkeep.audit.inclusion_proof import Proof
from toolkeep.audit.merkle_tree import Tree, leaf_hash
from toolkeep.audit.receipt import Receipt, verify_receipt
from toolkeep.audit.signed_note import Algorithm, Note, Signer

LOG = Signer(name="toolkeep/0123456789abcdef", algorithm=Algorithm.ED25519, seed=bytes(32))
WITNESS = Signer(name="example.com/witness", algorithm=Algorithm.COSIGNATURE, seed=bytes(32))
RECORD = {
    "event": "ToolCompleted",
    "result_hash": "ab" * 32,
    "large": 2**80 + 1,
    "share": 0.1,
    "ünïcode": "…",
}


def make(index: int = 5, size: int = 11, *, says: int | None = None, origin: str = LOG.name) -> Receipt:
    entry = Entry(index=index if says is None else says, previous=NO_PREVIOUS, record=RECORD)
    hashes = [leaf_hash(b"%d" % number) for number in range(size)]
    hashes[index] = leaf_hash(entry.line)
    tree = Tree(b"".join(hashes))
    checkpoint = Checkpoint(origin=origin, size=size, root=tree.root()).sign(LOG)
    return Receipt.of(
        entry, Proof(index=index, path=tuple(tree.inclusion(index, size)), checkpoint=str(checkpoint))
    )


def test_a_receipt_proves_its_record_with_the_public_key_alone() -> None:
    receipt = make()
    proven = verify_receipt(json.dumps(receipt.to_dict()), str(LOG.verifier))
    assert (proven.origin, proven.index, proven.size, proven.witnesses) == (LOG.name, 5, 11, ())
    assert proven.record == RECORD
    assert receipt.key == f"{LOG.name}+{LOG.verifier.key_id.hex()}"
    assert receipt.proof.startswith("c2sp.org/tlog-proof@v1\nindex 5\n")
    assert verify_receipt(receipt, LOG.verifier) == verify_receipt(receipt.to_dict(), LOG.verifier) == proven


def test_a_receipt_out_of_a_real_log_is_proven(tmp_path: Path) -> None:
    from toolkeep.storage.log.audit_log import AuditLog

    with AuditLog(tmp_path / "keep") as log:
        for number in range(7):
            leaf = log.append({"n": number}).result()
        receipt = Receipt.of(log.read(leaf.index)[0], log.prove(leaf.index))
        assert verify_receipt(receipt, log.public_key()).record == {"n": 6}


def test_the_witnesses_that_cosigned_are_named() -> None:
    receipt = make()
    text = receipt.proof.partition("\n\n")[2].rpartition("\n\n")[0] + "\n"
    cosigned = receipt.to_dict() | {"proof": receipt.proof + str(WITNESS.sign(text, timestamp=7))}
    assert verify_receipt(cosigned, LOG.verifier).witnesses == ()
    assert verify_receipt(cosigned, LOG.verifier, witnesses=[WITNESS.verifier]).witnesses == (WITNESS.name,)


def test_a_wrong_cosignature_of_a_known_witness_condemns_the_receipt() -> None:
    receipt = make()
    wrong = receipt.to_dict() | {"proof": receipt.proof + str(WITNESS.sign("another", timestamp=7))}
    with pytest.raises(ReceiptInvalid):
        verify_receipt(wrong, LOG.verifier, witnesses=[WITNESS.verifier])


def nested(depth: int) -> list[Any]:
    outer: list[Any] = []
    for _ in range(depth):
        outer = [outer]
    return outer


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data["record"].update(result_hash="cd" * 32),
        lambda data: data["record"].update(large=2**80),
        lambda data: data["record"].update(extra=1),
        lambda data: data["record"].update(deep=nested(2_000)),
        lambda data: data.update(index=4),
        lambda data: data.update(index=True),
        lambda data: data.update(previous="1" * 64),
        lambda data: data.update(receipt=2),
        lambda data: data.update(more=1),
        lambda data: data.pop("key"),
        lambda data: data.update(record=[]),
        lambda data: data.update(proof=data["proof"].replace("index 5", "index 4")),
        lambda data: data.update(proof=data["proof"].replace("\n11\n", "\n12\n")),
        lambda data: data.update(proof=data["proof"].partition("\n\n")[0]),
        lambda data: data.update(proof=""),
        lambda data: data.update(proof=make(6).proof),
    ],
)
def test_a_changed_receipt_proves_nothing(change: Callable[[dict[str, Any]], object]) -> None:
    data = copy.deepcopy(make().to_dict())
    change(data)
    with pytest.raises(ReceiptInvalid):
        verify_receipt(data, LOG.verifier)


@given(st.data())
def test_a_receipt_with_any_byte_of_its_proof_changed_proves_nothing(data: st.DataObject) -> None:
    receipt = make()
    proof = bytearray(receipt.proof.encode())
    proof[data.draw(st.integers(0, len(proof) - 1))] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ReceiptInvalid):
        verify_receipt(receipt.to_dict() | {"proof": proof.decode(errors="replace")}, LOG.verifier)


@pytest.mark.parametrize("receipt", [make(says=4), make(origin="toolkeep/another")])
def test_a_log_that_lies_about_an_index_or_its_name_proves_nothing(receipt: Receipt) -> None:
    with pytest.raises(ReceiptInvalid):
        verify_receipt(receipt, LOG.verifier)


def test_another_key_proves_nothing() -> None:
    other = Signer(name=LOG.name, algorithm=Algorithm.ED25519, seed=bytes(31) + b"\1")
    with pytest.raises(ReceiptInvalid, match="no known key"):
        verify_receipt(make(), other.verifier)


@pytest.mark.parametrize("text", ["", "[]", "{}", "nonsense", "[" * 100_000, b"\xff"])
def test_what_is_no_receipt_proves_nothing(text: str | bytes) -> None:
    with pytest.raises(ReceiptInvalid):
        verify_receipt(text, LOG.verifier)


def test_a_receipt_names_the_key_of_the_log_wherever_witnesses_stand() -> None:
    receipt = make()
    proof = Proof.parse(receipt.proof)
    note = Note.parse(proof.checkpoint)
    first = Note(text=note.text, signatures=(WITNESS.sign(note.text, timestamp=1), *note.signatures))
    again = Receipt.of(receipt.entry, Proof(index=proof.index, path=proof.path, checkpoint=str(first)))
    assert again.key == receipt.key
    assert verify_receipt(again, LOG.verifier, witnesses=[WITNESS.verifier]).witnesses == (WITNESS.name,)
    assert verify_receipt(again, LOG.verifier, witnesses=[LOG.verifier]).witnesses == ()


@pytest.mark.parametrize("name", ["record", "tool", "index"])
def test_a_receipt_in_which_a_key_stands_twice_proves_nothing(name: str) -> None:
    """Another reader may show the first of two, and only the last is checked."""
    data = make().to_dict()
    data["record"] = {**data["record"], "tool": "read"}
    text = json.dumps(data)
    doubled = text.replace(f'"{name}": ', f'"{name}": {{}}, "{name}": ', 1)
    assert doubled.count(f'"{name}": ') == 2
    with pytest.raises(ReceiptInvalid, match="twice"):
        verify_receipt(doubled, LOG.verifier)
