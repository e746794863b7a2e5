"""Merkle tree of RFC 6962 (and RFC 9162): leaf hashes in; roots, inclusion and consistency proofs out.

`Tree` keeps the hash of every complete subtree, 64 bytes per leaf, and makes proofs. `Frontier` keeps one
hash per level and knows only its root: enough to append and sign, and to prove growth from its own size.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final

HASH_BYTES: Final = 32
"""Size of a SHA-256 digest, the hash of RFC 6962 trees."""
EMPTY_ROOT: Final = hashlib.sha256(b"").digest()

_sha256 = hashlib.sha256


def leaf_hash(data: bytes) -> bytes:
    """The hash of a leaf with this content."""
    # Domain separation (RFC 6962, 2.1): without the prefix an inner node could be presented as a leaf.
    return _sha256(b"\0" + data).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """The hash of an inner node."""
    return _sha256(b"\1" + left + right).digest()


class Frontier:
    """The right edge of the tree: roots of the complete subtrees. Appends leaves and computes the root."""

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        """Restore the frontier of a tree of this size from its `peaks`."""
        given = list(peaks)
        if size < 0 or len(given) != size.bit_count():
            raise ValueError(f"a tree of {size} leaves does not have {len(given)} peaks")
        self.size = size
        self._peaks: list[bytes | None] = [
            given.pop(0) if size >> level & 1 else None for level in range(size.bit_length())
        ]

    @property
    def peaks(self) -> list[bytes]:
        """Roots of the complete subtrees, smallest first."""
        return [peak for peak in self._peaks if peak is not None]

    def extend(self, leaves: Iterable[bytes]) -> None:
        """Append leaf hashes in order."""
        nodes = list(leaves)
        self.size += len(nodes)
        level = 0
        while nodes:
            if level == len(self._peaks):
                self._peaks.append(None)
            # Like binary addition: a pending subtree of this level is the carry that pairs with the first new
            # node.
            if (peak := self._peaks[level]) is not None:
                nodes.insert(0, peak)
            self._peaks[level] = nodes.pop() if len(nodes) % 2 else None
            pairs = iter(nodes)
            nodes = [_sha256(b"\1" + left + right).digest() for left, right in zip(pairs, pairs, strict=True)]
            level += 1

    def root(self) -> bytes:
        """The root over all appended leaves."""
        root = None
        for peak in self._peaks:
            if peak is not None:
                root = peak if root is None else node_hash(peak, root)
        return EMPTY_ROOT if root is None else root


def growth(frontier: Frontier, leaves: Sequence[bytes]) -> list[bytes]:
    """Consistency proof from the tree of a frontier to the one with these leaves appended (RFC 6962, 2.1.2).

    Every node of the proof is a peak of the old tree, or lies to the right of it.
    """
    old, size = frontier.size, frontier.size + len(leaves)
    widths = [1 << level for level in reversed(range(old.bit_length())) if old >> level & 1]
    peaks = dict(zip(accumulate([0, *widths]), reversed(frontier.peaks), strict=False))

    def subtree(start: int, stop: int) -> bytes:
        if stop <= old:
            return peaks[start]
        if stop - start == 1:
            return leaves[start - old]
        middle = start + _split(stop - start)
        return node_hash(subtree(start, middle), subtree(middle, stop))

    return _consistency(old, size, subtree)


class Tree:
    """All complete subtrees of a growing list of leaves: roots and proofs for every past size."""

    def __init__(self, leaves: bytes | bytearray = b"") -> None:
        self._levels = [bytearray()]
        self.extend(leaves)

    @property
    def size(self) -> int:
        """The number of leaves."""
        return len(self._levels[0]) // HASH_BYTES

    def extend(self, leaves: bytes | bytearray) -> None:
        """Append concatenated leaf hashes."""
        if len(leaves) % HASH_BYTES:
            raise ValueError("the leaves are not whole hashes")
        self._levels[0] += leaves
        for level, below in enumerate(self._levels, start=1):
            if level == len(self._levels):
                if len(below) < 2 * HASH_BYTES:
                    return
                self._levels.append(bytearray())
            above = self._levels[level]
            # Only complete pairs: the hash of an incomplete subtree changes when leaves are added.
            start, stop = 2 * len(above), len(below) - len(below) % (2 * HASH_BYTES)
            children = bytes(below[start:stop])
            above += b"".join(
                [
                    _sha256(b"\1" + children[at : at + 2 * HASH_BYTES]).digest()
                    for at in range(0, len(children), 2 * HASH_BYTES)
                ]
            )

    def leaf(self, index: int) -> bytes:
        """The hash of one leaf."""
        if not 0 <= index < self.size:
            raise ValueError(f"there is no leaf {index} among {self.size}")
        return self._node(0, index)

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` leaves; by default over all."""
        size = self.size if size is None else size
        if not 0 <= size <= self.size:
            raise ValueError(f"there is no size {size} among {self.size} leaves")
        return self._subtree(0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int) -> list[bytes]:
        """Inclusion proof.

        The audit path from a leaf to the root over the first `size` leaves (RFC 6962, 2.1.1).
        """
        if not 0 <= index < size <= self.size:
            raise ValueError(f"no leaf {index} in a tree of size {size}, of {self.size} leaves")
        path: list[bytes] = []
        start, stop = 0, size
        while stop - start > 1:
            middle = start + _split(stop - start)
            if index < middle:
                path.append(self._subtree(middle, stop))
                stop = middle
            else:
                path.append(self._subtree(start, middle))
                start = middle
        return path[::-1]

    def consistency(self, old: int, size: int) -> list[bytes]:
        """Consistency proof from `old` to `size` leaves (RFC 6962, 2.1.2)."""
        if not 0 <= old <= size <= self.size:
            raise ValueError(f"no sizes {old} and {size} among {self.size} leaves")
        return _consistency(old, size, self._subtree)

    def _subtree(self, start: int, stop: int) -> bytes:
        """The root over leaves start to stop; start is a multiple of the largest power of two within."""
        width = stop - start
        level = width.bit_length() - 1
        if width == 1 << level:
            return self._node(level, start >> level)
        middle = start + _split(width)
        return node_hash(self._subtree(start, middle), self._subtree(middle, stop))

    def _node(self, level: int, number: int) -> bytes:
        at = number * HASH_BYTES
        return bytes(self._levels[level][at : at + HASH_BYTES])


