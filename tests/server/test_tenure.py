"""Requests that stay open: they end with their token, and those that only listen with the server."""

import asyncio
from typing import Any

import pytest

from tests.mcp.talk import modern_request
from tests.server.conftest import begun, ended
from tests.server.talk import Client, Pending, served, until
from toolkeep import Keep
from toolkeep.errors import StoreUnavailable
from toolkeep.server import tenure
from toolkeep.server.auth import Recognizer
from toolkeep.server.tenure import Tenure
from toolkeep.tokens import MemoryTokens, Tokens

CALL = {"name": "wait_for_ever", "arguments": {"label": "mcp"}}
HELLO = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}}


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tenure, "_LOOK_S", 0.01)


def begin(client: Client, method: str, params: dict[str, Any]) -> Pending:
    body, headers = modern_request(method, params)
    return client.begin("POST", "/mcp", body, headers)


async def revoked(client: Client) -> None:
    """Here, so that nobody remembers it."""
    (token,) = [one for one in client.tokens.list() if one.agent == "other"]
    client.tokens.revoke(token.id)
    client.app.service.recognizer.forget()


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
            return (await stream.answered()).is_over

    assert asyncio.run(act())


def test_who_only_listens_is_let_go_when_the_server_is_told_to_end_and_calls_are_not(keep: Keep) -> None:
    async def act() -> Any:
        async with served(keep) as client:
            session = (await client.post("/mcp", HELLO)).headers["mcp-session-id"]
            stream = client.begin("GET", "/mcp", headers={"mcp-session-id": session})
            listener, call = begin(client, "subscriptions/listen", {}), begin(client, "tools/call", CALL)
            await until(lambda: begun and stream.response.body and listener.response.body)
            client.app.let_go()
            await until(lambda: stream.task.done() and listener.task.done())
            found = stream.response.is_over, listener.response.is_over, call.task.done()
            call.leave()
            await until(call.task.done)
            return found

    assert asyncio.run(act()) == (True, True, False)


def test_a_store_that_does_not_answer_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = Tokens(MemoryTokens())
    asked: list[str] = []

    def recognize(text: str) -> Any:
        asked.append(text)
        if len(asked) < 3:
            raise StoreUnavailable("of tokens", "it is away", hint="wait")
        return None

    monkeypatch.setattr(tokens, "recognize", recognize)

    async def act() -> int:
        recognizer = Recognizer(tokens)
        held = Tenure(recognizer)
        with pytest.raises(asyncio.CancelledError), held.of("text"):
            await asyncio.Event().wait()
        recognizer.close()
        return len(asked)

    assert asyncio.run(act()) == 3
