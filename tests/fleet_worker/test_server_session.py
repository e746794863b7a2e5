"""One session with a server, whose server goes away."""

import asyncio

import pytest

from tests.fleet.nats_server import NatsServer
from tests.fleet.running import RogueServer, made_worker, new_key, running, tapped, until
from tests.fleet.test_sealed_session import opened
from toolkeep.config.fleet_settings import TrustedServer
from toolkeep.fleet import messages
from toolkeep.fleet.messages import Answer, Install, Job, Renew
from toolkeep.fleet_worker import server_session
from toolkeep.fleet_worker.server_session import ServerSession
from toolkeep.fleet_worker.worker_refusals import Refusals

pytestmark = pytest.mark.spec("SCL-4")

LEASE = 5.0
JOB = Job("call.0", "act", "", "", "strict", "local", (), (), b"{}", 1000, 1000)


class NoJobs:
    """Begins nothing."""

    def begin(self, session: ServerSession, job: Job) -> None:
        """Nothing."""

    def end(self, session: ServerSession, job_id: str) -> None:
        """Nothing."""

    def taken(self) -> int:
        """None."""
        return 0

    def install(self, session: ServerSession, request: Install) -> None:
        """Nothing."""


def test_a_session_is_forgotten_when_its_server_is_silent_for_some_leases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(server_session, "now", lambda: clock[0])
    server, ours = opened()
    trusted = TrustedServer(key=new_key().public.text)
    session = ServerSession(trusted, new_key(), ours, LEASE, lambda _: None, NoJobs(), Refusals())

    def say(message: messages.ToWorker) -> None:
        session.open(server.seal(messages.encode(message)))

    def forgotten_after(seconds: float) -> bool:
        clock[0] += seconds
        return session.is_forgotten

    assert not forgotten_after(4 * LEASE)
    say(Renew(0))
    assert not forgotten_after(4 * LEASE)
    assert forgotten_after(2 * LEASE)
    # While a job runs, its lease decides; its answer is kept for longer.
    say(JOB)
    assert not forgotten_after(100 * LEASE)
    session.finish(Answer(JOB.id, "strict", ()))
    assert not forgotten_after(20)
    assert forgotten_after(600)
    say(Renew(0, (JOB.id,)))
    assert forgotten_after(6 * LEASE)


def test_a_worker_forgets_the_sessions_of_servers_that_are_gone(nats: NatsServer) -> None:
    async def main() -> None:
        key, worker_key = new_key(), new_key()
        worker = made_worker(nats, worker_key, [key])
        async with tapped(nats, "tk.v1.hb.*") as tap, running(worker):
            for _ in range(2):
                await RogueServer(tap, key, worker_key.public).open(lease_ms=100)
            await until(lambda: not worker._sessions)

    asyncio.run(main())
