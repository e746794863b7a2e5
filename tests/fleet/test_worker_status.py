"""What a server says of a worker, by the session with it."""

from typing import Any

import pytest

from toolkeep.config.fleet_settings import TrustedWorker
from toolkeep.fleet.identity import PrivateKey
from toolkeep.fleet.messages import Claim, Claims
from toolkeep.fleet.remote_worker import WorkerSession
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
    ("known", "state", "free"),
    [
        (session(), "ready", 2),
        (session(reserved=2), "full", 0),
        (session(is_draining=True), "draining", 2),
        (session(has_lease=False), "silent", 2),
    ],
    ids=["ready", "full", "draining", "silent"],
)
@pytest.mark.spec("OBS-1")
def test_a_worker_with_a_session_is_told_by_its_lease_and_load(
    known: WorkerSession, state: str, free: int
) -> None:
    status = status_of(TRUSTED, known, "")
    assert (status.state, status.free, status.slots, status.tools) == (state, free, 2, ("grep", "shout"))
    assert (status.labels, status.levels, status.version, status.jobs) == (("gpu",), ("strict",), "0.1.0", 0)


def test_a_worker_without_one_is_not_seen_or_refused() -> None:
    assert [status_of(TRUSTED, None, why).state for why in ("", "protocols differ")] == [
        "not seen",
        "refused",
    ]
