"""What a server says of a worker, by the session with it."""

from typing import Any

import pytest

from toolkeep.config.fleet_settings import TrustedWorker
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.messages import Claim, Claims, Job
from toolkeep.fleet.remote_worker import PendingJob, WorkerSession
from toolkeep.fleet.worker_status import status_of

KEY = PrivateKey(b"1" * 32).public
TRUSTED = TrustedWorker(name="one", key=KEY.text)
CLAIMS = Claims(("gpu",), ("strict",), (Claim("shout", "d", "c"), Claim("grep", "d", "c")), 2, "0.1.0")


class Sealed:
    """A session that nobody listens to."""

    id = b"12345678"


def session(*, reserved: int = 0, is_draining: bool = False, has_lease: bool = True) -> WorkerSession:
    sealed: Any = Sealed()
    made = WorkerSession(TRUSTED, KEY, sealed, CLAIMS, 5.0, lambda _: None)
    made.reserved, made.is_draining = reserved, is_draining
    made._dead_at = float("inf") if has_lease else float("-inf")
    return made


@pytest.mark.parametrize(
    ("known", "state", "free", "why"),
    [
        (session(), "ready", 2, ""),
        (session(reserved=2), "full", 0, ""),
        (session(is_draining=True), "draining", 2, "it finishes its calls and takes no new ones"),
        (session(has_lease=False), "silent", 2, "its lease is over: new calls go to other workers"),
    ],
    ids=["ready", "full", "draining", "silent"],
)
@pytest.mark.spec("OBS-1")
def test_a_worker_with_a_session_is_told_by_its_lease_and_load(
    known: WorkerSession, state: str, free: int, why: str
) -> None:
    status = status_of(TRUSTED, known, "")
    assert (status.why, status.running) == (why, {})
    assert (status.state, status.free, status.slots, status.tools) == (state, free, 2, ("grep", "shout"))
    assert (status.labels, status.levels, status.version, status.jobs) == (("gpu",), ("strict",), "0.1.0", 0)


def test_calls_under_way_are_counted_by_tool() -> None:
    known = session()
    for number, tool in enumerate(("shout", "grep", "shout")):
        job = Job(f"{number}.0", tool, "", "", "strict", "local", (), (), b"{}", 1000, 1000)
        nothing: Any = None
        known.pending_jobs[job.id] = PendingJob(job, b"", nothing, 0.0)
    status = status_of(TRUSTED, known, "")
    assert (status.jobs, status.running) == (3, {"grep": 1, "shout": 2})


def test_a_worker_without_one_is_not_seen_or_refused() -> None:
    told = [status_of(TRUSTED, None, why) for why in ("", "protocols differ")]
    assert [(one.state, one.why) for one in told] == [
        ("not seen", "it has not announced itself: start toolkeep worker there"),
        ("refused", "protocols differ"),
    ]
