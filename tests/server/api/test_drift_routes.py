"""What agents did that they never did before, over HTTP and on the page of agents."""

import asyncio
from typing import Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep
from toolkeep.audit.record_kinds import AgentDrift, written
from toolkeep.keep.drift_news import DriftReader

pytestmark = pytest.mark.spec("FLO-8", "WEB-2")

EVIL = "<img src=x onerror=alert(1)>\u202e"


def told(keep: Keep, agent: str, time: str, *values: str) -> None:
    """Record that an agent did something new."""
    drift = AgentDrift(agent=agent, count=len(values), kind="host", time=time, tool="look_up", values=values)

    async def append() -> None:
        await keep.record.log.append_soon(written(drift))

    asyncio.run(append())


def test_news_are_listed_until_a_person_has_seen_them(keep: Keep) -> None:
    told(keep, "ada", "2026-11-01T10:00:00.000+00:00", "a.example")
    told(keep, "ada", "2026-11-01T11:00:00.000+00:00", "b.example")
    told(keep, "eve", "2026-11-01T10:30:00.000+00:00", "c.example")

    async def act(client: Client) -> Any:
        reader = client.as_agent("operator", "audit:read")
        before = (await reader.get("/v1/drift")).data
        body = {"agent": "ada", "until": before[1]["time"]}
        refused = (await reader.post("/v1/drift:acknowledge", body)).status
        after = (await client.post("/v1/drift:acknowledge", body)).data
        # A time to come acknowledges nothing that is still to come.
        await client.post("/v1/drift:acknowledge", {"agent": "eve", "until": "9999"})
        return before, refused, after

    before, refused, after = talk(keep, act)
    assert [(one["agent"], one["values"]) for one in before] == [
        ("eve", ["c.example"]),
        ("ada", ["b.example"]),
        ("ada", ["a.example"]),
    ]
    assert (refused, [one["agent"] for one in after]) == (403, ["eve"])
    told(keep, "eve", "2999-11-01T10:30:00.000+00:00", "d.example")
    assert [one.values for one in DriftReader().open(keep.record.log)] == [("d.example",)]


def test_the_page_shows_them_escaped_and_takes_them_away(keep: Keep) -> None:
    told(keep, "ada", "2026-11-01T10:00:00.000+00:00", EVIL)

    async def act(visitor: Visitor) -> Any:
        # The log is read behind the first page: that takes seconds where it is long.
        assert 'hx-get="/ui/agents/drift"' in (await visitor.get("/ui/agents")).body.decode()
        assert "new host" in (await visitor.get("/ui/agents/drift")).body.decode()
        shown = (await visitor.get("/ui/agents")).body.decode()
        form = {"agent": "ada", "until": "2026-11-01T10:00:00.000+00:00"}
        part = await visitor.post("/ui/agents:seen", form)
        return shown, part.status, part.body.decode(), (await visitor.get("/ui/agents")).body.decode()

    shown, status, part, later = visit(keep, act)
    assert "&lt;img src=x onerror=alert(1)&gt;" in shown
    assert "\u202e" not in shown
    assert "new host" in shown
    assert (status, "new host" in part, "new host" in later) == (200, False, False)
    change = [one.record for one in keep.record.log.read_back() if one.record["type"] == "OperatorChange"]
    assert [(one["what"], one["name"], one["way"]) for one in change] == [("drift seen", "ada", "page")]


def test_who_may_only_read_sees_them_and_cannot_take_them_away(keep: Keep) -> None:
    for agent in ("ada", "eve"):
        told(keep, agent, "2026-11-01T10:00:00.000+00:00", "a.example")

    async def act(visitor: Visitor) -> Any:
        made = visitor.operator.tokens.make("reader", ["audit:read", "policies:read"], agent="ada")
        await visitor.sign_in(token=made.text)
        await visitor.open_tab()
        shown = (await visitor.get("/ui/agents/drift")).body.decode()
        form = {"agent": "ada", "until": "2026-11-01T10:00:00.000+00:00"}
        return (
            shown.count("new host"),
            "agents:seen" in shown,
            (await visitor.post("/ui/agents:seen", form)).status,
        )

    assert visit(keep, act, signed_in=False) == (2, False, 403)
