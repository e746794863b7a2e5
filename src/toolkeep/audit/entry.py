"""One entry of the log: a record with its index and the hash of the entry before it, on one line.

The line is canonical JSON, `{"index":7,"previous":"…","record":{…}}`, and its leaf hash is over exactly these
bytes. Index and chain let every place that was touched be named; the signed tree shows that it was touched.
"""

import hashlib
import json
from binascii import hexlify
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson

from toolkeep.audit.tree import HASH_BYTES, leaf_hash
from toolkeep.canonical import canonical_bytes

NO_PREVIOUS: Final = "0" * (2 * HASH_BYTES)
"""What stands for the hash before the first entry."""

RECORD_BYTES: Final = 256 * 1024
"""The longest record. Records hold hashes, their bodies lie elsewhere: some kilobytes at most."""


_FLAT = frozenset({str, int, bool, type(None)})


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """Where a record stands in a log."""

    index: int
    hash: str
    origin: str


class Entry(msgspec.Struct, frozen=True):
    """A record as the log holds it."""

    index: int
    previous: str
    record: dict[str, Any]

    @property
    def line(self) -> bytes:
        """The line in the segment, without its newline."""
        return canonical_bytes({"index": self.index, "previous": self.previous, "record": self.record})

    @property
    def hash(self) -> str:
        """The leaf hash, in hex."""
        return leaf_hash(self.line).hex()


def head(index: int, previous: str) -> bytes:
    """What the line of the entry at this place begins with."""
    return b'{"index":%d,"previous":"%b","record":' % (index, previous.encode())


def record_bytes(record: dict[str, Any]) -> bytes:
    """The canonical form of a record."""
    # Most records are flat, and seeing that takes a fifth of the general walk over the value.
    if _FLAT.issuperset(map(type, record.values())):
        try:
            line = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            return canonical_bytes(record)
        if line.isascii() or "".join(record).isascii():
            return line
    return canonical_bytes(record)


def chain(records: Sequence[bytes], index: int, previous: str) -> tuple[list[bytes], list[bytes]]:
    """Lines and leaf hashes for canonical records that go to this place of the log."""
    lines, leaves = [], []
    sha256, last = hashlib.sha256, previous.encode()
    for number, record in enumerate(records, start=index):
        line = b'{"index":%d,"previous":"%b","record":%b}' % (number, last, record)
        leaf = sha256(b"\0" + line).digest()
        last = hexlify(leaf)
        lines.append(line)
        leaves.append(leaf)
    return lines, leaves


def follow(lines: Sequence[bytes], index: int, previous: str) -> Iterator[bytes]:
    """The leaf hash of each line as long as it goes on from this place; stops at the first that does not."""
    sha256 = hashlib.sha256
    for number, line in enumerate(lines, start=index):
        if not (line.startswith(head(number, previous)) and line.endswith(b"}}")):
            return
        leaf = sha256(b"\0" + line).digest()
        previous = leaf.hex()
        yield leaf


def parse_entry(line: bytes) -> Entry | None:
    """The entry on a line, or None where the line is not exactly the canonical form of one."""
    try:
        value = orjson.loads(line)
        if not _is_entry(value):
            return None
        if canonical_bytes(value) != line:
            # orjson reads integers beyond 64 bits as floats; json keeps their digits (EXE-3).
            value = json.loads(line)
            if canonical_bytes(value) != line:
                return None
    except (ValueError, TypeError, RecursionError):
        return None
    return Entry(index=value["index"], previous=value["previous"], record=value["record"])


def _is_entry(value: object) -> bool:
    return (
        isinstance(value, dict)
        and value.keys() == {"index", "previous", "record"}
        and type(value["index"]) is int
        and value["index"] >= 0
        and isinstance(value["previous"], str)
        and len(value["previous"]) == len(NO_PREVIOUS)
        and isinstance(value["record"], dict)
    )
