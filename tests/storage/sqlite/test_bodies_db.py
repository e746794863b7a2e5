"""Bodies beside the log: by hash, checked, erasable."""

import contextlib
import hashlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from toolkeep.audit.errors import BodyState, BodyUnavailable
from toolkeep.errors import StateUnusable
from toolkeep.limits import REFUSED_KEPT_SECONDS
from toolkeep.storage.sqlite import bodies_db
from toolkeep.storage.sqlite.bodies_db import Bodies
from toolkeep.storage.sqlite.body_writer import BodyWriter


@pytest.fixture
def bodies(tmp_path: Path) -> Iterator[Bodies]:
    with contextlib.closing(Bodies(tmp_path)) as bodies:
        yield bodies


def state_of(bodies: Bodies, digest: str) -> BodyState:
    with pytest.raises(BodyUnavailable) as caught:
        bodies.get(digest)
    return caught.value.state


def execute(folder: Path, statement: str) -> None:
    """What somebody does to the file behind the keep's back."""
    with contextlib.closing(sqlite3.connect(folder / "bodies.db", isolation_level=None)) as connection:
        connection.execute(statement)


def test_a_body_is_kept_under_its_hash_once_and_privately(bodies: Bodies, tmp_path: Path) -> None:
    digest = bodies.put(b"hello")
    assert digest == bodies.put(b"hello") == hashlib.sha256(b"hello").hexdigest()
    assert bodies.get(digest) == b"hello"
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_more_bodies_than_go_into_one_statement_are_kept(bodies: Bodies) -> None:
    given = {hashlib.sha256(body).hexdigest(): body for body in (b"%d" % number for number in range(600))}
    bodies.put_all(given)
    assert {digest: bodies.get(digest) for digest in given} == given


def test_a_changed_body_is_not_given_out(bodies: Bodies, tmp_path: Path) -> None:
    digest = bodies.put(b"hello")
    execute(tmp_path, "UPDATE bodies SET body = x'00'")
    assert state_of(bodies, digest) is BodyState.CHANGED


def test_an_erased_body_is_called_erased_and_a_lost_one_missing(bodies: Bodies, tmp_path: Path) -> None:
    digest = bodies.put(b"hello")
    assert bodies.erase(digest)
    assert state_of(bodies, digest) is BodyState.ERASED
    assert not bodies.erase(digest)
    lost = bodies.put(b"lost")
    execute(tmp_path, "DELETE FROM bodies WHERE body = CAST('lost' AS BLOB)")
    assert state_of(bodies, lost) is BodyState.MISSING
    assert state_of(bodies, "0" * 64) is BodyState.MISSING


def test_a_body_put_again_after_it_was_erased_is_there(bodies: Bodies) -> None:
    digest = bodies.put(b"hello")
    bodies.erase(digest)
    assert bodies.put(b"hello") == digest
    assert bodies.get(digest) == b"hello"


