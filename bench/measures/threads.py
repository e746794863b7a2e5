"""Four threads look tools up: alone, beside a thread that only counts, beside one that registers."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import toolkeep

READERS = 4
PHASE_S = 0.5

Work = Callable[[], object]
"""What the fifth thread does again and again."""


@dataclass(frozen=True, slots=True)
class Rates:
    """Round by round, how often a second of the processor: what other processes take does not count."""

    reads: list[float]
    work: list[float]


def time_reads(
    keep: toolkeep.Keep, names: Sequence[str], more: Iterator[Any], *, rounds: int
) -> dict[str, Rates]:
    """The thread that counts shows what the interpreter's lock takes from the readers anyway."""
    works: dict[str, Work | None] = {
        "alone": None,
        "beside a thread that counts": lambda: sum(range(1000)),
        "beside a thread that registers": lambda: keep.register(next(more)),
    }
    rates = {name: Rates([], []) for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            start = time.process_time()
            reads, done = _count(keep, names, work)
            elapsed = time.process_time() - start
            rates[name].reads.append(reads / elapsed)
            rates[name].work.append(done / elapsed)
    return rates


def _count(keep: toolkeep.Keep, names: Sequence[str], work: Work | None) -> tuple[int, int]:
    begin = threading.Barrier(READERS + 1)
    reads: list[int] = []
    done: list[int] = []

    def read() -> None:
        for name in names:
            keep.get(name)

    def repeat(do: Work, counts: list[int]) -> None:
        begin.wait()
        end, count = time.perf_counter() + PHASE_S, 0
        while time.perf_counter() < end:
            do()
            count += 1
        counts.append(count)

    threads = [threading.Thread(target=repeat, args=(read, reads)) for _ in range(READERS)]
    threads.append(threading.Thread(target=repeat if work else begin.wait, args=(work, done) if work else ()))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(reads) * len(names), sum(done)
