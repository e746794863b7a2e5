"""Random documents against the `rfc8785` library, for `scripts/soak`: the same bytes wherever it has an answer.

python -m tests.canonical --documents 100000
"""

import argparse
import random
import struct
import sys
from typing import Any

import rfc8785

from toolkeep.json_values.canonical import canonical_bytes

_TEXTS = ("", "a", "é", "\u20ac", "\U0001f600", "\ufb33", '"', "\\", "/", "\x00", "\x1f", "\u2028", "zz", "Ä")


def document(chance: random.Random, depth: int = 0) -> Any:
    """A random JSON document."""
    kind = chance.randrange(9 if depth < 4 else 6)
    if kind == 0:
        return chance.choice([None, True, False])
    if kind == 1:
        return chance.randint(-(2**53) + 1, 2**53 - 1)
    if kind == 2:
        number: float = struct.unpack("d", chance.randbytes(8))[0]
        return number if number - number == 0 else 0.5
    if kind == 3:
        return round(chance.uniform(-1e6, 1e6), 3)
    if kind in (4, 5):
        return "".join(chance.choices(_TEXTS, k=chance.randrange(5)))
    if kind == 6:
        return [document(chance, depth + 1) for _ in range(chance.randrange(5))]
    names = {"".join(chance.choices(_TEXTS, k=chance.randrange(4))) for _ in range(chance.randrange(5))}
    return {name: document(chance, depth + 1) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)  # noqa: S311 -- reproducible, not secret
    for number in range(options.documents):
        value = document(chance)
        if canonical_bytes(value) != rfc8785.dumps(value):
            sys.exit(f"document {number} differs: {value!r}")
    print(f"{options.documents} documents, all the same bytes")


if __name__ == "__main__":
    main()
