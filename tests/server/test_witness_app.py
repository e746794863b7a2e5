"""A witness over HTTP: the statuses of tlog-witness, its limits, and requests at once."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.storage.log.test_witness_folder import forget, grow
from toolkeep.audit.signed_note import Note
from toolkeep.audit.witness_protocol import REQUEST_BYTES, Request
from toolkeep.server import witness_app
from toolkeep.server.witness_app import WitnessApp
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.witness_folder import SETTLE_SECONDS, Witness

now = 1_700_000_000.0


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    folder = tmp_path / "keep"
    grow(folder, 0, 1, 2, 3, 4)
    return folder


@pytest.fixture
def witness(tmp_path: Path, keep: Path) -> Witness:
    return Witness(
        tmp_path / "witness", name="example.com/w", keys=[AuditLog(keep).public_key()], clock=lambda: now
    )


@pytest.fixture
def app(witness: Witness) -> WitnessApp:
    return WitnessApp(witness, "/witness")


async def ask(
    app: WitnessApp,
    body: bytes,
    path: str = "/witness/add-checkpoint",
    method: str = "POST",
    query: bytes = b"",
) -> tuple[int, str, str]:
    """Status, content type and text of the answer."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": []}
    await app(scope, receive, send)
    kind = dict(sent[0]["headers"]).get(b"content-type", b"").decode()
    return sent[0]["status"], kind, sent[1]["body"].decode()


def post(app: WitnessApp, request: str | bytes) -> tuple[int, str, str]:
    return asyncio.run(ask(app, request if isinstance(request, bytes) else request.encode()))


def request(folder: Path, old: int, proof: Iterable[bytes] | None = None) -> str:
    with AuditLog(folder) as log:
        made, checkpoint = log.prove_growth(old)
    return str(Request(old_size=old, proof=tuple(made if proof is None else proof), checkpoint=checkpoint))


SIZE = "text/x.tlog.size"


def test_each_answer_has_the_status_of_the_protocol(
    app: WitnessApp, witness: Witness, keep: Path, tmp_path: Path
) -> None:
    first = request(keep, 0)
    status, _, line = post(app, first)
    assert status == 200
    assert Note.parse(first.partition("\n\n")[2] + line).signers([witness.public_key]) == (
        witness.public_key,
    )
    assert post(app, first) == (409, SIZE, "5\n")
    grow(keep, 5, 6)
    assert post(app, request(keep, 3)) == (409, SIZE, "5\n")
    assert post(app, request(keep, 5, [b"\1" * 32]))[0] == 422
    assert post(app, request(keep, 5, []))[0] == 422
    larger = request(keep, 5).replace("old 5", "old 8")
    assert post(app, larger)[0] == 400
    assert post(app, request(keep, 5).replace("\n7\n", "\n8\n"))[0] == 403
    grow(tmp_path / "stranger", 1)
    assert post(app, request(tmp_path / "stranger", 0))[0] == 404
    for malformed in ("", "old 1\n", b"\xff\n\n", "old 1\n\nnonsense"):
        assert post(app, malformed)[0] == 400
    assert post(app, request(keep, 5))[0] == 200
    assert post(app, request(keep, 7))[0] == 200  # again, with a new timestamp


def test_a_fork_is_refused_kept_as_evidence_and_alarmed_once(
    app: WitnessApp, keep: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    post(app, request(keep, 0))
    forget(keep)
    grow(keep, 0, 1, 2, 3, 99)
    forked = request(keep, 5, [])
    for _ in range(2):
        assert post(app, forked) == (409, SIZE, "5\n")
    (evidence,) = (tmp_path / "witness").glob("*.fork")
    assert evidence.read_text() == forked.partition("\n\n")[2]
    (alarm,) = caplog.records
    assert (alarm.levelname, alarm.message) == ("ERROR", "a log contradicts what it signed before")


@pytest.mark.parametrize("how", ["cut", "rewritten"])
def test_a_log_that_stays_smaller_or_unproven_is_alarmed_and_a_replay_is_not(
    app: WitnessApp, keep: Path, how: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def later() -> None:
        monkeypatch.setitem(globals(), "now", now + SETTLE_SECONDS)

    early = request(keep, 0)
    post(app, early)
    grow(keep, 5)
    honest = request(keep, 5)
    assert post(app, honest)[0] == 200
    for _ in range(3):  # anybody may send what a receipt holds; the log itself goes on
        assert post(app, early)[0] == 409
        later()
        assert post(app, request(keep, 6))[0] == 200
    assert not caplog.records
    forget(keep)
    grow(keep, *range(3) if how == "cut" else range(10, 20))
    false = request(keep, 0) if how == "cut" else request(keep, 6, [b"\1" * 32])
    expected = 409 if how == "cut" else 422
    assert post(app, false)[0] == expected
    assert not caplog.records
    for _ in range(2):
        later()
        assert post(app, false)[0] == expected
    assert [record.message for record in caplog.records] == ["a log contradicts what it signed before"]


def test_of_requests_at_once_one_history_is_cosigned(app: WitnessApp, keep: Path) -> None:
    """The holder of the key asks for eight histories of one size at the same moment."""
    post(app, request(keep, 0))
    made = []
    for number in range(8):
        forget(keep)
        grow(keep, *range(5), 100 + number)
        made.append(request(keep, 5).encode())

    async def all_at_once() -> list[int]:
        return [answer[0] for answer in await asyncio.gather(*(ask(app, each) for each in made))]

    statuses = sorted(asyncio.run(all_at_once()))
    assert statuses == [200] + 7 * [409]


def test_everything_about_a_request_is_bounded(
    app: WitnessApp, witness: Witness, keep: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert post(app, b"x" * REQUEST_BYTES)[0] == 400
    assert post(app, b"x" * (REQUEST_BYTES + 1))[0] == 413
    good = request(keep, 0).encode()
    for other in ({"path": "/witness"}, {"path": "/witness/other"}, {"query": b"a=b"}):
        assert asyncio.run(ask(app, good, **other))[0] == 404
    assert asyncio.run(ask(app, good, method="GET"))[0] == 405

    async def many(count: int) -> list[int]:
        return [answer[0] for answer in await asyncio.gather(*(ask(app, b"x") for _ in range(count)))]

    assert asyncio.run(many(12)) == 8 * [400] + 4 * [429]
    monkeypatch.setattr(witness_app, "_BURST", 2.0)
    monkeypatch.setattr(witness_app, "_PER_SECOND", 1e-9)
    slow = WitnessApp(witness)
    answers = [asyncio.run(ask(slow, b"x", path="/add-checkpoint"))[0] for _ in range(3)]
    assert answers == [400, 400, 429]


def test_a_witness_whose_memory_was_changed_answers_nothing(
    app: WitnessApp, keep: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    post(app, request(keep, 0))
    for path in (tmp_path / "witness").glob("*.checkpoint"):
        path.write_text(path.read_text().replace("\n5\n", "\n4\n"))
    grow(keep, 5)
    assert post(app, request(keep, 4)) == (500, "", "")
    assert [record.message for record in caplog.records] == ["the witness could not answer"]
