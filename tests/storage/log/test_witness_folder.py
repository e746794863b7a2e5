"""A witness: cosigns what extends the history it knows, and nothing else, whoever signed it."""

import os
import shutil
from pathlib import Path

import pytest

from toolkeep.audit.errors import NoteInvalid, WitnessReason, WitnessRefused
from toolkeep.audit.receipt import Receipt, verify_receipt
from toolkeep.audit.signed_note import Note
from toolkeep.audit.witness_protocol import Request
from toolkeep.errors import NotRecorded
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.log.witness_folder import Witness
from toolkeep.stores.records import MemoryRecord


@pytest.fixture
def witness(tmp_path: Path) -> Witness:
    return Witness(tmp_path / "witness", name="example.com/witness", clock=lambda: 1_700_000_000.5)


def forget(keep: Path) -> None:
    """What somebody removes who can write the whole state and holds the key."""
    shutil.rmtree(keep / "audit")
    (keep / "keys" / "log.signed").unlink()


def grow(folder: Path, *records: int) -> None:
    with AuditLog(folder) as log:
        for future in log.append_all({"n": number} for number in records):
            future.result()


def ask(witness: Witness, folder: Path, old_size: int) -> Note:
    """Ask for a cosignature; the checkpoint with it."""
    with AuditLog(folder) as log:
        proof, checkpoint = log.prove_growth(old_size)
        cosignature = witness.submit(old_size, proof, checkpoint)
    note = Note.parse(checkpoint)
    return Note(text=note.text, signatures=(*note.signatures, cosignature))


def reason(witness: Witness, folder: Path, old_size: int) -> WitnessReason:
    with pytest.raises(WitnessRefused) as caught:
        ask(witness, folder, old_size)
    return caught.value.reason


@pytest.fixture
def keep(tmp_path: Path, witness: Witness) -> Path:
    """A log of five records that the witness knows and has cosigned."""
    folder = tmp_path / "keep"
    grow(folder, 0, 1, 2, 3, 4)
    witness.trust(str(AuditLog(folder).public_key()))
    ask(witness, folder, 0)
    return folder


def test_a_history_that_grows_is_cosigned_each_time(keep: Path, witness: Witness) -> None:
    size = 5
    for more in ([5], [6, 7, 8], [], [9]):
        grow(keep, *more)
        note = ask(witness, keep, size)
        size += len(more)
        assert note.signers([witness.public_key]) == (witness.public_key,)
        assert note.signatures[-1].timestamp == 1_700_000_000
        assert witness.last(AuditLog(keep).public_key().name) == str(note)


def test_a_history_forked_with_the_key_of_the_log_is_refused(keep: Path, witness: Witness) -> None:
    """Who holds the log's key writes another history of the same and of a greater length."""
    forget(keep)
    grow(keep, 0, 1, 2, 3, 99)
    assert verify(keep).is_intact
    assert reason(witness, keep, 5) is WitnessReason.FORK
    grow(keep, 5, 6, 7)
    assert verify(keep).is_intact
    assert reason(witness, keep, 5) is WitnessReason.NOT_PROVEN


def test_a_history_rolled_back_is_refused(keep: Path, witness: Witness) -> None:
    forget(keep)
    grow(keep, 0, 1, 2)
    assert reason(witness, keep, 0) is WitnessReason.ROLLBACK


def test_an_old_size_that_is_not_the_last_is_answered_with_the_last(keep: Path, witness: Witness) -> None:
    grow(keep, 5)
    with pytest.raises(WitnessRefused) as caught:
        ask(witness, keep, 0)
    assert (caught.value.reason, caught.value.held) == (WitnessReason.OTHER_SIZE, 5)


def test_an_unknown_log_is_refused(tmp_path: Path, witness: Witness) -> None:
    grow(tmp_path / "stranger", 1)
    assert reason(witness, tmp_path / "stranger", 0) is WitnessReason.UNKNOWN_LOG


def test_a_checkpoint_that_the_log_did_not_sign_is_refused(keep: Path, witness: Witness) -> None:
    grow(keep, 5)
    with AuditLog(keep) as log:
        proof, checkpoint = log.prove_growth(5)
    with pytest.raises(WitnessRefused) as caught:
        witness.submit(5, proof, checkpoint.replace("\n6\n", "\n7\n"))
    assert caught.value.reason is WitnessReason.NOT_SIGNED
    with pytest.raises(WitnessRefused) as caught:
        witness.submit(5, proof, "nonsense")
    assert caught.value.reason is WitnessReason.MALFORMED


@pytest.mark.parametrize(
    "text",
    [
        "",
        "old 1\n",
        "old x\n\n",
        "new 1\n\n",
        "old 1\nAAAA\n\n",
        "old 1" + ("\n" + "A" * 43 + "=") * 64 + "\n\n",
    ],
)
def test_what_is_no_request_is_refused(text: str) -> None:
    with pytest.raises(WitnessRefused) as caught:
        Request.parse(text)
    assert caught.value.reason is WitnessReason.MALFORMED


def test_a_checkpoint_that_is_cosigned_already_is_cosigned_anew(keep: Path, witness: Witness) -> None:
    origin = AuditLog(keep).public_key().name
    note = witness.last(origin)
    assert note
    witness.submit(5, [], note)
    assert witness.last(origin) == note


def test_a_witness_whose_memory_was_changed_cosigns_nothing(
    keep: Path, tmp_path: Path, witness: Witness
) -> None:
    for path in (tmp_path / "witness").glob("*.checkpoint"):
        path.write_text(path.read_text().replace("\n5\n", "\n4\n"))
    with pytest.raises(NoteInvalid):
        ask(witness, keep, 4)


