"""The audit log: order, durability, several writers, torn tails, failures, and what is left after closing."""

import asyncio
import errno
import fcntl
import gc
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from toolkeep.audit.checkpoint import Checkpoint, open_checkpoint
from toolkeep.audit.entry import Leaf
from toolkeep.audit.errors import AuditBroken, LogClosed, LogUnwritable
from toolkeep.audit.findings import Kind
from toolkeep.audit.signed_note import Note
from toolkeep.errors import StateUnusable
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.checkpoint_files import Checkpoints
from toolkeep.storage.log.segments import Place
from toolkeep.storage.log.verify_folder import verify

NEVER = 3600.0
"""Seconds between checkpoints in tests that want none of their own accord."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keep"


@pytest.fixture
def log(folder: Path) -> Iterator[AuditLog]:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    yield log
    log.close()


def segment(folder: Path, number: int = 0) -> Path:
    return folder / "audit" / "segments" / f"{number:08d}.jsonl"


def fill(folder: Path, count: int, *, segment_bytes: int = 1 << 24) -> list[Leaf]:
    with AuditLog(folder, checkpoint_seconds=NEVER, segment_bytes=segment_bytes) as log:
        return [future.result() for future in log.append_all({"n": number} for number in range(count))]


def test_records_are_read_back_where_their_leaves_say(log: AuditLog) -> None:
    leaves = [log.append({"n": number}).result() for number in range(5)]
    entries = log.read()
    assert [leaf.index for leaf in leaves] == [0, 1, 2, 3, 4]
    assert [entry.hash for entry in entries] == [leaf.hash for leaf in leaves]
    assert [entry.record for entry in entries] == [{"n": number} for number in range(5)]
    assert {leaf.origin for leaf in leaves} == {log.public_key().name}
    assert [entry.index for entry in log.read(1, 3)] == [1, 2]


def test_nothing_is_made_before_the_first_append(folder: Path) -> None:
    with AuditLog(folder) as log:
        assert log.read() == []
    assert not folder.exists()


def test_a_record_is_in_the_file_when_its_future_is_resolved(log: AuditLog, folder: Path) -> None:
    log.append({"n": 1}).result()
    assert json.loads(segment(folder).read_bytes())["record"] == {"n": 1}


def test_a_record_is_acknowledged_only_after_it_was_synced(
    log: AuditLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append({"n": 0}).result()
    sync, may_sync, syncing = os.fdatasync, threading.Event(), threading.Event()

    def wait(descriptor: int) -> None:
        syncing.set()
        may_sync.wait()
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", wait)
    future = log.append({"n": 1})
    syncing.wait()
    assert not future.done()
    may_sync.set()
    assert future.result().index == 1


def test_records_appended_together_stand_together(log: AuditLog) -> None:
    with ThreadPoolExecutor(8) as threads:
        groups = list(
            threads.map(lambda who: log.append_all({"who": who, "n": n} for n in range(5)), range(40))
        )
    for group in groups:
        indexes = [future.result().index for future in group]
        assert indexes == list(range(indexes[0], indexes[0] + 5))
    assert len(log.read()) == 200


def test_asyncio_callers_wait_in_either_way(log: AuditLog) -> None:
    async def call() -> list[Leaf]:
        wrapped = [asyncio.wrap_future(log.append({"n": n})) for n in range(20)]
        return [
            *await asyncio.gather(*wrapped),
            *await asyncio.gather(*[log.append_soon(canonical_bytes({"n": n})) for n in range(20)]),
        ]

    for _ in range(2):  # nothing is bound to the first loop
        assert len({leaf.index for leaf in asyncio.run(call())}) == 40


def test_a_caller_that_gives_up_leaves_its_record(log: AuditLog) -> None:
    async def call() -> None:
        for waiter in (asyncio.wrap_future(log.append({"n": 1})), log.append_soon(canonical_bytes({"n": 2}))):
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter

    asyncio.run(call())
    log.checkpoint()
    assert [entry.record for entry in log.read()] == [{"n": 1}, {"n": 2}]
    assert not log.append({"n": 3}).cancel()


def test_a_caller_that_gives_up_takes_nobody_along(log: AuditLog) -> None:
    async def call() -> int:
        first, second = log.append_soon(canonical_bytes({"n": 1})), log.append_soon(canonical_bytes({"n": 2}))
        first.cancel()
        return (await asyncio.wait_for(second, 60)).index

    assert asyncio.run(call()) == 1


def test_a_loop_that_is_closed_meanwhile_harms_nobody(log: AuditLog) -> None:
    loop = asyncio.new_event_loop()

    async def leave() -> None:
        log.append_soon(canonical_bytes({"n": 1}))

    loop.run_until_complete(leave())
    loop.close()
    assert log.append({"n": 2}).result().index == 1


def test_several_logs_on_one_folder_take_turns(folder: Path) -> None:
    logs = [AuditLog(folder, checkpoint_seconds=0, segment_bytes=2000) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        done = list(threads.map(lambda log: [log.append({"n": n}).result() for n in range(50)], logs))
    for log in logs:
        log.close()
    assert sorted(leaf.index for leaves in done for leaf in leaves) == list(range(200))
    report = verify(folder)
    assert (report.is_intact, report.records, report.covered) == (True, 200, 200)


def test_a_full_segment_is_followed_by_the_next(folder: Path) -> None:
    for _ in range(3):
        fill(folder, 20, segment_bytes=1000)
    assert len(list(segment(folder).parent.iterdir())) == 3
    assert [entry.index for entry in AuditLog(folder).read(15, 45)] == list(range(15, 45))
    report = verify(folder)
    assert (report.is_intact, report.covered, report.uncovered) == (True, 60, 0)


def test_a_checkpoint_is_signed_in_time_and_on_close(folder: Path) -> None:
    with AuditLog(folder, checkpoint_seconds=0) as log:
        log.append({"n": 1}).result()
        log.append({"n": 2}).result()  # the writer signs between two groups
        written = (folder / "audit" / "checkpoint").read_text()
        assert open_checkpoint(written, [log.public_key()]).size >= 1
        log.append({"n": 3}).result()
    written = (folder / "audit" / "checkpoint").read_text()
    assert open_checkpoint(written, [log.public_key()]).size == 3


def test_without_new_records_no_new_checkpoint_is_signed(folder: Path) -> None:
    fill(folder, 3)
    before = (folder / "audit" / "checkpoint").stat().st_mtime_ns
    with AuditLog(folder) as log:
        log.checkpoint()
        log.prove(0)
    assert (folder / "audit" / "checkpoint").stat().st_mtime_ns == before


def test_every_record_is_proven_and_a_checkpoint_is_signed_for_it(log: AuditLog) -> None:
    for number in range(9):
        log.append({"n": number}).result()
        for entry in log.read():
            assert log.prove(entry.index).has_leaf(bytes.fromhex(entry.hash))


def test_a_record_that_is_not_there_is_not_proven(log: AuditLog) -> None:
    log.append({"n": 1}).result()
    with pytest.raises(ValueError, match="no leaf 1"):
        log.prove(1)


def test_a_torn_last_line_is_moved_aside_and_said_so(folder: Path) -> None:
    fill(folder, 3)
    whole = segment(folder).read_bytes()
    segment(folder).write_bytes(whole + whole[:50])
    assert verify(folder).torn_bytes == 50
    assert verify(folder).is_intact
    with AuditLog(folder) as log:
        assert log.append({"n": 3}).result().index == 4
        moved = log.read(3, 4)[0].record
    assert (moved["event"], moved["bytes"]) == ("TailMoved", 50)
    assert (folder / "audit" / "torn" / moved["file"]).read_bytes() == whole[:50]
    assert verify(folder).is_intact
    assert verify(folder).torn_bytes == 0


def test_a_complete_last_line_counts_though_nobody_was_told(folder: Path) -> None:
    fill(folder, 3)
    other = folder.with_name("other")
    other.mkdir(mode=0o700)
    (other / "keys").mkdir(mode=0o700)
    shutil.copy(folder / "keys" / "log.key", other / "keys")
    fill(other, 4)
    line = segment(other).read_bytes().splitlines(keepends=True)[3]
    segment(folder).write_bytes(segment(folder).read_bytes() + line)
    with AuditLog(folder) as log:
        assert log.append({"n": 4}).result().index == 4
    assert verify(folder).is_intact


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[: whole.rfind(b"\n", 0, -1) + 1],
        lambda whole: whole[:-1],
        lambda whole: whole.replace(b'"n":2', b'"n":7'),
        lambda whole: whole + whole,
        lambda whole: whole + whole.splitlines(keepends=True)[0],
        lambda whole: b"",
    ],
)
def test_a_log_that_is_not_what_was_signed_takes_no_more_records(
    folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    fill(folder, 3)
    damaged = damage(segment(folder).read_bytes())
    segment(folder).write_bytes(damaged)
    with AuditLog(folder) as log, pytest.raises(AuditBroken):
        log.append({"n": 3}).result()
    assert segment(folder).read_bytes() == damaged  # it is evidence


def test_a_log_rewritten_with_a_whole_chain_takes_no_more_records(folder: Path, tmp_path: Path) -> None:
    fill(folder, 3)
    with AuditLog(tmp_path / "forged") as forged:
        forged.append_all([{"n": 0}, {"n": 7}, {"n": 2}])[-1].result()
    segment(folder).write_bytes(segment(tmp_path / "forged").read_bytes())
    shutil.copy(tmp_path / "forged" / "audit" / "resume.json", folder / "audit" / "resume.json")
    with AuditLog(folder) as log, pytest.raises(AuditBroken, match="not those it signed"):
        log.append({"n": 3}).result()


def test_a_log_changed_further_back_is_never_signed_for(folder: Path) -> None:
    fill(folder, 3)
    segment(folder).write_bytes(segment(folder).read_bytes().replace(b'"n":1', b'"n":7'))
    fill(folder, 3)
    report = verify(folder)
    assert [(each.kind, each.index) for each in report.findings if each.spot] == [(Kind.CHANGED, 1)]
    assert report.covered == 0
    (folder / "audit" / "resume.json").unlink()
    with AuditLog(folder) as log, pytest.raises(AuditBroken):
        log.append({"n": 3}).result()


def test_opening_reads_only_what_came_after_the_last_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(folder, 50)
    taken: list[int] = []
    take = Place.take

    def count(place: Place, data: bytes) -> tuple[list[bytes], bytes]:
        taken.append(len(data))
        return take(place, data)

    monkeypatch.setattr(Place, "take", count)
    assert fill(folder, 1)[0].index == 50
    assert taken == []
    (folder / "audit" / "resume.json").unlink()
    assert fill(folder, 1)[0].index == 51
    assert len(taken) == 1
    assert verify(folder).is_intact


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data | {"offset": data["offset"] - 1},
        lambda data: data | {"offset": data["offset"] + 1},
        lambda data: data | {"offset": -5},
        lambda data: data | {"segment": 7},
        lambda data: data | {"previous": "0" * 64},
        lambda data: data | {"peaks": data["peaks"][::-1]},
        lambda data: data | {"peaks": []},
        lambda data: data | {"peaks": ["no hex"]},
        lambda data: data | {"checkpoint": data["checkpoint"].replace("\n7\n", "\n3\n")},
        lambda data: {},
    ],
)
def test_a_place_that_cannot_be_checked_is_not_believed(
    folder: Path, change: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    fill(folder, 7)
    path = folder / "audit" / "resume.json"
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert fill(folder, 1)[0].index == 7
    assert verify(folder).is_intact


def test_a_place_in_the_middle_of_an_entry_is_not_believed(folder: Path) -> None:
    fill(folder, 7)
    path = folder / "audit" / "resume.json"
    place = json.loads(path.read_text())
    fill(folder, 1)
    path.write_text(json.dumps(place | {"offset": place["offset"] + 5}))
    assert fill(folder, 1)[0].index == 8
    assert verify(folder).is_intact


def test_a_link_in_the_place_of_a_segment_is_not_followed(folder: Path, tmp_path: Path) -> None:
    fill(folder, 1)
    segment(folder).rename(tmp_path / "elsewhere")
    segment(folder).symlink_to(tmp_path / "elsewhere")
    with AuditLog(folder, checkpoint_seconds=NEVER) as log, pytest.raises(LogUnwritable):
        log.append({"n": 1}).result()


@pytest.mark.parametrize("left", [b"\0" * 500 + b"from a block", b'{"index"' + b"\0" * 500])
def test_what_a_crash_of_the_machine_left_between_zeros_is_a_torn_tail(folder: Path, left: bytes) -> None:
    fill(folder, 3)
    segment(folder).write_bytes(segment(folder).read_bytes() + left)
    assert verify(folder).torn_bytes == len(left.rstrip(b"\0"))
    assert fill(folder, 1)[0].index == 4
    assert verify(folder).is_intact


def test_entries_are_written_over_zeros_which_are_cut_off_when_the_log_is_closed(
    log: AuditLog, folder: Path
) -> None:
    lengths = set()
    for number in range(100):
        log.append({"n": number}).result()
        lengths.add(segment(folder).stat().st_size)
    assert len(lengths) < 20
    written = segment(folder).read_bytes()
    assert written.rstrip(b"\0").endswith(b"}\n")
    assert verify(folder).torn_bytes == 0
    assert len(log.read()) == len(list(log.read_back())) == 100
    log.close()
    assert segment(folder).read_bytes() == written.rstrip(b"\0")


def test_a_full_segment_has_no_zeros(folder: Path) -> None:
    with AuditLog(folder, checkpoint_seconds=NEVER, segment_bytes=1000) as log:
        for number in range(40):
            log.append({"n": number}).result()
        assert segment(folder, 2).exists()
        assert segment(folder, 0).read_bytes().endswith(b"}\n")
    assert verify(folder).is_intact


def test_a_full_segment_that_got_its_zeros_back_is_followed_all_the_same(folder: Path) -> None:
    for _ in range(2):
        fill(folder, 20, segment_bytes=1000)
    with segment(folder).open("ab") as file:
        file.write(bytes(500))
    (folder / "audit" / "resume.json").unlink()
    assert fill(folder, 1)[0].index == 40


def test_a_writer_that_was_killed_leaves_zeros_that_the_next_one_writes_over(
    log: AuditLog, folder: Path, tmp_path: Path
) -> None:
    for number in range(20):
        log.append({"n": number}).result()
    killed = tmp_path / "killed"
    shutil.copytree(folder, killed)
    assert segment(killed).read_bytes().endswith(b"\0")
    assert fill(killed, 1)[0].index == 20
    report = verify(killed)
    assert (report.is_intact, report.records, report.torn_bytes) == (True, 21, 0)
    assert not (killed / "audit" / "torn").exists()


def _with_a_gap(folder: Path, kept: int) -> None:
    """Zeros in place of the entry after the first ones, as if its page had not been written."""
    lines = segment(folder).read_bytes().splitlines(keepends=True)
    lines[kept] = b"\0" * len(lines[kept])
    segment(folder).write_bytes(b"".join(lines))


def test_entries_behind_a_page_that_was_not_written_were_never_acknowledged(folder: Path) -> None:
    fill(folder, 3)
    with AuditLog(folder, checkpoint_seconds=NEVER) as log:
        log.append_all({"n": number} for number in range(5))[-1].result()
        stopped = folder.with_name("stopped")
        shutil.copytree(folder, stopped)
    _with_a_gap(stopped, kept=4)
    report = verify(stopped)
    assert (report.is_intact, report.records) == (True, 4)
    assert report.torn_bytes > 0
    assert fill(stopped, 1)[0].index == 5
    with AuditLog(stopped, checkpoint_seconds=NEVER) as log:
        assert [entry.record.get("event") for entry in log.read(4, 5)] == ["TailMoved"]
    assert verify(stopped).is_intact


def test_zeros_in_place_of_what_was_signed_are_no_accident(folder: Path) -> None:
    fill(folder, 8)
    _with_a_gap(folder, kept=4)
    assert [finding.index for finding in verify(folder).findings if finding.kind is Kind.CHANGED] == [4]
    (folder / "audit" / "resume.json").unlink()
    with AuditLog(folder) as log, pytest.raises(AuditBroken, match="not the entry that belongs here"):
        log.append({"n": 1}).result()


def test_zeros_in_place_of_what_was_signed_are_no_accident_without_a_newer_checkpoint_either(
    folder: Path,
) -> None:
    fill(folder, 8)
    fill(folder, 1)
    (folder / "audit" / "checkpoint").unlink()
    _with_a_gap(folder, kept=4)
    assert 4 in [finding.index for finding in verify(folder).findings if finding.kind is Kind.CHANGED]


def test_a_torn_line_in_front_of_another_segment_is_no_accident_though_nobody_signed(folder: Path) -> None:
    fill(folder, 3)
    fill(folder, 1, segment_bytes=10)
    for name in ("checkpoint", "checkpoints.jsonl", "resume.json"):
        (folder / "audit" / name).unlink()
    torn = segment(folder).read_bytes()[:-5]
    segment(folder).write_bytes(torn)
    with AuditLog(folder, checkpoint_seconds=NEVER) as log, pytest.raises(AuditBroken):
        log.append({"n": 4}).result()
    assert segment(folder).read_bytes() == torn


def test_zeros_in_front_of_another_segment_are_no_accident_though_nobody_signed(folder: Path) -> None:
    fill(folder, 3)
    with AuditLog(folder, segment_bytes=10, checkpoint_seconds=NEVER) as log:
        log.append({"n": 3}).result()
        stopped = folder.with_name("stopped")
        shutil.copytree(folder, stopped)
    shutil.copy(segment(stopped, 1), segment(stopped, 2))
    segment(stopped, 1).write_bytes(b"\0" * 20 + b"\n")
    assert [finding.index for finding in verify(stopped).findings if finding.kind is Kind.FOREIGN] == [None]


@pytest.mark.parametrize("read", [AuditLog.read, lambda log: list(log.read_back())[::-1]])
def test_a_reader_waits_for_what_is_half_written(
    log: AuditLog, folder: Path, read: Callable[[AuditLog], list[Any]]
) -> None:
    log.append_all({"n": number} for number in range(6))[-1].result()
    whole = segment(folder).read_bytes()
    with ThreadPoolExecutor(1) as pool:
        descriptor = os.open(folder / "audit", os.O_RDONLY)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _with_a_gap(folder, kept=4)
        reading = pool.submit(read, log)
        with pytest.raises(TimeoutError):
            reading.result(timeout=0.1)
        segment(folder).write_bytes(whole)
        os.close(descriptor)
        assert [entry.record["n"] for entry in reading.result(timeout=30)] == list(range(6))


def test_a_missing_segment_is_no_place_to_go_on(folder: Path) -> None:
    for _ in range(3):
        fill(folder, 20, segment_bytes=1000)
    segment(folder, 1).unlink()
    with AuditLog(folder) as log, pytest.raises(AuditBroken, match="segment is missing"):
        log.append({"n": 3}).result()


@pytest.mark.parametrize("how", ["cut", "removed", "replaced"])
def test_a_segment_lost_under_a_running_writer_is_noticed(folder: Path, how: str) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    log.append({"n": 1}).result()
    whole = segment(folder).read_bytes()
    if how == "cut":
        segment(folder).write_bytes(b"")
    else:
        segment(folder).unlink()
    if how == "replaced":
        segment(folder).write_bytes(whole)
    for use in (lambda: log.append({"n": 2}).result(), log.checkpoint, log.close):
        with pytest.raises(AuditBroken, match="cut or replaced"):
            use()


def test_a_broken_checkpoint_stops_the_writer(folder: Path) -> None:
    fill(folder, 3)
    path = folder / "audit" / "checkpoint"
    path.write_bytes(path.read_bytes().replace(b"\n3\n", b"\n2\n"))
    with AuditLog(folder) as log, pytest.raises(AuditBroken):
        log.append({"n": 3}).result()


def test_a_write_that_fails_half_way_fails_everybody_and_leaves_nothing(
    log: AuditLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append({"n": 0}).result()
    before, write = segment(folder).read_bytes(), os.pwrite

    def write_half(descriptor: int, data: bytes, offset: int) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: len(data) // 2], offset)

    with monkeypatch.context() as broken:
        broken.setattr(os, "pwrite", write_half)
        futures = log.append_all({"n": n} for n in range(1, 4))
        for future in futures:
            with pytest.raises(LogUnwritable, match="No space left"):
                future.result()
    assert segment(folder).read_bytes() == before
    assert log.append({"n": 1}).result().index == 1
    log.checkpoint()
    assert verify(folder).is_intact


def fail_one_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    sync, failures = os.fdatasync, iter([OSError(errno.EIO, os.strerror(errno.EIO))])

    def fail_once(descriptor: int) -> None:
        for failure in failures:
            raise failure
        sync(descriptor)

    monkeypatch.setattr(os, "fdatasync", fail_once)


def test_after_a_failed_sync_what_the_disk_lost_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    log.append_all([{"n": 0}, {"n": 1}])[-1].result()
    log.checkpoint()
    fail_one_sync(monkeypatch)
    with pytest.raises(LogUnwritable):
        log.append({"n": 2}).result()
    segment(folder).write_bytes(segment(folder).read_bytes().replace(b'"n":0', b'"n":9'))
    for use in (lambda: log.append({"n": 3}).result(), log.close):
        with pytest.raises(AuditBroken):
            use()


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files and folders that are synced, in their order."""
    names: list[str] = []

    def watch(sync: Callable[[int], None]) -> Callable[[int], None]:
        def record(descriptor: int) -> None:
            sync(descriptor)
            names.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

        return record

    monkeypatch.setattr(os, "fsync", watch(os.fsync))
    monkeypatch.setattr(os, "fdatasync", watch(os.fdatasync))
    return names


