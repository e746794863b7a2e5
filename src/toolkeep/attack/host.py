"""Runs the attempts of one kind as whoever starts it, and prints a line of JSON for each run.

KIND FOLDER LEVEL…: the folder belongs to this user and to this run. Refuses to run outside an enclosure,
where some attempts would do harm.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolkeep.attack import unconfined
from toolkeep.attack.attempts.declare import Attempt
from toolkeep.attack.baits import Ground
from toolkeep.attack.catalog import ATTEMPTS, declared
from toolkeep.attack.confined import Confined
from toolkeep.attack.expected import levels_of
from toolkeep.attack.staying import RESIDENT, Staying, is_for_residents
from toolkeep.sandbox.levels import Isolation
from toolkeep.sandbox.pool import Pool

ENCLOSURE = "toolkeep.attack.enclosure"
SECRET = "ESCAPE_SECRET"  # noqa: S105 -- the name of the variable
"""The variable of the host that no worker may see."""


def lay_ground(top: Path) -> Ground:
    """The folders that all attempts of this host share."""
    ground = Ground(top, os.environ[SECRET])
    for folder in (ground.work, ground.shelf, ground.code.parent):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    shutil.copytree(ATTEMPTS, ground.code, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    held = top / "held"
    held.write_text(ground.secret)
    os.set_inheritable(os.open(held, os.O_RDONLY), True)  # noqa: FBT003 -- its only argument
    return ground


async def main(kind: str, top: str, levels: Sequence[str]) -> None:
    """Run everything and print it."""
    who = "root" if os.geteuid() == 0 else "ordinary"
    pool = Pool()  # with workers that wait, as in a keep: a tool must not run in one of them
    try:
        _check_enclosed()
        ground = lay_ground(Path(top))
        confined = Confined(ground, pool)
        for attempt in declared(kind).values():
            if attempt.only_for in ("", who):
                _tell(attempt, "control", await asyncio.to_thread(unconfined.run, ground, attempt))
                for level in levels_of(attempt):
                    if level in levels:
                        _tell(attempt, level, await confined.run(attempt, level))
                if RESIDENT in levels and is_for_residents(attempt):
                    _tell(attempt, RESIDENT, await Staying(ground, pool).run(attempt, Isolation.STRICT))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the suite must hear of it
        _say({"failed": f"{type(error).__name__}: {error}"[:300]})
    finally:
        await pool.close()


def _check_enclosed() -> None:
    first = Path("/proc/1/cmdline").read_bytes().split(b"\0")
    if ENCLOSURE.encode() not in first:
        raise ValueError("this is no enclosure")


def _tell(attempt: Attempt, level: str, found: dict[str, Any]) -> None:
    _say({"attempt": attempt.name, "level": level, **found})


def _say(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)  # noqa: T201 -- to the suite


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
