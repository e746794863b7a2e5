"""What a worker refused, and how much of it is in the log of each server."""

import pytest

from toolkeep.fleet.messages import RefusalCount
from toolkeep.fleet_worker.worker_refusals import Refusals


@pytest.mark.spec("SCL-4")
def test_a_server_cannot_claim_to_have_recorded_what_is_refused_later() -> None:
    refusals = Refusals()
    refusals.add("frame", "it was forged")
    refusals.note_recorded("one", (RefusalCount("frame", "it was forged", "", 1_000),))
    refusals.add("frame", "it was forged")
    assert refusals.counts("one") == (RefusalCount("frame", "it was forged", "", 2, 1),)
    assert refusals.counts("two") == (RefusalCount("frame", "it was forged", "", 2, 0),)
