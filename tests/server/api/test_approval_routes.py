"""Approvals over HTTP: the exact call is shown, and only answers that may be given count."""

from typing import Annotated, Any

import pytest

from tests.server.talk import Client, until
from tests.server.test_asgi_app import talk
from toolkeep import Keep, Secret, tool


async def asked(client: Client, tool_name: str = "send_note", **options: Any) -> Any:
    ada = client.as_agent("ada", "call")
    arguments = {"code": "x"} if tool_name == "launch" else {"text": "hi"}
    return (await ada.call(tool_name, arguments, options=options)).data["approval"]


@pytest.mark.spec("POL-4")
def test_the_question_shows_the_exact_call(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        question = await asked(client, session="s1")
        return (await client.get(f"/v1/approvals/{question}")).data

    data = talk(keep, act)
    assert (data["state"], data["agent"], data["tool"], data["session"]) == (
        "waiting",
        "ada",
        "send_note",
        "s1",
    )
    assert data["arguments"] == {"text": "hi"}
    assert data["outline"] == '{\n  "text": "hi"\n}'
    assert data["why"] == ["its danger is medium"]
    assert data["choices"] == [{"name": "text", "role": "", "fixed": "", "bounds": [], "shown": '"hi"'}]
    assert data["covers"] == 'ada calls send_note 1.0.0 with\n  text equal to "hi"'
    assert (data["is_own"], data["may_be_remembered"], data["wants_name"]) == (False, True, False)


def test_a_secret_is_shown_by_its_length_alone(keep: Keep) -> None:
    @tool(danger="medium")
    async def unlock(door: str, pin: Annotated[str, Secret()]) -> str:
        """Unlock a door.

        Args:
            door: Which.
            pin: The pin.
        """
        return door

    keep.register(unlock)

    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        response = await ada.call("unlock", {"door": "a", "pin": "hunter2"})
        return await client.get(f"/v1/approvals/{response.data['approval']}")

    shown = talk(keep, act)
    assert shown.data["arguments"]["pin"] == "(secret, 7 characters)"
    assert "hunter2" not in shown.body.decode()


@pytest.mark.parametrize(
    ("tool_name", "said", "reason"),
    [
        ("launch", {"verdict": "approve", "reach": "session"}, "needs approval every time"),
        ("send_note", {"verdict": "approve", "reach": "session"}, "belongs to no session"),
        (
            "send_note",
            {"verdict": "approve", "reach": "rule", "arguments": {"text": "max:1"}},
            "does not cover 'text' of this call",
        ),
    ],
)
def test_an_answer_that_may_not_be_given_is_refused(
    keep: Keep, tool_name: str, said: Any, reason: str
) -> None:
    async def act(client: Client) -> Any:
        return await client.post(f"/v1/approvals/{await asked(client, tool_name)}:decide", said)

    response = talk(keep, act)
    assert (response.status, response.code) == (409, "ACODE-TSR-047")
    assert reason in response.data["detail"]


@pytest.mark.spec("POL-4")
def test_no_agent_answers_for_itself_whatever_its_scopes(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        question = await asked(client)
        ada = client.as_agent("ada", "admin")
        refused = await ada.post(f"/v1/approvals/{question}:decide", {"verdict": "approve"})
        return refused, (await ada.get(f"/v1/approvals/{question}")).data

    refused, question = talk(keep, act)
    assert (refused.status, refused.code) == (409, "ACODE-TSR-047")
    assert (question["state"], question["is_own"]) == ("waiting", True)


def test_a_critical_call_wants_two_acts_the_second_by_name(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        path = f"/v1/approvals/{await asked(client, 'launch')}:decide"
        first = await client.post(path, {"verdict": "approve"})
        unnamed = await client.post(path, {"verdict": "approve"})
        second = await client.post(path, {"verdict": "approve", "typed_name": "launch"})
        late = await client.post(path, {"verdict": "deny"})
        return first.data, unnamed.status, second.data, late.status

    first, unnamed, second, late = talk(keep, act)
    assert (first["state"], first["acts_done"], first["wants_name"]) == ("waiting", 1, True)
    assert unnamed == 409
    assert second["state"] == "approved"
    assert late == 409


def test_a_rule_is_listed_and_revoked(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        first = await ada.call("send_note", {"text": "hi"})
        said = {"verdict": "approve", "reach": "rule", "days": 3}
        await client.post(f"/v1/approvals/{first.data['approval']}:decide", said)
        await ada.get(first.headers["location"] + "?wait=20")
        second = await ada.call("send_note", {"text": "hi"})
        rules = (await client.get("/v1/rules")).data
        revoked = await client.send("DELETE", f"/v1/rules/{rules[0]['id']}")
        again = await client.send("DELETE", f"/v1/rules/{rules[0]['id']}")
        third = await ada.call("send_note", {"text": "hi"})
        return second.status, [rule["tool"] for rule in rules], revoked.status, again.status, third.status

    assert talk(keep, act) == (200, ["send_note"], 204, 404, 202)


def test_questions_come_in_pages_oldest_first(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ids = [await asked(client) for _ in range(3)]
        first = (await client.get("/v1/approvals?limit=2")).data
        second = (await client.get(f"/v1/approvals?limit=2&cursor={first['next']}")).data
        return ids, [one["id"] for one in first["items"] + second["items"]], second["next"]

    ids, listed, following = talk(keep, act)
    assert listed == ids
    assert following is None


@pytest.mark.spec("POL-4")
def test_what_would_pass_unasked_is_shown_before_the_yes(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        where = f"/v1/approvals/{await asked(client)}"
        bad = await client.post(f"{where}:preview", {"arguments": {"other": "any"}})
        shown = await client.post(f"{where}:preview", {"arguments": {"text": "any"}})
        said = {"verdict": "approve", "reach": "rule", "arguments": {"text": "any"}}
        decided = await client.post(f"{where}:decide", said)
        return bad, shown.data, decided.data, (await client.get(where)).data["state"]

    bad, shown, decided, _ = talk(keep, act)
    assert (bad.status, bad.code) == (409, "ACODE-TSR-047")
    assert shown == {"covers": "ada calls send_note 1.0.0 with\n  text anything"}
    assert (decided["state"], decided["decided_by"]) == ("approved", "operator")


@pytest.mark.spec("POL-4")
def test_a_denied_question_says_by_whom_and_why_afterwards(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        where = f"/v1/approvals/{await asked(client)}"
        await client.post(f"{where}:decide", {"verdict": "deny", "reason": "not today"})
        return (await client.get(where)).data

    data = talk(keep, act)
    assert (data["state"], data["decided_by"], data["reason"]) == ("denied", "operator", "not today")


@pytest.mark.spec("FLO-7")
def test_the_calls_of_one_response_are_answered_at_once_each_by_its_id(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        same = [await asked(client, response="r1") for _ in range(3)]
        critical, other = await asked(client, "launch", response="r1"), await asked(client, response="r2")
        listed = (await client.get("/v1/approvals")).data["items"]
        by_id = {one["id"]: one["response"] for one in listed}
        own = client.as_agent("ada", "call", "approve")
        body = {"approve": [same[0], critical, same[2], "none"], "deny": [same[1], same[2]], "reason": "no"}
        refused = await own.post("/v1/approvals:decide", body)
        unscoped = await client.as_agent("eve", "call").post("/v1/approvals:decide", body)
        done = await client.post("/v1/approvals:decide", body)
        again = await client.post("/v1/approvals:decide", {"approve": [same[1]]})
        return same, critical, other, by_id, refused, unscoped, done, again

    same, critical, other, by_id, refused, unscoped, done, again = talk(keep, act)
    assert len({by_id[one] for one in (*same, critical)}) == 1
    assert by_id[other] not in ("", by_id[critical])
    assert [one["state"] for one in refused.data] == ["waiting"] * 2 + ["waiting", "", "waiting"]
    assert (unscoped.status, done.status) == (403, 200)
    assert {one["id"]: (one["state"], bool(one["problem"])) for one in done.data} == {
        same[0]: ("approved", False),
        critical: ("waiting", False),
        same[1]: ("denied", False),
        same[2]: ("denied", False),
        "none": ("", True),
    }
    assert [(one["state"], one["problem"]) for one in again.data] == [("denied", "it is denied already")]


@pytest.mark.spec("POL-4")
def test_what_is_dangerous_is_not_approved_among_others_and_the_history_says_how_calls_went(
    keep: Keep,
) -> None:
    async def act(client: Client) -> Any:
        note, critical = await asked(client), await asked(client, "launch")
        both = {"approve": [note, critical]}
        done = {one["id"]: one for one in (await client.post("/v1/approvals:decide", both)).data}
        assert (done[note]["state"], done[note]["problem"]) == ("approved", "")
        assert done[critical]["state"] == "waiting"
        assert "approved alone" in done[critical]["problem"]
        assert (await client.get(f"/v1/approvals/{critical}")).data["acts_done"] == 0
        denied = {"deny": [critical, await asked(client)], "reason": "no"}
        await client.post("/v1/approvals:decide", denied)
        path = f"/v1/approvals/{await asked(client)}/context"
        await until(lambda: sum("status" in one.record for one in keep.record.log.read_back()) == 3)
        less = await client.as_agent("ada", "call").get(path)
        return (await client.get(path)).data, (await client.get("/v1/answers?limit=3")).data, less.status

    context, answers, status = talk(keep, act)
    assert status == 403
    assert context["description"] == "Send a note."
    assert {name: context["past"][name] for name in ("ok", "failed", "refused", "denied")} == {
        "ok": 1,
        "failed": 0,
        "refused": 1,
        "denied": 1,
    }
    assert {(one["tool"], one["verdict"], one["approver"], one["reason"]) for one in answers} == {
        ("send_note", "approved", "operator", ""),
        ("launch", "denied", "operator", "no"),
        ("send_note", "denied", "operator", "no"),
    }


@pytest.mark.spec("POL-4")
def test_the_context_has_the_calls_that_ended_before_the_question(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        calls = []
        for _ in range(2):
            calls.append((await ada.call("add", {"a": 1}, options={"session": "s1"})).data["call_id"])
            question = await asked(client, session="s1")
        await ada.call("add", {"a": 1}, options={"session": "s1"})
        return calls, (await client.get(f"/v1/approvals/{question}/context")).data["session"]

    calls, session = talk(keep, act)
    assert [one["call_id"] for one in session] == calls
