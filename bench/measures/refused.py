"""A process that refuses calls and says what that cost it: one line in for each round, one line out.

Started by `measures.against` with `src` of one checkout first on its path; uses the public API alone.
"""

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import toolkeep
from workloads.transfer import FIVE_FAULTS, ONE_FAULT, SMALL, make_transfer

BAD_CALLS = {"one fault": ONE_FAULT, "five faults": FIVE_FAULTS}
NAME = "transfer"
BATCH = 20
"""After so many refusals in a row an agent is told less; a call that passes ends the row."""


def _codes(check: toolkeep.CheckedCall | toolkeep.Refusal) -> object:
    return [(error.path, error.code) for error in check.errors]


def _all(check: toolkeep.CheckedCall | toolkeep.Refusal) -> object:
    return check.text if isinstance(check, toolkeep.Refusal) else None


READINGS: dict[str, Callable[[toolkeep.CheckedCall | toolkeep.Refusal], object]] = {
    "code and path": _codes,
    "text with repair": _all,
    "to_dict": lambda check: check.to_dict(),
}
WHOLE_CALL = "keep.call, its code"


async def seconds(keep: toolkeep.Keep, bad: bytes, reading: str) -> float:
    """Processor seconds of one refusal."""
    read = READINGS.get(reading)
    began = time.process_time()
    if read is None:
        for _ in range(BATCH):
            (await keep.call(NAME, bad)).code  # noqa: B018 -- reading it is the work
    else:
        for _ in range(BATCH):
            read(keep.try_validate_arguments(NAME, bad))
    took = (time.process_time() - began) / BATCH
    keep.validate_arguments(NAME, SMALL)
    return took


@contextmanager
def _keep() -> Iterator[toolkeep.Keep]:
    with toolkeep.Keep() as keep:
        keep.register(make_transfer(lambda _: None))
        yield keep


async def _answer() -> None:
    with _keep() as keep:
        print(json.dumps(toolkeep.__file__), flush=True)
        for line in sys.stdin:
            title, reading = json.loads(line)
            print(json.dumps(await seconds(keep, BAD_CALLS[title].encode(), reading)), flush=True)


if __name__ == "__main__":
    asyncio.run(_answer())
