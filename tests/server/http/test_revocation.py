"""Requests that stay open: they end with their token, and those that only listen with the server."""

import asyncio
import json
import threading
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.mcp_server.talk import TASKS, modern_request
from tests.server.api.test_call_routes import EVENTS
from tests.server.conftest import begun, ended, noted
from tests.server.talk import Client, Pending, Response, served, until
from tests.server.web.test_app import FORM, ORIGIN, Visitor, visiting
from toolkeep import Keep, tool
from toolkeep.errors import StoreUnavailable
from toolkeep.server.http import revocation
from toolkeep.server.http.revocation import RevocationWatch, Revoked

CALL = {"name": "wait_for_ever", "arguments": {"label": "mcp"}}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(revocation, "_LOOK_S", 0.01)


def begin(client: Client, method: str, params: dict[str, Any]) -> Pending:
    body, headers = modern_request(method, params)
    return client.begin("POST", "/mcp", body, headers)


async def revoked(client: Client) -> None:
    """Here, so that nobody remembers it."""
    (token,) = [one for one in client.tokens.list() if one.agent == "other"]
    client.tokens.revoke(token.id)
    client.app.service.authenticator.forget()


@pytest.mark.spec("WEB-1")
@pytest.mark.parametrize(
    ("method", "params", "is_begun"),
    [
        ("tools/call", CALL, lambda pending: begun),
        ("subscriptions/listen", {}, lambda pending: pending.response.body),
    ],
)
def test_a_revoked_token_ends_what_it_began_and_no_other_request(
    keep: Keep, method: str, params: dict[str, Any], is_begun: Any
) -> None:
    keep.declare_agent("other")

    async def act() -> Any:
        async with served(keep) as client:
            gone = begin(client.as_agent("other"), method, params)
            stays = begin(client, "subscriptions/listen", {})
            await until(lambda: is_begun(gone) and stays.response.body)
            await revoked(client)
            answer = await gone.answered()
            found = answer.is_over, b"cancelled" in answer.body, stays.task.done()
            stays.leave()
            await until(stays.task.done)
            return found

    assert asyncio.run(act()) == (True, True, False)
    assert begun == ended


def test_a_task_that_waits_for_a_person_ends_with_its_token(keep: Keep) -> None:
    keep.declare_agent("other")

    async def act() -> Any:
        async with served(keep) as client:
            other, another = client.as_agent("other"), client.as_agent("other")
            note = {"name": "send_note", "arguments": {"text": "x"}}
            body, headers = modern_request("tools/call", note, TASKS)
            created = (await other.post("/mcp", body, headers=headers)).data["result"]
            assert len((await client.get("/v1/approvals")).data["items"]) == 1
            client.tokens.revoke(other.token[3:].partition("_")[0])
            client.app.service.authenticator.forget()
            body, headers = modern_request("tasks/get", {"taskId": created["taskId"]}, TASKS)
            seen = "working"
            async with asyncio.timeout(20):
                while seen == "working":
                    seen = (await another.post("/mcp", body, headers=headers)).data["result"]["status"]
            return seen, (await client.get("/v1/approvals")).data["items"]

    assert asyncio.run(act()) == ("cancelled", [])


def test_the_stream_of_a_session_ends_with_its_token(keep: Keep) -> None:
    keep.declare_agent("other")

    async def act() -> Any:
        async with served(keep) as client:
            other = client.as_agent("other")
            answer = await other.post("/mcp", HELLO)
            session = {"mcp-session-id": answer.headers["mcp-session-id"]}
            stream = other.begin("GET", "/mcp", headers=session)
            await until(lambda: stream.response.body)
            await revoked(client)
            await stream.task  # with one response, and not a second one that says so
            return stream.response.is_over

    assert asyncio.run(act())


def test_who_only_listens_is_let_go_when_the_server_is_told_to_end_and_calls_are_not(keep: Keep) -> None:
    async def act() -> Any:
        async with served(keep) as client:
            session = (await client.post("/mcp", HELLO)).headers["mcp-session-id"]
            stream = client.begin("GET", "/mcp", headers={"mcp-session-id": session})
            listener, call = begin(client, "subscriptions/listen", {}), begin(client, "tools/call", CALL)
            await until(lambda: begun and stream.response.body and listener.response.body)
            client.app.begin_shutdown()
            await until(lambda: stream.task.done() and listener.task.done())
            streams = stream.response, listener.response
            found = [one.is_over and b"retry: 1000" in one.body for one in streams], call.task.done()
            call.leave()
            await until(call.task.done)
            return found

    assert asyncio.run(act()) == ([True, True], False)


# --- over /v1 ------------------------------------------------------------------------------------


async def ended_call(keep: Keep, tool: str, arguments: dict[str, Any], **more: Any) -> Response:
    """The answer to a call whose token is revoked while it is under way."""
    keep.declare_agent("other", capabilities=["db.write:notes"])
    async with served(keep) as client:
        call = client.as_agent("other").begin(
            "POST", f"/v1/tools/{tool}:call", {"arguments": arguments}, **more
        )
        await until(lambda: begun or call.response.body)
        await revoked(client)
        await until(lambda: not client.app.service.calls.in_flight)
        await call.task
        assert (await client.get("/v1/approvals")).data["items"] == []
        return call.response


@pytest.mark.spec("WEB-1")
def test_a_call_is_given_up_when_its_token_is_revoked(keep: Keep) -> None:
    answer = asyncio.run(ended_call(keep, "wait_for_ever", {"label": "x"}))
    assert (answer.status, answer.code) == (401, "ACODE-TSR-060")
    assert "resource_metadata" in answer.headers["www-authenticate"]
    assert begun == ended == ["x"]


def test_the_events_of_a_call_end_when_its_token_is_revoked(keep: Keep) -> None:
    answer = asyncio.run(ended_call(keep, "wait_for_ever", {"label": "x"}, headers=EVENTS))
    *_, (last, said) = answer.events
    assert answer.is_over
    assert (last, said["code"]) == ("problem", "ACODE-TSR-033")
    assert begun == ended == ["x"]


def test_a_call_that_waits_for_a_person_is_withdrawn_when_its_token_is_revoked(keep: Keep) -> None:
    answer = asyncio.run(ended_call(keep, "send_note", {"text": "x"}))
    assert (answer.status, answer.data["status"]) == (202, "pending")
    answer = asyncio.run(ended_call(keep, "send_note", {"text": "x"}, headers=EVENTS))
    assert answer.is_over
    assert [name for name, _ in answer.events] == ["pending", "problem"]
    assert noted == []


def test_who_waits_for_the_end_of_a_call_is_sent_away_and_the_call_goes_on(keep: Keep) -> None:
    async def act() -> Any:
        async with served(keep) as client:
            place = (await client.call("send_note", {"text": "x"})).headers["location"]
            token = client.tokens.make("another", ["call"], agent="operator")
            waiting = Client(client.app, client.tokens, token.text).begin("GET", f"{place}?wait=20")
            await until(lambda: client.app._rate_limits.in_flight == 2)
            client.tokens.revoke(token.token.id)
            client.app.service.authenticator.forget()
            return await waiting.answered(), await client.get(place)

    sent_away, still_waits = asyncio.run(act())
    assert (sent_away.status, sent_away.code) == (401, "ACODE-TSR-060")
    assert still_waits.status == 202


def test_a_call_that_has_begun_to_change_something_is_recorded_and_not_made_again(keep: Keep) -> None:
    @tool(danger="safe", side_effects=["DbWrite"], capabilities=["db.write:notes"])
    async def write_slowly(text: str) -> str:
        """Write a text down, and then do not come to an end."""
        begun.append(text)
        await asyncio.Event().wait()
        return text

    keep.register(write_slowly)
    keyed = {"idempotency-key": "once"}
    answer = asyncio.run(ended_call(keep, "write_slowly", {"text": "x"}, headers=keyed))
    assert answer.status == 401

    async def again() -> Response:
        async with served(keep) as client:
            return await client.as_agent("other").call("write_slowly", {"text": "x"}, headers=keyed)

    repeated = asyncio.run(again())
    assert (repeated.code, repeated.data["is_repeated_result"]) == ("ACODE-TSR-033", True)
    assert begun == ["x"]
    records = [one.record for one in keep.record.log.read_back() if one.record.get("tool") == "write_slowly"]
    *_, outcome, intent = records
    assert (intent["type"], outcome["type"]) == ("ToolInvoked", "ToolCompleted")
    assert outcome["codes"] == ["ACODE-TSR-033"]


