"""Attempts to change files that were not granted, or to leave traps for others."""

import ctypes
import os
import stat
import struct
import time
from pathlib import Path

from .declare import attempt
from .system import AT_FDCWD, call, raw, take_name

_POISON = "raise SystemExit('poisoned')\n"
_RENAME_WHITEOUT = 4
_KEEP_SIZE, _ZERO_RANGE, _INSERT_RANGE = 0x01, 0x10, 0x20
_BLOCK = 4096


# --- a file of the user's ------------------------------------------------------------------------


@attempt("fs-write", "changed")
def append_to_bashrc(bashrc: str) -> None:
    with Path(bashrc).open("a") as file:
        file.write("echo owned\n")


@attempt("fs-write", "changed")
def truncate_by_path(key: str) -> None:
    os.truncate(key, 0)


@attempt("fs-write", "changed")
def truncate_by_opening(key: str) -> None:
    os.close(os.open(key, os.O_RDONLY | os.O_TRUNC))


@attempt("fs-write", "changed")
def change_mode(key: str) -> None:
    Path(key).chmod(0o777)


@attempt("fs-write", "changed")
def change_times(key: str) -> None:
    os.utime(key, (1, 1))


@attempt("fs-write", "changed")
def delete_file(key: str) -> None:
    Path(key).unlink()


@attempt("fs-write", "changed")
def rename_over_file(key: str, work: str) -> None:
    mine = Path(work) / "mine"
    mine.write_text("mine")
    mine.rename(key)


@attempt("fs-write", "changed")
def make_folder_in_home(home: str) -> None:
    (Path(home) / "made").mkdir()


@attempt("fs-write", "changed")
def make_pipe_in_home(home: str) -> None:
    os.mkfifo(Path(home) / "pipe")


@attempt("fs-write", "changed")
def make_link_in_home(home: str) -> None:
    (Path(home) / "link").symlink_to("/")


@attempt("fs-write", "changed")
def write_through_symlink(bashrc: str, work: str) -> None:
    link = Path(work) / "link"
    link.symlink_to(bashrc)
    link.write_text("owned")


@attempt("fs-write", "changed")
def write_through_hardlink(bashrc: str, work: str) -> None:
    link = Path(work) / "hard"
    os.link(bashrc, link)
    link.write_text("owned")


@attempt("fs-write", "changed")
def write_through_dot_dot(bashrc: str, work: str) -> None:
    os.chdir(work)
    Path("../" * len(Path(work).parts) + bashrc).write_text("owned")


@attempt("fs-write", "changed", needs="a /tmp that everybody may write in")
def write_in_shared_tmp(outside: str) -> None:
    Path(outside).write_text("left")


@attempt("fs-write", "changed")
def write_in_shared_memory_folder(outside_memory: str) -> None:
    Path(outside_memory).write_text("left")


@attempt("fs-write", "changed", needs="extended attributes on the file system of temporary files")
def set_extended_attribute(key: str) -> None:
    os.setxattr(key, "user.owned", b"1")


@attempt("fs-write", "changed", needs="Linux 6.13, and extended attributes of temporary files")
def set_extended_attribute_by_a_newer_call(key: str) -> None:
    value = ctypes.create_string_buffer(b"1", 1)
    wanted = struct.pack("=QII", ctypes.addressof(value), 1, 0)
    raw("setxattrat", AT_FDCWD, os.fsencode(key), 0, b"user.owned", wanted, len(wanted))


# --- granted for reading only, or in a root that others share ------------------------------------


@attempt("fs-write", "changed")
def write_what_is_granted_for_reading(shelf_file: str) -> None:
    Path(shelf_file).write_text("owned")


@attempt("fs-write", "changed")
def change_mode_of_what_is_granted_for_reading(shelf_file: str) -> None:
    Path(shelf_file).chmod(0o777)


@attempt("fs-write", "changed")
def write_sibling_of_the_grant(side: str) -> None:
    Path(side).write_text("owned")


@attempt("fs-write", "changed")
def delete_sibling_of_the_grant(side: str) -> None:
    Path(side).unlink()


@attempt("fs-write", "changed")
def change_mode_of_sibling_of_the_grant(side: str) -> None:
    Path(side).chmod(0o777)


@attempt("fs-write", "changed")
def change_times_of_sibling_of_the_grant(side: str) -> None:
    os.utime(side, (1, 1))


@attempt("fs-write", "changed")
def change_times_of_a_device(device: str) -> None:
    """Whoever may write a file may set its times to now."""
    os.utime(device)


@attempt("fs-write", "changed")
def link_from_the_grant_to_its_sibling(side: str, work: str) -> None:
    mine = Path(work) / "mine"
    mine.write_text("mine")
    os.link(mine, Path(side).parent / "planted")


@attempt("fs-write", "changed")
def rename_out_of_the_grant(side: str, work: str) -> None:
    mine = Path(work) / "mine"
    mine.write_text("mine")
    mine.rename(Path(side).parent / "planted")


@attempt("fs-write", "changed")
def exchange_with_sibling_of_the_grant(side: str, work: str) -> None:
    """Moves the whole granted folder to where the next call's is."""
    Path(work).rename(f"{work}-away")
    Path(side).parent.rename(work)


# --- left in the granted folder for others to trip over ------------------------------------------


