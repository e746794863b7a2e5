"""Workers on other machines: at `/v1/workers`, on the page and as metrics, where a fleet is configured."""

from typing import Any

import pytest

from tests.calls.test_late_answers import LostWorkers
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.test_app import Visitor, visit
from tests.telemetry.test_metrics import values
from toolkeep import Keep
from toolkeep.events import RefusedElsewhere, WorkerRefused
from toolkeep.fleet.worker_status import WorkerStatus, quarantined
from toolkeep.server.app_factory import start_metrics

READY = WorkerStatus(
    name="one",
    key="ed25519:one",
    state="ready",
    labels=("gpu",),
    levels=("strict",),
    tools=("read_file", "shout"),
    slots=4,
    free=3,
    jobs=2,
    running={"shout": 2},
    version="0.1.0",
    seen_s=0.4,
    samples_agreed=5,
    samples_differed=1,
)
REFUSED = WorkerStatus(name="two", key="ed25519:two", state="refused", why="it claims the label '<b>'")

QUARANTINED = quarantined(WorkerStatus(name="three", key="ed25519:three", state="ready", slots=4))


class KnownWorkers(LostWorkers):
    """Workers with a state."""

    async def connect(self) -> None:
        """They are there."""

    def workers(self) -> tuple[WorkerStatus, ...]:
        return READY, REFUSED, QUARANTINED


@pytest.fixture
def keep() -> Keep:
    keep = Keep(fleet=lambda _: KnownWorkers())  # type: ignore[arg-type,return-value]
    _ = keep.record
    return keep


@pytest.mark.spec("OBS-1")
def test_workers_are_listed_for_who_may_read_the_log(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        refused = await client.as_agent("ada", "call").get("/v1/workers")
        return refused.status, (await client.get("/v1/workers")).data

    status, (one, two, three) = talk(keep, act)
    assert (status, one["state"], one["free"], one["tools"]) == (403, "ready", 3, ["read_file", "shout"])
    assert (three["state"], three["why"]) == ("quarantined", QUARANTINED.why)
    assert (two["state"], two["why"], two["seen_s"]) == ("refused", "it claims the label '<b>'", None)


@pytest.mark.spec("OBS-1")
def test_the_page_shows_them_and_is_named_only_where_there_is_a_fleet(keep: Keep) -> None:
    async def act(visitor: Visitor) -> tuple[int, str]:
        answer = await visitor.get("/ui/workers")
        return answer.status, answer.body.decode()

    status, text = visit(keep, act)
    assert status == 200
    for shown in (
        '<a href="/ui/audit?status=under+way">2 calls under way</a> · 3 of 4 slots free',
        '<a class="foreign" href="/ui/audit?tool=shout&amp;status=under+way">shout × 2</a>',
        "gpu",
        "0.1.0",
        "refused",
        "quarantined",
        "It claims the label &#39;&lt;b&gt;&#39;",
        'href="/ui/workers"',
    ):
        assert shown in text
    status, text = visit(Keep(), act)
    assert (status, 'href="/ui/workers"' in text) == (404, False)


@pytest.mark.spec("OBS-1")
def test_workers_and_what_is_refused_are_counted(keep: Keep) -> None:
    metrics = start_metrics(keep)
    metrics(WorkerRefused(worker="two", reason="its seal is broken", count=3))
    metrics(RefusedElsewhere(worker="one", what="job", reason="not granted", server="", count=2))
    found = values(metrics)
    assert found[("toolkeep_workers_ready",)] == 1
    assert (found[("toolkeep_worker_slots_free",)], found[("toolkeep_worker_jobs",)]) == (3, 2)
    assert found[("toolkeep_worker_frames_refused_total", "two")] == 3
    assert found[("toolkeep_worker_refusals_total", "job", "one")] == 2
    samples = [found[(f"toolkeep_worker_samples_{name}",)] for name in ("agreed", "differed")]
    assert (samples, found[("toolkeep_workers_quarantined",)]) == ([5, 1], 1)
    assert not [name for name, *_ in values(start_metrics(Keep())) if name.startswith("toolkeep_worker_s")]
