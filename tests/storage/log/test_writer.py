"""Who writes the log: an event loop where the disk is quick, else the thread; and nobody waits in vain."""

import asyncio
import contextlib
import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path

import pytest

from toolkeep.audit.checkpoint import Checkpoint
from toolkeep.audit.entry import Leaf
from toolkeep.audit.errors import AuditBroken, LogUnwritable
from toolkeep.audit.signed_note import Note
from toolkeep.storage.log.appender import Appender
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.verify_folder import verify

NEVER = 3600.0
SLOW = 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keep"


@pytest.fixture
def log(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditLog]:
    """A log on a disk that takes no time, after its first record."""
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    log.append({"n": 0}).result()
    yield log
    log.close()


@pytest.fixture
def syncing(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads that sync."""
    threads: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: threads.append(threading.get_ident()))
    return threads


def took(log: AuditLog, seconds: float) -> None:
    """As if syncs took that long."""
    appender = log._writer._appender
    assert appender is not None
    appender.sync_seconds = seconds


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_where_the_disk_is_quick_a_loop_writes_its_own_records_as_one_group(
    log: AuditLog, syncing: list[int]
) -> None:
    async def call() -> list[Leaf]:
        return await asyncio.gather(*[log.append_soon(b'{"n":%d}' % n, b"{}") for n in range(8)])

    assert [leaf.index for leaf in asyncio.run(call())] == [2, 4, 6, 8, 10, 12, 14, 16]
    assert syncing == [threading.get_ident()]


def test_where_the_disk_is_quick_whoever_is_alone_waits_for_no_turn_of_the_loop(
    log: AuditLog, syncing: list[int]
) -> None:
    async def call() -> Leaf:
        waiter = log.append_soon(b"{}", is_alone=True)
        assert waiter.done()
        return await waiter

    assert asyncio.run(call()).index == 1
    assert syncing == [threading.get_ident()]


def test_whoever_is_alone_goes_with_those_who_wait_already(log: AuditLog, syncing: list[int]) -> None:
    async def call() -> tuple[Leaf, Leaf]:
        return await asyncio.gather(log.append_soon(b"{}"), log.append_soon(b"{}", is_alone=True))

    assert [leaf.index for leaf in asyncio.run(call())] == [1, 2]
    assert syncing == [threading.get_ident()]


def test_where_the_disk_is_slow_no_loop_waits_for_it(log: AuditLog, syncing: list[int]) -> None:
    took(log, SLOW)

    async def call() -> Leaf:
        return await log.append_soon(b"{}")

    assert asyncio.run(call()).index == 1
    assert len(syncing) == 1
    assert threading.get_ident() not in syncing


def test_a_disk_that_becomes_slow_is_left_to_the_thread(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = iter(range(1000))
    monkeypatch.setattr("toolkeep.storage.log.appender.time.perf_counter", lambda: float(next(ticks)))
    threads: list[int] = []
    monkeypatch.setattr(os, "fdatasync", lambda _: threads.append(threading.get_ident()))

    async def call() -> None:
        for _ in range(3):
            await log.append_soon(b"{}")

    asyncio.run(call())
    here = threading.get_ident()
    assert [thread == here for thread in threads] == [True, False, False]


def test_a_loop_does_not_wait_while_another_process_writes(log: AuditLog, folder: Path) -> None:
    other = os.open(folder / "audit", os.O_RDONLY)
    fcntl.flock(other, fcntl.LOCK_EX)

    async def call() -> Leaf:
        waiter = log.append_soon(b"{}")
        await turns()
        assert not waiter.done()
        fcntl.flock(other, fcntl.LOCK_UN)
        return await waiter

    assert asyncio.run(call()).index == 1
    os.close(other)


def test_a_loop_does_not_wait_while_the_thread_writes(log: AuditLog, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        begun.set()
        may_end.wait()

    monkeypatch.setattr(os, "fdatasync", wait)

    async def call() -> Leaf:
        of_thread = log.append({"n": 1})
        begun.wait()
        waiter = log.append_soon(b"{}")
        await turns()
        assert not waiter.done()
        assert not of_thread.done()
        may_end.set()
        return await waiter

    assert asyncio.run(call()).index == 2


@pytest.mark.parametrize(
    ("length", "segment_bytes"), [(50_000, 1 << 24), (1, 1)], ids=["long", "new segments"]
)
def test_what_others_wrote_at_length_is_read_by_the_thread(
    log: AuditLog, folder: Path, syncing: list[int], length: int, segment_bytes: int
) -> None:
    async def call() -> Leaf:
        return await log.append_soon(b"{}")

    with AuditLog(folder, checkpoint_seconds=NEVER, segment_bytes=segment_bytes) as other:
        for _ in range(2):
            other.append({"text": "x" * length}).result()
    syncing.clear()
    assert asyncio.run(call()).index == 3
    assert threading.get_ident() not in syncing
    syncing.clear()
    assert asyncio.run(call()).index == 4
    assert set(syncing) == {threading.get_ident()}


def test_a_loop_looks_at_the_place_of_a_log_that_cannot_be_signed(log: AuditLog, folder: Path) -> None:
    folder.rename(folder.with_name("aside"))
    log._writer._sign_in_time()

    async def call() -> None:
        with pytest.raises(AuditBroken):
            await log.append_soon(b"{}", is_alone=True)

    asyncio.run(call())
    folder.with_name("aside").rename(folder)


def test_those_who_wait_elsewhere_are_told_too(log: AuditLog, syncing: list[int]) -> None:
    others: list[Future[Leaf]] = []

    async def call() -> Leaf:
        waiter = log.append_soon(b"{}")
        with log._writer._turn:  # so that the thread, which is woken for it, does not come first
            others.append(log.append({"n": 1}))
        return await waiter

    asyncio.run(call())
    assert {log.read()[others[0].result().index].record.get("n")} == {1}


def test_a_full_disk_fails_those_who_wait_and_the_next_ones_go_on(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    write = os.pwrite

    def full(descriptor: int, data: bytes, offset: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def call() -> list[Leaf | BaseException]:
        monkeypatch.setattr(os, "pwrite", full)
        failed = await asyncio.gather(*[log.append_soon(b"{}") for _ in range(3)], return_exceptions=True)
        monkeypatch.setattr(os, "pwrite", write)
        return [*failed, await log.append_soon(b"{}")]

    *failed, last = asyncio.run(call())
    assert [type(one) for one in failed] == [LogUnwritable] * 3
    assert isinstance(last, Leaf)
    assert last.index == 1
    log.checkpoint()
    assert verify(folder).is_intact


def test_after_a_failed_sync_the_thread_reads_the_log_again(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []

    def fails(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async def call() -> Leaf:
        monkeypatch.setattr(os, "fdatasync", fails)
        with pytest.raises(LogUnwritable):
            await log.append_soon(b"{}")
        monkeypatch.setattr(os, "fdatasync", lambda _: threads.append(threading.get_ident()))
        return await log.append_soon(b"{}")

    assert asyncio.run(call()).index == 1
    assert threads
    assert threading.get_ident() not in threads


def test_a_write_that_would_block_is_a_failure_and_nobody_waits_for_ever(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def blocked(descriptor: int, data: bytes, offset: int) -> int:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    async def call() -> None:
        monkeypatch.setattr(os, "pwrite", blocked)
        try:
            await asyncio.wait_for(log.append_soon(b"{}"), 30)
        finally:
            monkeypatch.undo()

    with pytest.raises(LogUnwritable):
        asyncio.run(call())


def test_a_signal_in_the_middle_fails_those_who_wait_elsewhere(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiter: Future[Leaf] = Future()

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fdatasync", interrupt)
    log._writer._waiting.append(((b"{}",), waiter, None))
    with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(KeyboardInterrupt):
        log._writer._commit_on(loop)
    assert isinstance(waiter.exception(30), LogUnwritable)
    monkeypatch.undo()
    assert log.append({"n": 2}).result().index >= 1


def test_what_a_loop_that_stopped_left_is_written_with_the_next(log: AuditLog) -> None:
    with contextlib.closing(asyncio.new_event_loop()) as stopped:
        log._writer.put_soon((b'{"left":true}',), stopped.create_future(), stopped, is_alone=False)

    async def call() -> Leaf:
        return await log.append_soon(b"{}")

    assert asyncio.run(call()).index == 2
    assert log.read()[1].record == {"left": True}


def test_what_a_loop_wrote_is_covered_in_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    with AuditLog(folder, checkpoint_seconds=0.0) as log:
        wait_until_covered(log, log.append({}).result())

        async def call() -> Leaf:
            return await log.append_soon(b"{}")

        for _ in range(20):  # the thread may still be about to look when the first one comes
            wait_until_covered(log, asyncio.run(call()))


def wait_until_covered(log: AuditLog, leaf: Leaf) -> None:
    newest = ""
    while not newest or Checkpoint.parse(Note.parse(newest).text).size <= leaf.index:
        newest = log._writer.checkpoints.newest() or ""


def test_a_signal_before_the_records_were_taken_leaves_them_to_the_thread(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def call() -> Leaf:
        return await asyncio.wait_for(log.append_soon(b"{}", is_alone=True), 30)

    async def interrupted() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Appender, "catch_up", _interrupt)
            log.append_soon(b"{}", is_alone=True)

    took(log, 0.0)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(interrupted())
        assert loop.run_until_complete(call()).index == 2


def test_a_signal_between_two_steps_of_an_append_leaves_the_log_sound(
    log: AuditLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def interrupted() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Appender, "_grow", _interrupt)
            log.append_soon(b'{"n":1}', is_alone=True)

    took(log, 0.0)
    with contextlib.closing(asyncio.new_event_loop()) as loop, pytest.raises(KeyboardInterrupt):
        loop.run_until_complete(interrupted())
    assert log.append({"n": 2}).result(30).index == 2
    log.close()
    assert (verify(folder).is_intact, verify(folder).covered) == (True, 3)


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt
