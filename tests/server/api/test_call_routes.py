"""Calls over HTTP: results, problems, waiting for a person, events, idempotency, going away."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.server.conftest import begun, ended, noted
from tests.server.talk import Client, until
from tests.server.test_asgi_app import talk
from toolkeep import Code, Keep, tool
from toolkeep.errors import StoreUnavailable
from toolkeep.storage.sqlite import approvals_db


@pytest.mark.spec("WEB-1")
def test_a_call_is_answered_with_its_result_and_its_place_in_the_log(keep: Keep) -> None:
    response = talk(keep, lambda client: client.call("add", {"a": 2}))
    assert response.status == 200
    data = response.data
    assert (data["status"], data["value"], data["agent"], data["tool"]) == ("ok", 3, "operator", "add")
    assert isinstance(data["leaf"], int)


@pytest.mark.parametrize(
    ("tool", "arguments", "status", "code"),
    [
        ("nothing_like_it", {}, 404, "ACODE-TSR-001"),
        ("add", {}, 422, "ACODE-TSR-003"),
        ("add", {"a": "1"}, 422, "ACODE-TSR-004"),
        ("add", {"a": 1, "c": 1}, 422, "ACODE-TSR-005"),
        ("give_up", {}, 502, "ACODE-TSR-034"),
        ("break_down", {}, 502, "ACODE-TSR-034"),
    ],
)
def test_a_refused_or_failed_call_is_a_problem_document(
    keep: Keep, tool: str, arguments: Any, status: int, code: str
) -> None:
    response = talk(keep, lambda client: client.call(tool, arguments))
    assert (response.status, response.code) == (status, code)
    assert response.data["call_id"]
    assert response.data["text"]
    assert "hunter2" not in response.body.decode()
    if status == 422:
        assert response.data["errors"][0]["path"]
        assert response.data["schema_hint"]


def test_the_caller_is_the_agent_of_the_token_whatever_it_says(keep: Keep) -> None:
    keep.use_policies('@id("bob-only") permit (principal == Agent::"bob", action, resource);')

    async def act(client: Client) -> Any:
        ada, bob = client.as_agent("ada", "call"), client.as_agent("bob", "call")
        headers = {"x-agent": "bob", "from": "bob"}
        return (await ada.call("add", {"a": 1}, headers=headers)).status, (
            await bob.call("add", {"a": 1})
        ).status

    assert talk(keep, act) == (403, 200)


def test_an_agent_that_nobody_declared_is_refused(keep: Keep) -> None:
    response = talk(keep, lambda client: client.as_agent("stranger", "call").call("add", {"a": 1}))
    assert (response.status, response.code) == (403, "ACODE-TSR-026")


def test_the_same_idempotency_key_never_runs_a_call_twice(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        headers = {"idempotency-key": "order-7"}
        first = await client.call("write_down", {"text": "x"}, headers=headers)
        second = await client.call("write_down", {"text": "x"}, headers=headers)
        other = await client.call("write_down", {"text": "y"}, headers=headers)
        ada = await client.as_agent("ada", "call").call("write_down", {"text": "x"}, headers=headers)
        return first, second, other, ada

    first, second, other, ada = talk(keep, act)
    assert [one.status for one in (first, second, other, ada)] == [200, 200, 409, 200]
    assert (second.data["is_repeated"], second.data["call_id"]) == (True, first.data["call_id"])
    assert other.code == "ACODE-TSR-039"
    assert ada.data["is_repeated"] is False
    assert noted == ["x", "x"]


# --- a person is asked ---------------------------------------------------------------------------


@pytest.mark.spec("POL-4")
def test_a_call_that_waits_for_a_person_is_answered_at_once_and_goes_on(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        asked = await ada.call("send_note", {"text": "hi"})
        place = asked.headers["location"]
        before = await ada.get(place)
        decided = await client.post(f"/v1/approvals/{asked.data['approval']}:decide", {"verdict": "approve"})
        after = await ada.get(f"{place}?wait=20")
        return asked, before, decided, after

    asked, before, decided, after = talk(keep, act)
    assert (asked.status, asked.data["status"], asked.headers["retry-after"]) == (202, "pending", "1")
    assert before.status == 202
    assert datetime.fromisoformat(asked.data["expires_at"]) > datetime.now(UTC)
    assert before.data["expires_at"] == asked.data["expires_at"] == decided.data["expires_at"]
    assert (decided.status, decided.data["state"]) == (200, "approved")
    assert (after.status, after.data["value"]) == (200, "sent hi")
    assert after.data["approval"]["way"] == "http"
    assert after.data["approval"]["approver"] == "operator"
    assert noted == ["hi"]


def test_a_no_goes_back_to_the_model_with_its_reason(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        asked = await ada.call("send_note", {"text": "hi"})
        said = {"verdict": "deny", "reason": "Not today."}
        await client.post(f"/v1/approvals/{asked.data['approval']}:decide", said)
        return await ada.get(asked.headers["location"] + "?wait=20")

    after = talk(keep, act)
    assert (after.status, after.code) == (403, "ACODE-TSR-046")
    assert "Not today" in after.data["text"]
    assert noted == []


def test_the_end_of_a_call_is_never_said_as_try_again(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that polls would poll for ever."""

    def use(*_: object) -> bool:
        raise StoreUnavailable("the database", "is away", hint="wait")

    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        asked = await ada.call("send_note", {"text": "hi"})
        monkeypatch.setattr(approvals_db.SqliteApprovals, "use", use)
        await client.post(f"/v1/approvals/{asked.data['approval']}:decide", {"verdict": "approve"})
        return await ada.get(asked.headers["location"] + "?wait=20")

    after = talk(keep, act)
    assert (after.status, after.data["status"], after.code) == (500, 500, Code.STORE_UNAVAILABLE.value)
    assert "retry-after" not in after.headers
    assert noted == []


def test_nobody_else_sees_or_cancels_a_call_that_waits(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada, bob = client.as_agent("ada", "call"), client.as_agent("bob", "admin")
        place = (await ada.call("send_note", {"text": "hi"})).headers["location"]
        seen = [(await bob.get(place)).status, (await bob.post(f"{place}:cancel")).status]
        cancelled = await ada.post(f"{place}:cancel")
        await until(lambda: not client.app.service.calls.in_flight)
        gone = await ada.get(place)
        left = (await client.get("/v1/approvals")).data["items"]
        return seen, cancelled.status, gone.status, left

    assert talk(keep, act) == ([404, 404], 202, 404, [])
    assert noted == []


def test_when_the_server_ends_calls_that_wait_are_given_up(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        await client.as_agent("ada", "call").call("send_note", {"text": "hi"})
        service = client.app.service
        service.health.stop()
        service.calls.withdraw()
        await until(lambda: not service.calls.in_flight)
        stopped = await client.call("add", {"a": 1})
        return client.app.service.calls.in_flight, stopped

    in_flight, stopped = talk(keep, act)
    assert in_flight == 0
    assert (stopped.status, stopped.code) == (503, "ACODE-TSR-068")
    assert noted == []


# --- events --------------------------------------------------------------------------------------

EVENTS = {"accept": "text/event-stream"}


def test_progress_comes_as_events_and_the_result_last(keep: Keep) -> None:
    response = talk(keep, lambda client: client.call("count_up", {"to": 2}, headers=EVENTS))
    assert (response.status, response.headers["content-type"]) == (200, "text/event-stream")
    names = [name for name, _ in response.events]
    assert names == ["progress", "progress", "result"]
    assert response.events[1][1] == {"progress": 1.0, "total": 2.0, "message": "at 1"}
    assert response.events[2][1]["value"] == 2


@pytest.mark.spec("EXE-8")
def test_what_a_tool_yields_comes_as_events(keep: Keep) -> None:
    @tool(side_effects=["None"])
    def lines(to: int) -> Iterator[str]:
        """Some lines."""
        for number in range(to):
            yield f"{number}\n"

    keep.register(lines)
    response = talk(keep, lambda client: client.call("lines", {"to": 2}, headers=EVENTS))
    *pieces, (last, result) = response.events
    assert pieces == [("output", {"piece": "0\n"}), ("output", {"piece": "1\n"})]
    assert (last, result["value"]) == ("result", "0\n1\n")
    whole = talk(keep, lambda client: client.call("lines", {"to": 2}))
    assert whole.data["value"] == "0\n1\n"


def test_a_call_that_is_refused_before_anything_happened_is_no_stream(keep: Keep) -> None:
    response = talk(keep, lambda client: client.call("count_up", {}, headers=EVENTS))
    assert (response.status, response.code) == (422, "ACODE-TSR-003")


def test_a_stream_tells_that_a_person_is_asked_and_goes_on(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        asked = ada.begin("POST", "/v1/tools/send_note:call", {"arguments": {"text": "hi"}}, headers=EVENTS)
        await until(lambda: asked.response.body)
        waiting = asked.response.events[0][1]
        await client.post(f"/v1/approvals/{waiting['approval']}:decide", {"verdict": "approve"})
        return await asked.answered()

    assert [name for name, _ in talk(keep, act).events] == ["pending", "result"]


def test_a_client_that_goes_away_cancels_its_call(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        for headers in ({}, EVENTS):
            waiting = client.begin(
                "POST", "/v1/tools/wait_for_ever:call", {"arguments": {"label": "x"}}, headers=headers
            )
            await until(lambda: len(begun) > len(ended))
            waiting.leave()
            await waiting.task
        return client.app.service.calls.in_flight

    assert talk(keep, act) == 0
    assert (begun, ended) == (["x", "x"], ["x", "x"])


def test_a_client_that_goes_away_from_a_call_that_waits_leaves_it_waiting(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada = client.as_agent("ada", "call")
        asked = ada.begin("POST", "/v1/tools/send_note:call", {"arguments": {"text": "hi"}}, headers=EVENTS)
        await until(lambda: asked.response.body)
        waiting = asked.response.events[0][1]
        asked.leave()
        await asyncio.sleep(0)
        await client.post(f"/v1/approvals/{waiting['approval']}:decide", {"verdict": "approve"})
        return await ada.get(f"/v1/calls/{waiting['call_id']}?wait=20")

    assert talk(keep, act).data["value"] == "sent hi"


def test_events_of_a_call_that_is_given_up_come_to_an_end(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        asked = client.begin(
            "POST", "/v1/tools/send_note:call", {"arguments": {"text": "hi"}}, headers=EVENTS
        )
        await until(lambda: asked.response.body)
        await client.post(f"/v1/calls/{asked.response.events[0][1]['call_id']}:cancel")
        await asked.task
        return asked.response

    response = talk(keep, act)
    assert response.is_over
    *_, (last, said) = response.events
    assert (last, said["code"], said["status"]) == ("problem", "ACODE-TSR-033", 503)
    assert noted == []


def test_events_of_a_call_that_is_cut_short_by_the_end_of_the_server_come_to_an_end(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        waiting = client.begin(
            "POST", "/v1/tools/wait_for_ever:call", {"arguments": {"label": "x"}}, headers=EVENTS
        )
        await until(lambda: waiting.response.body)
        client.app.service.health.stop()
        waiting.task.cancel()  # as uvicorn does when the grace is over
        await waiting.task
        return waiting.response

    response = talk(keep, act)
    assert response.is_over
    *_, (last, said) = response.events
    assert (last, said["code"], said["status"]) == ("problem", "ACODE-TSR-040", 503)


# --- calls that the client executes ---------------------------------------------------------------


@pytest.mark.spec("EXE-6")
def test_a_call_that_its_client_executes_is_pending_until_its_agent_submits_the_result(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada, bob = client.as_agent("ada", "call"), client.as_agent("bob", "call")
        pending = await ada.call("pick_file", {"title": "A file"})
        path = f"/v1/calls/{pending.data['call_id']}:submit"
        others = await bob.post(path, {"value": "stolen.txt"})
        done = await ada.post(path, {"value": "a.txt"})
        again = await ada.post(path, {"value": "b.txt"})
        return pending, others, done, again

    pending, others, done, again = talk(keep, act)
    assert (pending.status, pending.data["status"]) == (202, "pending")
    assert (others.status, others.code) == (404, "ACODE-TSR-042")
    assert (done.status, done.data["value"]) == (200, "a.txt")
    assert again.status == 404


@pytest.mark.spec("WEB-1")
@pytest.mark.parametrize("field", ["argumens", "x\x1b[2J"])
def test_an_undocumented_field_is_named(keep: Keep, field: str) -> None:
    response = talk(keep, lambda client: client.post("/v1/tools/add:call", {"arguments": {}, field: 1}))
    assert (response.status, response.code) == (400, "ACODE-TSR-062")
    shown = field.replace("\x1b", "\\u001b")
    assert f"the field '{shown}' is not documented" in response.data["detail"]
    assert response.data["hint"] == 'put the arguments of the tool below "arguments"'
