"""A full disk, a file at its largest, a folder that cannot be written: refused whole, and it recovers by itself."""

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolkeep.audit.errors import LogUnwritable
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.verify_folder import verify

RECORD = {"event": "Test", "padding": "x" * 3000}

AT_THE_LARGEST = """
import pathlib, resource, sys
from toolkeep.audit.errors import LogUnwritable
from toolkeep.storage.log.audit_log import AuditLog
folder = pathlib.Path(sys.argv[1])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
with AuditLog(folder, checkpoint_seconds=3600) as log:
    log.append({"n": 0}).result()
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    refused = 0
    for number in range(1, 40):
        try:
            log.append({"n": number, "padding": "x" * 3000}).result()
        except LogUnwritable:
            refused += 1
    size = (folder / "audit/segments/00000000.jsonl").stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    print(refused, size <= 20_000, log.append({"n": 40}).result().index)
"""


class SmallDisk:
    """A file system of one megabyte, in mounts of its own: whatever ends this process takes them along."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._at = folder
        mounts = (
            f"mount -t tmpfs -o size=1m,mode=700 tmpfs {shlex.quote(str(folder))} && echo mounted && exec cat"
        )
        self._holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "sh", "-c", mounts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        self.is_mounted = self._holder.stdout.readline() == "mounted\n"
        self.path = Path(f"/proc/{self._holder.pid}/root{folder}")

    def remount(self, mode: str) -> None:
        enter = ["nsenter", "--mount", "--target", str(self._holder.pid)]
        subprocess.run([*enter, "mount", "-o", f"remount,{mode}", str(self._at)], check=True)

    def close(self) -> None:
        self._holder.communicate()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("mounting a file system needs root")
    disk = SmallDisk(tmp_path / "disk")
    if not disk.is_mounted:
        pytest.fail("a file system cannot be mounted here")
    yield disk
    disk.close()


@pytest.fixture
def small_disk(disk: SmallDisk) -> Path:
    return disk.path


def is_whole(folder: Path) -> bool:
    return all(path.read_bytes()[-1:] in (b"", b"\n") for path in folder.glob("audit/segments/*"))


def append_until_full(log: AuditLog) -> list[int]:
    indexes: list[int] = []
    for _ in range(1000):
        try:
            indexes.append(log.append(RECORD).result().index)
        except LogUnwritable as error:
            assert "No space left" in error.message
            return indexes
    raise AssertionError("the disk is never full")


@pytest.mark.parametrize("segment_bytes", [20_000, 10_000_000])
def test_a_full_disk_refuses_whole_records_and_goes_on_when_there_is_space(
    small_disk: Path, segment_bytes: int
) -> None:
    folder, filler = small_disk / "keep", small_disk / "filler"
    acknowledged: list[int] = []
    with AuditLog(folder, segment_bytes=segment_bytes, checkpoint_seconds=0) as log:
        for taken in (700_000, 600_000):
            filler.write_bytes(b"x" * taken)
            acknowledged += append_until_full(log)
            for future in log.append_all([RECORD] * 50):
                with pytest.raises(LogUnwritable):
                    future.result()
            assert is_whole(folder)
            assert [entry.index for entry in log.read()] == acknowledged
            filler.unlink()
            acknowledged.append(log.append({"event": "Space"}).result().index)
    report = verify(folder)
    assert (report.is_intact, report.records, report.covered) == (True, len(acknowledged), len(acknowledged))


def test_room_for_the_next_records_never_takes_the_last_of_a_disk(small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 700_000)
    with AuditLog(small_disk / "keep", checkpoint_seconds=3600) as log:
        for _ in range(100):
            log.append(RECORD).result()
            written = (small_disk / "keep" / "audit" / "segments" / "00000000.jsonl").read_bytes()
            assert len(written) - len(written.rstrip(b"\0")) <= 350_000 // 64


def test_a_disk_turned_read_only_refuses_and_goes_on_afterwards(disk: SmallDisk) -> None:
    folder = disk.path / "keep"

    with AuditLog(folder, checkpoint_seconds=3600) as log:
        log.append(RECORD).result()
        # A segment held open for writing keeps the file system writable: the log is opened anew.
    with AuditLog(folder, checkpoint_seconds=3600) as log:
        disk.remount("ro")
        for _ in range(2):
            with pytest.raises(LogUnwritable, match="Read-only"):
                log.append(RECORD).result()
        assert verify(folder).is_intact
        disk.remount("rw")
        assert log.append(RECORD).result().index == 1
    assert verify(folder).covered == 2


def test_a_file_at_its_largest_size_refuses_and_goes_on_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "keep"
    command = [sys.executable, "-c", AT_THE_LARGEST, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    refused, is_small, index = done.stdout.split()
    report = verify(folder)
    assert is_small == "True"
    assert int(refused) > 30
    assert (report.is_intact, report.records, int(index)) == (True, 40 - int(refused) + 1, 40 - int(refused))


def test_a_folder_that_cannot_be_made_refuses(tmp_path: Path) -> None:
    from toolkeep.errors import StateUnusable

    (tmp_path / "file").write_text("in the way")
    with AuditLog(tmp_path / "file" / "keep") as log, pytest.raises(StateUnusable):
        log.append(RECORD).result()
