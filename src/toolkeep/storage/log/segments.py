"""The segments of the audit log, `segments/00000000.jsonl` and so on: one entry a line, and nothing else.

While a log is open, its last segment ends in preallocated room: zeros that the next entries overwrite. An
entry holds no zero byte. The room is truncated when the segment is sealed, and when the log is closed.

Comes in: the folder `audit`. Goes out: a cursor that reads on from where it is; entries by index.
"""

import contextlib
import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from toolkeep.audit.entry import NO_PREVIOUS, RECORD_BYTES, Entry, follow, parse_entry
from toolkeep.audit.errors import AuditBroken
from toolkeep.host.files import is_there
from toolkeep.storage.state_folder import newer_format

SEGMENT_BYTES: Final = 16 * 1024 * 1024
"""When a segment is sealed: it fits into memory, and a year of an ordinary keep is a handful of files."""

LOG_FORMAT: Final = 1
"""Of segments, entries and checkpoints, in the file `format` beside them; raised when an older toolkeep could
no longer read them. A log without the file has the first format."""

_BLOCK: Final = 64 * 1024
"""How much of a segment is read at once: some hundred records."""

_LINE: Final = 1024
"""About the size of a long entry."""

_NAME = re.compile(r"(\d{8})\.jsonl")


def segments_folder(audit: Path) -> Path:
    """The folder of the segments."""
    return audit / "segments"


def segment_path(audit: Path, number: int) -> Path:
    """The file of one segment."""
    return segments_folder(audit) / f"{number:08d}.jsonl"


def segment_numbers(audit: Path) -> list[int]:
    """The numbers of the segments that exist."""
    try:
        paths = list(segments_folder(audit).iterdir())
    except FileNotFoundError:
        return []
    return sorted(int(match[1]) for path in paths if (match := _NAME.fullmatch(path.name)))


def check_format(audit: Path) -> None:
    """Raise for a log that a later release wrote: what it says may mean something else here."""
    try:
        written = format_file(audit).read_bytes()
    except FileNotFoundError:
        return
    if not re.fullmatch(rb"[1-9][0-9]{0,8}\n", written):
        raise AuditBroken(str(format_file(audit)), "it is no number")
    if (found := int(written)) > LOG_FORMAT:
        raise newer_format(audit, found, LOG_FORMAT)


def format_file(audit: Path) -> Path:
    """The file that says which format the log has."""
    return audit / "format"


@contextlib.contextmanager
def shared_lock(audit: Path) -> Iterator[None]:
    """Hold the advisory lock shared, so that nobody appends.

    A folder that cannot be locked, on a read-only mount, is a copy that nobody appends to.
    """
    descriptor = os.open(audit, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def segment_ends(audit: Path) -> dict[int, int]:
    """How far each segment is written, without its room: a snapshot, while the lock is held."""
    ends = {number: segment_path(audit, number).stat().st_size for number in segment_numbers(audit)}
    if ends:
        last = max(ends)
        ends[last] = _before_room(segment_path(audit, last), ends[last])
    return ends


def _before_room(path: Path, end: int) -> int:
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - _BLOCK)
            file.seek(start)
            if block := file.read(end - start).rstrip(b"\0"):
                return start + len(block)
            end = start
        return end


class Place(msgspec.Struct, kw_only=True):
    """A cursor in the log, between two entries; `take` advances it."""

    number: int = 0
    offset: int = 0
    size: int = 0
    previous: str = NO_PREVIOUS

    def take(self, data: bytes, most: int | None = None) -> tuple[list[bytes], bytes]:
        """Advance over the lines that continue the hash chain: their leaf hashes, and the bytes behind."""
        complete, newline, _ = data.rpartition(b"\n")
        lines = complete.split(b"\n")[:most] if newline else []
        leaves = list(follow(lines, self.size, self.previous))
        taken = sum(map(len, lines[: len(leaves)])) + len(leaves)
        if leaves:
            self.previous = leaves[-1].hex()
        self.size += len(leaves)
        self.offset += taken
        return leaves, data[taken:]

    def next_segment(self) -> None:
        """Move to the start of the next file."""
        self.number += 1
        self.offset = 0

    def __str__(self) -> str:
        return f"segment {self.number:08d}, offset {self.offset}, record {self.size}"


def read_leaves(audit: Path, place: Place, stop: int) -> Iterator[bytes]:
    """The leaf hashes from the cursor up to the index `stop`, joined, a segment at a time; advances it."""
    while place.size < stop:
        data = read_segment(audit, place.number, place.offset)
        leaves, rest = place.take(data, stop - place.size)  # a torn write may follow
        yield b"".join(leaves)
        if place.size < stop:
            if rest or not is_there(segment_path(audit, place.number + 1)):
                raise AuditBroken(str(place), f"the log ends or breaks here, before record {stop}")
            place.next_segment()


def read_entries(audit: Path, start: int, stop: int) -> Iterator[Entry]:
    """The entries with these indexes, as far as there are any. Checks their form, not the hash chain."""
    return read_entries_within(audit, _ends_now(audit), start, stop)


def read_entries_within(audit: Path, ends: Mapping[int, int], start: int, stop: int) -> Iterator[Entry]:
    """As `read_entries`, of a log whose segments end at these offsets."""
    for number, end in ends.items():
        if number + 1 in ends and first_index(audit, number + 1) <= start:
            continue  # the wanted entries begin later
        for line in read_segment(audit, number, 0)[:end].split(b"\n")[:-1]:
            entry = parse_entry(line)
            if entry is None:
                raise AuditBroken(f"segment {number:08d}", "a line is not an entry")
            if entry.index >= stop:
                return
            if entry.index >= start:
                yield entry


