"""The log's side of witnessing: what is sent, stored and alarmed, whatever a witness answers."""

import asyncio
import fcntl
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.storage.log.test_witness_folder import forget, grow
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.receipt import Receipt, verify_receipt
from toolkeep.audit.witness_protocol import Answer, Request, cosign
from toolkeep.server.witness_app import WitnessApp
from toolkeep.storage.log import witness_client
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.cosigned_checkpoints import CosignedCheckpoint, cosigned_notes
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.storage.log.verify_folder import verify
from toolkeep.storage.log.witness_client import (
    AGAIN_SECONDS,
    SILENT_SECONDS,
    WitnessClient,
    WitnessSender,
)
from toolkeep.storage.log.witness_folder import Witness


class Peer:
    """A witness that is asked without a network, and the client of one log."""

    def __init__(self, keep: Path, folder: Path) -> None:
        self.witness = Witness(folder, name="example.com/w", keys=[AuditLog(keep).public_key()])
        self.app = WitnessApp(self.witness)
        self.asked: list[int] = []
        self.now = 0.0
        self.lie: Callable[[Request], Answer] | None = None
        self.client = self.new_client(keep)

    def new_client(self, keep: Path) -> WitnessClient:
        return WitnessClient(AuditLog(keep), self.witness.public_key, self.ask, clock=lambda: self.now)

    async def ask(self, text: str) -> Answer:
        request = Request.parse(text)
        self.asked.append(request.old_size)
        if self.lie:
            return self.lie(request)
        answer = self.app._cosigned(text.encode())
        return Answer(answer.status, answer.body.decode())

    def send(self, keep: Path) -> None:
        asyncio.run(self.client.send((keep / "audit" / "checkpoint").read_text()))


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    folder = tmp_path / "keep"
    grow(folder, 0, 1, 2, 3, 4)
    return folder


@pytest.fixture
def peer(keep: Path, tmp_path: Path) -> Peer:
    return Peer(keep, tmp_path / "witness")


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    found = [(record.levelname, record.message) for record in caplog.records]
    caplog.clear()
    return found


CONTRADICTED = [("ERROR", "a witness contradicts this log")]


def test_each_checkpoint_is_proven_from_the_last_cosigned_one(
    keep: Path, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    for more in ([], [5], [6, 7, 8], []):
        grow(keep, *more)
        peer.send(keep)
    assert peer.asked == [0, 5, 6, 9]
    peer.client = peer.new_client(keep)  # after a restart
    grow(keep, 9)
    peer.send(keep)
    assert peer.asked[4:] == [9]
    (file,) = (keep / "cosigned").iterdir()
    whole = file.read_text()
    for lost in ("{}", whole.replace("example.com/w", "example.com/v")):
        file.write_text(lost)  # the witness says from which size to go on
        grow(keep, 10)
        peer.send(keep)
    assert peer.asked[5:] == [0, 10, 0, 11]
    assert not said(caplog)


def test_a_receipt_and_verify_use_what_was_cosigned(keep: Path, peer: Peer, tmp_path: Path) -> None:
    other = Peer(keep, tmp_path / "other")
    keys = [each.witness.public_key for each in (peer, other)]
    for each in (peer, other):
        each.send(keep)
    with AuditLog(keep) as log:
        receipt = Receipt.of(log.read(2, 3)[0], log.prove(2))
        assert verify_receipt(receipt, log.public_key(), witnesses=keys).witnesses == 2 * ("example.com/w",)
    grow(tmp_path / "another", 0)
    shutil.copytree(keep / "cosigned", tmp_path / "another" / "cosigned")
    with AuditLog(tmp_path / "another") as log:
        assert log.prove(0).index == 0  # what was cosigned of another log does not count
    report = verify(keep, witnesses=keys)
    assert (report.is_intact, len(report.cosigned)) == (True, 2)
    assert report.cosigned[0].startswith("example.com/w, 5 records at 20")
    stranger = Peer(keep, tmp_path / "stranger").witness.public_key
    assert not verify(keep, witnesses=[stranger]).is_intact
    forget(keep)
    grow(keep, 0, 1, 2, 3, 99)
    assert not verify(keep).is_intact  # what was cosigned is another history


@pytest.mark.parametrize("has_forgotten", [False, True], ids=["remembers", "all_was_put_back"])
@pytest.mark.parametrize("how", ["cut", "rewritten", "rewritten_longer", "changed"])
def test_a_log_that_is_not_the_cosigned_one_is_alarmed(
    keep: Path, peer: Peer, caplog: pytest.LogCaptureFixture, how: str, *, has_forgotten: bool
) -> None:
    peer.send(keep)
    if how == "changed":  # and not signed again: there is no key
        grow(keep, 5)
        segment = keep / "audit" / "segments" / "00000000.jsonl"
        segment.write_bytes(segment.read_bytes().replace(b'"n":5', b'"n":6'))
    else:
        records = {"cut": range(3), "rewritten": range(1, 6), "rewritten_longer": range(1, 9)}
        forget(keep)
        grow(keep, *records[how])
    if has_forgotten:
        shutil.rmtree(keep / "cosigned")
    if how == "changed":
        peer.lie = lie_of(peer, "down")
    peer.send(keep)
    expected = [("ERROR", "this log contradicts what it signed")] if how == "changed" else CONTRADICTED
    assert said(caplog)[-1:] == expected
    assert len(peer.asked) > 1  # the witness was told
    peer.now += AGAIN_SECONDS
    peer.send(keep)
    assert not said(caplog)  # once
    assert not cosigned_notes(keep) or has_forgotten is False


def lie_of(peer: Peer, kind: str) -> Callable[[Request], Answer]:
    def answer(request: Request) -> Answer:
        return {
            "other text": Answer(200, str(peer.witness._signer.sign("another text\n", timestamp=1))),
            "nothing": Answer(200, ""),
            "size": Answer(409, "1000\n"),
            "fork": Answer(409, f"{request.old_size}\n"),
            "same": Answer(409, "5\n"),
            "no size": Answer(409, "-1"),
            "down": Answer(503, ""),
            "proof": Answer(422, ""),
        }[kind]

    return answer


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("other text", [("ERROR", "a witness gave no valid cosignature")]),
        ("nothing", [("ERROR", "a witness gave no valid cosignature")]),
        ("size", CONTRADICTED),
        ("same", CONTRADICTED),
        ("proof", CONTRADICTED),
        ("fork", [("WARNING", "a witness did not cosign the log")]),
        ("no size", [("WARNING", "a witness did not cosign the log")]),
        ("down", [("WARNING", "a witness did not cosign the log")]),
    ],
)
def test_whatever_a_witness_answers_nothing_false_is_stored(
    keep: Path, peer: Peer, caplog: pytest.LogCaptureFixture, kind: str, expected: list[tuple[str, str]]
) -> None:
    peer.lie = lie_of(peer, kind)
    peer.send(keep)
    assert said(caplog) == expected
    assert len(peer.asked) == (2 if kind in ("same", "fork") else 1)
    assert not cosigned_notes(keep)
    peer.lie = None
    peer.send(keep)
    assert len(cosigned_notes(keep)) == 1


