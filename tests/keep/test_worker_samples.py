"""Deterministic calls that a second worker runs, too: real NATS, real sandbox, workers that lie."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from tests.fleet import fleet_tools
from tests.fleet.nats_server import NatsServer
from tests.fleet.running import OwnWorker, Server, keep_of, made_worker, new_key, running, trusted, until
from toolkeep import Code, Keep, tool
from toolkeep.cli.main import cli
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.definitions.capability import Capability
from toolkeep.errors import StateUnusable
from toolkeep.events import Event, WorkersDisagreed
from toolkeep.fleet.dispatcher import Dispatcher
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.messages import Answer, Claims, Failure, Job, encode
from toolkeep.fleet.remote_worker import PendingJob, WorkerSession
from toolkeep.fleet.sealed_session import SealedSession
from toolkeep.keep.open import open_state, server_key
from toolkeep.policy.policy_settings import Grant
from toolkeep.storage.sqlite.state_db import KeepState
from toolkeep.stores.registry_state import MemoryState, worker_switch

pytestmark = pytest.mark.spec("SCL-3")

TOOLS = (
    fleet_tools.reverse, fleet_tools.guess, fleet_tools.ponder, fleet_tools.unlock, fleet_tools.peek,
    fleet_tools.change,
)  # fmt: skip
NAMES = tuple(one.definition.name for one in TOOLS)


class Fleet:
    """A server with workers, which are tried in the order of their names."""

    def __init__(self, nats: NatsServer, *names: str, label: str = "", slots: int = 4, **more: Any) -> None:
        self.nats = nats
        self.key = more.pop("key", None) or new_key()
        self.keys = {name: new_key() for name in names}
        self.slots = slots
        self.labels = (label,) if label else ()
        self._more = {"sample": 1.0, "tools": TOOLS, "runs_on": dict.fromkeys(NAMES, label), **more}
        self.workers = {name: self._worker(key) for name, key in self.keys.items()}
        self.told: list[Event] = []

    def _worker(self, key: PrivateKey) -> OwnWorker:
        server = TrustedServer(key=self.key.public.text, capabilities=(Capability("fs.read", "/"),))
        return made_worker(
            self.nats, key, [server], labels=self.labels, slots=self.slots, keep=keep_of(tools=TOOLS)
        )

    def server(self, **more: Any) -> Server:
        known = [trusted(key, name, labels=self.labels) for name, key in self.keys.items()]
        server = Server(self.nats, self.key, known, **{**self._more, **more})
        server.keep.subscribe(self.told.append)
        return server

    def lie(self, name: str, **changed: Any) -> None:
        """Have a worker answer something else."""
        jobs = self.workers[name]._jobs
        honest: Callable[..., Answer] = jobs._answer
        jobs._answer = lambda *given: replace(honest(*given), **(changed or {"body": b'"lie"'}))  # type: ignore[method-assign]

    async def ready(self, server: Server) -> None:
        """Every worker has a lease."""
        dispatcher = await server.dispatcher()
        await until(lambda: all(one.state == "ready" for one in dispatcher.status()))


def states(server: Server) -> dict[str, str]:
    return {one.name: one.state for one in server.runner.workers()}


def counts(server: Server) -> dict[str, tuple[int, int]]:
    return {one.name: (one.samples_agreed, one.samples_differed) for one in server.runner.workers()}


class FullDisk(MemoryState):
    """Stores no switch."""

    def put_switch(self, switch: str, *, enabled: bool) -> None:
        raise StateUnusable("state.db", f"{switch} {enabled}", hint="")


def test_a_worker_that_lies_is_quarantined_until_a_person_restores_it(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    project.mkdir()
    (home / ".agent").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))

    def command(*words: str) -> Any:
        ran = CliRunner().invoke(cli, ["fleet", *words, "--json", "--project", str(project)])
        assert ran.exit_code == 0, ran.output
        return json.loads(ran.output)

    async def main() -> None:
        state = open_state(project)
        assert state is not None
        fleet = Fleet(nats, "one", "two", key=server_key(state))
        fleet.lie("one")
        workers = [{"name": name, "key": key.public.text} for name, key in fleet.keys.items()]
        settings = {"fleet": {"nats": {"servers": nats.url}, "workers": workers}}
        (home / ".agent" / "config.yml").write_text(json.dumps(settings))
        async with running(*fleet.workers.values()):
            async with fleet.server(state=state) as server:
                await fleet.ready(server)
                lied = await server.call("reverse", {"text": "abc"})
                assert lied.value == "lie"
                await until(lambda: server.said("WorkersDisagreed"))
                assert states(server) == {"one": "quarantined", "two": "ready"}
                # The lie is not in the cache, and nobody else's call goes there.
                right = await server.call("reverse", {"text": "abc"})
                assert (right.value, right.is_cached) == ("cba", False)
                (record,) = server.said("WorkersDisagreed")
                ran = server.said("RanElsewhere")[0]
                keys = [key.public.text for key in fleet.keys.values()]
                assert record == {
                    "answer_hash": ran["answer_hash"], "call": lied.call_id, "decided_by": "server",
                    "decided_hash": right.hash, "definition_hash": lied.definition_hash, "key": keys[0],
                    "other_answer_hash": record["other_answer_hash"], "other_key": keys[1],
                    "other_result_hash": right.hash, "other_worker": "two", "quarantined": ["one"],
                    "result_hash": lied.hash, "time": record["time"], "tool": "reverse",
                    "type": "WorkersDisagreed", "worker": "one",
                }  # fmt: skip
                (event,) = [one for one in fleet.told if isinstance(one, WorkersDisagreed)]
                assert (event.worker, event.quarantined, event.call_id) == ("one", ("one",), lied.call_id)
                other = record["other_answer_hash"]
                await until(lambda: any(other in one["answers"] for one in server.said("AnswersSigned")))
            async with fleet.server(state=state, sample=0.0) as server:  # started again
                server.keep.follow_store()
                await fleet.ready(server)
                assert states(server) == {"one": "quarantined", "two": "ready"}
                shown = {one["name"]: one["state"] for one in await asyncio.to_thread(command, "status")}
                assert shown == {"one": "quarantined", "two": "ready"}
                assert (await server.call("reverse", {"text": "de"})).value == "ed"
                assert (await asyncio.to_thread(command, "restore", "one"))["worker"] == "one"
                await until(lambda: states(server)["one"] == "ready")
                assert (await server.call("reverse", {"text": "fg"})).value == "lie"

    asyncio.run(main())


def test_agreement_changes_nothing_and_the_second_worker_can_be_the_one_that_lies(nats: NatsServer) -> None:
    async def main() -> None:
        fleet = Fleet(nats, "one", "two")
        server = fleet.server()
        async with server, running(*fleet.workers.values()):
            await fleet.ready(server)
            assert (await server.call("reverse", {"text": "abc"})).value == "cba"
            await until(lambda: counts(server) == {"one": (1, 0), "two": (1, 0)})
            assert (await server.call("reverse", {"text": "abc"})).is_cached
            fleet.lie("two", failure=Failure(Code.TOOL_FAILED.value, "It does not work here"))
            assert (await server.call("reverse", {"text": "ab"})).value == "ba"
            dispatcher = await server.dispatcher()
            await until(lambda: not dispatcher._transfers)
            assert counts(server) == {"one": (1, 0), "two": (1, 0)}  # a failure may be the machine's
            fleet.lie("two", failure=None, body=b'{"some": ["other", "value"]}')
            at_once = (server.call("reverse", {"text": text}) for text in ("abcd", "efgh"))
            await asyncio.gather(*at_once)
            await until(lambda: server.said("WorkersDisagreed"))
            assert states(server) == {"one": "ready", "two": "quarantined"}
            assert counts(server) == {"one": (1, 2), "two": (1, 2)}
            assert len(server.said("WorkersDisagreed")) == 1  # decided once

    asyncio.run(main())


def test_a_tool_that_is_not_what_it_declares_quarantines_nobody(nats: NatsServer) -> None:
    async def main() -> None:
        fleet = Fleet(nats, "one", "two")
        server = fleet.server()
        async with server, running(*fleet.workers.values()):
            await fleet.ready(server)
            await server.call("guess", {}, fresh=True)
            await until(lambda: server.said("WorkersDisagreed"))
            await server.call("guess", {}, fresh=True)
            await until(lambda: counts(server) == {"one": (0, 2), "two": (0, 2)})
            dispatcher = await server.dispatcher()
            await until(lambda: not dispatcher._transfers)
            (record,) = server.said("WorkersDisagreed")  # not one for each
            assert (record["decided_by"], record["decided_hash"], record["quarantined"]) == ("server", "", [])
            assert states(server) == {"one": "ready", "two": "ready"}

    asyncio.run(main())


def test_for_labelled_machines_a_third_worker_decides_and_without_one_nobody_does(nats: NatsServer) -> None:
    async def main() -> None:
        for names, by, out in ((("one", "two"), "", []), (("one", "two", "three"), "three", ["one"])):
            fleet = Fleet(nats, *names, label="gpu")
            fleet.lie("one")
            server = fleet.server(state=FullDisk())
            async with server, running(*fleet.workers.values()):
                await fleet.ready(server)
                await server.call("reverse", {"text": "abc"})
                await until(lambda: server.said("WorkersDisagreed"))  # noqa: B023 -- used at once
                (record,) = server.said("WorkersDisagreed")
                others = {record["other_worker"], record["decided_by"]}
                assert others == ({"two", "three"} if by else {"two", ""})
                assert record["quarantined"] == out
                assert [name for name, state in states(server).items() if state == "quarantined"] == out

    asyncio.run(main())


def test_what_is_not_deterministic_writes_or_has_secrets_runs_once(
    nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampled: list[str] = []

    def started(_: Dispatcher, work: Any) -> None:
        sampled.append(work.cr_frame.f_locals["sample"].call.tool.name)
        work.close()

    monkeypatch.setattr(Dispatcher, "start_task", started)
    (tmp_path / "file").write_text("x")

    async def main() -> None:
        fleet = Fleet(nats, "one", "two", tool_secrets={"guess": {"key": "k"}})
        agents = {"reader": Grant(capabilities=(Capability("fs.read", str(tmp_path)),))}
        server = fleet.server(agents=agents)
        async with server, running(*fleet.workers.values()):
            await fleet.ready(server)
            for name, arguments, more in (
                ("ponder", {"text": "a"}, {}),
                ("unlock", {"text": "a"}, {}),
                ("change", {"text": "a"}, {}),
                ("guess", {}, {}),
                ("reverse", {"text": "a"}, {"data": {"tenant": "b"}}),
                ("peek", {"path": str(tmp_path / "file")}, {"agent": "reader"}),
            ):
                result = await server.call(name, arguments, **more)
                assert result.isolation == "strict", result
            assert sampled == []
            assert (await server.call("reverse", {"text": "a"})).value == "a"
            assert sampled == ["reverse"]

    asyncio.run(main())


def test_a_second_run_delays_no_answer_and_gives_way_to_a_call_that_waits(nats: NatsServer) -> None:
    async def main() -> None:
        fleet = Fleet(nats, "one", "two", slots=1)
        server = fleet.server(runs_on={"reverse": "", "ponder": "", "guess": "nobody"})
        calls, waiting, ended = fleet.workers["two"]._jobs._calls, asyncio.Event(), list[str]()
        run = calls.run

        async def slow(call: Any) -> Any:
            if not waiting.is_set():
                waiting.set()
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("cancelled")
            return await run(call)

        calls.run = slow  # type: ignore[method-assign]
        async with server, running(*fleet.workers.values()):
            await fleet.ready(server)
            assert (await server.call("reverse", {"text": "ab"})).value == "ba"
            await waiting.wait()
            assert ended == []
            two = (server.call("ponder", {"text": text}) for text in "cd")
            assert [one.value for one in await asyncio.gather(*two)] == ["c", "d"]
            assert ended == ["cancelled"]
            assert {one["worker"] for one in server.said("RanElsewhere")} == {"one", "two"}
            assert counts(server) == {"one": (0, 0), "two": (0, 0)}
            # Nor does it begin where no slot is free, or while a call waits for another worker.
            dispatcher = await server.dispatcher()
            session = dispatcher.workers["two"][1]
            assert session is not None
            session.reserved += 1
            assert (await server.call("reverse", {"text": "ef"})).value == "fe"
            await until(lambda: not dispatcher._transfers)
            session.reserved -= 1
            waits = asyncio.create_task(server.call("guess", {}))
            await until(lambda: dispatcher._queue)
            assert (await server.call("reverse", {"text": "gh"})).value == "hg"
            await until(lambda: not dispatcher._transfers)
            assert counts(server) == {"one": (0, 0), "two": (0, 0)}
            waits.cancel()

    asyncio.run(main())


def test_a_late_answer_to_a_second_run_is_nobodys() -> None:
    worker, keys, late = new_key(), (bytes(32), bytes([1]) * 32), list[Answer]()
    ours, theirs = (SealedSession(bytes(8), seal=one, open_=other) for one, other in (keys, keys[::-1]))
    session = WorkerSession(
        trusted(worker), worker.public, ours, Claims((), (), (), 4, "0"), 60.0, lambda _: None
    )
    session.on_late = lambda answer, _: late.append(answer)
    loop = asyncio.new_event_loop()
    for name, is_spare in (("a.0", True), ("b.0", False)):
        job = Job(name, "reverse", "", "", "strict", "local", (), (), b"{}", 1, 1)
        session.send_job(PendingJob(job, b"", loop.create_future(), 0.0, is_spare=is_spare))
    session.give_up()
    for name in ("a.0", "b.0"):
        session.open(theirs.seal(encode(Answer(name, "strict", (), b'"x"'))))
    assert [one.id for one in late] == ["b.0"]
    assert session.unsigned == 2  # the worker signs both
    loop.close()


def test_a_quarantine_by_another_server_clears_the_results_here(tmp_path: Path) -> None:
    @tool(effects="none", determinism="Pure")
    def same(text: str) -> str:
        """Say it."""
        return text

    with Keep(state=KeepState(tmp_path)) as keep:
        keep.register(same)

        def is_cached() -> bool:
            return keep.call_sync("same", {"text": "a"}).is_cached

        assert [is_cached(), is_cached()] == [False, True]
        keep._follow_state()
        assert is_cached()
        KeepState(tmp_path).put_switch(worker_switch("ed25519:x"), enabled=False)
        keep._follow_state()
        assert not is_cached()
