"""Large bodies in a real cluster of three NATS servers with JetStream, while its leaders die."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.fleet.nats_server import NatsCluster, nats_cluster
from tests.fleet.running import Server, made_worker, new_key, running, trusted, until
from toolkeep import Code, ToolResult, Touches, tool
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.definitions.capability import Capability
from toolkeep.fleet.nats_link import NatsLink
from toolkeep.fleet.object_store import BUCKET, BodyStore, NotDelivered
from toolkeep.policy.policy_settings import Grant

pytestmark = pytest.mark.spec("SCL-3")

STREAM = f"OBJ_{BUCKET}"
LARGE = "é" * 500_000
STRICT: Any = {"required_isolation": "strict"}
LONGEST = 90
"""Seconds that no call may take, on any machine: its deadline is 60."""


@tool(constraints=STRICT, side_effects=["None"])
def repeat(text: str) -> str:
    """Say it again."""
    return text


@tool(constraints=STRICT, side_effects=["FsWrite"], capabilities=["fs.write"], danger="low")
def note(path: Annotated[str, Touches("fs.write")], line: str, text: str) -> str:
    """Add a line to a file, and say a text again."""
    with Path(path).open("a") as file:
        file.write(f"{line}\n")
    return text


TOOLS = (repeat, note)


class Load:
    """Calls with large bodies, four at a time, until told to stop."""

    def __init__(self, server: Server, file: Path) -> None:
        self._server = server
        self._file = file
        self._numbers = itertools.count()
        self._is_over = False
        self.reads: list[ToolResult] = []
        self.writes: dict[str, ToolResult] = {}

    async def _read(self) -> None:
        while not self._is_over:
            self.reads.append(await self._server.call("repeat", {"text": LARGE}))

    async def _write(self) -> None:
        while not self._is_over:
            line = str(next(self._numbers))
            arguments = {"path": str(self._file), "line": line, "text": LARGE}
            self.writes[line] = await self._server.call("note", arguments, agent="ada")

    @property
    def ended(self) -> int:
        """How many calls ended well."""
        return sum(result.ok for result in (*self.reads, *self.writes.values()))

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """They are made for as long as the block lasts; then all of them end."""
        lanes = [asyncio.create_task(lane()) for lane in (self._read, self._read, self._write, self._write)]
        try:
            yield
        finally:
            self._is_over = True
            await asyncio.wait_for(asyncio.gather(*lanes), LONGEST)

    def check(self) -> None:
        """Every call ended as documented, and no write ran twice."""
        ran = Counter(self._file.read_text().split())
        for result in (*self.reads, *self.writes.values()):
            assert result.value == LARGE if result.ok else result.code in MAY_FAIL, result.error
        for line, result in self.writes.items():
            at_most = 0 if result.code is Code.WORKER_UNAVAILABLE else 1
            at_least = 0 if result.code else 1
            assert at_least <= ran[line] <= at_most, (line, result.code, ran[line])


MAY_FAIL = (Code.WORKER_UNAVAILABLE, Code.OUTCOME_UNKNOWN)
"""Nothing ran; it ran, and its result was not delivered."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """Three servers that know of each other, one of which leads JetStream."""
    with nats_cluster(tmp_path_factory.mktemp("cluster")) as started:
        asyncio.run(until(started.is_current, LONGEST))
        yield started


@asynccontextmanager
async def joined(cluster: NatsCluster) -> AsyncIterator[NatsLink]:
    """A connection to it."""
    link = NatsLink(cluster.settings(), "test")
    await link.connect()
    try:
        yield link
    finally:
        await link.close()


def test_a_bucket_that_was_made_with_fewer_replicas_gets_more(cluster: NatsCluster) -> None:
    async def main() -> None:
        async with joined(cluster) as link:
            jetstream = link.jetstream(5)
            for wanted, has in ((1, 1), (3, 3), (1, 3)):
                store = BodyStore(link, replicas=wanted)
                assert await store.take(await store.put(b"body")) == b"body"
                assert (await jetstream.stream_info(STREAM)).config.num_replicas == has
            await jetstream.delete_stream(STREAM)

    asyncio.run(main())


def test_calls_go_on_when_leaders_die(cluster: NatsCluster, tmp_path: Path) -> None:
    key, worker, may = new_key(), new_key(), Capability("fs.write", str(tmp_path))

    async def dies(of: str, server: Server) -> None:
        """Calls with small bodies go on while the leader of a stream, or of JetStream itself, is replaced."""
        await until(lambda: cluster.leader_of(of), LONGEST)
        dead = cluster.leader_of(of)
        cluster.servers[dead].kill()
        for number in itertools.count():
            text = str(number)
            small = {"path": str(tmp_path / "small"), "line": text, "text": text}
            assert (await server.call("repeat", {"text": text})).value == text
            assert (await server.call("note", small, agent="ada")).value == text
            if cluster.leader_of(of) not in ("", dead):
                break
        cluster.servers[dead].start()

    async def main() -> None:
        server = Server(
            cluster,
            key,
            [trusted(worker)],
            agents={"ada": Grant(capabilities=(may,))},
            tools=TOOLS,
            runs_on={"repeat": "", "note": ""},
        )
        served = TrustedServer(key=key.public.text, name="main", capabilities=(may,))
        async with server, running(made_worker(cluster, worker, [served], tools=TOOLS, slots=8)):
            # Nobody has made the bucket yet when JetStream loses its leader.
            for of in ("", STREAM):
                load = Load(server, tmp_path / f"large{of}")
                async with load.under_way():
                    if of:
                        await until(lambda load=load: load.ended > 8, LONGEST)
                    await dies(of, server)
                    before = load.ended
                    # It works again, and nobody was started anew.
                    await until(lambda load=load, before=before: load.ended > before + 8, LONGEST)
                load.check()
            async with joined(cluster) as link:
                assert (await link.jetstream(5).stream_info(STREAM)).config.num_replicas == 3

    asyncio.run(main())


def test_a_body_can_be_taken_where_no_leader_can_be(cluster: NatsCluster) -> None:
    """The last test of this file: two of three are gone."""

    async def main() -> None:
        async with joined(cluster) as link:
            store = BodyStore(link, replicas=3)
            there = await store.put(b"body")
            await until(lambda: cluster.is_current(STREAM), LONGEST)
            leader = cluster.servers[cluster.leader_of(STREAM)]
            others = [one for one in cluster.servers.values() if one is not leader]
            leader.kill()
            others[0].kill()
            assert await store.take(there) == b"body"
            with pytest.raises(NotDelivered):
                await store.put(b"body", patience_s=0.5)

    asyncio.run(main())
