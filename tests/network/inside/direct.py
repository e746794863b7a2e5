"""What a program reaches that connects by itself. Run by `tests/network/test_name_server.py`."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.network.hellos import client_hello
from tests.network.inside.egress import Server
from tests.network.inside.http_tools import answer, serve
from tests.network.world import LOCAL, OTHER_PUBLIC, PRIVATE, PUBLIC, World
from toolkeep import Keep
from toolkeep.events import ContactRefused, Event, HostContacted
from toolkeep.network.tls_client_hello import ACCESS_DENIED
from toolkeep.sandbox.launch import interpreter
from toolkeep.sources.process_source import ProcessSource

HERE = Path(__file__).resolve().parent
DIALER = [interpreter(), "-I", "-S", str(HERE / "dialer.py")]
DENIED = ACCESS_DENIED.decode("latin-1")
Dial = Callable[..., Any]


class Told(list[tuple[str, str, str]]):
    """Method, host and problem of each contact."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, HostContacted):
            self.append((event.method, event.host, ""))
        if isinstance(event, ContactRefused):
            self.append((event.method, event.host, event.reason))


@contextlib.asynccontextmanager
async def calling(
    *held: str, argv: list[str] | None = None, requests: int = 100, keep: Keep | None = None
) -> AsyncIterator[tuple[Dial, Told]]:
    """Calls of a program that stays and holds this; and what is told of its contacts."""
    told = Told()
    argv = argv or DIALER
    name = f"dial_{len(keep) if keep else 0}"
    definition = {
        "name": name,
        "description": "Dials.",
        "side_effects": ["NetWrite" if any(one.startswith("net.write") for one in held) else "NetRead"],
        "capabilities": list(held),
        "danger": "low",
        "resource_bounds": {"max_network": {"max_requests": requests, "max_bytes": 1 << 20}},
        "parameters": {"type": "object", "properties": {}, "additionalProperties": True},
    }
    async with contextlib.AsyncExitStack() as opened:
        own = Keep() if keep is None else keep
        if keep is None:
            await opened.enter_async_context(own)
        own.subscribe(told)
        own.register(ProcessSource(argv=argv, code=[argv[-1]]).tool(definition))
        own.declare_agent(name, capabilities=held)

        async def dial(host: str, port: int, say: str = "", **more: Any) -> Any:
            result = await own.call(name, {"host": host, "port": port, "say": say, **more}, agent=name)
            assert result.ok, result.text
            return result.value

        async def fetch(url: str) -> Any:
            return (await own.call(name, {"url": url}, agent=name)).value

        yield (dial if argv is DIALER else fetch), told


def get(host: str, path: str = "/", method: str = "GET") -> str:
    return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"


async def test_a_granted_host_is_reached_without_a_proxy_and_no_other_is(world: World) -> None:
    server = await serve(world, answer(b"shop"))
    await serve(world, answer(b"other"), "other.example", OTHER_PUBLIC)
    async with calling("net.read:shop.example", "net.read:*.deep.example") as (dial, told):
        said = await dial("shop.example", 80, get("shop.example", "/a?b"))
        assert (said["address"], said["heard"].endswith("shop")) == ("198.18.0.1", True), said
        assert b"GET /a?b HTTP/1.1" in server.heard[0]
        assert (await dial("other.example", 80))["error"] == "gaierror"
        assert (await dial("a.deep.example", 80, get("a.deep.example")))["address"] == "198.18.0.2"
        assert "other.example" not in world.asked
        # Its address says which host is meant, and the header must agree.
        for request in (
            get("other.example"),
            get("shop.example", "http://other.example/"),
            get("shop.example:81"),
        ):
            assert "403 toolkeep" in (await dial("shop.example", 80, request))["heard"]
        assert "403 toolkeep" in (await dial(OTHER_PUBLIC, 80, get(OTHER_PUBLIC)))["heard"]
        assert (
            "takes net.write" in (await dial("shop.example", 80, get("shop.example", "/", "POST")))["heard"]
        )
        assert (await dial("shop.example", 443, client_hello("shop.example").decode("latin-1")))[
            "heard"
        ] == DENIED
    assert told[:2] == [
        ("GET", "shop.example", ""),
        ("DNS", "other.example", "'other.example' is not among the hosts that this call may reach"),
    ]
    assert len(server.heard) == 1


async def test_a_call_asks_for_ten_names_for_each_request_that_it_may_make(world: World) -> None:
    await serve(world, answer(b"shop"))
    async with calling("net.read:shop.example", requests=1) as (dial, _):
        assert (await dial("shop.example", 80, get("shop.example"), asks=11))["error"] == "gaierror"
        assert (await dial("shop.example", 80, get("shop.example")))["address"] == "198.18.0.1"


