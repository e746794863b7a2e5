"""A web site for scenarios: answers by path, one request a connection, and remembers what it was asked."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from tests.network.world import World

Said = dict[str, Any] | bytes | tuple[int, dict[str, Any]] | None


class Asked(msgspec.Struct):
    """One request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def form(self) -> dict[str, str]:
        return dict(parse_qsl(self.body.decode(), keep_blank_values=True))

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


Answering = Callable[[Asked], Said]


class Site:
    """Answers 404 to what it has no page for; a page is a JSON object, raw bytes, a status with an object, or None
    for no answer at all."""

    def __init__(self, **pages: Answering | Said) -> None:
        self.pages: dict[str, Answering | Said] = dict(pages)
        self.asked: list[Asked] = []

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    async def serve(self, world: World, name: str, address: str, port: int = 443) -> "Site":
        world.name(name, [address])
        await world.serve(self, address, port, names=[name])
        return self

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await read_request(reader)
        self.asked.append(asked)
        page = self.pages.get(asked.path.partition("?")[0], (404, {}))
        said = page(asked) if callable(page) else page
        if said is None:
            await reader.read()
            return
        writer.write(said if isinstance(said, bytes) else answer(said))
        await writer.drain()


async def read_request(reader: asyncio.StreamReader) -> Asked:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = first.split(" ")
    headers = {
        name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines if line)
    }
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Asked(method, path, headers, body)


def answer(said: dict[str, Any] | tuple[int, dict[str, Any]], **headers: str) -> bytes:
    status, data = said if isinstance(said, tuple) else (200, said)
    body = json.dumps(data).encode()
    lines = {"Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {text}\r\n" for name, text in lines.items())
    return f"HTTP/1.1 {status} X\r\n{head}\r\n".encode() + body
