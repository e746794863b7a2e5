"""The tree, against the reference values of RFC 6962's own test data and against its definition."""

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.audit.merkle_tree import (
    EMPTY_ROOT,
    HASH_BYTES,
    Frontier,
    Tree,
    growth,
    is_consistent,
    leaf_hash,
    node_hash,
    root_of_inclusion,
)

# Inputs, roots and proofs of the reference implementation of RFC 6962 (certificate-transparency, merkle tests).
INPUTS = [
    bytes.fromhex(each)
    for each in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = (
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
)
PATHS = {
    (0, 1): (),
    (0, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (5, 8): (
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 3): ("fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",),
    (1, 5): (
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}
GROWTHS = {
    (1, 1): (),
    (1, 8): (
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ),
    (6, 8): (
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (2, 5): (
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
    ),
}
SIZES = 200


def leaves(count: int) -> bytes:
    return b"".join(leaf_hash(str(number).encode()) for number in range(count))


def root_by_definition(hashes: list[bytes]) -> bytes:
    """MTH of RFC 6962, section 2.1, word for word."""
    if not hashes:
        return hashlib.sha256(b"").digest()
    if len(hashes) == 1:
        return hashes[0]
    split = 1
    while split * 2 < len(hashes):
        split *= 2
    left, right = root_by_definition(hashes[:split]), root_by_definition(hashes[split:])
    return hashlib.sha256(b"\1" + left + right).digest()


TREE = Tree(leaves(SIZES))


def test_roots_are_those_of_the_reference() -> None:
    tree = Tree(b"".join(map(leaf_hash, INPUTS)))
    assert [tree.root(size).hex() for size in range(1, 9)] == list(ROOTS)
    assert tree.root(0) == EMPTY_ROOT


@pytest.mark.parametrize(("place", "path"), PATHS.items())
def test_inclusion_paths_are_those_of_the_reference(place: tuple[int, int], path: tuple[str, ...]) -> None:
    tree = Tree(b"".join(map(leaf_hash, INPUTS)))
    assert tuple(node.hex() for node in tree.inclusion(*place)) == path


@pytest.mark.parametrize(("sizes", "path"), GROWTHS.items())
def test_consistency_proofs_are_those_of_the_reference(sizes: tuple[int, int], path: tuple[str, ...]) -> None:
    tree = Tree(b"".join(map(leaf_hash, INPUTS)))
    assert tuple(node.hex() for node in tree.consistency(*sizes)) == path


def test_every_root_is_the_one_of_the_definition_in_both_forms() -> None:
    tree = TREE
    frontier = Frontier()
    hashes = [tree.leaf(index) for index in range(SIZES)]
    for size in range(SIZES + 1):
        assert tree.root(size) == root_by_definition(hashes[:size]) == frontier.root()
        frontier.extend(hashes[size : size + 1])


def test_every_leaf_is_proven_in_every_size() -> None:
    tree = TREE
    for size in range(1, SIZES + 1):
        for index in range(0, size, 1 + size // 20):
            path = tree.inclusion(index, size)
            assert root_of_inclusion(tree.leaf(index), index, size, path) == tree.root(size)


def test_every_size_is_proven_to_extend_every_smaller_one() -> None:
    tree = TREE
    for size in range(SIZES + 1):
        for old in range(0, size + 1, 1 + size // 20):
            path = tree.consistency(old, size)
            assert is_consistent(old, tree.root(old), size, tree.root(size), path)


@given(st.lists(st.integers(0, 300), max_size=12))
def test_growing_in_any_steps_gives_the_same_tree(steps: list[int]) -> None:
    whole = leaves(sum(steps))
    grown, frontier, at = Tree(), Frontier(), 0
    for step in steps:
        part = whole[at : at + step * HASH_BYTES]
        grown.extend(part)
        added = [part[start : start + HASH_BYTES] for start in range(0, len(part), HASH_BYTES)]
        assert growth(frontier, added) == grown.consistency(frontier.size, grown.size)
        frontier.extend(added)
        at += step * HASH_BYTES
    assert grown.root() == frontier.root() == Tree(whole).root()
    assert grown.size == frontier.size == sum(steps)


def test_proofs_hold_in_a_large_tree() -> None:
    size = 70_001
    tree, chance = Tree(leaves(size)), random.Random(7)  # noqa: S311 -- no secret
    for _ in range(200):
        now = chance.randrange(1, size + 1)
        index, old = chance.randrange(now), chance.randrange(now + 1)
        path = tree.inclusion(index, now)
        assert root_of_inclusion(tree.leaf(index), index, now, path) == tree.root(now)
        assert is_consistent(old, tree.root(old), now, tree.root(now), tree.consistency(old, now))


@given(st.data())
def test_a_changed_inclusion_proof_leads_elsewhere(data: st.DataObject) -> None:
    tree = TREE
    size = data.draw(st.integers(2, SIZES))
    index = data.draw(st.integers(0, size - 1))
    path = tree.inclusion(index, size)
    forgeries = [
        (leaf_hash(b"another"), index, size, path),
        (tree.leaf(index), index + 1, size, path),
        (tree.leaf(index), index, size, path[:-1]),
        (tree.leaf(index), index, size, [*path, path[0]]),
        (tree.leaf(index), index, size, [path[0][::-1], *path[1:]]),
        (tree.leaf(index), -1, size, path),
    ]
    for forgery in forgeries:
        assert root_of_inclusion(*forgery) != tree.root(size)


@given(st.data())
def test_a_changed_consistency_proof_is_refused(data: st.DataObject) -> None:
    tree = TREE
    size = data.draw(st.integers(2, SIZES))
    old = data.draw(st.integers(1, size - 1))
    path, old_root, root = tree.consistency(old, size), tree.root(old), tree.root(size)
    for forgery in (
        (old, old_root[::-1], size, root, path),
        (old, old_root, size, root[::-1], path),
        (old, old_root, size, root, path[:-1]),
        (old, old_root, size, root, [*path, path[0]]),
        (old, old_root, size, root, []),
        (size, old_root, old, root, path),
        (0, old_root, size, root, []),
        (size, old_root, size, root, []),
    ):
        assert not is_consistent(*forgery)


def test_proofs_of_another_length_than_the_size_demands_are_refused() -> None:
    """Each leads to the root that is given, at a size that it is not the root of."""
    one, two, three = (leaf_hash(b"%d" % number) for number in range(3))
    pair = node_hash(one, two)
    assert root_of_inclusion(one, 0, 1, []) == one
    assert root_of_inclusion(one, 0, 2, []) is None
    assert root_of_inclusion(one, 0, 1, [two]) is None
    assert is_consistent(1, one, 2, pair, [two])
    assert not is_consistent(1, one, 3, pair, [two])
    assert not is_consistent(1, one, 2, node_hash(pair, three), [two, three])


def test_sizes_and_leaves_that_are_not_there_are_refused() -> None:
    tree = Tree(leaves(3))
    for wrong in (
        lambda: tree.root(4),
        lambda: tree.leaf(3),
        lambda: tree.inclusion(2, 2),
        lambda: tree.inclusion(0, 4),
        lambda: tree.consistency(2, 4),
        lambda: tree.extend(b"short"),
    ):
        with pytest.raises(ValueError, match=r"no |not whole"):
            wrong()
