"""Many workers in one process: python -m measures.crowd PROJECT STATE...

Each is a real one, with a key, a connection to NATS and sessions of its own. They share one keep with its
tools, and have no watchdog, which is a process for each.
"""

import asyncio
import logging
import sys
from pathlib import Path

import uvloop

from toolkeep.fleet.identity import load_key
from toolkeep.fleet_worker.worker import Worker
from toolkeep.keep.open import open_keep, open_state, read_configuration


class NoWatchdog:
    """Watches nothing."""

    is_alive = True

    def set(self, ends_at: float) -> None:
        """Do nothing."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


async def serve(project: Path, states: list[str]) -> None:
    """Until the process is ended."""
    configured = read_configuration(project, open_state(project)).worker
    if configured is None:
        raise RuntimeError("no worker is configured")
    keep = open_keep(project=project)
    async with asyncio.TaskGroup() as group:
        for state in states:
            worker = Worker(
                keep, configured, load_key(Path(state) / "fleet" / "worker.key"), ("strict", "wasm")
            )
            worker._watchdog = NoWatchdog()  # type: ignore[assignment]  # noqa: SLF001 -- nothing else to set
            group.create_task(worker.run())
            await asyncio.sleep(1 / len(states))  # so that they do not all beat at once


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    uvloop.run(serve(Path(sys.argv[1]), sys.argv[2:]))