@attempt("kernel-surface", "trapped")
def leave_setuid_file(work: str) -> None:
    made = Path(work) / "program"
    made.write_text("#!/bin/sh\n")
    made.chmod(0o4755)


@attempt("kernel-surface", "trapped")
def leave_setuid_file_at_creation(work: str) -> None:
    os.umask(0)
    os.close(os.open(Path(work) / "program", os.O_CREAT | os.O_WRONLY, 0o4755))


@attempt("kernel-surface", "trapped")
def leave_setuid_file_by_descriptor(work: str) -> None:
    descriptor = os.open(Path(work) / "program", os.O_CREAT | os.O_WRONLY, 0o755)
    os.fchmod(descriptor, 0o6755)


@attempt("kernel-surface", "trapped", needs="fchmodat2")
def leave_setuid_file_by_the_newest_call(work: str) -> None:
    made = Path(work) / "program"
    made.write_text("#!/bin/sh\n")
    raw("fchmodat2", AT_FDCWD, os.fsencode(made), 0o4755, 0)


@attempt("kernel-surface", "trapped")
def leave_setgid_folder(work: str) -> None:
    made = Path(work) / "folder"
    made.mkdir()
    made.chmod(0o2777)


@attempt("kernel-surface", "trapped")
def leave_pipe_that_blocks_its_reader(work: str) -> None:
    os.mkfifo(Path(work) / "pipe")


@attempt("kernel-surface", "trapped")
def leave_socket(work: str) -> None:
    os.mknod(Path(work) / "socket", 0o666 | stat.S_IFSOCK)


@attempt("kernel-surface", "trapped", only_for="root")
def leave_device(work: str) -> None:
    os.mknod(Path(work) / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 3))


@attempt("kernel-surface", "trapped")
def leave_device_by_renaming(work: str) -> None:
    """A whiteout is a device that needs no privilege; in an overlay layer it hides what is below."""
    mine = Path(work) / "mine"
    mine.write_text("mine")
    there = os.fsencode(Path(work) / "there")
    raw("renameat2", AT_FDCWD, os.fsencode(mine), AT_FDCWD, there, _RENAME_WHITEOUT)


# --- code that the next call runs ----------------------------------------------------------------


@attempt("fs-write", "changed")
def poison_own_module(code: str) -> None:
    Path(code, "files_write.py").write_text(_POISON)


@attempt("fs-write", "changed")
def poison_cached_bytecode(code: str) -> None:
    cache = Path(code) / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "files_write.cpython-311.pyc").write_bytes(b"poison")


@attempt("fs-write", "changed")
def poison_package_folder(code: str) -> None:
    Path(code, "json.py").write_text(_POISON)


@attempt("fs-write", "changed")
def poison_by_replacing_the_module(code: str) -> None:
    other = Path(code) / "other.py"
    other.write_text(_POISON)
    other.rename(Path(code) / "files_write.py")


@attempt("fs-write", "changed")
def poison_by_moving_the_folder(code: str) -> None:
    Path(code).rename(f"{code}-away")


# --- scratch folders -----------------------------------------------------------------------------


@attempt("disk-bound", "leaked")
def read_scratch_of_another_call(others_scratch: str) -> str:
    """While another call sleeps with a secret in its scratch folder."""
    return "".join(path.read_text() for path in Path(others_scratch).rglob("*") if path.is_file())


@attempt("disk-bound", "done")
def fill_the_disk(own_scratch: str) -> str:
    for number in range(24):
        (Path(own_scratch) / f"f{number}").write_bytes(b"x" * 1_000_000)
    return "done"


@attempt("disk-bound", "done")
def fill_the_table_of_files(own_scratch: str) -> str:
    for number in range(1500):
        (Path(own_scratch) / f"f{number}").touch()
    return "done"


@attempt("disk-bound", "done")
def write_one_huge_sparse_file(own_scratch: str) -> str:
    os.truncate(os.open(Path(own_scratch) / "huge", os.O_CREAT | os.O_RDWR), 1 << 30)
    return "done"


# RLIMIT_FSIZE limits file sizes; these modes of fallocate(2) are not checked against it.


@attempt("bounded", "more", needs="a file system that keeps room beyond the end of a file")
def keep_room_beyond_the_end_of_a_file(more_file_bytes: int, work: str) -> int:
    return _grown(work, more_file_bytes, _KEEP_SIZE)


@attempt("bounded", "more", needs="a file system that keeps room beyond the end of a file")
def keep_zeros_beyond_the_end_of_a_file(more_file_bytes: int, work: str) -> int:
    return _grown(work, more_file_bytes, _ZERO_RANGE | _KEEP_SIZE)


@attempt("bounded", "more", needs="a file system that inserts into files")
def move_the_end_of_a_file_on(more_file_bytes: int, work: str) -> int:
    return _grown(work, more_file_bytes, _INSERT_RANGE)


def _grown(work: str, size: int, mode: int) -> int:
    with (Path(work) / "grown").open("wb") as file:
        file.write(b"x" * _BLOCK)
        file.flush()
        call("fallocate", file.fileno(), mode, 0, size)
        status = os.fstat(file.fileno())
        file.truncate(0)
        return max(status.st_size, status.st_blocks * 512)


def sleep_with_a_secret(folder: str, text: str, mark: str) -> None:
    """The concurrent call, with a secret in its scratch folder."""
    (Path(folder) / "mine.txt").write_text(text)
    take_name(mark)
    time.sleep(0.5)
