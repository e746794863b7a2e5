"""One session with a worker, when frames are lost, come twice, and come late."""

import asyncio
from typing import Any

import pytest

from tests.fleet.running import new_key, trusted
from tests.fleet.test_sealed_session import opened
from toolkeep.fleet import messages
from toolkeep.fleet.messages import Answer, Claims, Heartbeat, Job, NotRun, Query, Renew
from toolkeep.fleet.remote_worker import Lost, PendingJob, WorkerSession
from toolkeep.fleet.sealed_session import FrameInvalid
from toolkeep.fleet.transcript import Transcript

pytestmark = pytest.mark.spec("SCL-4")

CLAIMS = Claims((), ("strict",), (), 1, "0")
JOB = Job("call.0", "act", "", "", "strict", "local", (), (), b"{}", 1000, 1000)
ANSWER = Answer(JOB.id, "strict", ())


class Worker:
    """The other side of a session."""

    def __init__(self) -> None:
        key, (ours, self._sealed) = new_key(), opened()
        self._frames: list[bytes] = []
        self.key = key
        self.session = WorkerSession(trusted(key), key.public, ours, CLAIMS, 5.0, self._frames.append)
        self.late: list[Answer] = []
        self.signed: list[list[bytes]] = []
        self.session.on_late = lambda answer, _: self.late.append(answer)
        self.session.on_signed = lambda leaves, _: self.signed.append(leaves)
        self.transcript = Transcript(ours.id)

    def say(self, message: messages.ToServer) -> None:
        """To the server."""
        self.session.open(self._sealed.seal(messages.encode(message)))

    def heard(self) -> list[Any]:
        """What the server said since the last time."""
        frames = [messages.decode_to_worker(self._sealed.open(frame)) for frame in self._frames]
        self._frames.clear()
        return frames

    async def take(self) -> PendingJob:
        """A job."""
        self.session.reserved += 1
        pending = PendingJob(JOB, b"", asyncio.get_running_loop().create_future(), 0.0)
        self.session.send_job(pending)
        self.transcript.add(JOB.id, pending.job_hash, messages.encode(ANSWER))
        self.heard()
        return pending


def test_the_answer_to_a_job_that_was_given_up_is_queried_until_it_comes() -> None:
    async def main() -> None:
        worker = Worker()
        pending = await worker.take()
        worker.session.give_up()
        assert await pending.future == Lost()
        worker.say(Heartbeat(1, 0, running=(JOB.id,)))
        assert worker.heard() == [Renew(1)]
        for number in (2, 3):  # its answer is not acknowledged: it would be forgotten
            worker.say(Heartbeat(number, 0, finished=(JOB.id,)))
            assert worker.heard() == [Renew(number), Query(JOB.id)]
        worker.say(ANSWER)
        worker.say(ANSWER)  # to the second query
        assert worker.late == [ANSWER]
        worker.say(Heartbeat(4, 0, finished=(JOB.id,)))
        assert worker.heard() == [Renew(4, (JOB.id,))]
        with pytest.raises(FrameInvalid, match="it answers no job that it has"):
            worker.say(Answer(JOB.id, "none", ()))

    asyncio.run(main())


def test_a_job_that_never_arrived_is_queried_once() -> None:
    async def main() -> None:
        worker = Worker()
        await worker.take()
        worker.session.give_up()
        worker.say(Heartbeat(1, 0))
        assert worker.heard() == [Renew(1), Query(JOB.id)]
        worker.say(NotRun(JOB.id, messages.NEVER_SEEN))
        worker.say(Heartbeat(2, 0))
        assert worker.heard() == [Renew(2)]

    asyncio.run(main())


def test_a_signature_that_overtakes_its_answer_waits_for_it() -> None:
    async def main(is_given_up: bool) -> None:
        worker = Worker()
        await worker.take()
        if is_given_up:
            worker.session.give_up()
        worker.say(worker.transcript.sign(worker.key))
        assert not worker.signed
        worker.say(ANSWER)
        assert len(worker.signed) == 1

    for is_given_up in (False, True):
        asyncio.run(main(is_given_up))


def test_a_session_that_was_replaced_is_renewed_while_an_answer_is_owed() -> None:
    async def main() -> None:
        worker = Worker()
        await worker.take()
        worker.session.is_retired = True
        worker.say(Heartbeat(1, 0, running=(JOB.id,)))
        assert worker.heard() == [Renew(1)]
        worker.say(ANSWER)
        worker.say(Heartbeat(2, 0, finished=(JOB.id,)))
        assert worker.heard() == [Renew(2, (JOB.id,))]
        worker.say(Heartbeat(3, 0))
        assert worker.heard() == []

    asyncio.run(main())
