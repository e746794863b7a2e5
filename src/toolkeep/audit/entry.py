"""One log entry: a record with its index and the hash of the previous entry (hash chain), on one line.

The line is canonical JSON (RFC 8785), `{"index":7,"previous":"…","record":{…}}`. Its Merkle leaf hash covers
exactly these bytes. Index and hash chain localize tampering; the signed Merkle tree proves it.
"""

import hashlib
import json
from binascii import hexlify
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
import orjson

from toolkeep.audit.merkle_tree import HASH_BYTES, leaf_hash
from toolkeep.json_values.canonical import canonical_bytes

NO_PREVIOUS: Final = "0" * (2 * HASH_BYTES)
"""`previous` of the first entry."""

RECORD_BYTES: Final = 256 * 1024
"""Maximum record size. Records hold hashes, not bodies: some kilobytes at most."""


_FLAT = frozenset({str, int, bool, type(None)})


class Leaf(msgspec.Struct, frozen=True, gc=False):
    """Position and leaf hash of a record in a log."""

    index: int
    hash: str
    origin: str


class Entry(msgspec.Struct, frozen=True):
    """A parsed log entry."""

    index: int
    previous: str
    record: dict[str, Any]

    @property
    def line(self) -> bytes:
        """The line in the segment, without newline."""
        return canonical_bytes({"index": self.index, "previous": self.previous, "record": self.record})

    @property
    def hash(self) -> str:
        """The Merkle leaf hash in hex."""
        return leaf_hash(self.line).hex()


def head(index: int, previous: str) -> bytes:
    """The prefix of the line at this index."""
    return b'{"index":%d,"previous":"%b","record":' % (index, previous.encode())


def record_bytes(record: dict[str, Any]) -> bytes:
    """The canonical JSON (RFC 8785) of a record."""
    # Fast path: most records are flat, and checking that takes a fifth of the general walk over the value.
    if _FLAT.issuperset(map(type, record.values())):
        try:
            line = orjson.dumps(record, option=orjson.OPT_SORT_KEYS)
        except TypeError:
            return canonical_bytes(record)
        # orjson sorts keys by UTF-8 bytes, RFC 8785 by UTF-16 code units; for ASCII keys both orders are the
        # same.
        if line.isascii() or "".join(record).isascii():
            return line
    return canonical_bytes(record)


def chain(records: Sequence[bytes], index: int, previous: str) -> tuple[list[bytes], list[bytes]]:
    """Lines and leaf hashes for canonical records appended at this index of the hash chain."""
    lines, leaves = [], []
    sha256, last = hashlib.sha256, previous.encode()
    for number, record in enumerate(records, start=index):
        # Formatted by hand: the keys are in canonical order already, and the record is canonical JSON.
        line = b'{"index":%d,"previous":"%b","record":%b}' % (number, last, record)
        # The prefix separates leaves from inner nodes (RFC 6962, 2.1); `leaf_hash`, inlined for speed.
        leaf = sha256(b"\0" + line).digest()
        last = hexlify(leaf)
        lines.append(line)
        leaves.append(leaf)
    return lines, leaves


def follow(lines: Sequence[bytes], index: int, previous: str) -> Iterator[bytes]:
    """Leaf hashes of the lines that continue the hash chain; stops at the first that does not."""
    sha256 = hashlib.sha256
    for number, line in enumerate(lines, start=index):
        # Comparing bytes is cheaper than parsing, and the leaf hash covers the rest of the line.
        if not (line.startswith(head(number, previous)) and line.endswith(b"}}")):
            return
        leaf = sha256(b"\0" + line).digest()
        previous = leaf.hex()
        yield leaf


def parse_entry(line: bytes) -> Entry | None:
    """Parse an entry; None unless the line is exactly its canonical form.

    A second spelling would have another hash.
    """
    try:
        value = orjson.loads(line)
        if not _is_entry(value):
            return None
        if canonical_bytes(value) != line:
            # orjson parses integers beyond 64 bits as floats; json keeps their digits (EXE-3).
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
