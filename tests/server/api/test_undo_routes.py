"""Writes are taken back over `/v1` and on the page, by a confirmed act whose calls are guarded."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from tests.server.web.test_app import Visitor, visit
from toolkeep import Answer, Keep, Question, open_keep
from toolkeep.limits import FRESH_SIGN_IN_SECONDS
from toolkeep.server.api.call_routes import defer_to_inbox

pytestmark = pytest.mark.spec("WEB-2", "TLS-4")

HOLDS = ["tool.filesystem.read", "tool.filesystem.write"]


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    """With an agent whose writes are approved; the others wait in the inbox."""
    monkeypatch.chdir(tmp_path)

    async def approver(question: Question) -> Answer | None:
        if question.agent == "writer":
            return Answer(verdict="approve", approver="test:ada", way="program")
        return await defer_to_inbox(question)

    with open_keep(project=tmp_path, approver=approver, approval_wait_s=60) as made:
        for agent in ("writer", "operator"):
            grants = [f"fs.read:{tmp_path}", f"fs.write:{tmp_path}"]
            made.declare_agent(agent, capabilities=grants, permissions=HOLDS)
        made.declare_agent("reader", capabilities=[f"fs.read:{tmp_path}"], permissions=HOLDS)
        yield made


def write(keep: Keep, path: str, content: str, session: str = "s") -> str:
    """The id of a call that wrote."""
    arguments = {"path": path, "content": content}
    result = keep.call_sync("write_file", arguments, agent="writer", session=session)
    assert result.ok, result.text
    return result.call_id


def approvals(keep: Keep) -> list[tuple[str, str]]:
    """Who answered, and where, of the calls of `restore_file`."""
    found = [one.record for one in keep.record.log.read_back()]
    calls = {one["call"] for one in found if one.get("tool") == "restore_file"}
    of_them = (one for one in found if one["type"] == "Approval" and one["call"] in calls)
    return [(one.get("approver", ""), one["way"]) for one in of_them]


def test_the_page_takes_back_a_session_that_was_seen_by_a_confirmed_act(keep: Keep, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    first = write(keep, "a.txt", "two\n")
    write(keep, "a.txt", "three\n")
    write(keep, "new.txt", "<b>", session="other")

    async def act(visitor: Visitor) -> Any:
        page = (await visitor.get("/ui/sessions/show?agent=writer&session=s")).body.decode()
        assert "Take back its writes" in page
        fields = {"session": "s", "agent": "writer"}
        shown = (await visitor.post("/ui/calls:undo", fields)).body.decode()
        # Each step finds what the one before leaves.
        assert re.findall(r'"(?:added|removed)">([^<]*)', shown)[::2] == ["-three", "-two"]
        fields["seen"] = re.findall('name="seen" value="([0-9a-f]+)"', shown)[0]
        wrong = await visitor.post("/ui/calls:undo", {**fields, "typed_name": "t"})
        assert "the typed name is not the one that is shown" in wrong.body.decode()
        assert (tmp_path / "a.txt").read_text() == "three\n"
        done = (await visitor.post("/ui/calls:undo", {**fields, "typed_name": "s"})).body.decode()
        assert done.count("a call of restore_file") == 2
        of_call = (await visitor.get(f"/ui/calls/{first}")).body.decode()
        assert "Take back" in of_call
        again = (await visitor.post("/ui/calls:undo", {"call": first})).body.decode()
        assert "Nothing can be taken back" in again

    visit(keep, act)
    assert ((tmp_path / "a.txt").read_text(), (tmp_path / "new.txt").read_text()) == ("one\n", "<b>")
    assert approvals(keep) == [("operator:page", "page")] * 2


def test_an_old_sign_in_takes_nothing_back(
    keep: Keep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = write(keep, "a.txt", "one")

    async def act(visitor: Visitor) -> Any:
        shown = (await visitor.post("/ui/calls:undo", {"call": call})).body.decode()
        seen = re.findall('name="seen" value="([0-9a-f]+)"', shown)[0]
        now = time.time()
        monkeypatch.setattr(
            "toolkeep.server.api.admin_change.time.time", lambda: now + FRESH_SIGN_IN_SECONDS + 1
        )
        fields = {"call": call, "seen": seen, "typed_name": "a.txt"}
        late = (await visitor.post("/ui/calls:undo", fields)).body.decode()
        assert "older than five minutes" in late

    visit(keep, act)
    assert (tmp_path / "a.txt").read_text() == "one"


def test_over_v1_it_needs_the_scope_what_was_seen_and_the_typed_name(keep: Keep, tmp_path: Path) -> None:
    call = write(keep, "a.txt", "one")

    async def act(client: Client) -> Any:
        shown = (await client.post("/v1/calls:undo", {"call": call})).data
        assert shown["lines"][0]["difference"] == f"{tmp_path}/a.txt would be removed: the call made it"
        assert (shown["typed_name"], shown["is_done"]) == ("a.txt", False)
        body = {"call": call, "seen": shown["seen"], "typed_name": "a.txt"}
        less = client.as_agent("operator", "call", "audit:read", "approve", "tools:write")
        assert (await less.post("/v1/calls:undo", {"call": call})).code == "ACODE-TSR-061"
        assert (await client.post("/v1/calls:undo", {**body, "typed_name": "b"})).code == "ACODE-TSR-092"
        for unclear in ({}, {"call": call, "session": "s"}, {"call": "0" * 32}, {"session": "nobody's"}):
            assert (await client.post("/v1/calls:undo", unclear)).status == 404
        (tmp_path / "a.txt").write_text("by a person")
        assert (await client.post("/v1/calls:undo", body)).status == 412
        later = (await client.post("/v1/calls:undo", {"call": call})).data
        assert later["lines"][0]["problem"] == "the file has changed since"

    talk(keep, act)
    assert (tmp_path / "a.txt").read_text() == "by a person"


def test_an_agent_does_not_approve_for_itself_and_what_was_not_shown_is_asked(
    keep: Keep, tmp_path: Path
) -> None:
    """The token's agent makes the call: somebody else has to answer, who then knows that it waits."""
    calls = [write(keep, name, "one") for name in ("a.txt", "b.txt")]

    async def act(client: Client) -> Any:
        body: dict[str, Any] = {"session": "s", "agent": "writer"}
        shown = (await client.post("/v1/calls:undo", body)).data
        body |= {"seen": shown["seen"], "typed_name": "s"}
        begun = client.begin("POST", "/v1/calls:undo", body)
        answer = await begun.answered()
        assert answer.status == 202
        newest, older = answer.data["lines"]
        assert newest["call"] == calls[1]
        assert (older["approval"], older["undone_by"]) == ("", "")
        ada = client.as_agent("ada", "approve")
        yes = {"verdict": "approve"}
        assert (await ada.post(f"/v1/approvals/{newest['approval']}:decide", yes)).status == 200
        await begun.task
        left = (await client.post("/v1/calls:undo", {"session": "s", "agent": "writer"})).data["lines"]
        assert [bool(one["undone_by"]) for one in left] == [True, False]

    talk(keep, act)
    assert [(tmp_path / name).exists() for name in ("a.txt", "b.txt")] == [True, False]
    assert approvals(keep) == [("ada", "http")]


@pytest.mark.parametrize("way", ["policy", "grant"])
def test_a_policy_or_a_missing_grant_keeps_the_file_as_it_is(keep: Keep, tmp_path: Path, way: str) -> None:
    call = write(keep, "a.txt", "one")
    if way == "policy":
        keep.use_policies(
            '@id("all") permit (principal, action, resource);\n'
            '@id("ask") @ask("because") forbid (principal, action == Action::"call", resource == '
            'Tool::"restore_file");'
        )
    else:
        keep.declare_agent("operator", capabilities=[f"fs.read:{tmp_path}"], permissions=HOLDS)

    async def act(visitor: Visitor) -> str:
        shown = (await visitor.post("/ui/calls:undo", {"call": call})).body.decode()
        seen = re.findall('name="seen" value="([0-9a-f]+)"', shown)[0]
        fields = {"call": call, "seen": seen, "typed_name": "a.txt"}
        return (await visitor.post("/ui/calls:undo", fields)).body.decode()

    said = visit(keep, act)
    assert ("It waits for a person" if way == "policy" else "Not everything was taken back") in said
    assert (tmp_path / "a.txt").read_text() == "one"
