"""A front with TLS before servers of this machine that only speak plain HTTP, as seen from an internet of our own.

`http://localhost:4711` is `https://p4711.front.example` to whoever comes through here, in heads and bodies, both
ways. So a client that takes only public addresses and https can be tried with servers that know neither.
"""

import asyncio
import contextlib
import re
from typing import Any

import h11

from tests.network.world import PUBLIC, World

DOMAIN = "front.example"
_OUT = (
    (re.compile(rb"http://localhost:(\d+)"), rb"https://p\1.front.example"),
    (re.compile(rb"http%3A%2F%2Flocalhost%3A(\d+)"), rb"https%3A%2F%2Fp\1.front.example"),
)
_IN = (
    (re.compile(rb"https://p(\d+)\.front\.example"), rb"http://localhost:\1"),
    (re.compile(rb"https%3A%2F%2Fp(\d+)\.front\.example"), rb"http%3A%2F%2Flocalhost%3A\1"),
)
_HOST = re.compile(rb"p(\d+)\.front\.example")


def shown(text: str) -> str:
    """An address as it is seen from outside."""
    return _rewritten(text.encode(), _OUT).decode()


async def serve_front(world: World) -> None:
    """Serve it; every name of the domain leads here."""
    world.names = _Names(world.names)
    await world.serve(_forward, PUBLIC, 443, names=[f"*.{DOMAIN}"])


class _Names(dict[str, list[list[str]]]):
    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or str(name).endswith(f".{DOMAIN}")

    def __missing__(self, name: str) -> list[list[str]]:
        return [[PUBLIC]]


def _rewritten(data: bytes, rules: Any) -> bytes:
    for pattern, instead in rules:
        data = pattern.sub(instead, data)
    return data


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = await _request(reader)
    if asked is None:
        return
    head, body = asked
    found = _HOST.fullmatch(dict(head.headers)[b"host"])
    if found is None:
        return
    port = int(found[1])
    back, forth = await asyncio.open_connection("127.0.0.1", port)
    try:
        forth.write(_as_inside(head, body, port))
        answering = asyncio.create_task(_answer(back, writer))
        leaving = asyncio.create_task(reader.read(1))
        await asyncio.wait({answering, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (answering, leaving):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError, h11.RemoteProtocolError):
                await task
    finally:
        forth.transport.abort()


async def _request(reader: asyncio.StreamReader) -> tuple[h11.Request, bytes] | None:
    connection, body, head = h11.Connection(h11.SERVER), b"", None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            data = await reader.read(65536)
            if not data and head is None:
                return None
            connection.receive_data(data)
        elif isinstance(event, h11.Request):
            head = event
        elif isinstance(event, h11.Data):
            body += event.data
        elif head is not None:
            return head, body


def _as_inside(head: h11.Request, body: bytes, port: int) -> bytes:
    body = _rewritten(body, _IN)
    headers = [
        (name, _rewritten(value, _IN))
        for name, value in head.headers
        if name not in (b"host", b"content-length", b"connection")
    ]
    headers += [(b"host", b"localhost:%d" % port), (b"connection", b"close")]
    if head.method == b"POST":
        headers.append((b"content-length", b"%d" % len(body)))
    connection = h11.Connection(h11.CLIENT)
    first = h11.Request(method=head.method, target=_rewritten(head.target, _IN), headers=headers)
    data = connection.send(first) or b""
    return data + (connection.send(h11.Data(data=body)) or b"")


async def _answer(back: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await back.read(65536))
        elif isinstance(event, h11.Response):
            lines = [
                name + b": " + _rewritten(value, _OUT)
                for name, value in event.headers
                if name not in (b"content-length", b"transfer-encoding", b"connection")
            ]
            status = b"HTTP/1.1 %d X" % event.status_code
            writer.write(b"\r\n".join((status, *lines, b"Connection: close", b"", b"")))
        elif isinstance(event, h11.Data):
            writer.write(_rewritten(bytes(event.data), _OUT))
            await writer.drain()
        elif isinstance(event, (h11.EndOfMessage, h11.ConnectionClosed)):
            await writer.drain()
            return
