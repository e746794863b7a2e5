"""Durable appends a second: the audit log next to SQLite, in turn, in one run.

python bench/audit.py [--rounds 7] [--appends 20000] [--producers 32] [--folder DIR]
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path

from measures.durable import CanonicalLog, SqliteLog, Store, WrappedLog, appends_per_second
from measures.statistics import median
from toolkeep.storage.log.audit_log import AuditLog

AUDIT, WRAPPED = "audit log", "audit log, wrapped futures"
SQLITE, CHAINED = "SQLite WAL FULL", "SQLite WAL FULL, hash chain"


def main() -> None:
    parser = argparse.ArgumentParser(description="Durable appends a second, audit log against SQLite.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--appends", type=int, default=20_000)
    parser.add_argument("--producers", type=int, default=32)
    parser.add_argument("--folder", type=Path, default=None, help="on the disk to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        report(measure(Path(folder), options.rounds, options.producers, options.appends))


def measure(folder: Path, rounds: int, producers: int, appends: int) -> dict[str, list[float]]:
    """Each contestant once a round, another one first each time."""
    numbers = itertools.count()
    makers: dict[str, Callable[[], Store]] = {
        AUDIT: lambda: CanonicalLog(AuditLog(folder / f"audit{next(numbers)}")),
        WRAPPED: lambda: WrappedLog(AuditLog(folder / f"wrapped{next(numbers)}")),
        CHAINED: lambda: SqliteLog(folder / f"chained{next(numbers)}", has_chain=True),
        SQLITE: lambda: SqliteLog(folder / f"sqlite{next(numbers)}"),
    }
    names = list(makers)
    found: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(place + number) % len(names)]
            found[name].append(appends_per_second(makers[name], producers=producers, appends=appends))
    return found


def report(found: dict[str, list[float]]) -> None:
    """Medians, best, and the ratio to SQLite within each round."""
    print(f"{'':28} {'median/s':>10} {'best/s':>10} {'ratio to SQLite':>16}")
    for name, rates in found.items():
        ratio = median([mine / theirs for mine, theirs in zip(rates, found[SQLITE], strict=True)])
        print(f"{name:28} {median(rates):10,.0f} {max(rates):10,.0f} {ratio:16.2f}")


if __name__ == "__main__":
    main()
