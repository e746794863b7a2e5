"""A response as a stream: what a client does not read is not kept without bounds."""

import asyncio
from typing import Any

from toolkeep.limits import MCP_STREAM_MESSAGES
from toolkeep.mcp.stream import Reply


def test_a_client_that_does_not_read_is_sent_no_more_than_so_much() -> None:
    sent: list[Any] = []

    async def act() -> None:
        may_read = asyncio.Event()

        async def send(event: Any) -> None:
            await may_read.wait()
            sent.append(event)

        reply = Reply(send)
        for number in range(3 * MCP_STREAM_MESSAGES):
            reply.emit(b"%d" % number)
        may_read.set()
        await reply.finish(200, b"last", [])

    asyncio.run(act())
    body = b"".join(event.get("body", b"") for event in sent)
    assert body.count(b"data: ") == MCP_STREAM_MESSAGES + 1
    assert body.endswith(b"data: last\r\n\r\n")