def test_a_witness_that_has_forgotten_is_alarmed(
    keep: Path, peer: Peer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    peer.send(keep)
    grow(keep, 5)
    for path in (tmp_path / "witness").glob("*.checkpoint"):
        path.unlink()
    peer.send(keep)
    assert said(caplog) == [("ERROR", "a witness has forgotten what it cosigned")]
    forget(keep)
    grow(keep, 0)
    for path in (tmp_path / "witness").glob("*.checkpoint"):
        path.unlink()
    peer.send(keep)  # it would cosign, and the log itself remembers
    assert said(caplog)[1:] == CONTRADICTED


def test_a_silent_witness_is_alarmed_after_minutes_and_asked_less_often(
    keep: Path, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    note = (keep / "audit" / "checkpoint").read_text()
    peer.lie = lie_of(peer, "down")
    while peer.now < SILENT_SECONDS + AGAIN_SECONDS:
        if peer.client.is_due(note):
            peer.send(keep)
        peer.now += 1.0
    assert said(caplog) == [
        ("WARNING", "a witness did not cosign the log"),
        ("ERROR", "a witness has not cosigned the log for minutes"),
    ]
    assert len(peer.asked) == 24
    peer.now -= 1.0
    assert not peer.client.is_due("newer", is_last=True)  # nobody waits for it at the end
    peer.lie = None
    peer.send(keep)
    assert not peer.client.is_due(note, is_last=True)
    assert (peer.client.is_due("newer"), peer.client.is_due("newer", is_last=True)) == (False, True)
    peer.now += 1.0
    assert (peer.client.is_due(note), peer.client.is_due("newer")) == (False, True)
    peer.now += AGAIN_SECONDS
    assert peer.client.is_due(note)


def test_a_cosignature_of_another_key_is_none(keep: Path, peer: Peer, tmp_path: Path) -> None:
    note = (keep / "audit" / "checkpoint").read_text()
    answer = str(peer.witness.submit(0, [], note))
    stranger = Peer(keep, tmp_path / "stranger").witness
    theirs = str(stranger.submit(0, [], note))
    assert len(cosign(note, theirs + answer, peer.witness.public_key).signatures) == 2
    with pytest.raises(NoteInvalid):
        cosign(note, theirs, peer.witness.public_key)


def test_proofs_are_made_from_what_was_added(keep: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    peer.send(keep)
    grow(keep, 5, 6)
    last = CosignedCheckpoint(AuditLog(keep), peer.witness.public_key)
    note = (keep / "audit" / "checkpoint").read_text()
    with AuditLog(keep) as log:
        expected = [log.prove_growth(old)[0] for old in (0, 3, 5, 7)]
    assert [last.prove_growth(old, note) for old in (0, 3, 5, 7)] == expected


def test_one_process_of_a_keep_sends_at_a_time(keep: Path, peer: Peer) -> None:
    (keep / "cosigned").mkdir(mode=0o700)
    sender = WitnessSender(AuditLog(keep), lambda: [peer.client])
    held = os.open(keep / "cosigned", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    assert sender._send()
    assert not peer.asked
    os.close(held)
    sender._send()
    assert peer.asked == [0]
    grow(keep, 5)
    sender._send(is_last=True)
    assert peer.asked == [0, 5]
    sender.close()


def test_a_witness_that_never_answers_holds_up_neither_a_call_nor_the_end(
    tmp_path: Path, peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(witness_client, "EVERY_SECONDS", 0.01)
    monkeypatch.setattr(witness_client, "_CLOSE_SECONDS", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
        record = FileRecord(tmp_path / "state", witnesses={url: str(peer.witness.public_key)})
        record.log.append({"n": 0}).result()
        connection, _ = listener.accept()
        record.log.append({"n": 1}).result()
        record.close()
        connection.close()
    sender = record._sender
    assert sender
    sender._thread.join(30)
    assert not sender._thread.is_alive()