def root_of_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that an audit path leads to; None if the path has the wrong length (RFC 9162, 2.1.3.2)."""
    if not 0 <= index < size:
        return None
    # The algorithm of RFC 9162 rejects a path that is too short or too long: otherwise a proof for one tree
    # size could be presented for another.
    place, last, node = index, size - 1, leaf
    for sibling in path:
        if last == 0:
            return None
        if place % 2 or place == last:
            node = node_hash(sibling, node)
            while place and not place % 2:
                place, last = place >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        place, last = place >> 1, last >> 1
    return node if last == 0 else None


def is_consistent(old: int, old_root: bytes, size: int, root: bytes, path: Sequence[bytes]) -> bool:
    """Verify a consistency proof between trees of `old` and `size` leaves (RFC 9162, 2.1.4.2)."""
    if old > size or old < 0:
        return False
    if old in {0, size}:
        return not path and old_root == (root if old else EMPTY_ROOT)
    nodes = [old_root, *path] if old & (old - 1) == 0 else list(path)
    if not nodes:
        return False
    place, last = old - 1, size - 1
    while place % 2:
        place, last = place >> 1, last >> 1
    old_node = node = nodes[0]
    for sibling in nodes[1:]:
        if last == 0:
            return False
        if place % 2 or place == last:
            old_node, node = node_hash(sibling, old_node), node_hash(sibling, node)
            while place and not place % 2:
                place, last = place >> 1, last >> 1
        else:
            node = node_hash(node, sibling)
        place, last = place >> 1, last >> 1
    return last == 0 and old_node == old_root and node == root


def _consistency(old: int, size: int, subtree: Callable[[int, int], bytes]) -> list[bytes]:
    if old in {0, size}:
        return []
    path: list[bytes] = []
    start, stop, is_old_root = 0, size, True
    while old != stop:
        middle = start + _split(stop - start)
        if old <= middle:
            path.append(subtree(middle, stop))
            stop = middle
        else:
            path.append(subtree(start, middle))
            start, is_old_root = middle, False
    if not is_old_root:
        path.append(subtree(start, stop))
    return path[::-1]


def _split(width: int) -> int:
    """The largest power of two below the width: where RFC 6962 splits a list."""
    return 1 << ((width - 1).bit_length() - 1)