def test_a_new_segment_is_durable_with_its_name(folder: Path, synced: list[str]) -> None:
    with AuditLog(folder, segment_bytes=100, checkpoint_seconds=NEVER) as log:
        log.append({"n": 0}).result()
        log.append({"n": 1}).result()
        of_records = ("audit", "segments", "00000000.jsonl", "00000001.jsonl")
        made = [name for name in synced if name in of_records]
        # The names of `format` and `segments`, that of the first one, and what remembers the empty log, before
        # any record.
        first = ["audit", "audit", "segments", "audit", "audit", "00000000.jsonl"]
        assert made == [*first, "segments", "00000001.jsonl"]
        assert synced.index("keep") < synced.index("audit")


def test_a_segment_whose_maker_was_stopped_is_durable_with_its_name_before_it_is_used(
    folder: Path, synced: list[str]
) -> None:
    fill(folder, 1)
    segment(folder, 1).touch(mode=0o600)
    synced.clear()
    with AuditLog(folder, checkpoint_seconds=NEVER) as log:
        assert log.append({"n": 1}).result().index == 1
        assert synced == ["segments", "00000001.jsonl"]


def test_a_segment_without_its_zeros_is_durable_before_the_next_one_is_there(
    folder: Path, synced: list[str]
) -> None:
    with AuditLog(folder, segment_bytes=600, checkpoint_seconds=NEVER) as log:
        while not segment(folder, 1).exists():
            synced.clear()
            log.append({"n": 0}).result()
        assert synced == ["00000000.jsonl", "segments", "00000001.jsonl"]


