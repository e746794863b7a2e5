"""A response as a stream: what a client does not read is not kept without bounds."""

import asyncio
from typing import Any

import pytest

from tests.mcp_server.talk import until
from toolkeep.limits import MCP_STREAM_MESSAGES, MCP_UNREAD_BYTES
from toolkeep.mcp_protocol.jsonrpc import notification, request
from toolkeep.mcp_server import http_response
from toolkeep.mcp_server.http_response import Reply
from toolkeep.mcp_server.resumable_streams import ReplayBuffer, Streams


def test_a_client_that_does_not_read_is_sent_no_more_than_so_much() -> None:
    sent: list[Any] = []

    async def act() -> None:
        may_read = asyncio.Event()

        async def send(event: Any) -> None:
            await may_read.wait()
            sent.append(event)

        reply = Reply(send)
        for number in range(3 * MCP_STREAM_MESSAGES):
            reply.emit(notification("notifications/progress", {"progress": number}))
        may_read.set()
        await reply.finish(200, b"last", [])

    asyncio.run(act())
    body = b"".join(event.get("body", b"") for event in sent)
    assert body.count(b"data: ") == MCP_STREAM_MESSAGES + 1
    assert body.endswith(b"data: last\r\n\r\n")


def test_a_client_that_does_not_read_has_so_many_bytes_waiting_and_its_questions_and_answer() -> None:
    told = notification("notifications/progress", {"message": "x" * 100_000})
    asked = request("1", "elicitation/create", {})
    sent: list[Any] = []

    async def act() -> None:
        may_read = asyncio.Event()

        async def send(event: Any) -> None:
            await may_read.wait()
            sent.append(event)

        reply = Reply(send)
        stream = Streams(ReplayBuffer()).begin(lambda: None)
        stream.attach(reply)
        for _ in range(100):
            stream.emit(told)
        stream.emit(asked)
        stream.finish(b"last")
        may_read.set()
        await reply.until_closed()

    asyncio.run(act())
    body = b"".join(event.get("body", b"") for event in sent)
    assert len(body) < MCP_UNREAD_BYTES + 2 * len(told)
    assert asked in body
    assert body.endswith(b"data: last\r\n\r\n")


def test_nothing_is_sent_after_the_answer() -> None:
    sent: list[Any] = []

    async def act() -> bool:
        async def send(event: Any) -> None:
            sent.append(event["type"])

        reply = Reply(send)
        await reply.finish(200, b"{}", [])
        reply.emit(notification("notifications/progress", {"progress": 1}))
        return reply.is_stream

    assert asyncio.run(act()) is False
    assert sent == ["http.response.start", "http.response.body"]


def test_a_slow_response_becomes_a_stream_before_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_response, "_OPEN_S", 0.01)
    monkeypatch.setattr(http_response, "_PING_S", 0.01)
    sent: list[Any] = []

    async def act(*, is_resumable: bool) -> list[Any]:
        sent.clear()

        async def send(event: Any) -> None:
            sent.append(event)

        reply = Reply(send)
        if is_resumable:
            stream = Streams(ReplayBuffer(), is_primed=True).begin(lambda: None)
            stream.attach(reply)
            reply.prime = stream.prime
        task = asyncio.current_task()
        assert task is not None
        reply.await_answer(asyncio.Event().wait, task)  # type: ignore[arg-type]  # a client that stays
        reply.look()
        await until(lambda: len(sent) >= 3)
        before = list(sent)
        await reply.finish(200, b"last", [])
        reply.stop_watching()
        return before

    begun, *comments = asyncio.run(act(is_resumable=False))
    assert (b"content-type", b"text/event-stream") in begun["headers"]
    assert {one["body"] for one in comments} == {b": \r\n\r\n"}
    assert b"".join(one.get("body", b"") for one in sent).endswith(b"data: last\r\n\r\n")
    assert b"id: " in asyncio.run(act(is_resumable=True))[1]["body"]
