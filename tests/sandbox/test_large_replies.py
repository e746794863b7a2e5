"""A large answer, from wherever it comes, is read by a thread: the event loop has turns meanwhile."""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.sandbox.test_progress_frames import GREETING, STEP, Pretender
from toolkeep.execution import http_call
from toolkeep.execution.persistent import persistent_runner
from toolkeep.json_values import reading
from toolkeep.limits import LARGE_ANSWER_BYTES, OUTPUT_VALUES
from toolkeep.mcp_client import http_session, stdio_transport, transport
from toolkeep.mcp_client.http_session import HttpSession
from toolkeep.mcp_client.stdio_transport import StdioTransport
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.fetch import Answer
from toolkeep.sandbox import frames, worker_exchange
from toolkeep.sandbox.worker_exchange import Ending, Reply

pytestmark = [pytest.mark.spec("SBX-2"), pytest.mark.spec("VAL-7")]

LONG = "x" * LARGE_ANSWER_BYTES
TURNS = 100

T = TypeVar("T")


class Meanwhile:
    """Wraps what reads an answer: it goes on once the event loop has had its turns, and says whether it had."""

    def __init__(self, read: Callable[..., Any]) -> None:
        self._read = read
        self._begun, self._had_turns = threading.Event(), threading.Event()
        self.had_turns: list[bool] = []

    def __call__(self, *given: Any) -> Any:
        self._begun.set()
        self.had_turns.append(self._had_turns.wait(30))
        return self._read(*given)

    async def beside(self, work: Coroutine[Any, Any, T]) -> T:
        """What the work gives; the loop turns until it is done, whether or not it ever reads."""
        working = asyncio.create_task(work)
        left = TURNS
        while not working.done():
            await asyncio.sleep(0)
            left -= self._begun.is_set()
            if left <= 0:
                self._had_turns.set()
        return await working


def test_the_event_loop_has_turns_while_a_reply_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    meanwhile = Meanwhile(worker_exchange._read_large)
    monkeypatch.setattr(worker_exchange, "_read_large", meanwhile)
    worker = Pretender([*GREETING, STEP, json.dumps({"ok": LONG}).encode()])

    assert asyncio.run(meanwhile.beside(worker._ask())) == Reply(Ending.OK, value=LONG)
    assert (meanwhile.had_turns, len(worker.told)) == ([True], 1)


def test_too_many_values_end_the_call_before_they_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    read = reading.read_strict

    def noted(body: Any) -> Any:
        parsed.append(len(body))
        return read(body)

    monkeypatch.setattr(frames, "read_strict", noted)
    body = b'{"ok":[' + b"1," * OUTPUT_VALUES + b"1]}"
    reply = Pretender([*GREETING, body], output_bytes=len(body)).ask()
    assert (reply.ending, max(parsed) < LARGE_ANSWER_BYTES) == (Ending.BROKEN, True)


