"""What agents hold is withdrawn and restored over `/v1` and on the page, by a confirmed act."""

import re
import time
from typing import Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep, tool
from toolkeep.limits import FRESH_SIGN_IN_SECONDS

pytestmark = pytest.mark.spec("WEB-2", "POL-1")
READ = "tool.filesystem.read"
HOLDS = ["fs.read:.", "fs.write:./out", "fs.write:./drafts"]


@tool(required_permissions=[READ], side_effects=["None"])
def count_notes() -> int:
    """Count notes."""
    return 3


@tool(side_effects=["None"])
def hello() -> str:
    """Say hello."""
    return "hello"


@pytest.fixture
def office(keep: Keep) -> Keep:
    keep.register(count_notes, hello)
    keep.declare_agent("writer", capabilities=HOLDS, permissions=[READ])
    keep.declare_agent("reader", permissions=[READ])
    return keep


def changes(keep: Keep) -> list[tuple[str, str, str, str]]:
    """Name, person, way and difference of what the log says was put in force."""
    found = reversed([one.record for one in keep.record.log.read_back()])
    return [
        (one["name"], one["person"], one["way"], one["difference"])
        for one in found
        if one["type"] == "OperatorChange" and one["what"] == "grant"
    ]


def body(**more: Any) -> dict[str, Any]:
    return {"agent": "writer", "action": "withdraw", **more}


def test_a_preview_says_which_tools_are_answered_otherwise_and_changes_nothing(office: Keep) -> None:
    async def act(client: Client) -> Any:
        shown = (await client.post("/v1/agents:change", body(capability=READ))).data
        kind = (await client.post("/v1/agents:change", body(capability="fs.write"))).data
        every = (await client.post("/v1/agents:change", body())).data
        nothing = (await client.post("/v1/agents:change", body(action="restore"))).data
        return shown, kind, every, nothing

    shown, kind, every, nothing = talk(office, act)
    lines = [(one["tool"], one["before"]["verdict"], one["after"]["verdict"]) for one in shown["lines"]]
    assert ("count_notes", "allow", "deny") in lines
    assert "hello" not in {tool for tool, _, _ in lines}
    assert shown["difference"] == [f"-{READ}"]
    assert kind["difference"] == ["-fs.write:./out", "-fs.write:./drafts"]
    assert {"hello", "count_notes"} <= {one["tool"] for one in every["lines"]}
    assert (nothing["difference"], nothing["typed_name"], nothing["lines"]) == ([], "", [])
    assert (office.withdrawn, changes(office)) == ({}, [])
    assert office.call_sync("count_notes", {}, agent="writer").ok


def test_what_is_confirmed_counts_at_once_and_is_recorded_until_it_is_restored(office: Keep) -> None:
    async def act(client: Client) -> Any:
        answers = []
        for action in ("withdraw", "restore"):
            asked = body(action=action, capability=READ)
            seen = (await client.post("/v1/agents:change", asked)).data["seen"]
            asked |= {"seen": seen, "typed_name": "writer"}
            done = (await client.post("/v1/agents:change", asked)).data
            answers.append((done["is_done"], (await office.call("count_notes", {}, agent="writer")).ok))
        return answers

    assert talk(office, act) == [(True, False), (True, True)]
    assert changes(office) == [
        ("writer", "operator", "http", f"withdraw: {READ}\n-{READ}"),
        ("writer", "operator", "http", f"restore: {READ}\n+{READ}"),
    ]