def test_what_is_short_is_done_to_its_end(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    keep.declare_agent("other")

    async def act() -> Response:
        async with served(keep) as client:
            other = client.as_agent("other")
            (held,) = [one for one in client.tokens.list() if one.agent == "other"]
            call = other.begin("POST", "/v1/tools/wait_for_ever:call", {"arguments": {"label": "x"}})
            await until(lambda: begun)
            rotate, is_ended = client.tokens.rotate, threading.Event()

            def rotate_slowly(token_id: str, **options: Any) -> Any:
                made = rotate(token_id, **options)
                client.app.service.authenticator.forget()
                assert is_ended.wait(20)
                return made

            monkeypatch.setattr(client.tokens, "rotate", rotate_slowly)
            rotating = other.begin("POST", f"/v1/tokens/{held.id}:rotate", {})
            assert (await call.answered()).status == 401
            is_ended.set()
            return await rotating.answered()

    assert asyncio.run(act()).status == 201


# --- on the page ---------------------------------------------------------------------------------


async def stream_of(visitor: Visitor) -> Pending:
    stream = visitor.client.begin("GET", "/ui/events", headers=visitor.headers)
    await until(lambda: stream.response.body)
    return stream


def test_the_stream_of_a_tab_ends_when_its_session_is_signed_out_and_no_other(keep: Keep) -> None:
    async def act() -> Any:
        async with visiting(keep) as gone:
            stays = Visitor(gone.operator, gone.codes)
            for visitor in (gone, stays):
                await visitor.sign_in()
                await visitor.open_tab()
            ends, goes_on = await stream_of(gone), await stream_of(stays)
            await gone.post("/ui/sign-out")
            await ends.task
            found = ends.response.is_over, goes_on.task.done()
            goes_on.leave()
            await goes_on.task
            return found

    assert asyncio.run(act()) == (True, False)


def test_the_stream_of_a_tab_ends_when_its_token_is_revoked(keep: Keep) -> None:
    async def act() -> Any:
        async with visiting(keep) as visitor:
            made = visitor.operator.tokens.make("a token", ["admin"], agent="other")
            await visitor.sign_in(token=made.text)
            stream = await stream_of(visitor)
            await revoked(visitor.operator)
            await stream.task
            return stream.response.is_over

    assert asyncio.run(act())


async def tried(keep: Keep, tool: str, field: str) -> Response:
    """The answer to a call on the page, whose session is signed out while it is under way."""
    async with visiting(keep) as visitor:
        await visitor.sign_in()
        await visitor.open_tab()
        sent = {"content-type": FORM, "origin": ORIGIN, **visitor.headers}
        form = urlencode({"mode": "json", "act": "call", "text": json.dumps({field: "x"})})
        call = visitor.client.begin("POST", f"/ui/tools/{tool}:try", headers=sent, raw=form.encode())
        await until(lambda: begun or call.response.body)
        await visitor.post("/ui/sign-out")
        await call.task
        assert visitor.client.app.service.calls.in_flight == 0
        assert (await visitor.operator.get("/v1/approvals")).data["items"] == []
        return call.response


def test_a_call_on_the_page_is_given_up_when_its_session_is_signed_out(keep: Keep) -> None:
    answer = asyncio.run(tried(keep, "wait_for_ever", "label"))
    assert (answer.status, answer.headers["hx-redirect"]) == (401, "/ui/sign-in")
    assert begun == ended == ["x"]


def test_a_call_on_the_page_that_waits_is_withdrawn_when_its_session_is_signed_out(keep: Keep) -> None:
    answer = asyncio.run(tried(keep, "send_note", "text"))
    assert answer.status == 200
    assert noted == []


# --- how it is found out -------------------------------------------------------------------------


def test_a_store_that_does_not_answer_ends_nothing() -> None:
    asked: list[str] = []

    async def find(text: str) -> None:
        asked.append(text)
        if len(asked) < 3:
            raise StoreUnavailable("of tokens", "it is away", hint="wait")

    async def act() -> None:
        with pytest.raises(Revoked), RevocationWatch(find).of("text"):
            await until(bool)

    asyncio.run(act())
    assert len(asked) == 3


def test_where_it_cannot_be_found_out_what_was_begun_is_ended(caplog: pytest.LogCaptureFixture) -> None:
    async def find(text: str) -> object:
        if text == "broken":
            raise RuntimeError("a bug")
        return text

    async def act() -> bool:
        held = RevocationWatch(find)

        async def stay() -> None:
            with held.of("whole"):
                await until(bool)

        stays = asyncio.ensure_future(stay())
        with pytest.raises(Revoked), held.of("broken"):
            await until(bool)
        is_done = stays.done()
        stays.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stays
        return is_done

    assert asyncio.run(act()) is False
    assert "could not be checked" in caplog.text


def test_who_is_cancelled_by_somebody_else_is_not_told_that_they_no_longer_count() -> None:
    async def find(text: str) -> object:
        return text

    async def act() -> None:
        task = asyncio.ensure_future(until(bool))
        asyncio.get_running_loop().call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError), RevocationWatch(find).of("text"):
            await task

    asyncio.run(act())
