"""What is said over the standard streams of a server, with a program that says what the test wants."""

import asyncio
import gc
import json
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from toolkeep.mcp_client import stdio_transport
from toolkeep.mcp_client.stdio_transport import StdioTransport
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.sandbox.persistent_process import ExitReason, PersistentProcess, ProcessExited

pytestmark = pytest.mark.spec("MCP-2")


class Program:
    """Stands in for a confined program: keeps what it is sent, and writes what it is told."""

    is_alive = True
    is_over = False
    waiting_bytes = 0
    last_words = ""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, data: bytes) -> None:
        if self.is_over:
            raise ProcessExited(ExitReason.ENDED, status=2)
        self.sent.append(json.loads(data))

    async def line(self) -> bytes:
        return await self.lines.get()

    async def close(self) -> None:
        self.is_alive = False

    def says(self, **message: Any) -> None:
        self.lines.put_nowait(json.dumps({"jsonrpc": "2.0", **message}).encode())


def talk(steps: Callable[[StdioTransport, Program], Awaitable[None]], **more: Any) -> Program:
    async def main() -> Program:
        program = Program()
        speaker = StdioTransport(cast("PersistentProcess", program), **more)
        try:
            await steps(speaker, program)
        finally:
            await speaker.close()
        return program

    return asyncio.run(main())


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def given_up(speaker: StdioTransport, method: str) -> None:
    asking = asyncio.ensure_future(speaker.request(method, {}))
    await settle()
    asking.cancel()
    await settle()


def test_who_cannot_send_hears_why_and_nobody_else_does() -> None:
    """What a loop says of errors that nobody took goes to standard error, with a trace."""
    unheard: list[dict[str, Any]] = []

    async def steps(speaker: StdioTransport, program: Program) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        program.is_over = True
        with pytest.raises(UpstreamFailed, match="it ended with status 2"):
            await speaker.request("initialize", {})
        gc.collect()

    talk(steps)
    assert unheard == []


@pytest.mark.parametrize(
    ("method", "told"), [("tools/call", ["notifications/cancelled"]), ("initialize", [])]
)
def test_what_is_given_up_is_cancelled_there_but_never_a_handshake(method: str, told: list[str]) -> None:
    async def steps(speaker: StdioTransport, _: Program) -> None:
        await given_up(speaker, method)

    assert [message["method"] for message in talk(steps).sent] == [method, *told]


def test_only_the_last_requests_that_were_given_up_may_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio_transport, "_CANCELLED", 2)

    async def steps(speaker: StdioTransport, program: Program) -> None:
        for _ in range(3):
            await given_up(speaker, "tools/call")
        program.says(id=3, result={})
        await settle()
        assert speaker.is_alive
        program.says(id=1, result={})
        with pytest.raises(UpstreamFailed, match="it answered a request that was not made"):
            await speaker.request("tools/call", {})

    talk(steps)
