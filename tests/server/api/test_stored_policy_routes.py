"""Policies of the state: tried, put in force with a confirmation, followed by other processes, dropped."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep, open_keep
from toolkeep.policy.policy_set import PoliciesRefused

HELLO = "agent_hello_world"
ALL = '@id("all") permit (principal, action == Action::"call", resource);'
NO_HELLO = f"""{ALL}
@id("no-hello") @reason("be quiet")
forbid (principal, action == Action::"call", resource == Tool::"{HELLO}");
"""
DENIED = f"- {{agent: local, tool: {HELLO}, arguments: {{name: Ada}}, deny: no-hello}}"


@pytest.fixture
def keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    with open_keep(project=tmp_path / "project") as made:
        yield made


def test_problems_have_the_line_and_column_of_what_is_wrong(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        found = []
        for text in (
            f'{ALL}\n\n@id("b")\npermit (principal, action, resource)\nwhen {{ (1 < 2) && }};',
            f'{ALL}\n@id("b") forbid (principal,\n  action, resource == Tool::"agent_hello");',
            '@id("a") permit (principal, acton, resource);',
        ):
            report = (await client.post("/v1/stored-policies:try", {"name": "n", "text": text})).data
            found.append([(one["line"], one["column"]) for one in report["problems"]])
        return found

    assert talk(keep, act) == [[(5, 19)], [(3, 29)], [(1, 29)]]


@pytest.mark.spec("POL-5")
def test_policies_are_tried_with_their_examples_and_recorded_calls_before_they_are_in_force(
    keep: Keep,
) -> None:
    body = {"name": "quiet", "text": NO_HELLO, "examples": DENIED}

    async def act(client: Client) -> Any:
        before = await keep.call(HELLO, {"name": "Ada"})
        tried = (await client.post("/v1/stored-policies:try", {**body, "replay": True})).data
        wrong = {**body, "examples": DENIED.replace("deny: no-hello", "allow: true")}
        failing = (await client.post("/v1/stored-policies:try", wrong)).data
        refused = await client.post("/v1/stored-policies:put", {**wrong, "typed_name": "quiet"})
        blind = client.as_agent("ada", "policies:read")
        hidden = (await blind.post("/v1/stored-policies:try", {**body, "replay": True})).status
        return before, tried, failing, refused, hidden, await keep.call(HELLO, {"name": "Ada"})

    before, tried, failing, refused, hidden, after = talk(keep, act)
    assert (tried["success"], tried["examples"][0]["problem"], tried["lacks_permit"]) == (True, "", False)
    assert (tried["replay"]["judged"], tried["replay"]["changed"]) == (1, 1)
    assert tried["replay"]["differences"][0]["would_be"]["policies"] == ["no-hello"]
    assert not failing["success"]
    assert (refused.status, hidden) == (422, 403)
    assert (before.ok, after.ok) == (True, True), "nothing is in force yet"
    assert not keep.stored_policies


@pytest.mark.spec("WEB-2")
def test_what_is_put_in_force_is_confirmed_recorded_and_followed_until_it_is_dropped(
    keep: Keep, tmp_path: Path
) -> None:
    body = {"name": "quiet", "text": NO_HELLO, "examples": DENIED}

    async def act(client: Client) -> Any:
        put, drop = "/v1/stored-policies:put", "/v1/stored-policies:drop"
        editor = client.as_agent("ada", "editor")
        refused = [
            (await client.post(put, {**body, "typed_name": "quite"})).status,
            (await editor.post(put, {**body, "typed_name": "quiet"})).status,
        ]
        done = await client.post(put, {**body, "typed_name": "quiet"})
        denied = await keep.call(HELLO, {"name": "Ada"})
        views = (await client.get("/v1/policies")).data
        with open_keep(project=tmp_path / "project") as other:
            elsewhere = await other.call(HELLO, {"name": "Ada"})
            dropped = await client.post(drop, {"name": "quiet", "typed_name": "quiet"})
            other._follow_state()
            again = [await one.call(HELLO, {"name": "Ada"}) for one in (keep, other)]
        gone = (await client.post(drop, {"name": "quiet", "typed_name": "quiet"})).status
        return refused, done, denied, views, elsewhere, dropped, again, gone

    refused, done, denied, views, elsewhere, dropped, again, gone = talk(keep, act)
    assert (refused, done.status, dropped.status, gone) == ([403, 403], 200, 200, 404)
    assert [result.ok for result in (denied, elsewhere, *again)] == [False, False, True, True]
    (view,) = (one for one in views if one["id"] == "no-hello")
    assert (view["is_stored"], view["source"], view["hits"]) == (True, "quiet", 1)
    assert 'Tool::"agent_hello_world"' in view["text"]
    said = [one.record for one in keep.record.log.read_back() if one.record["type"] == "OperatorChange"]
    assert [(one["what"], one["name"], one["person"]) for one in said] == [
        ("policies", "quiet", "operator")
    ] * 2
    assert '+@id("no-hello") @reason("be quiet")' in said[1]["difference"]
    assert '-@id("no-hello") @reason("be quiet")' in said[0]["difference"]


def test_policies_of_the_state_that_cannot_be_used_here_deny_everything(keep: Keep, tmp_path: Path) -> None:
    with open_keep(project=tmp_path / "project") as other:
        other.call_sync(HELLO, {"name": "Ada"})
        keep.declare_agent("ada")
        keep.put_policies("ada", f'{ALL} @id("b") forbid (principal == Agent::"ada", action, resource);')
        other._follow_state()
        result = other.call_sync(HELLO, {"name": "Ada"})
        assert result.error is not None
        assert 'names Agent::"ada", which does not exist' in result.error.errors[0].message
        with pytest.raises(PoliciesRefused):
            keep.put_policies("more", ALL)  # the id of another policy
        keep.drop_policies("ada")
        other._follow_state()
        assert other.call_sync(HELLO, {"name": "Ada"}).ok


def test_the_programs_own_policies_do_not_replace_those_of_the_state(keep: Keep) -> None:
    keep.put_policies("quiet", NO_HELLO.replace('"all"', '"everything"'))
    keep.use_policies(ALL)
    assert not keep.call_sync(HELLO, {"name": "Ada"}).ok
