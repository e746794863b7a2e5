"""The load on an MCP server: the same bytes for everyone, over a pipe or over HTTP, so many in flight.

The client reads no more of an answer than it must, so that the server is what is measured: whether it is a
result, and holds the text of its own request. It blocks the event loop meanwhile.
"""

import asyncio
import json
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from measures.lanes import Lane, Pipes, drive

BENCH = Path(__file__).resolve().parent.parent
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one run gave: calls a second, and how long single calls took."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """Processor time of the server for one call; NaN where the system does not tell."""


def call(number: int) -> bytes:
    params = {"name": "echo", "arguments": {"text": f"hello {number}"}, "_meta": META}
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}).encode()


def discover(number: int) -> bytes:
    message = {"jsonrpc": "2.0", "id": number, "method": "server/discover", "params": {"_meta": META}}
    return json.dumps(message).encode()


IN_MEMORY = " in memory"
"""What a module's name ends with whose log lies in a file system without a disk."""

AS_INSTALLED = " as installed"
"""What a module's name ends with that answers as it does by itself, with the HTTP layer that it brings."""


def command(module: str, where: str, *rest: int | str) -> list[str]:
    name = module.removesuffix(IN_MEMORY).removesuffix(AS_INSTALLED)
    words = [sys.executable, "-m", f"servers.{name}", where, *map(str, rest)]
    return [*words, "as-installed"] if module.endswith(AS_INSTALLED) else words


def processor_us(pid: int) -> float:
    """What all threads of a process have used so far."""
    try:
        threads = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        return math.nan
    return sum(int(one.split()[0]) for one in threads) / 1000 if threads else math.nan


@contextmanager
def environment(module: str) -> Iterator[dict[str, str]]:
    given = {**os.environ, "PYTHONPATH": str(BENCH)}
    if not module.endswith(IN_MEMORY):
        yield given
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:  # a file system in memory, on Linux
        yield {**given, "TOOLKEEP_HOME": home}


def summary(times: list[float], elapsed: float, used_us: float = math.nan) -> Load:
    ordered = sorted(times)
    return Load(
        rate=len(times) / elapsed,
        p50_ms=ordered[len(ordered) // 2] * 1000,
        p99_ms=ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)] * 1000,
        cpu_us=used_us / len(times),
    )


def check_answer(number: int, answer: bytes) -> None:
    """Raise unless an answer is the result of the call of a number."""
    if b'"result"' not in answer or b'hello %d"' % number not in answer:
        raise RuntimeError(f"not the answer to call {number}: {answer[:500].decode()}")


# --- stdio ---------------------------------------------------------------------------------------


@asynccontextmanager
async def stdio_server(module: str, *rest: int | str) -> AsyncIterator["StdioClient"]:
    with environment(module) as given:
        process = subprocess.Popen(  # noqa: ASYNC220 -- nothing else runs in this loop
            command(module, "stdio", *(rest or (1,))),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=given,
        )
        with process:
            try:
                client = StdioClient(process)
                client.expect(b'"supportedVersions"', discover(0))
                client.expect(b"hello 0", call(0))
                yield client
            finally:
                process.kill()


class StdioClient:
    """Speaks to a server over pipes."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        if process.stdin is None or process.stdout is None:
            raise RuntimeError("no pipes")
        self._pipes = Pipes(process.stdin.fileno(), process.stdout.fileno())
        self.process_id = process.pid
        self.behind = 0

    def expect(self, part: bytes, message: bytes) -> None:
        self._pipes.send(message + b"\n")
        line = self._pipes.lines()[0]
        if part not in line:
            raise RuntimeError(line[:500].decode())

    async def run(self, count: int, in_flight: int) -> Load:
        messages = [call(number) + b"\n" for number in range(count)]
        used = processor_us(self.process_id)
        began = time.perf_counter()
        times = self._exchange(messages, in_flight)
        elapsed = time.perf_counter() - began
        return summary(times, elapsed, processor_us(self.process_id) - used)

    def _exchange(self, messages: list[bytes], in_flight: int) -> list[float]:
        sent: dict[int, float] = {}
        times: list[float] = []
        upcoming = iter(enumerate(messages))

        def send() -> None:
            following = next(upcoming, None)
            if following is not None:
                sent[following[0]] = time.perf_counter()
                self._pipes.send(following[1])

        for _ in range(in_flight):
            send()
        while len(times) < len(messages):
            for line in self._pipes.lines():
                number = int(line.partition(b'"id":')[2].partition(b",")[0])
                times.append(time.perf_counter() - sent.pop(number))
                check_answer(number, line)
                send()
        return times


# --- HTTP ----------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def post(body: bytes, method: str, name: str = "") -> bytes:
    named = f"Mcp-Name: {name}\r\n" if name else ""
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:80\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n"
        f"Mcp-Method: {method}\r\n{named}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@asynccontextmanager
async def http_server(module: str, *rest: int | str) -> AsyncIterator["HttpClient"]:
    port = free_port()
    with environment(module) as given:
        process = await asyncio.create_subprocess_exec(
            *command(module, str(port), *(rest or (1,))), stderr=subprocess.DEVNULL, env=given
        )
        try:
            client = HttpClient(port, process.pid)
            await client.wait()
            yield client
        finally:
            process.kill()
            await process.wait()


class HttpClient:
    """Speaks to a server over as many connections as there are calls in flight."""

    def __init__(self, port: int, process_id: int = 0, address: str = "127.0.0.1") -> None:
        self._port = port
        self._address = address
        self.process_id = process_id
        self.behind = 0
        """The process of a server behind this one, where there is one that it did not start."""

    async def wait(self) -> None:
        for _ in range(3000):
            try:
                lane = Lane(self._port, self._address)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            answer = lane.exchange(post(discover(0), "server/discover"))
            if b'"supportedVersions"' not in answer:
                raise RuntimeError(answer[:500].decode())
            lane.close()
            return
        raise RuntimeError("the server does not answer")

    async def run(self, count: int, in_flight: int) -> Load:
        lanes = [Lane(self._port, self._address) for _ in range(in_flight)]
        requests = [post(call(number), "tools/call", "echo") for number in range(count)]
        used = processor_us(self.process_id)
        began = time.perf_counter()
        times = drive(lanes, requests, check_answer)
        elapsed = time.perf_counter() - began
        for lane in lanes:
            lane.close()
        return summary(times, elapsed, processor_us(self.process_id) - used)
