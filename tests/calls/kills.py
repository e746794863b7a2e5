"""Processes that call tools are killed at random moments; whatever happens, the log and the ledger are true.

    python -m tests.calls.kills --kills 200

After each kill: the log verifies; every answered call is in it; no effect happened without a record of the
intent before it; no keyed call had its effect twice.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from toolkeep import open_keep, tool
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.verify_folder import verify

READY = b"ready\n"

ON_ONE_LOG = 20
"""Kills, before a new log is begun: each time all of it is read, and it grows."""


def worker(project: Path, number: int, seed: int) -> None:
    """Call a tool that changes the world, again and again, each key twice; note each answer once it is there."""
    effects = os.open(project / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    answers = os.open(project / "answers", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @tool(danger="safe", side_effects=["FsWrite"], capabilities=["fs.write:./effects"])
    async def append(line: str) -> str:
        """Append a line to a file."""
        os.write(effects, f"{line}\n".encode())
        return line

    async def one(keep: Any, line: str) -> None:
        result = await keep.call("append", {"line": line}, idempotency_key=line)
        if result.ok:
            os.write(answers, f"{line} {result.call_id}\n".encode())

    async def run() -> None:
        with open_keep(project=project, built_in=False) as keep:
            keep.declare_agent("local", capabilities=["fs.write:./effects"])
            keep.register(append)
            await one(keep, f"{seed}-{number}-first")
            os.write(sys.stdout.fileno(), READY)
            chance = random.Random(seed)  # noqa: S311 -- reproducible, not secret
            for step in range(1_000_000):
                lines = [f"{seed}-{number}-{step}-{part}" for part in range(chance.randint(1, 8))]
                await asyncio.gather(
                    *(one(keep, line) for line in lines), *(one(keep, line) for line in lines)
                )

    asyncio.run(run())


def round_of(project: Path, processes: int, chance: random.Random) -> None:
    """Start processes, let them work for a moment, kill them."""
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.calls.kills",
                "--worker",
                str(project),
                str(n),
                str(chance.getrandbits(40)),
            ],
            stdout=subprocess.PIPE,
        )
        for n in range(processes)
    ]
    try:
        for process in started:
            if process.stdout is None or process.stdout.readline() != READY:
                raise AssertionError("a worker did not start")
        time.sleep(chance.uniform(0.0, 0.4))  # the moment of the kill, not a wait for something
    finally:
        for process in started:
            process.send_signal(signal.SIGKILL)
        for process in started:
            process.wait()
            if process.stdout is not None:
                process.stdout.close()


def check(project: Path, state: Path) -> tuple[int, int]:
    """Raise where a promise was broken; records and effects so far."""
    report = verify(state)
    if not report.is_intact:
        raise AssertionError(str(report))
    with AuditLog(state) as log:
        records = [entry.record for entry in log.read()]
    of_calls = [r for r in records if "type" in r]  # the log itself says where it cut off half a record
    invoked = {r["call"] for r in of_calls if r["type"] == "ToolInvoked"}
    completed = {r["call"] for r in of_calls if r["type"] == "ToolCompleted"}
    effects = (project / "effects").read_text().splitlines() if (project / "effects").exists() else []
    answers = (project / "answers").read_text().splitlines() if (project / "answers").exists() else []
    twice = [line for line, count in Counter(effects).items() if count > 1]
    if twice:
        raise AssertionError(f"effects that happened twice: {twice[:5]}")
    for answer in answers:
        line, _, call_id = answer.partition(" ")
        if call_id not in completed:
            raise AssertionError(f"an answered call is not in the log: {answer}")
        if line not in effects:
            raise AssertionError(f"an answered call had no effect: {answer}")
    if len(effects) > len(invoked):
        raise AssertionError(f"{len(effects)} effects, but only {len(invoked)} recorded intents")
    return len(records), len(effects)


def soak(kills: int, processes: int, seed: int) -> str:
    """So many rounds; what was seen."""
    chance = random.Random(seed)  # noqa: S311 -- reproducible, not secret
    records = effects = 0
    for done in range(0, kills, ON_ONE_LOG):
        more_records, more_effects = rounds_on_one_log(min(ON_ONE_LOG, kills - done), processes, chance)
        records, effects = records + more_records, effects + more_effects
    if not effects:
        raise AssertionError("no tool ran: nothing was shown")
    return f"{kills} kills of {processes} processes: {records} records, {effects} effects, all promises kept"


def rounds_on_one_log(kills: int, processes: int, chance: random.Random) -> tuple[int, int]:
    """So many rounds, the promises looked at after each; how many records and effects there were."""
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        project, state = root / "project", root / "state"
        project.mkdir()
        os.environ.update(HOME=str(root), TOOLKEEP_HOME=str(state))
        records = effects = 0
        for _ in range(kills):
            round_of(project, processes, chance)
            if (state / "audit").exists():
                records, effects = check(project, state)
    return records, effects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--worker", nargs=3, metavar=("PROJECT", "NUMBER", "SEED"))
    options = parser.parse_args()
    if options.worker:
        worker(Path(options.worker[0]), int(options.worker[1]), int(options.worker[2]))
        return
    for processes in (1, 2, 4):
        print(json.dumps(soak(options.kills, processes, options.seed)))


if __name__ == "__main__":
    main()