def test_what_others_wrote_is_synced_before_it_is_left_behind_or_signed(
    folder: Path, synced: list[str]
) -> None:
    with (
        AuditLog(folder, segment_bytes=300, checkpoint_seconds=NEVER) as log,
        AuditLog(folder, segment_bytes=10_000, checkpoint_seconds=NEVER) as other,
    ):
        log.append({"n": 0}).result()
        other.append({"n": 1}).result()
        synced.clear()
        log.checkpoint()
        assert synced[0] == "00000000.jsonl"
        assert synced[1].startswith(".checkpoint.")
        for number in range(2, 5):
            other.append({"n": number}).result()
        synced.clear()
        log.append({"n": 5}).result()
        assert synced == ["00000000.jsonl", "segments", "00000001.jsonl"]


def test_a_checkpoint_that_another_process_signed_just_now_is_enough(folder: Path) -> None:
    with AuditLog(folder, checkpoint_seconds=NEVER) as one, AuditLog(folder, checkpoint_seconds=NEVER) as two:
        one.append({"n": 0}).result()
        before = one.checkpoint()
        two.append({"n": 1}).result()
        two._writer._sign_in_time()
        assert (folder / "audit" / "checkpoint").read_text() == before


def test_a_checkpoint_of_another_history_on_the_disk_is_not_written_over(folder: Path) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    log.append({"n": 0}).result()
    signer = log._writer.keys.signer()
    forged = str(Checkpoint(origin=signer.name, size=9, root=bytes(32)).sign(signer))
    (folder / "audit" / "checkpoint").write_text(forged)
    for use in (log.checkpoint, log.close):
        with pytest.raises(AuditBroken, match="says 9 records"):
            use()
    assert (folder / "audit" / "checkpoint").read_text() == forged