def read_back(audit: Path, stop: int) -> Iterator[Entry]:
    """The entries before the index `stop`, newest first, read from the end: a page costs what it shows."""
    for number, end in reversed(_ends_now(audit).items()):
        if first_index(audit, number) >= stop:
            continue
        with segment_path(audit, number).open("rb") as file:
            for line in _lines_back(file, _end_of(file, end, stop)):
                entry = parse_entry(line)
                if entry is None:
                    raise AuditBroken(f"segment {number:08d}", "a line is not an entry")
                if entry.index < stop:
                    yield entry


def follow_lines(audit: Path, place: Place, most: int) -> Iterator[list[tuple[int, bytes]]]:
    """The lines behind a cursor, up to `most` at a time, each with its position; advances the cursor.

    Raises `AuditBroken` where they do not continue the hash chain: the log is another one since.
    """
    check_format(audit)
    ends = {number: segment_path(audit, number).stat().st_size for number in segment_numbers(audit)}
    if place.offset > ends.get(place.number, 0):
        raise AuditBroken(str(place), "the log ends before")
    while place.number in ends:
        start = place.offset
        length = min(ends[place.number] - start, most * _LINE + RECORD_BYTES)
        # Without a lock: an entry that is being written has zeros somewhere, and is left for the next time.
        data = read_segment(audit, place.number, start, length).partition(b"\0")[0]
        leaves, _ = place.take(data, most)
        if len(leaves) < min(most, data.count(b"\n")):
            raise AuditBroken(str(place), "the hash chain breaks")
        if leaves:
            lines = data[: place.offset - start].split(b"\n")[:-1]
            places = accumulate((len(line) + 1 for line in lines), initial=place.number << 32 | start)
            yield list(zip(places, lines, strict=False))
        elif place.number + 1 in ends:
            place.next_segment()
        else:
            return


def place_before(audit: Path, back: int) -> Place:
    """A cursor at the start of the segment that holds the entry so many before the end."""
    newest = next(read_back(audit, 1 << 62), None)
    for number in reversed(segment_numbers(audit)):
        first = _first_entry(audit, number)
        if newest and first and first.index <= newest.index - back:
            return Place(number=number, size=first.index, previous=first.previous)
    return Place()


def entries_at(audit: Path, positions: Iterable[int]) -> list[Entry]:
    """The entries at positions from `follow_lines`."""
    found: list[Entry] = []
    with contextlib.ExitStack() as files:
        opened: dict[int, BinaryIO] = {}
        for position in positions:
            number = position >> 32
            if number not in opened:
                opened[number] = files.enter_context(segment_path(audit, number).open("rb"))
            opened[number].seek(position & 0xFFFF_FFFF)
            line = opened[number].readline(RECORD_BYTES + _BLOCK)
            entry = parse_entry(line[:-1])
            if entry is None:
                raise AuditBroken(f"segment {number:08d}", "a line is not an entry")
            found.append(entry)
    return found


def _ends_now(audit: Path) -> dict[int, int]:
    """Where a reader stops: writes into the room after this moment become visible in no order.

    Bytes behind zeros were never acknowledged: the machine crashed, and nobody appended since.
    """
    check_format(audit)
    try:
        with shared_lock(audit):
            ends = segment_ends(audit)
    except FileNotFoundError:
        return {}
    if ends:
        last = max(ends)
        ends[last] = _before_zeros(segment_path(audit, last), ends[last])
    return ends


def _before_zeros(path: Path, end: int) -> int:
    with path.open("rb") as file:
        for start in range(0, end, _BLOCK):
            found = file.read(_BLOCK).find(b"\0")
            if found >= 0:
                return min(end, start + found)
    return end


def _end_of(file: BinaryIO, end: int, stop: int) -> int:
    """An offset in a segment that ends at `end`, at or soon after the entry `stop`, between two lines."""
    low, high = 0, end
    while high - low > _BLOCK:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        entry = parse_entry(file.readline().rstrip(b"\n"))
        if entry is None or entry.index >= stop:
            high = middle
        else:
            low = middle
    file.seek(high)
    file.readline()
    return min(file.tell(), end)


def _lines_back(file: BinaryIO, end: int) -> Iterator[bytes]:
    """The complete lines before an offset, last first; bytes after the last newline are no line yet."""
    rest = b""
    is_whole = False
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        first, *lines = (file.read(end - start) + rest).split(b"\n")
        for line in reversed(lines):
            if is_whole:
                yield line
            is_whole = True
        rest, end = first, start
    if is_whole and rest:
        yield rest


def read_segment(audit: Path, number: int, offset: int, most: int = -1) -> bytes:
    """The bytes of a segment from the offset on, by default all."""
    with segment_path(audit, number).open("rb") as file:
        file.seek(offset)
        return file.read(most)


def first_index(audit: Path, number: int) -> float:
    """The index of the first entry of a segment; infinite for an empty one."""
    first = _first_entry(audit, number)
    return float("inf") if first is None else first.index


def _first_entry(audit: Path, number: int) -> Entry | None:
    with segment_path(audit, number).open("rb") as file:
        line = file.readline()
    if not line.endswith(b"\n"):
        return None
    entry = parse_entry(line[:-1])
    if entry is None:
        raise AuditBroken(f"segment {number:08d}, line 1", "the line is no entry")
    return entry
