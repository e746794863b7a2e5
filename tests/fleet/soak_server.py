"""One of the servers of `tests.fleet.soak`: makes calls until it is killed, and notes how each ended.

python -m tests.fleet.soak_server PROJECT NOTES NAME LANES
"""

import asyncio
import itertools
import json
import os
import random
import sys
import time
from pathlib import Path

from toolkeep import Code, Keep, open_keep

KINDS = ("double", "double", "note", "note", "keyed", "keyed", "tick")
AGAIN = (Code.STORE_UNAVAILABLE, Code.WORKER_UNAVAILABLE, Code.NOT_RECORDED)


async def lane(keep: Keep, notes: int, name: str, number: int) -> None:
    """One call after the other."""
    chance = random.Random(number)  # noqa: S311 -- no secret
    for count in itertools.count():
        kind, line = chance.choice(KINDS), f"{name}-{number}-{count}"
        began = time.monotonic()
        if kind == "double":
            result = await keep.call("double", {"number": count})
            is_right = not result.ok or result.value == 2 * count
        elif kind == "keyed":
            # A new server process goes on with the keys of the one before, and so repeats some of its calls.
            line = f"keyed-{number}-{count}"
            result = await keep.call("note", {"line": line}, idempotency_key=line)
            while result.code in AGAIN:
                await asyncio.sleep(0.2)
                began = time.monotonic()
                result = await keep.call("note", {"line": line}, idempotency_key=line)
            is_right = not result.ok or result.value == line
        else:
            result = await keep.call(kind, {"line": line})
            is_right = not result.ok or result.value == line
        said = {
            "kind": kind,
            "line": line,
            "code": result.code.value if result.code else "",
            "took": time.monotonic() - began,
            "is_right": is_right,
        }
        os.write(notes, json.dumps(said).encode() + b"\n")
        if result.code is not None:
            await asyncio.sleep(0.05)


async def main(project: str, notes: str, name: str, lanes: int) -> None:
    file = os.open(notes, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    start = f"{name}.{time.time_ns()}"
    with open_keep(project=Path(project)) as keep:
        await asyncio.gather(*(lane(keep, file, start, number) for number in range(lanes)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