async def test_tls_must_name_the_host_that_is_connected_to(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    server = Raw(b"")
    await world.serve(server, PUBLIC, 443)
    async with calling("net.write:shop.example", "net.write:other.example") as (dial, told):
        for name in ("other.example", "shop.example.evil.example"):
            said = await dial("shop.example", 443, client_hello(name).decode("latin-1"))
            assert said["heard"] == DENIED, said
        assert server.heard == [b"", b""]
        hello = client_hello("shop.example")
        await dial("shop.example", 443, hello.decode("latin-1"))
        assert server.heard[-1] == hello
    assert "the TLS server name (SNI) differs" in told[0][2]


async def test_a_name_that_leads_inside_and_a_port_that_is_not_granted_are_refused(world: World) -> None:
    inside = Server(answer(b"loot"))
    world.name("shop.example", [LOCAL])
    for address, port in ((LOCAL, 80), (LOCAL, 8080), (PRIVATE, 80)):
        await world.serve(inside, address, port)
    async with calling("net.write:shop.example") as (dial, _):
        assert "403 toolkeep" in (await dial("shop.example", 80, get("shop.example")))["heard"]
        assert "403 toolkeep" in (await dial(PRIVATE, 80, get(PRIVATE)))["heard"]
        assert "403 toolkeep" in (await dial(LOCAL, 80, get(LOCAL)))["heard"]
        assert (await dial(LOCAL, 8080))["error"] == "PermissionError"
    assert inside.heard == []


async def test_programs_at_once_do_not_reach_each_others_hosts(world: World) -> None:
    await serve(world, answer(b"shop"))
    await serve(world, answer(b"other"), "other.example", OTHER_PUBLIC)
    async with (
        Keep() as keep,  # one, so that both are forked from the same process
        calling("net.read:shop.example", keep=keep) as (shop, _),
        calling("net.read:other.example", keep=keep) as (other, _),
    ):
        found = await asyncio.gather(
            shop("shop.example", 80, get("shop.example")), other("other.example", 80, get("other.example"))
        )
        assert [one["heard"][-5:].strip() for one in found] == ["shop", "other"]
        assert {one["address"] for one in found} == {"198.18.0.1"}
        assert "403 toolkeep" in (await shop("198.18.0.1", 80, get("other.example")))["heard"]


class Raw:
    """Says something first, and remembers what it is told."""

    def __init__(self, greeting: bytes) -> None:
        self._greeting = greeting
        self.heard: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(b"")
        writer.write(self._greeting)
        while not self.heard[-1] and (more := await reader.read(65536)):
            self.heard[-1] += more
        writer.write(b"done")


async def test_a_database_that_speaks_first_is_reached_and_nothing_else_at_its_port(world: World) -> None:
    mysql, silent, http2 = Raw(b"J\0\0\0\n8.0"), Raw(b""), Raw(b"\0\0\0\4\0\0\0\0\0")
    world.name("db.example", [PUBLIC])
    await world.serve(mysql, PUBLIC, 3306)
    await world.serve(silent, PUBLIC, 3307)
    await world.serve(http2, PUBLIC, 3308)
    await world.serve(mysql, LOCAL, 3309)
    held = [*(f"net.write:db.example:{port}" for port in (3306, 3307, 3308)), "net.write:127.0.0.1:3309"]
    async with calling(*held) as (dial, told):
        said = await dial("db.example", 3306, "select 1", listens_first=True)
        assert (said["heard"], mysql.heard) == ("J\0\0\0\n8.0done", [b"select 1"])
        assert (await dial(LOCAL, 3309, "select 1", listens_first=True))["heard"].endswith("done")
        await dial("db.example", 3307, "PING\r\n\r\n")
        assert silent.heard == []
        await dial("db.example", 3307, "PING\r\n\r\n", waits_s=0.8)
        await dial("db.example", 3308, "PRI * HTTP/2.0\r\n\r\n", listens_first=True)
    assert (silent.heard, http2.heard) == ([b""], [b""])
    assert "did not speak first" in told[-2][2]
    assert "HTTP/2 without TLS" in told[-1][2]


async def test_the_fetch_of_node_reaches_a_granted_host(world: World) -> None:
    if (node := shutil.which("node")) is None:
        return  # `test_name_server.py` says so.
    await serve(world, answer(b"shop"))
    async with calling("net.read:shop.example", argv=[node, str(HERE / "fetcher.js")]) as (fetch, told):
        assert await fetch("http://shop.example/") == "shop"
        assert "ENOTFOUND" in await fetch("http://other.example/")
    assert [one[:2] for one in told][:2] == [("GET", "shop.example"), ("DNS", "other.example")]
