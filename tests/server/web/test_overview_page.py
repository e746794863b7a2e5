"""The overview: what needs attention, and the newest calls that went wrong. Workers on other machines: at
`/v1/workers`, on the page and as metrics, where a fleet is configured.
"""

import html
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.approval.examples import question
from tests.calls.test_late_answers import LostWorkers
from tests.server.api.test_audit_routes import glance
from tests.server.conftest import open_served_keep
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.test_app import Visitor, visit
from tests.telemetry.test_metrics import values
from toolkeep import Keep, ToolDefinition, open_keep
from toolkeep.events import RefusedElsewhere, WorkerRefused
from toolkeep.fleet.worker_status import WorkerStatus, quarantined
from toolkeep.server.api.session_routes import ANY_SESSION
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


def overview(keep: Keep, path: str = "/ui/") -> str:
    async def act(visitor: Visitor) -> str:
        return html.unescape((await visitor.get(path)).body.decode())

    return str(visit(keep, act))


@pytest.fixture
def busy() -> Iterator[Keep]:
    """A keep in which a call was made."""
    with open_served_keep() as keep:
        calls(keep, 1)
        yield keep


def calls(keep: Keep, *numbers: object) -> list[str]:
    """Make calls, of which those without a number are refused; their ids."""
    return [keep.call_sync("add", {"a": number}, agent="operator").call_id for number in numbers]


@pytest.mark.spec("WEB-2")
def test_the_newest_calls_that_went_wrong_are_named_with_their_reason(busy: Keep) -> None:
    assert "No call was refused or failed in this time." in overview(busy)
    made = calls(busy, 1, "b", "c", "d", "e", 2, "f", "g")
    page = overview(busy)
    (listed,) = re.findall(r'<ol class="latest">(.*?)</ol>', page, re.DOTALL)
    assert re.findall(r'href="/ui/calls/([0-9a-f]+)"', listed) == [made[one] for one in (7, 6, 4, 3, 2)]
    assert listed.count(">'a' must be an integer, got string<") == 5
    assert 'href="/ui/audit?status=unsuccessful&hours=1">All 6<' in page


def test_reasons_on_it_count_as_shown_to_a_caller_that_makes_calls(tmp_path: Path) -> None:
    agents: dict[str, Any] = {"ada": {}, "bob": {"capabilities": ["fs.read:/srv"]}}
    with open_keep(project=tmp_path, built_in=False, flow={"policy": "standard"}, agents=agents) as keep:
        keep.register(glance)

        async def act(visitor: Visitor) -> list[bool]:
            token = visitor.operator.tokens.make("reader", ["call", "audit:read"], agent="ada").text
            await visitor.sign_in(token=token)
            await visitor.operator.as_agent("bob", "call").call("glance", {"path": "/srv"})
            opened = []
            for path in ("/ui/audit?agent=nobody", "/ui/"):
                assert (await visitor.get(path)).status == 200
                assert keep.authorizer.flow is not None
                opened.append(keep.authorizer.flow.session_of("ada", "", caller=ANY_SESSION).state.opened)
            return opened

        assert visit(keep, act, signed_in=False) == [False, True]


@pytest.mark.spec("WEB-2")
def test_a_notice_leads_to_each_thing_that_it_names() -> None:
    keep = Keep()
    for number in range(4):
        now = time.time()
        keep.record.approvals.ask(
            question(id=f"{number:016x}", agent=f"a{number}", asked_at=now, expires_at=now + 300)
        )
    for description in ("Tell the weather.", "Tell the weather of a city."):
        data = {"name": "weather", "description": description, "inputSchema": {"type": "object"}}
        keep.register(ToolDefinition.from_elsewhere(data, origin="met"))
    page = overview(keep)
    notices = page[page.index('class="message notice') : page.index('class="figures"')]
    assert '<a class="foreign" href="/ui/tools/weather">' in notices
    assert len(set(re.findall(r'href="/ui/approvals/([0-9a-f]{16})">a\d wants', notices))) == 3
    assert '<a href="/ui/approvals">1 more</a>' in notices


@pytest.mark.spec("WEB-2")
def test_a_chosen_period_stays_and_without_one_the_calls_choose_it(busy: Keep) -> None:
    current = r'href="/ui/\?hours=(\d+)" aria-current="true"'
    assert [re.findall(current, overview(busy, path)) for path in ("/ui/", "/ui/?hours=24")] == [
        ["1"],
        ["24"],
    ]
    assert "hours must be one of 1, 6, 24, 168" in overview(busy, "/ui/?hours=5")


@pytest.mark.spec("WEB-2")
def test_only_tools_that_are_there_are_links_among_the_most_called(busy: Keep) -> None:
    busy.call_sync("ad", {}, agent="operator")
    page = overview(busy)
    assert re.findall(r'href="/ui/tools/(\w+)"', page) == ["add"]
    assert "ad: " in page


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
