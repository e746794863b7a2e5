"""A server that sends a worker whatever code it likes, beside an honest one that records what is refused."""

import contextlib
from collections.abc import AsyncIterator, Callable

from msgspec.structs import replace

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import (
    OwnWorker,
    RogueServer,
    Server,
    made_worker,
    new_key,
    recorded,
    running,
    tapped,
    trusted,
)
from toolkeep import Keep
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.fleet.messages import Install, InstallResult
from toolkeep.fleet.nats_link import NatsLink
from toolkeep.fleet.object_store import BodyStore

LEVELS = ("standard", "strict", "wasm")


class CodeSender:
    """Its key may install code."""

    def __init__(self, rogue: RogueServer, bodies: BodyStore, worker: OwnWorker, server: Server) -> None:
        self._rogue = rogue
        self._bodies = bodies
        self._server = server
        self._refused = 0
        self.worker = worker

    async def install(self, request: Install, packed: bytes) -> str:
        """Why it was not installed; empty if it was."""
        await self._rogue.say(replace(request, code=await self._bodies.put(packed)))
        result = await self._rogue.hear(InstallResult)
        assert result.tool == request.tool
        self._refused += bool(result.why)
        return str(result.why)

    async def recorded(self) -> None:
        """Every refusal is in the log of the honest server, in the name of this one, and no more of why."""
        why = ("code", "it was not installed", self._rogue.key.public.token)
        await recorded(self._server, *[why] * self._refused)


@contextlib.asynccontextmanager
async def sending(nats: NatsServer, make_keep: Callable[[], Keep] = Keep) -> AsyncIterator[CodeSender]:
    """For as long as the block lasts; `nats` has JetStream."""
    key, honest, worker_key = new_key(), new_key(), new_key()
    may_install = TrustedServer(key=key.public.text, name="main", code=True)
    worker = made_worker(nats, worker_key, [may_install, honest], levels=LEVELS, keep=make_keep())
    server, link = (
        Server(nats, honest, [trusted(worker_key, levels=LEVELS)]),
        NatsLink(nats.settings(), "test"),
    )
    await link.connect()
    try:
        async with server, tapped(nats, "tk.v1.hb.*") as tap, running(worker):
            rogue = RogueServer(tap, key, worker_key.public)
            await rogue.open()
            yield CodeSender(rogue, BodyStore(link), worker, server)
    finally:
        await link.close()