def test_the_first_checkpoint_is_kept_at_once(folder: Path) -> None:
    with AuditLog(folder, checkpoint_seconds=0) as log:
        for number in range(3):  # the writer signs between two groups
            log.append({"n": number}).result()
        assert len(log.kept_checkpoints()) == 1


@pytest.mark.parametrize("name", ["checkpoint", "resume.json"])
def test_what_a_process_left_that_was_stopped_while_it_signed_is_removed(folder: Path, name: str) -> None:
    fill(folder, 1)
    left = folder / "audit" / f".{name}.0123456789abcdef"
    left.write_text("half")
    fill(folder, 1)
    assert not left.exists()


def test_a_record_that_is_not_the_one_that_was_signed_is_not_proven(folder: Path) -> None:
    fill(folder, 3)
    segment(folder).write_bytes(segment(folder).read_bytes().replace(b'"n":2', b'"n":9'))
    with AuditLog(folder) as log, pytest.raises(AuditBroken):
        log.prove(2)


def test_after_a_failed_sync_the_log_is_read_again_before_it_goes_on(
    log: AuditLog, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append({"n": 0}).result()
    log.checkpoint()
    before = segment(folder).read_bytes()
    advised: list[int] = []
    fail_one_sync(monkeypatch)
    with pytest.raises(LogUnwritable):
        log.append({"n": 1}).result()
    assert segment(folder).read_bytes() == before
    monkeypatch.setattr(os, "posix_fadvise", lambda *given: advised.append(given[-1]))
    assert log.append({"n": 2}).result().index == 1
    assert advised == [os.POSIX_FADV_DONTNEED]
    log.checkpoint()
    assert verify(folder).is_intact


def test_a_checkpoint_that_cannot_be_written_stops_no_append(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(folder, checkpoint_seconds=0)
    log.append({"n": 0}).result()
    rename = Path.rename

    def fail(path: Path, target: Path) -> Path:
        if target.name == "checkpoint":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(path, target)

    with monkeypatch.context() as broken:
        broken.setattr(Path, "rename", fail)
        assert [log.append({"n": n}).result().index for n in (1, 2, 3)] == [1, 2, 3]
        with pytest.raises(LogUnwritable):
            log.checkpoint()
    log.close()
    assert verify(folder).covered == 4


def test_a_last_checkpoint_that_fails_is_said_and_still_nothing_is_left(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    log.append({"n": 0}).result()
    threads, files = threading.active_count(), open_files()
    monkeypatch.setattr(Path, "rename", _no_space)
    with pytest.raises(LogUnwritable):
        log.close()
    assert threading.active_count() == threads - 1
    assert open_files() == files - 2


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _no_space(path: Path, target: Path) -> Path:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_closing_leaves_no_thread_and_no_file(folder: Path) -> None:
    gc.collect()
    threads, files = threading.active_count(), open_files()
    for _ in range(3):
        with AuditLog(folder) as log:
            log.append({"n": 1}).result()
            log.prove(0)
    assert (threading.active_count(), open_files()) == (threads, files)


def test_what_waits_is_written_before_closing(folder: Path) -> None:
    log = AuditLog(folder)
    futures = [log.append({"n": n}) for n in range(100)]
    log.close()
    assert all(future.done() for future in futures)
    assert verify(folder).covered == 100


def test_a_closed_log_takes_nothing_more(folder: Path) -> None:
    log = AuditLog(folder)
    log.append({"n": 1}).result()
    log.close()
    log.close()
    for use in (lambda: log.append({"n": 2}), log.checkpoint, log.rotate_key):
        with pytest.raises(LogClosed):
            use()


def test_a_fork_is_told_to_open_its_own(log: AuditLog, folder: Path) -> None:
    log.append({"n": 1}).result()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            log.append({"n": 2})
        except LogClosed:
            with AuditLog(folder) as own:
                code = 0 if own.append({"n": 3}).result().index == 1 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert log.append({"n": 4}).result().index == 2


def test_a_fork_in_the_middle_of_an_append_is_told_too(log: AuditLog) -> None:
    log.append({"n": 1}).result()
    log._writer._gate.acquire()  # as another thread may have done that the child does not have
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        try:
            log.append({"n": 2})
        except LogClosed:
            os._exit(0)
        finally:
            os._exit(1)
    log._writer._gate.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_fork_does_not_keep_the_lock_of_its_parent(folder: Path) -> None:
    """A process dies while a child that it forked in the middle of a commit lives on."""
    ready, die = os.pipe(), os.pipe()
    parent = os.fork()
    if parent == 0:
        log = AuditLog(folder)

        def fork_here(descriptor: int) -> None:
            if os.fork() == 0:
                os.write(ready[1], b"1")
                os.read(die[0], 1)
                os._exit(0)
            os.kill(os.getpid(), 9)

        log.append({"n": 0}).result()
        setattr(os, "fdatasync", fork_here)  # noqa: B010 -- this process is about to die
        log.append({"n": 1}).result()
        os._exit(1)
    os.waitpid(parent, 0)
    os.read(ready[0], 1)
    with AuditLog(folder) as log:
        assert log.append({"n": 2}).result().index == 2
    os.write(die[1], b"1")
    for descriptor in (*ready, *die):
        os.close(descriptor)


def test_a_record_too_long_or_no_json_is_refused_at_once(log: AuditLog) -> None:
    with pytest.raises(ValueError, match="too long"):
        log.append({"text": "x" * 300_000})
    with pytest.raises(TypeError):
        log.append({"text": object()})
    assert log.append({"n": 1}).result().index == 0


def test_another_user_may_read_nothing(folder: Path) -> None:
    fill(folder, 20, segment_bytes=500)
    modes = {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))}
    assert modes == {0}


def test_old_checkpoints_are_kept_for_each_session_and_each_segment(folder: Path) -> None:
    for _ in range(3):
        fill(folder, 20, segment_bytes=1000)
    log = AuditLog(folder)
    sizes = [open_checkpoint(note, [log.public_key()]).size for note in log.kept_checkpoints()]
    assert sizes == [0, 20, 40, 60]


def test_the_first_checkpoint_in_a_new_segment_is_kept_though_nobody_asked(folder: Path) -> None:
    with AuditLog(folder, segment_bytes=10, checkpoint_seconds=NEVER) as log:
        for number in range(4):
            log.append({"n": number}).result()
            log.prove(number)
        assert [Checkpoint.parse(Note.parse(note).text).size for note in log.kept_checkpoints()] == [
            0,
            2,
            3,
            4,
        ]


def test_a_kept_checkpoint_cut_short_by_a_crash_is_written_anew(folder: Path) -> None:
    fill(folder, 3)
    path = folder / "audit" / "checkpoints.jsonl"
    path.write_bytes(path.read_bytes() + b'"toolkeep/')
    assert len(AuditLog(folder).kept_checkpoints()) == 2
    fill(folder, 3)
    assert len(AuditLog(folder).kept_checkpoints()) == 3
    assert verify(folder).is_intact


def test_futures_are_ordinary_ones(log: AuditLog) -> None:
    future = log.append({"n": 1})
    assert isinstance(future, Future)
    done: list[int] = []
    future.add_done_callback(lambda each: done.append(each.result().index))
    future.result()
    log.checkpoint()
    assert done == [0]


def test_a_checkpoint_that_cannot_be_signed_for_whatever_reason_ends_nothing_and_is_said_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = threading.Semaphore(0)

    def break_down(*_: object, **__: object) -> None:
        tried.release()
        raise ZeroDivisionError

    fill(folder, 1)
    with AuditLog(folder, checkpoint_seconds=0.0) as log, monkeypatch.context() as broken:
        broken.setattr(Checkpoints, "sign", break_down)
        log.append({"n": 1}).result(30)
        for number in range(2, 5):
            assert tried.acquire(timeout=30)
            assert log.append({"n": number}).result(30).index == number
        broken.undo()
    assert verify(folder).covered == 5
    assert [record.message for record in caplog.records] == [
        "no checkpoint can be signed; new records are covered by none"
    ]


@pytest.mark.parametrize("gap", [50, 200_000])
def test_what_stands_behind_zeros_is_not_read_though_nobody_appended_since(folder: Path, gap: int) -> None:
    fill(folder, 4)
    first, *_, last = segment(folder).read_bytes().splitlines(keepends=True)
    with segment(folder).open("ab") as file:
        file.write(last[:30] + bytes(gap) + last + first + bytes(100))
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    assert [entry.index for entry in log.read()] == [0, 1, 2, 3]
    assert [entry.index for entry in log.read_back()] == [3, 2, 1, 0]


def test_a_record_is_proven_beside_one_that_is_half_written(log: AuditLog, folder: Path) -> None:
    leaves = [log.append({"n": number}).result() for number in range(2)]
    log.checkpoint()
    log.append({"n": 2}).result()
    written = segment(folder).read_bytes()
    start = written.rindex(b'"n":2')
    segment(folder).write_bytes(written[:start] + bytes(5) + written[start + 5 :])
    log.prove(leaves[1].index)
    segment(folder).write_bytes(written)  # as it is seen a moment later
    assert log.prove(2).index == 2


@pytest.mark.parametrize("is_replaced", [False, True], ids=["moved away", "replaced"])
def test_a_log_that_was_moved_takes_no_more_records_and_leaves_the_new_one_alone(
    folder: Path, tmp_path: Path, is_replaced: bool
) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    for number in range(5):
        log.append({"n": number}).result()
    folder.rename(tmp_path / "aside")
    if is_replaced:
        fill(folder, 2)
    with pytest.raises(AuditBroken):
        log.append({"n": 5}).result(30)
    with pytest.raises(AuditBroken):
        log.checkpoint()
    with pytest.raises(AuditBroken):
        log.close()
    assert folder.exists() is is_replaced
    if is_replaced:
        assert verify(folder).is_intact


def test_a_broken_log_is_not_sound_until_it_is_whole_again(folder: Path, tmp_path: Path) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    assert log.is_sound()
    log.append({"n": 0}).result()
    folder.rename(tmp_path / "aside")
    with pytest.raises(AuditBroken):
        log.append({"n": 1}).result(30)
    assert not log.is_sound()
    (tmp_path / "aside").rename(folder)
    assert log.is_sound()
    assert log.append({"n": 1}).result(30).index == 1
    log.close()


def test_where_no_thread_can_be_started_nothing_waits(folder: Path) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    before = threading.stack_size(1 << 46)  # more than there is
    try:
        with pytest.raises(LogUnwritable):
            log.append({"n": 0})
    finally:
        threading.stack_size(before)
    assert log.append({"n": 1}).result(30).index == 0
    log.close()


def test_a_disk_that_does_not_say_how_old_the_checkpoint_is_ends_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = threading.Semaphore(0)

    def fail(_: Checkpoints) -> float:
        tried.release()
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with AuditLog(folder, checkpoint_seconds=0.0) as log, monkeypatch.context() as broken:
        broken.setattr(Checkpoints, "seconds_old", fail)
        log.append({"n": 0}).result(30)
        assert tried.acquire(timeout=30)
        assert log.append({"n": 1}).result(30).index == 1
    assert verify(folder).covered == 2


def test_a_key_that_is_gone_is_replaced_by_no_other_while_the_log_is_written(folder: Path) -> None:
    log = AuditLog(folder, checkpoint_seconds=NEVER)
    log.append({"n": 0}).result()
    log.checkpoint()
    key = folder / "keys" / "log.key"
    kept = key.read_bytes()
    key.unlink()
    log.append({"n": 1}).result()
    with pytest.raises(StateUnusable, match=r"log\.key: is missing"):
        log.checkpoint()
    key.write_bytes(kept)
    log.close()
    assert (verify(folder).is_intact, verify(folder).covered) == (True, 2)


def test_a_signed_log_without_its_key_gets_no_other(folder: Path) -> None:
    fill(folder, 2)
    key = folder / "keys" / "log.key"
    kept = key.read_bytes()
    key.unlink()
    log = AuditLog(folder)
    for use in (lambda: log.append({"n": 2}).result(), log.public_key):
        with pytest.raises(StateUnusable, match=r"log\.key: is missing"):
            use()
    log.close()
    assert not key.exists()
    key.write_bytes(kept)
    assert verify(folder).is_intact