def test_nothing_of_an_erased_body_is_left_in_any_file(bodies: Bodies, tmp_path: Path) -> None:
    digest = bodies.put(b"very private " * 1000)
    assert any(b"very private" in path.read_bytes() for path in tmp_path.iterdir())
    bodies.erase(digest)
    assert not any(b"very private" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_body_that_somebody_reads_is_not_called_erased_before_nothing_of_it_is_left(
    bodies: Bodies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.storage.sqlite.database._BUSY_SECONDS", 0.01)
    digest = bodies.put(b"somebody's name" * 100)
    with contextlib.closing(sqlite3.connect(tmp_path / "bodies.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM bodies").fetchone()
        with pytest.raises(StateUnusable, match="still in its journal"):
            bodies.erase(digest)
    assert not bodies.erase(digest)
    assert state_of(bodies, digest) is BodyState.ERASED
    assert not any(b"somebody's name" in path.read_bytes() for path in tmp_path.iterdir())


def test_bodies_that_were_not_used_for_long_are_erased(tmp_path: Path) -> None:
    now = [1000.0]
    with contextlib.closing(Bodies(tmp_path, clock=lambda: now[0])) as bodies:
        old, used = bodies.put(b"old"), bodies.put(b"used")
        now[0] = 3000.0
        new = bodies.put(b"new")
        bodies.put(b"used")
        assert bodies.erase_older(2000) == [old]
        assert state_of(bodies, old) is BodyState.ERASED
        assert (bodies.get(used), bodies.get(new)) == (b"used", b"new")
    assert Bodies(tmp_path / "none").erase_older(2000) == []


@pytest.mark.parametrize("digest", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_what_is_no_hash_names_no_file(bodies: Bodies, digest: str) -> None:
    for use in (bodies.get, bodies.erase):
        with pytest.raises(ValueError, match="not a SHA-256"):
            use(digest)


PUT_MANY = """
import sys
from pathlib import Path
from toolkeep.storage.sqlite.bodies_db import Bodies
bodies = Bodies(Path(sys.argv[1]))
for number in range(20):
    bodies.put(f"{sys.argv[2]} {number}".encode())
"""


def test_several_processes_put_at_once(bodies: Bodies, tmp_path: Path) -> None:
    commands = [[sys.executable, "-c", PUT_MANY, str(tmp_path), str(who)] for who in range(4)]
    processes = [subprocess.Popen(command) for command in commands]
    assert [process.wait(timeout=60) for process in processes] == [0] * 4
    for who in range(4):
        for number in range(20):
            body = f"{who} {number}".encode()
            assert bodies.get(hashlib.sha256(body).hexdigest()) == body


def test_a_body_can_be_read_before_it_is_written_and_after_the_keep_was_closed(
    bodies: Bodies, tmp_path: Path
) -> None:
    writer, digest = BodyWriter(tmp_path), hashlib.sha256(b"late").hexdigest()
    writer.put_later(digest, b"late")
    assert writer.get(digest) == b"late"
    assert not (tmp_path / "bodies.db").exists()
    writer.close()
    assert bodies.get(digest) == b"late"


def test_bodies_beyond_what_may_wait_are_not_kept(
    bodies: Bodies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.storage.sqlite.body_writer.BODIES_WAITING", 2)
    writer = BodyWriter(tmp_path)
    digests = [hashlib.sha256(body).hexdigest() for body in (b"a", b"b", b"c")]
    for digest, body in zip(digests, (b"a", b"b", b"c"), strict=True):
        writer.put_later(digest, body)
    writer.close()
    assert [bodies.get(digest) for digest in digests[:2]] == [b"a", b"b"]
    assert state_of(bodies, digests[2]) is BodyState.MISSING


def test_what_came_while_others_were_written_is_written_before_closing(
    bodies: Bodies, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, may_go_on = threading.Event(), threading.Event()
    put_all = Bodies.put_all

    def slowly(self: Bodies, given: Mapping[str, bytes], refused: Mapping[str, str]) -> None:
        writing.set()
        assert may_go_on.wait(30)
        put_all(self, given, refused)

    monkeypatch.setattr(Bodies, "put_all", slowly)
    writer = BodyWriter(tmp_path)
    digests = [hashlib.sha256(body).hexdigest() for body in (b"first", b"second")]
    writer.put_later(digests[0], b"first")
    assert writing.wait(30)
    writer.put_later(digests[1], b"second")
    closing = threading.Thread(target=writer.close)
    closing.start()
    assert writer._is_closing.wait(30)
    may_go_on.set()
    closing.join(30)
    assert [bodies.get(digest) for digest in digests] == [b"first", b"second"]


def test_a_fork_of_the_process_keeps_bodies_of_its_own_and_waits_for_no_thread_of_its_parent(
    tmp_path: Path,
) -> None:
    writer, digest = BodyWriter(tmp_path), hashlib.sha256(b"of the child").hexdigest()
    writer.put_later(hashlib.sha256(b"of the parent").hexdigest(), b"of the parent")
    with writer._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            writer.put_later(digest, b"of the child")
            writer.close()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    writer.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "bodies.db")) as connection:
        kept = sorted(body for (body,) in connection.execute("SELECT body FROM bodies"))
    assert kept == [b"of the child", b"of the parent"]


def test_where_no_thread_can_be_started_a_body_is_not_kept_and_the_next_one_is(
    bodies: Bodies, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = BodyWriter(tmp_path)
    digests = [hashlib.sha256(body).hexdigest() for body in (b"first", b"second")]
    before = threading.stack_size(1 << 46)  # more than there is
    try:
        writer.put_later(digests[0], b"first")
    finally:
        threading.stack_size(before)
    writer.put_later(digests[1], b"second")
    writer.close()
    assert state_of(bodies, digests[0]) is BodyState.MISSING
    assert bodies.get(digests[1]) == b"second"
    assert [record.message for record in caplog.records] == ["bodies were not stored"]


def test_a_large_body_is_written_in_portions_and_comes_back_once_it_was_erased(bodies: Bodies) -> None:
    large = b"0123456789" * 300_001
    digest = bodies.put(large)
    assert (digest, bodies.get(digest) == large) == (hashlib.sha256(large).hexdigest(), True)
    assert bodies.put(large) == digest
    assert bodies.erase(digest)
    assert state_of(bodies, digest) is BodyState.ERASED
    bodies.put_all({digest: large, hashlib.sha256(b"small").hexdigest(): b"small"})
    assert (bodies.get(digest) == large, bodies.get(hashlib.sha256(b"small").hexdigest())) == (True, b"small")


@pytest.mark.spec("AUD-5")
def test_bodies_of_refused_calls_are_kept_for_seven_days_within_the_quota_of_their_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies_db, "REFUSED_KEPT", 3)
    monkeypatch.setattr(bodies_db, "REFUSED_KEPT_BYTES", 20)
    monkeypatch.setattr(bodies_db, "REFUSED_TOTAL_BYTES", 40)
    now = 1_000_000.0
    bodies = Bodies(tmp_path, clock=lambda: now)
    kept: dict[str, str] = {}

    def refused(agent: str, *given: bytes) -> None:
        nonlocal now
        for body in given:
            now += 1
            digest = hashlib.sha256(body).hexdigest()
            kept[body.decode()] = digest
            bodies.put_all({digest: body}, {digest: agent})

    def left() -> set[str]:
        return {
            name
            for name, digest in kept.items()
            if bodies.get_all([digest], most_bytes=100) == {digest: name.encode()}
        }

    refused("a", b"one", b"two", b"three", b"four")
    refused("b", b"five")
    assert left() == {"two", "three", "four", "five"}, "by count, the oldest of the same agent"
    refused("a", b"sixteen letters!")
    assert left() == {"four", "five", "sixteen letters!"}, "by size"
    refused("c", b"x" * 18)
    assert left() == {"five", "sixteen letters!", "x" * 18}, "of all agents"
    bodies.put(b"five")  # a call that passed has it too
    refused("b", b"five")
    now += REFUSED_KEPT_SECONDS + 1
    with pytest.raises(BodyUnavailable):
        bodies.get(kept["x" * 18])
    bodies.put(b"other")
    assert left() == {"five"}
    bodies.close()


def test_a_refused_call_does_not_take_the_place_of_others_in_the_queue_nor_of_the_same_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolkeep.storage.sqlite.body_writer.BODIES_WAITING", 4)
    monkeypatch.setattr("toolkeep.storage.sqlite.body_writer.BODIES_LINGER_SECONDS", 30.0)
    writer = BodyWriter(tmp_path)
    digests = [hashlib.sha256(b"%d" % number).hexdigest() for number in range(5)]
    for number in (0, 1, 2):
        writer.put_later(digests[number], b"%d" % number, refused_by="a")
    writer.put_later(digests[3], b"3")
    writer.put_later(digests[0], b"0")
    assert writer.refusers(digests) == {digests[1]: "a"}
    writer.close()
    with contextlib.closing(Bodies(tmp_path)) as bodies:
        assert sorted(bodies.get_all(digests, most_bytes=9)) == sorted([digests[0], digests[1], digests[3]])
        assert bodies.refusers(digests) == {digests[1]: "a"}
        bodies.erase(digests[1])
        assert (bodies.refusers(digests), state_of(bodies, digests[1])) == ({}, BodyState.ERASED)