def test_a_refusal_changes_nothing(keep: Path, witness: Witness) -> None:
    origin = AuditLog(keep).public_key().name
    before = witness.last(origin)
    grow(keep, 5)
    reason(witness, keep, 3)
    assert witness.last(origin) == before


def test_the_witness_remembers_after_a_restart(keep: Path, tmp_path: Path, witness: Witness) -> None:
    again = Witness(tmp_path / "witness", name="ignored")
    assert again.public_key == witness.public_key
    forget(keep)
    grow(keep, 7)
    assert reason(again, keep, 0) is WitnessReason.ROLLBACK


def test_after_a_key_was_rotated_the_witness_is_told_the_new_one(keep: Path, witness: Witness) -> None:
    with AuditLog(keep) as log:
        new = log.rotate_key()
        proof, checkpoint = log.prove_growth(5)
        witness.submit(5, proof, checkpoint)  # signed by both
        log.append({"n": 5}).result()
        proof, checkpoint = log.prove_growth(6)
        with pytest.raises(WitnessRefused):
            witness.submit(6, proof, checkpoint)
        witness.trust(new)
        witness.submit(6, proof, checkpoint)


def test_what_the_witness_holds_is_an_outside_checkpoint(keep: Path, witness: Witness) -> None:
    note = witness.last(AuditLog(keep).public_key().name)
    assert note
    forget(keep)
    grow(keep, 0, 1)
    assert verify(keep).is_intact
    report = verify(keep, outside_checkpoints={"the witness": note})
    assert (report.is_intact, report.outside) == (False, ("the witness",))


def test_a_cosigned_checkpoint_makes_a_witnessed_receipt(keep: Path, witness: Witness) -> None:
    with AuditLog(keep) as log:
        note = witness.last(log.public_key().name)
        receipt = Receipt.of(log.read(2, 3)[0], log.prove(2, note))
        proven = verify_receipt(receipt, log.public_key(), witnesses=[witness.public_key])
    assert proven.witnesses == ("example.com/witness",)


def test_requests_come_and_go_as_files(keep: Path, tmp_path: Path, witness: Witness) -> None:
    box = tmp_path / "box"
    box.mkdir()
    grow(keep, 5)
    with AuditLog(keep) as log:
        proof, checkpoint = log.prove_growth(5)
    good = Request(old_size=5, proof=tuple(proof), checkpoint=checkpoint)
    (box / "a.request").write_text(str(good))
    (box / "b.request").write_text(str(good))
    (box / "c.request").write_bytes(b"\xffnonsense")
    assert Request.parse(str(good)) == good
    assert witness.answer_requests(box) == (1, 2)
    assert sorted(path.name for path in box.iterdir()) == ["a.cosignature", "b.refused", "c.refused"]
    Note.parse(checkpoint + (box / "a.cosignature").read_text()).signers([witness.public_key])
    assert (box / "b.refused").read_text().startswith("6\n")
    assert witness.answer_requests(box) == (0, 0)


@pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
def test_what_is_no_file_is_no_request_and_holds_nothing_up(
    keep: Path, tmp_path: Path, witness: Witness, kind: str
) -> None:
    box = tmp_path / "box"
    box.mkdir()
    if kind == "folder":
        (box / "a.request").mkdir()
    elif kind == "link":
        (box / "a.request").symlink_to(tmp_path / "elsewhere")
    else:
        os.mkfifo(box / "a.request")
    (box / "b.request").write_text("nonsense")
    assert witness.answer_requests(box) == (0, 1)
    assert sorted(path.name for path in box.iterdir()) == ["a.request", "b.refused"]


def test_a_request_whose_answer_cannot_be_written_keeps_no_other_from_its_answer(
    tmp_path: Path, witness: Witness, caplog: pytest.LogCaptureFixture
) -> None:
    box = tmp_path / "box"
    box.mkdir()
    long = "a" * 245 + ".request"
    for name in (long, "b.request"):
        (box / name).write_text("nonsense")
    assert witness.answer_requests(box) == (0, 1)
    assert sorted(path.name for path in box.iterdir()) == [long, "b.refused"]
    assert [record.message for record in caplog.records] == ["a request to the witness could not be answered"]


def test_a_record_is_not_proven_under_what_only_a_witness_signed(keep: Path, witness: Witness) -> None:
    with AuditLog(keep) as log:
        note = Note.parse(witness.last(log.public_key().name) or "")
        alone = Note(text=note.text, signatures=note.signatures[1:])
        with pytest.raises(NoteInvalid, match="the log itself"):
            log.prove(2, str(alone))


def test_a_request_is_read_no_further_than_one_can_be_long(tmp_path: Path, witness: Witness) -> None:
    box = tmp_path / "box"
    box.mkdir()
    (box / "a.request").write_text("old 0\n\n")
    os.truncate(box / "a.request", 1 << 40)
    assert witness.answer_requests(box) == (0, 1)
    assert [path.name for path in box.iterdir()] == ["a.refused"]


def test_the_record_of_a_keep_makes_the_request_for_a_witness(witness: Witness, tmp_path: Path) -> None:
    grow(tmp_path / "keep", 1, 2)
    record = FileRecord(tmp_path / "keep")
    request = Request.parse(record.witness_request(0))
    witness.trust(record.log.public_key())
    assert witness.submit(request.old_size, request.proof, request.checkpoint).name == "example.com/witness"
    with pytest.raises(NotRecorded, match="never of size 3"):
        record.witness_request(3)
    record.close()


def test_a_log_in_memory_has_no_request_for_a_witness() -> None:
    with pytest.raises(NotRecorded, match="only in memory"):
        MemoryRecord().witness_request(0)