def test_who_is_no_admin_mistypes_or_saw_something_else_changes_nothing(office: Keep) -> None:
    office.withdraw("reader")

    async def act(client: Client) -> Any:
        seen = (await client.post("/v1/agents:change", body())).data["seen"]
        others = (await client.post("/v1/agents:change", body(agent="reader", action="restore"))).data["seen"]
        less = client.as_agent("writer", "call", "audit:read", "approve", "tools:write", "policies:read")
        codes = [
            (await less.post("/v1/agents:change", body())).code,
            (await less.post("/v1/agents:change", body(seen=seen, typed_name="writer"))).code,
        ]
        for wrong in (
            {"seen": seen},
            {"seen": seen, "typed_name": "reader"},
            {"seen": "0" * 32, "typed_name": "writer"},
            {"seen": others, "typed_name": "writer"},
            {"seen": seen, "typed_name": "writer", "action": "restore"},
            {"seen": seen, "typed_name": "writer", "capability": READ},
            {"seen": seen, "typed_name": "reader", "agent": "reader"},
            {"capability": "net.read"},
            {"agent": "nobody"},
        ):
            codes.append((await client.post("/v1/agents:change", body(**wrong))).code)
        office.withdraw("writer", READ)
        late = await client.post("/v1/agents:change", body(seen=seen, typed_name="writer"))
        return [*codes, late.code]

    lacks, mistyped, changed = "ACODE-TSR-061", "ACODE-TSR-092", "ACODE-TSR-067"
    assert talk(office, act) == [
        *(lacks, lacks),
        *(mistyped, mistyped),
        *(changed, changed, changed, changed, changed),
        "ACODE-TSR-062",
        "ACODE-TSR-065",
        changed,
    ]
    assert office.withdrawn == {"reader": {""}, "writer": {READ}}
    assert changes(office) == []


def seen_in(shown: str) -> str:
    return str(re.findall('name="seen" value="([0-9a-f]+)"', shown)[0])


def test_the_page_of_an_agent_withdraws_by_a_confirmed_act(office: Keep) -> None:
    async def act(visitor: Visitor) -> Any:
        page = (await visitor.get("/ui/agents/show?agent=writer")).body.decode()
        assert page.count('value="withdraw"') == 1 + len(HOLDS) + 1
        fields = body(capability=READ)
        shown = (await visitor.post("/ui/agents:change", fields)).body.decode()
        fields["seen"] = seen_in(shown)
        wrong = (await visitor.post("/ui/agents:change", {**fields, "typed_name": "reader"})).body.decode()
        assert "the typed name is not the one that is shown" in wrong
        assert office.withdrawn == {}
        done = (await visitor.post("/ui/agents:change", {**fields, "typed_name": "writer"})).body.decode()
        assert f"Withdrawn: {READ}" in done
        assert done.count('value="restore"') == 1
        stale = (await visitor.post("/ui/agents:change", {**fields, "typed_name": "writer"})).body.decode()
        assert "the agent or a tool changed since the preview" in stale

    visit(office, act)
    assert office.withdrawn == {"writer": {READ}}
    assert [(person, way) for _, person, way, _ in changes(office)] == [("operator:page", "page")]


def test_an_old_sign_in_changes_no_grant(office: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(visitor: Visitor) -> str:
        fields = body(typed_name="writer")
        fields["seen"] = seen_in((await visitor.post("/ui/agents:change", fields)).body.decode())
        now = time.time()
        monkeypatch.setattr(
            "toolkeep.server.api.admin_change.time.time", lambda: now + FRESH_SIGN_IN_SECONDS + 1
        )
        return (await visitor.post("/ui/agents:change", fields)).body.decode()

    assert "older than five minutes" in visit(office, act)
    assert (office.withdrawn, changes(office)) == ({}, [])


def test_without_admin_the_page_shows_the_own_agent_and_offers_nothing(office: Keep) -> None:
    office.use_policies(
        '@id("all") permit (principal, action, resource);'
        '@id("unseen") forbid (principal, action == Action::"see", resource == Tool::"hello");'
    )
    office.call_sync("hello", {}, agent="writer")

    async def act(visitor: Visitor) -> Any:
        made = visitor.operator.tokens.make("looks", ["policies:read"], agent="writer")
        await visitor.sign_in(token=made.text)
        await visitor.open_tab()
        own = await visitor.get("/ui/agents/show?agent=writer")
        other = await visitor.get("/ui/agents/show?agent=reader")
        tried = await visitor.post("/ui/agents:change", body(typed_name="writer"))
        return own.body.decode(), other.status, tried.status

    own, other, tried = visit(office, act, signed_in=False)
    assert "fs.write:./out" in own
    assert "Withdraw" not in own
    assert ("no such tool" in own, "unseen" in own) == (True, False)
    assert (other, tried) == (404, 403)
