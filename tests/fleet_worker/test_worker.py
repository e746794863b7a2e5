"""Workers that die, hang, drain, and lose their server or NATS."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.running import (
    NAMES,
    RogueServer,
    Server,
    keep_of,
    made_worker,
    new_key,
    running,
    tapped,
    trusted,
    until,
)
from toolkeep import Code
from toolkeep.config.fleet_settings import TrustedWorker
from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import Heartbeat
from toolkeep.policy.policy_settings import Grant

pytestmark = pytest.mark.spec("SCL-1", "SCL-4")

LEASE = 2.0


class WorkerProcess:
    """A worker that can be killed, stopped and told to end."""

    def __init__(self, nats: NatsServer, server: PublicKey, folder: Path, name: str) -> None:
        seed = os.urandom(32)
        self.trusted = TrustedWorker(name=name, key=PrivateKey(seed).public.text, labels=(name,))
        self.key = PublicKey.read(self.trusted.key)
        command = [sys.executable, "-m", "tests.fleet_worker.worker_process", nats.url, seed.hex()]
        self.process = subprocess.Popen([*command, server.text, str(folder), name], cwd=ROOT)

    def descendants(self) -> list[int]:
        """Every process below it."""
        parents = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        found = {self.process.pid}
        while more := {child for child, parent in parents.items() if parent in found} - found:
            found |= more
        return sorted(found)


@contextlib.contextmanager
def processes(*workers: WorkerProcess) -> Iterator[None]:
    """Ended after the block, whatever happened to them."""
    try:
        yield
    finally:
        for one in workers:
            one.process.kill()
            one.process.wait()


async def ready(server: Server, *names: str) -> None:
    """Until these workers take calls."""
    dispatcher = await server.dispatcher()
    known = dispatcher.workers
    await until(lambda: all((one := dispatcher.workers[name][1]) and one.has_lease for name in names), 60)
    assert set(names) <= set(known)


async def busy(server: Server, name: str, count: int) -> None:
    """Until a worker has so many calls, also of an earlier session: a slow one may be greeted twice."""
    dispatcher = await server.dispatcher()
    (known,) = (one for one in dispatcher._known.values() if one.trusted.name == name)
    await until(lambda: sum(len(one.pending_jobs) for one in known.sessions) >= count)


def is_there(process: int) -> bool:
    """Whether it runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_calls_of_workers_that_die_run_elsewhere_or_end_as_unknown(nats: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        key = new_key()
        one, two = (WorkerProcess(nats, key.public, tmp_path, name) for name in ("one", "two"))
        runs_on = {**dict.fromkeys(NAMES, ""), "note": "one", "act": "two"}
        grant = Grant.read(capabilities=[f"fs.write:{tmp_path}"])
        server = Server(
            nats, key, [one.trusted, two.trusted], runs_on=runs_on, lease_s=LEASE, agents={"ada": grant}
        )
        with processes(one), contextlib.ExitStack() as later:
            async with server:
                await ready(server, "one")
                # Killed: what only reads, or is declared idempotent, runs on the other one.
                state = {"path": str(tmp_path / "state"), "text": "put"}
                putting = asyncio.create_task(server.call("put", state, agent="ada"))
                await busy(server, "one", 1)
                later.enter_context(processes(two))
                await ready(server, "two")
                await until((tmp_path / "state").exists)
                reading = [asyncio.create_task(server.call("wait", {"seconds": 1})) for _ in range(4)]
                arguments = {"path": str(tmp_path / "notes"), "text": "once", "seconds": 60}
                writing = asyncio.create_task(server.call("note", arguments, agent="ada"))
                await busy(server, "one", 2)
                await until((tmp_path / "notes").exists)
                below = one.descendants()
                one.process.kill()
                assert [result.value for result in await asyncio.gather(*reading)] == ["waited"] * 4
                assert (await putting).value == "put"
                assert (await writing).code is Code.OUTCOME_UNKNOWN
                assert (tmp_path / "notes").read_text() == "once\n"
                await until(lambda: not any(map(is_there, below)))
                # Stopped, so that it cannot look at its clock: the watchdog ends it with all that it runs.
                acting = asyncio.create_task(server.call("act", {"seconds": 60}))
                await busy(server, "two", 1)
                await asyncio.sleep(0.5)
                below = two.descendants()
                assert len(below) > 2
                os.kill(two.process.pid, signal.SIGSTOP)
                assert (await acting).code is Code.OUTCOME_UNKNOWN
                await until(lambda: not any(map(is_there, below)))
                assert two.process.wait() == -signal.SIGKILL

    asyncio.run(main())


def test_jobs_end_with_their_lease_and_a_worker_drains(nats: NatsServer, tmp_path: Path) -> None:
    async def main() -> None:
        key = new_key()
        worker = WorkerProcess(nats, key.public, tmp_path, "one")
        with processes(worker), keep_of() as keep:
            # A server that dies renews nothing.
            async with tapped(nats, "tk.v1.hb.*") as tap:
                rogue = RogueServer(tap, key, worker.key)
                await rogue.open(lease_ms=2_000)
                await rogue.say(rogue.job(keep, "act", arguments=b'{"seconds":60}', deadline_ms=60_000))
                while not (await rogue.hear(Heartbeat)).running:
                    pass
                while (await rogue.hear(Heartbeat)).running:
                    pass
            grant = Grant.read(capabilities=[f"fs.write:{tmp_path}"])
            async with Server(nats, key, [worker.trusted], lease_s=30, agents={"ada": grant}) as server:
                await ready(server, "one")
                notes = tmp_path / "notes"
                arguments = {"path": str(notes), "text": "once", "seconds": 1}
                noting = asyncio.create_task(server.call("note", arguments, agent="ada"))
                await until(notes.exists)  # a job that is only on its way would be declined
                worker.process.send_signal(signal.SIGTERM)
                assert (await noting).value == "once"
                assert worker.process.wait() == 0
                (ran,) = server.said("RanElsewhere")
                await until(lambda: server.said("AnswersSigned"), 5)
                assert ran["answer_hash"] in server.said("AnswersSigned")[0]["answers"]

    asyncio.run(main())


def test_calls_go_on_when_nats_is_killed_and_started_again() -> None:
    async def main(nats: NatsServer) -> None:
        key, worker = new_key(), new_key()
        server = Server(nats, key, [trusted(worker)])
        async with server, running(made_worker(nats, worker, [key])):
            await ready(server, "one")
            acting = asyncio.create_task(server.call("act", {"seconds": 0.5}))
            await busy(server, "one", 1)
            await asyncio.sleep(0.2)
            nats.kill()
            assert not acting.done()
            await asyncio.sleep(0.5)  # it ends meanwhile, and its answer is lost
            nats.start()
            assert (await acting).value == "acted"
            assert (await server.call("shout", {"text": "hi"})).value == "HI"
            assert len(server.said("RanElsewhere")) == 2

    with nats_server() as nats:
        asyncio.run(main(nats))
