"""A server and a worker behind a slow and lossy link that is cut and healed: prints what became of the calls.

    python -m tests.fleet.slow_round FOLDER

The worker is in a network namespace of its own, with 50 ms of delay each way and 1 % of loss. Runs in a network
namespace of its own, too, and needs root.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from tests.fleet.nats_server import nats_command
from tests.fleet.running import until
from tests.fleet.soak import TOOLS, Program, under_way
from toolkeep import Keep, open_keep
from toolkeep.storage.log.verify_folder import verify

HERE = "10.9.1.1"
URL = f"nats://{HERE}:4222"
LEASE_S = 2
PATIENCE_S = 60.0


class Round:
    """Everything that runs."""

    def __init__(self, folder: Path) -> None:
        self.effects = folder / "effects"
        self.ticks = self.effects / "ticks"
        self.ticks.mkdir(parents=True)
        self.server, self.worker_home = self._home(folder, "server"), self._home(folder, "worker")
        here, there = (
            self._key(self.server, "fleet", "key"),
            self._key(self.worker_home, "worker", "--show-key"),
        )
        grant = [f"fs.write:{self.effects}"]
        fleet = {"nats": {"servers": URL}, "lease": LEASE_S, "workers": [{"name": "far", "key": there}]}
        fleet["runs_on"] = dict.fromkeys(("double", "note", "tick"), "")
        self._configure(self.server, fleet=fleet, agents={"local": {"capabilities": grant}})
        served = [{"name": "main", "key": here, "capabilities": grant}]
        self._configure(self.worker_home, worker={"nats": {"servers": URL}, "slots": 4, "servers": served})
        link = [sys.executable, "-m", "tests.fleet.slow_link", "far", "1", "50", "0.01"]
        self.link = Program("link", link, folder)
        self.nats = Program("nats", nats_command(4222, listen=HERE), folder)
        worker = ["ip", "netns", "exec", "far", *_toolkeep("worker", "--project", str(self.worker_home))]
        self.worker = Program("worker", worker, folder, HOME=str(self.worker_home))

    def _home(self, folder: Path, name: str) -> Path:
        home = folder / name
        (home / ".agent").mkdir(parents=True)
        (home / "tools.py").write_text(TOOLS.replace("EFFECTS_FOLDER", str(self.effects)))
        return home

    def _key(self, home: Path, *words: str) -> str:
        command = [*_toolkeep(*words), "--project", str(home)]
        done = subprocess.run(command, env={**os.environ, "HOME": str(home)}, check=True, capture_output=True)
        return done.stdout.decode().strip()

    def _configure(self, home: Path, **settings: Any) -> None:
        (home / ".agent" / "config.yml").write_text(json.dumps({"tools": ["tools.py"], **settings}))

    async def start(self) -> None:
        """All of them, in this order."""
        self._add_namespace()
        for one, said in ((self.link, "up"), (self.nats, "Server is ready")):
            one.start()
            await until(partial(one.said_last, said), PATIENCE_S)
        self.worker.start()

    def _add_namespace(self) -> None:
        for words in (("netns", "add", "far"), ("-n", "far", "link", "set", "lo", "up")):
            subprocess.run(["ip", *words], check=True)

    def end(self) -> None:
        """All of them."""
        for one in (self.worker, self.nats, self.link):
            with contextlib.suppress(RuntimeError):
                one.end()


def _toolkeep(*words: str) -> list[str]:
    return [str(Path(sys.executable).parent / "toolkeep"), *words]


async def live_through(keep: Keep, at: Round) -> dict[str, Any]:
    """Calls over the link, one while it is cut, and others once it is healed."""

    async def is_ready() -> None:
        # The first call starts the dispatcher; a call that only reads is made again elsewhere.
        async with asyncio.timeout(PATIENCE_S):
            while not (await keep.call("double", {"number": 0}, agent="local")).ok:  # noqa: ASYNC110 -- nothing tells
                await asyncio.sleep(0.2)

    await is_ready()
    doubled = await asyncio.gather(
        *(keep.call("double", {"number": one}, agent="local") for one in range(20))
    )
    noted = await asyncio.gather(
        *(keep.call("note", {"line": f"line-{one}"}, agent="local") for one in range(20))
    )
    cut_off = asyncio.create_task(keep.call("tick", {"line": "cut off"}, agent="local"))
    await until(lambda: under_way(at.ticks), PATIENCE_S)
    at.link.say("cut")
    lost = await cut_off
    left = len(under_way(at.ticks))
    at.link.say("heal")
    await is_ready()
    return {
        "doubled": [one.value for one in doubled],
        "noted": [one.value for one in noted],
        "runs": Counter(one.name.rsplit(".", 2)[0] for one in at.effects.glob("line-*")),
        "lost": lost.code,
        "left": left,
    }


async def main(folder: Path) -> None:
    """One round."""
    at = Round(folder)
    try:
        await at.start()
        os.environ["HOME"] = str(at.server)
        async with open_keep(project=at.server) as keep:
            found = await live_through(keep, at)
    finally:
        at.end()
    (state,) = (at.server / ".local/state/toolkeep").iterdir()
    print(json.dumps({**found, "findings": [str(one) for one in verify(state).findings]}))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
