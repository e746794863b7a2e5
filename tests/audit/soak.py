"""Kills processes that write one log, at random moments, and looks whether anything acknowledged was lost.

python -m tests.audit.soak --kills 200 --processes 4

Every worker appends numbered records and names each in its pipe once it is acknowledged. After each kill the log
must verify, hold every record that was named where it was said to stand, and hold none twice.
"""

import argparse
import asyncio
import os
import random
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from toolkeep.audit.entry import Entry
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.verify_folder import verify

ROOT = Path(__file__).resolve().parent.parent.parent
KILLS_A_LOG = 20
"""After so many a new log is begun: each check reads the whole log."""

PRODUCERS = 8
LONGEST_WAIT_S = 0.4


@dataclass
class Tally:
    """What a soak did and saw."""

    kills: int = 0
    acknowledged: int = 0
    torn: int = 0
    failures: list[str] = field(default_factory=list)


class Worker:
    """A process that appends until it is killed, and what it said."""

    def __init__(self, folder: Path, name: str) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "tests.audit.soak", "--worker", name, str(folder), str(writing)]
        self.process = subprocess.Popen(command, cwd=ROOT, pass_fds=[writing])
        os.close(writing)
        self.pipe = reading
        self.name = name
        self.said = b""

    def listen(self) -> bool:
        """Take in what is in the pipe; False at its end."""
        data = os.read(self.pipe, 1 << 16)
        self.said += data
        return bool(data)

    def kill(self) -> None:
        """SIGKILL, and take in the last words."""
        self.process.kill()
        self.process.wait()
        while self.listen():
            pass
        os.close(self.pipe)

    def acknowledged(self) -> list[tuple[int, int]]:
        """Number and index of each record that it was told is durable."""
        pairs = [line.split() for line in self.said.split(b"\n")[:-1]]
        return [(int(number), int(index)) for number, index in pairs]


def soak(folder: Path, *, kills: int, processes: int, seed: int) -> Tally:
    """Kill one of the processes after the other, each replaced by a new one."""
    chance, tally = random.Random(seed), Tally()  # noqa: S311 -- no secret
    while tally.kills < kills and not tally.failures:
        log = folder / f"log{tally.kills}"
        _soak_one(log, chance, tally, kills=min(KILLS_A_LOG, kills - tally.kills), processes=processes)
        if not tally.failures:
            shutil.rmtree(log)
    return tally


def _soak_one(folder: Path, chance: random.Random, tally: Tally, *, kills: int, processes: int) -> None:
    running = [Worker(folder, f"w{number}") for number in range(processes)]
    everyone = list(running)
    for number in range(kills):
        _listen_until_random_moment(running, chance)
        victim = running.pop(chance.randrange(len(running)))
        victim.kill()
        tally.kills += 1
        if number % 2:  # every other time the others live on beside the newcomer
            for worker in running:
                worker.kill()
            tally.kills += len(running)
            everyone_is_dead, running = True, []
        else:
            everyone_is_dead = processes == 1
        tally.failures += _check(folder, everyone)
        if tally.failures:
            break
        if everyone_is_dead and (folder / "audit").exists():
            with AuditLog(folder) as log:  # a restart must be able to go on at once
                log.append({"who": "restart", "n": tally.kills}).result()
        while len(running) < processes:
            running.append(Worker(folder, f"w{len(everyone)}"))
            everyone.append(running[-1])
    for worker in running:
        worker.kill()
    tally.failures += _check(folder, everyone)
    tally.acknowledged += sum(len(worker.acknowledged()) for worker in everyone)
    tally.torn += sum(entry.record.get("event") == "TailMoved" for entry in AuditLog(folder).read())


def _listen_until_random_moment(running: list[Worker], chance: random.Random) -> None:
    """Until there was some life, and then a random moment longer."""
    first = running[0].pipe
    while not any(worker.said for worker in running):
        for worker in _ready(running, None):
            if not worker.listen() and worker.pipe == first:
                return
    ends = time.monotonic() + chance.random() ** 2 * LONGEST_WAIT_S
    while (left := ends - time.monotonic()) > 0:
        for worker in _ready(running, left):
            worker.listen()


def _ready(running: list[Worker], seconds: float | None) -> list[Worker]:
    ready, _, _ = select.select([worker.pipe for worker in running], [], [], seconds)
    return [worker for worker in running if worker.pipe in ready]


def _check(folder: Path, workers: list[Worker]) -> list[str]:
    if not (folder / "audit").exists():
        return []
    report = verify(folder)
    if not report.is_intact:
        return [str(report)]
    entries = {entry.index: entry for entry in AuditLog(folder).read()}
    return [*_lost(entries, workers), *_twice(entries)]


def _lost(entries: dict[int, Entry], workers: list[Worker]) -> list[str]:
    return [
        f"{worker.name} was told that {number} stands at {index}, where there is {entries.get(index)}"
        for worker in workers
        for number, index in worker.acknowledged()
        if index not in entries
        or (entries[index].record["who"], entries[index].record["n"]) != (worker.name, number)
    ]


def _twice(entries: dict[int, Entry]) -> list[str]:
    seen = Counter((entry.record.get("who"), entry.record.get("n")) for entry in entries.values())
    seen.pop((None, None), None)
    return [f"{who} {number} is there {times} times" for (who, number), times in seen.items() if times > 1]


async def _work(name: str, folder: Path, pipe: int) -> None:
    log = AuditLog(folder, segment_bytes=256 * 1024, checkpoint_seconds=0.01)
    numbers = iter(range(1 << 60))

    async def produce() -> None:
        for number in numbers:
            record = {"who": name, "n": number, "padding": "x" * (number * 37 % 3000)}
            leaf = await log.append_soon(canonical_bytes(record))
            os.write(pipe, f"{number} {leaf.index}\n".encode())

    await asyncio.gather(*[produce() for _ in range(PRODUCERS)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Kill writers of one audit log at random moments.")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        name, folder, pipe = options.worker
        asyncio.run(_work(name, Path(folder), int(pipe)))
        return
    with tempfile.TemporaryDirectory() as folder:
        tally = soak(Path(folder), kills=options.kills, processes=options.processes, seed=options.seed)
        for failure in tally.failures[:5]:
            print(failure)
        print(
            f"seed {options.seed}, {options.processes} processes, {tally.kills} kills, "
            f"{tally.acknowledged} records acknowledged, {tally.torn} torn tails, "
            f"{len(tally.failures)} failures"
        )
        if tally.failures:
            sys.exit(1)


if __name__ == "__main__":
    main()
