"""Runs the attempts of one kind as the current user, and prints a JSON line per run.

KIND FOLDER LEVEL…: the folder belongs to this user and run. Refuses to run outside an enclosure, where some
attempts would do harm.
"""

import asyncio
import json
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from toolkeep.escape_suite import signs, unconfined_host
from toolkeep.escape_suite.attempt_catalog import ATTEMPTS, CONCURRENT_CALLS, declared, parameters
from toolkeep.escape_suite.attempts.declare import Attempt
from toolkeep.escape_suite.baits import BaitFolder, Stage, concurrent_arguments
from toolkeep.escape_suite.confined import TEMPLATED, WORKERS, Confined
from toolkeep.escape_suite.confined_persistent import PERSISTENT, PersistentConfined, applies_to_persistent
from toolkeep.escape_suite.expected import levels_of
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.worker_pool import Pool

ENCLOSURE = "toolkeep.escape_suite.enclosure"
SECRET = "ESCAPE_SECRET"  # noqa: S105 -- the name of the variable
"""Environment variable of the host that no worker may see."""

_LONGEST_S: Final = 10.0
"""Attempts that end by themselves only in the sandbox are not waited for longer."""
_FOUND_SECONDS: Final = 2.0
"""How long a process that a control left is looked for."""


def make_bait_folder(top: Path) -> BaitFolder:
    """Create the folders that all attempts of this host share."""
    bait_folder = BaitFolder(top, os.environ[SECRET])
    for folder in (bait_folder.work, bait_folder.shelf, bait_folder.code.parent):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    shutil.copytree(
        ATTEMPTS, bait_folder.code, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__")
    )
    held = top / "held"
    held.write_text(bait_folder.secret)
    # A descriptor that leaks into a worker would reveal the secret.
    os.set_inheritable(os.open(held, os.O_RDONLY), True)  # noqa: FBT003 -- its only argument
    return bait_folder


async def main(kind: str, top: str, levels: Sequence[str]) -> None:
    """Run all attempts and print the results."""
    who = "root" if os.geteuid() == 0 else "ordinary"
    pool = Pool()  # With idle workers, as in a keep: no tool code may run in one of them.
    try:
        # Fail closed: some attempts signal every process, or change the name of the machine.
        _check_enclosed()
        bait_folder = make_bait_folder(Path(top))
        kinds = [word for word in WORKERS if word in levels] or WORKERS
        confined = [Confined(bait_folder, pool, is_templated=word == TEMPLATED) for word in kinds]
        for attempt in declared(kind).values():
            if attempt.only_for in ("", who):
                _report(attempt, "control", await asyncio.to_thread(run_unconfined, bait_folder, attempt))
                for level in levels_of(attempt):
                    if level in levels:
                        _report(attempt, level, await _tried(confined, attempt, level))
                if PERSISTENT in levels and applies_to_persistent(attempt):
                    _report(
                        attempt,
                        PERSISTENT,
                        await PersistentConfined(bait_folder, pool).run(attempt, Isolation.STRICT),
                    )
    except Exception as error:  # noqa: BLE001 -- whatever it is, the suite must hear of it
        _say({"failed": f"{type(error).__name__}: {error}"[:300]})
    finally:
        await pool.close()


async def _tried(confined: Sequence[Confined], attempt: Attempt, level: Isolation) -> dict[str, Any]:
    """The first run that got something out, else the last."""
    for one in confined:
        found = await one.run(attempt, level)
        if found["seen"]:
            break
    return found


def _check_enclosed() -> None:
    first = Path("/proc/1/cmdline").read_bytes().split(b"\0")
    if ENCLOSURE.encode() not in first:
        raise ValueError("this is no enclosure")


def _report(attempt: Attempt, level: str, found: dict[str, Any]) -> None:
    _say({"attempt": attempt.name, "level": level, **found})


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 -- to the suite


def run_unconfined(bait_folder: BaitFolder, attempt: Attempt) -> dict[str, Any]:
    """Result of one attempt without a sandbox (control)."""
    stage = Stage(bait_folder, is_control=True)
    with stage.cleanup:
        arguments = stage.create_baits(parameters(attempt.module, attempt.name))
        other_call = _concurrent_call(bait_folder, attempt, stage, arguments)
        heard = unconfined_host.listen(
            bait_folder.code,
            attempt.module,
            attempt.name,
            arguments,
            min(attempt.deadline_s, _LONGEST_S),
            to_the_end=bool(attempt.endings) and attempt.breaks == "host-sound",
            env={"PLANTED": f"{stage.planted()}{stage.secret}"},
        )
        said = json.dumps(heard.value())
        seen = signs.seen(stage, arguments, said, 0.0)
        # What forks and exits can be missed by one walk over the processes.
        until = time.monotonic() + _FOUND_SECONDS
        while attempt.shows == "left" and "left" not in seen and time.monotonic() < until:
            seen = signs.seen(stage, arguments, said, 0.0)
        if attempt.breaks == "host-sound":
            seen += heard.harm()
        if other_call is not None and other_call.wait() == 0:
            seen.append("hit")
        unconfined_host.end(heard.process, stage.left())
        return {"seen": seen, "ending": "", "said": said[:200]}


def _concurrent_call(
    bait_folder: BaitFolder, attempt: Attempt, stage: Stage, arguments: dict[str, Any]
) -> Any:
    if attempt.name not in CONCURRENT_CALLS:
        return None
    module, name = CONCURRENT_CALLS[attempt.name]
    given = concurrent_arguments(parameters(module, name), stage, arguments)
    return unconfined_host.start_concurrent_call(bait_folder.code, module, name, given, stage, arguments)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