@pytest.mark.parametrize("size", [0, 1, LARGE_ANSWER_BYTES, 1 << 20, (3 << 20) + 1])
def test_bytes_of_any_length_come_through(size: int) -> None:
    given = bytes(range(256)) * (size // 256) + b"a" * (size % 256)
    body = json.dumps({"bytes": base64.b64encode(given).decode()}).encode()
    reply = Pretender([*GREETING, body], output_bytes=len(body)).ask()
    assert (reply.ending, reply.value == given) == (Ending.OK, True)


@pytest.mark.parametrize("end", ["A", "====", "A=A=", "é", "!", "\n"])
def test_bytes_that_end_twice_or_are_none_end_the_call(end: str) -> None:
    """A portion with an end of its own would else be taken for one."""
    text = "A" * ((1 << 20) - 2) + "==" + "AAAA" if end == "====" else "A" * (1 << 20) + end
    body = json.dumps({"bytes": text}, ensure_ascii=False).encode()
    assert Pretender([*GREETING, body], output_bytes=len(body)).ask().ending is Ending.BROKEN


def test_the_bytes_of_a_reply_are_let_go_before_it_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []

    def noted(text: str) -> bytes:
        held.append(len(body))
        return decoded(text)

    decoded = worker_exchange._decoded
    monkeypatch.setattr(worker_exchange, "_decoded", noted)
    body = bytearray(b'{"bytes":"AAAA"}')
    assert (worker_exchange._read_large(body), held) == (Reply(Ending.OK, value=b"\0\0\0"), [0])


def test_a_piece_that_is_read_after_the_deadline_is_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, is_over, has_read = threading.Event(), threading.Event(), threading.Event()
    read = worker_exchange._read_large

    def late(body: bytearray) -> Any:
        begun.set()
        is_over.wait(20)
        has_read.set()
        return read(body)

    monkeypatch.setattr(worker_exchange, "_read_large", late)
    worker = Pretender([*GREETING, json.dumps({"piece": LONG}).encode()], deadline_s=1.0)

    async def main() -> Ending:
        reply = await worker._ask()
        is_over.set()
        await asyncio.get_running_loop().shutdown_default_executor()
        for _ in range(TURNS):
            await asyncio.sleep(0)
        return reply.ending

    assert (asyncio.run(main()), begun.is_set()) == (Ending.TIMED_OUT, True)
    assert (has_read.is_set(), worker.pieces) == (True, [])


def test_a_large_piece_comes_before_the_reply() -> None:
    large = json.dumps({"piece": LONG}).encode()
    worker = Pretender([*GREETING, large, b'{"piece":1}', large, b'{"ok":1}'], output_bytes=4 << 20)
    assert worker.ask() == Reply(Ending.OK, value=1)
    assert worker.pieces == [LONG, 1, LONG]


class Resident:
    """A program that has written one line."""

    is_alive = True
    waiting_bytes = 0
    last_words = ""

    def __init__(self, line: Callable[[bytes], bytes]) -> None:
        self._line = line
        self._sent: asyncio.Queue[bytes] = asyncio.Queue()

    async def send(self, data: bytes) -> None:
        self._sent.put_nowait(data)

    async def line(self) -> bytes:
        return self._line(await self._sent.get())

    async def close(self) -> None:
        """It has ended."""


def test_the_event_loop_has_turns_while_the_line_of_a_program_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meanwhile = Meanwhile(frames.parse_unambiguous)
    monkeypatch.setattr(persistent_runner, "parse_unambiguous", meanwhile)
    resident: Any = Resident(lambda _: json.dumps({"id": "1", "result": LONG}).encode())
    call: Any = None

    answer = asyncio.run(meanwhile.beside(persistent_runner._answer(call, resident, {"id": "1"}, ())))
    assert (answer.value, meanwhile.had_turns) == (LONG, [True])


def test_the_event_loop_has_turns_while_the_line_of_a_server_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meanwhile = Meanwhile(transport.read)
    monkeypatch.setattr(stdio_transport, "read", meanwhile)
    resident: Any = Resident(
        lambda sent: json.dumps({"jsonrpc": "2.0", "id": json.loads(sent)["id"], "result": LONG}).encode()
    )

    async def main() -> Any:
        speaker = StdioTransport(resident)
        said = await meanwhile.beside(speaker.request("tools/call", {}))
        await speaker.close()
        return said

    assert (asyncio.run(main()), meanwhile.had_turns) == (LONG, [True])


def test_the_event_loop_has_turns_while_the_answer_of_a_server_is_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meanwhile = Meanwhile(transport.read)
    monkeypatch.setattr(http_session, "read", meanwhile)
    raw = json.dumps({"jsonrpc": "2.0", "id": 1, "result": LONG}).encode()

    async def main() -> Any:
        session = HttpSession("http://127.0.0.1", HostAllowlist(reads=(), writes=()), dict)
        return await meanwhile.beside(session.read(raw))

    assert (asyncio.run(main()).result, meanwhile.had_turns) == (LONG, [True])


def test_the_event_loop_has_turns_while_the_answer_of_an_endpoint_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meanwhile = Meanwhile(lambda _, answer, __: answer.body)
    said = Answer(host="127.0.0.1", status=200, content_type="text/plain", body=LONG.encode() + b"x")

    async def fetched(*_: Any) -> Answer:
        return said

    for name in ("_endpoint", "_request", "_allowlist", "_budget"):
        monkeypatch.setattr(http_call, name, lambda *_: SimpleNamespace(retries=0))
    monkeypatch.setattr(http_call, "_fetched", fetched)
    monkeypatch.setattr(http_call, "_value", meanwhile)
    call, context = Any, SimpleNamespace(secret=dict)
    body = asyncio.run(meanwhile.beside(http_call.ask(call, context)))  # type: ignore[arg-type]  # neither is looked at
    assert (body == said.body, meanwhile.had_turns) == (True, [True])
