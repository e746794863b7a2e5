"""What a worker gets through its way out, and what it does not. Run by `tests/network/test_egress_proxy.py`."""

import asyncio
import contextlib
import http.client
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from unittest.mock import patch

from tests.network.hellos import client_hello, fragmented, with_extension
from tests.network.world import LOCAL, METADATA, OTHER_PUBLIC, PRIVATE, PUBLIC, PUBLIC_6, World
from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.network import dial, egress_proxy, relay, request_head, resolve
from toolkeep.network import egress_proxy as egress_module
from toolkeep.network import tls_client_hello as hello_module
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.egress_proxy import Contact, EgressProxy
from toolkeep.network.hosts import HostScope
from toolkeep.network.own_endpoints import OwnPorts, bar_address

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Server:
    """Says the same to everybody, and remembers what it was told."""

    def __init__(self, answer: bytes = OK) -> None:
        self.answer = answer
        self.turns: list[bytes] = []
        """What it says before that, one after the other."""
        self.heard: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard.append(b"")
        head = await reader.readuntil(b"\r\n\r\n")
        self.heard[-1] = head
        if b"chunked" in head.lower():
            self.heard[-1] += await reader.readuntil(b"0\r\n\r\n")
        elif (at := head.lower().find(b"content-length:")) >= 0:
            self.heard[-1] += await reader.readexactly(int(head[at + 15 :].split(b"\r\n")[0]))
        writer.write(self.turns.pop(0) if self.turns else self.answer)
        await writer.drain()


@contextlib.asynccontextmanager
async def egress_socket(
    *scopes: str, reads: tuple[str, ...] = (), max_seconds: float = 20, **bounds: int
) -> AsyncIterator[EgressProxy]:
    """Leads to these scopes, for whatever; and to `reads`, to read from."""
    listener = socket.create_server((LOCAL, 0))
    budget = Budget(NetworkBounds(**{"max_requests": 100, "max_bytes": 1 << 20, **bounds}))
    writes, read = (tuple(map(HostScope.read, texts)) for texts in (scopes, reads))
    reach = HostAllowlist(reads=read, writes=writes)
    async with EgressProxy([listener], reach, max_seconds=max_seconds, budget=budget) as egress:
        egress.port = listener.getsockname()[1]  # type: ignore[attr-defined]
        yield egress


async def say(egress: Any, data: bytes) -> bytes:
    """What comes back for some bytes, up to the end of the connection."""
    reader, writer = await asyncio.open_connection(LOCAL, egress.port)
    writer.write(data)
    said = b""
    with contextlib.suppress(ConnectionError):
        while more := await reader.read(65536):
            said += more
    writer.close()
    return said


def get(url: str, *headers: str, version: str = "1.1") -> bytes:
    host = url.rsplit("://", maxsplit=1)[-1].split("/", maxsplit=1)[0]
    lines = [f"GET {url} HTTP/{version}", *(headers or [f"Host: {host}"])]
    return "\r\n".join([*lines, "", ""]).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1]) if answer else 0


def is_refused(answer: bytes, *words: str) -> bool:
    """Whether it is a 403 with these words in the reason phrase and in the body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first = head.split(b"\r\n")[0]
    return status(answer) == 403 and all(word.encode() in first and word.encode() in body for word in words)


async def shop(world: World, *addresses: str, answer: bytes = OK) -> Server:
    server = Server(answer)
    world.name("shop.example", list(addresses) or [PUBLIC])
    for address in {*addresses, PUBLIC}:
        await world.serve(server, address, 80)
    return server


# --- reading and writing -------------------------------------------------------------------------


async def test_who_may_read_from_a_host_writes_nothing_to_it_in_plain_sight(world: World) -> None:
    server = await shop(world)
    async with egress_socket(reads=("shop.example",)) as egress:
        assert status(await say(egress, get("http://shop.example/"))) == 200
        head = get("http://shop.example/").replace(b"GET", b"HEAD", 1)
        assert status(await say(egress, head)) == 200
        for method in (b"POST", b"PUT", b"DELETE", b"PATCH", b"OPTIONS"):
            request = get("http://shop.example/").replace(b"GET", method, 1)
            assert is_refused(await say(egress, request), "takes net.write of 'shop.example"), method
    assert len(server.heard) == 2


async def test_tls_takes_leave_to_write_since_nobody_looks_into_it(world: World) -> None:
    server = await shop(world)
    await world.serve(server, PUBLIC, 443, names=["shop.example"])
    async with egress_socket(reads=("shop.example",)) as egress:
        answer = await say(egress, b"CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\n\r\n")
        assert is_refused(answer, "takes net.write of 'shop.example"), answer
    assert [(one.method, bool(one.problem)) for one in egress.contacts] == [("CONNECT", True)]


async def test_who_may_write_to_a_host_may_read_from_it(world: World) -> None:
    await shop(world)
    async with egress_socket("shop.example", reads=("other.example",)) as egress:
        assert status(await say(egress, get("http://shop.example/"))) == 200
        posted = get("http://shop.example/").replace(b"GET", b"DELETE", 1)
        assert status(await say(egress, posted)) == 200


# --- what gets through ---------------------------------------------------------------------------


async def test_a_granted_host_is_reached_and_the_contact_is_recorded(world: World) -> None:
    server = await shop(world)
    async with egress_socket("shop.example") as egress:
        answer = await say(egress, get("http://shop.example/books?q=a%20b"))
    assert answer.endswith(b"\r\n\r\nhello"), answer
    assert server.heard == [b"GET /books?q=a%20b HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"]
    sent, received = len(server.heard[0]), len(OK)
    assert egress.contacts == [
        Contact(method="GET", host="shop.example", port=80, sent_bytes=sent, received_bytes=received)
    ]
    assert egress.budget.bytes == sent + received


async def test_an_ordinary_client_gets_through_by_its_proxy_settings(world: World) -> None:
    server = await shop(world)
    await world.serve(server, PUBLIC, 443, names=["shop.example"])
    async with egress_socket("shop.example") as egress:
        opener = opened_by_proxy(egress)
        for url in ("http://shop.example/a", "https://shop.example/a"):
            assert await asyncio.to_thread(lambda url=url: opener(url)) == b"hello"  # type: ignore[misc]
    assert [(one.method, one.port) for one in egress.contacts] == [("GET", 80), ("CONNECT", 443)]


def opened_by_proxy(egress: Any) -> Callable[[str], bytes]:
    proxy = f"http://{LOCAL}:{egress.port}"
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))

    def opened(url: str) -> bytes:
        with opener.open(url, timeout=10) as answer:
            return bytes(answer.read())

    return opened


async def test_the_client_s_own_error_says_why_it_was_refused(world: World) -> None:
    async with egress_socket("shop.example") as egress:
        for url in ("http://other.example/", "https://other.example/"):
            try:
                await asyncio.to_thread(opened_by_proxy(egress), url)
            except urllib.error.URLError as error:
                assert "is not among the hosts that this call may reach" in str(error), error
            else:
                raise AssertionError(url)


async def test_a_body_is_passed_on_whole_also_in_chunks_and_behind_expect(world: World) -> None:
    server = await shop(world)
    post = b"POST http://shop.example/a HTTP/1.1\r\nHost: shop.example\r\n"
    async with egress_socket("shop.example") as egress:
        assert status(await say(egress, post + b"Content-Length: 3\r\n\r\nabc")) == 200
        chunked = post + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nT: t\r\n\r\n"
        assert status(await say(egress, chunked)) == 200
        answer = await say(egress, post + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\nabc")
        assert answer.startswith(b"HTTP/1.1 100") and b"HTTP/1.1 200 OK" in answer  # noqa: PT018 -- one thing
    head = b"POST /a HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n"
    assert server.heard[0] == head + b"Content-Length: 3\r\n\r\nabc"
    assert server.heard[1].startswith(head + b"Transfer-Encoding: chunked\r\n\r\n")
    assert b"x=y" not in server.heard[1] and b"T: t" not in server.heard[1]  # noqa: PT018 -- one thing
    assert server.heard[2] == server.heard[0]


async def test_headers_of_the_connection_stay_on_it_in_both_directions(world: World) -> None:
    kept = b"HTTP/1.1 200 OK\r\nConnection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 1\r\nX-End: 1\r\nContent-Length: 0\r\n\r\n"
    server = await shop(world, answer=kept)
    headers = ["Host: shop.example", "Connection: close, X-Mine", "X-Mine: 1", "Proxy-Authorization: s3cret",
               "Proxy-Connection: close", "Te: trailers", "Upgrade: h2c", "X-End: 1"]  # fmt: skip
    async with egress_socket("shop.example") as egress:
        answer = await say(egress, get("http://shop.example/", *headers))
    assert server.heard == [b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\nX-End: 1\r\n\r\n"]
    assert b"X-Hop" not in answer and b"Keep-Alive" not in answer and b"X-End: 1" in answer  # noqa: PT018 -- one thing


async def test_ipv6_is_reached_and_a_dead_address_is_passed_over(world: World) -> None:
    server = Server()
    world.name("six.example", [PUBLIC_6])
    world.name("both.example", ["2606:2800:220:1::99", PUBLIC_6])
    world.name("four.example", ["2606:2800:220:1::99", PUBLIC])
    await world.serve(server, PUBLIC_6, 80)
    await world.serve(server, PUBLIC, 80)
    async with egress_socket(
        "six.example", "both.example", "four.example", f"[{PUBLIC_6}]", PUBLIC
    ) as egress:
        for host in ("six.example", "both.example", "four.example", f"[{PUBLIC_6}]", PUBLIC):
            assert status(await say(egress, get(f"http://{host}/"))) == 200, host


async def test_a_host_that_hangs_is_passed_over_before_it_gives_up(world: World) -> None:
    """Its backlog is full: connections to it neither open nor fail."""
    with full(OTHER_PUBLIC):
        world.name("slow.example", [OTHER_PUBLIC, PUBLIC])
        await world.serve(Server(), PUBLIC, 80)
        async with egress_socket("slow.example") as egress:
            assert status(await say(egress, get("http://slow.example/"))) == 200


@contextlib.contextmanager
def full(address: str) -> Iterator[None]:
    listener = socket.create_server((address, 80), backlog=0)
    waiting = [socket.socket() for _ in range(4)]
    for one in waiting:
        one.setblocking(False)
        one.connect_ex((address, 80))
    try:
        yield
    finally:
        for one in (listener, *waiting):
            one.close()


async def test_an_address_that_is_slow_to_answer_is_waited_for_where_there_is_no_other(world: World) -> None:
    await shop(world)
    with patch.object(dial, "DIAL_NEXT_SECONDS", 0):
        async with egress_socket("shop.example") as egress:
            assert status(await say(egress, get("http://shop.example/"))) == 200


async def test_what_cannot_be_reached_is_no_refusal(world: World) -> None:
    world.name("closed.example", [OTHER_PUBLIC])
    async with egress_socket("closed.example", "missing.example") as egress:
        assert status(await say(egress, get("http://closed.example/"))) == 502
        assert status(await say(egress, get("http://missing.example/"))) == 502


# --- names and addresses -------------------------------------------------------------------------


async def test_a_host_or_port_that_was_not_granted_is_refused_and_not_even_looked_up(world: World) -> None:
    server = await shop(world)
    world.name("other.example", [PUBLIC])
    await world.serve(server, PUBLIC, 8080)
    async with egress_socket("shop.example", "*.deep.example") as egress:
        for host in ("other.example", "shop.example:8080", "deep.example", "xshop.example", PUBLIC):
            assert is_refused(await say(egress, get(f"http://{host}/")), "not among the hosts"), host
            port = "" if ":" in host else ":443"
            connect = f"CONNECT {host}{port} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
            assert is_refused(await say(egress, connect), "not among the hosts"), host
    assert (world.asked, server.heard) == ([], [])


NOT_PUBLIC = (
    PRIVATE, LOCAL, METADATA, "0.0.0.0", "100.64.0.1", "172.16.0.1", "192.168.1.1", "192.0.0.192",  # noqa: S104 -- not bound to
    "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "255.255.255.255", "168.63.129.16",
    "192.88.99.1", "::", "::1", "::ffff:10.0.0.5", "::10.0.0.5", "64:ff9b::a00:5", "64:ff9b:1::a00:5",
    "2002:a00:5::1", "2001:0:a00:5::1", "2001:db8::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1",
    "ff02::1", "2606:2800:220:1:0:5efe:a00:5",
)  # fmt: skip


async def test_one_address_that_is_not_public_condemns_the_name(world: World) -> None:
    server = await shop(world)
    for address in (PRIVATE, LOCAL, METADATA):
        await world.serve(server, address, 80)
    async with egress_socket("*.example.org", max_requests=1000) as egress:
        for number, address in enumerate(NOT_PUBLIC):
            for kind, addresses in {
                "alone": [address],
                "first": [address, PUBLIC],
                "last": [PUBLIC, address],
            }.items():
                name = f"{kind}{number}.example.org"
                world.name(name, addresses)
                answer = await say(egress, get(f"http://{name}/"))
                assert is_refused(answer, "resolves to an address that is not public"), (
                    address,
                    kind,
                    answer,
                )
                assert address.encode() not in answer, "the address tells of the network here"
    assert server.heard == []


async def test_a_name_that_is_bound_anew_leads_nowhere_else(world: World) -> None:
    """Public at first, private after: each request is resolved once, and dialled at what was vetted."""
    public, private = Server(), Server()
    await world.serve(public, PUBLIC, 80)
    await world.serve(private, PRIVATE, 80)
    world.name("turn.example", [PUBLIC], [PRIVATE])
    async with egress_socket("turn.example") as egress:
        assert status(await say(egress, get("http://turn.example/"))) == 200
        assert world.asked == ["turn.example"]
        assert is_refused(await say(egress, get("http://turn.example/")))
        assert world.asked == ["turn.example"] * 2
    assert (len(public.heard), private.heard) == (1, [])


async def test_a_grant_of_any_name_leads_to_public_addresses_alone(world: World) -> None:
    server, private = await shop(world), Server()
    for address in (PRIVATE, METADATA, LOCAL):
        await world.serve(private, address, 80)
    async with egress_socket("*.*") as egress:
        assert status(await say(egress, get("http://shop.example/"))) == 200
        for address in (PRIVATE, METADATA, LOCAL):
            world.name("inside.example", [address])
            answer = await say(egress, get("http://inside.example/"))
            assert is_refused(answer, "resolves to an address that is not public"), (address, answer)
            assert is_refused(await say(egress, get(f"http://{address}/")), "is not among the hosts")
        world.name("metadata.internal", [PUBLIC])
        assert is_refused(await say(egress, get("http://metadata.internal/")), "is not among the hosts")
        assert is_refused(await say(egress, get("http://localhost/")), "is not among the hosts")
    assert (len(server.heard), private.heard) == (1, [])


async def test_addresses_that_no_grant_names_are_refused_in_every_notation(
    world: World,
) -> None:
    server = Server()
    for address in (PRIVATE, LOCAL, METADATA):
        await world.serve(server, address, 80)
    hosts = (
        PRIVATE, "167772165", "0xa000005", "0xa.0.0.5", "10.5", "10.0.5", "012.0.0.5", "0012.0.0.05", "0x0a.0.0x5",
        "[::ffff:10.0.0.5]", "[::ffff:a00:5]", "[0:0:0:0:0:ffff:10.0.0.5]", "[::10.0.0.5]", "127.1", "2130706433",
        "0x7f.1", "0", "0.0.0.0", "[::1]", "[::]", "[fe80::1%25lo]", "[fe80::1%lo]", "[::1%lo]", METADATA,  # noqa: S104 -- not bound to
        "2852039166", "[::ffff:169.254.169.254]", "[64:ff9b::a00:5]", "[2002:a00:5::]", "127.0.0.1.", "１２７.0.0.1",
        "localhost", "localhost.", "10.0.0.5%2eshop.example",
    )  # fmt: skip
    granted = (
        "0.0.0.0/0:*",
        "10.0.0.6:*",
        "127.0.0.1:81",
        "169.254.0.0/16:*",
        "[::/0]:*",
        "localhost",
        PUBLIC,
    )
    world.name("localhost", [LOCAL])
    async with egress_socket(*granted) as egress:
        for host in hosts:
            for request in (
                get(f"http://{host}/"),
                f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}\r\n\r\n".encode(),
            ):
                assert is_refused(await say(egress, request)), request
    assert server.heard == []


async def test_a_private_address_is_reached_by_a_grant_that_names_it(world: World) -> None:
    server = Server()
    await world.serve(server, PRIVATE, 80)
    await world.serve(server, LOCAL, 81)
    world.name("api.corp", [PRIVATE])
    urls = {f"{PRIVATE}:80": f"http://{PRIVATE}/", "127.0.0.1:81": "http://127.1:81/"}
    urls |= {"10.0.0.0/8": "http://0xa.5/", "api.corp=10.0.0.0/8": "http://api.corp/"}
    for granted, url in urls.items():
        async with egress_socket(granted) as egress:
            assert status(await say(egress, get(url))) == 200, granted
            assert [contact.is_private for contact in egress.contacts] == [True]
            assert is_refused(await say(egress, get(f"http://{METADATA}/")))
    assert len(server.heard) == len(urls)


async def test_a_name_with_a_private_network_leads_nowhere_else(world: World) -> None:
    """To neither a public address, the metadata service, loopback nor another network; also later."""
    server = Server()
    for address in (PUBLIC, PRIVATE, METADATA, LOCAL):
        await world.serve(server, address, 80)
    async with egress_socket(
        "*.corp.example", "*.*", *(f"n{n}.corp.example=10.0.0.0/8" for n in range(5))
    ) as egress:
        for number, address in enumerate(
            (METADATA, LOCAL, "192.168.0.1", "fd00:ec2::254", "100.100.100.200")
        ):
            for addresses in ([address], [PRIVATE, address], [address, PRIVATE]):
                world.names.pop(f"n{number}.corp.example", None)
                world.name(f"n{number}.corp.example", addresses)
                answer = await say(egress, get(f"http://n{number}.corp.example/"))
                assert is_refused(answer, "resolves to an address that is not granted"), addresses
    world.name("turn.corp", [PRIVATE], [PUBLIC], [METADATA])
    async with egress_socket("turn.corp=10.0.0.0/8") as egress:
        asked = [status(await say(egress, get("http://turn.corp/"))) for _ in range(3)]
        assert asked == [200, 403, 403]
        assert METADATA in egress.contacts[-1].remedy, "the operator is told why"
    assert len(server.heard) == 1


async def test_a_wildcard_and_a_named_network_lead_where_each_may(world: World) -> None:
    server = await shop(world)
    await world.serve(server, PRIVATE, 80)
    world.name("api.shop.example", [PRIVATE])
    async with egress_socket("*.shop.example", "api.shop.example=10.0.0.0/8") as egress:
        assert status(await say(egress, get("http://api.shop.example/"))) == 200
        world.name("other.shop.example", [PRIVATE])
        assert is_refused(
            await say(egress, get("http://other.shop.example/")), "an address that is not public"
        )


async def test_toolkeeps_own_ports_are_refused_at_every_address_of_the_machine(world: World) -> None:
    server, ports = Server(), OwnPorts()
    for address in (PUBLIC, PRIVATE, LOCAL):
        await world.serve(server, address, 8765)
    world.name("shop.example", [PUBLIC])
    world.name("api.corp", [PRIVATE])
    granted = ("shop.example:*", "127.0.0.1:8765", "10.0.0.5:8765", "api.corp:8765=10.0.0.0/8", f"{PUBLIC}:*")
    hosts = ("shop.example", "127.0.0.1", "10.0.0.5", "api.corp", PUBLIC)
    async with egress_socket(*granted) as egress:
        ports.note({"server": ("0.0.0.0", 8765)})  # noqa: S104 -- not bound to
        for host in hosts:
            answer = await say(egress, get(f"http://{host}:8765/"))
            assert is_refused(answer, "is a port of toolkeep itself"), host
        ports.release()
        assert status(await say(egress, get("http://127.0.0.1:8765/"))) == 200
        bar_address(PRIVATE, 8765)
        assert is_refused(await say(egress, get("http://10.0.0.5:8765/")), "is a port of toolkeep itself")
    assert len(server.heard) == 1


async def test_who_stands_before_an_at_sign_is_not_the_host(world: World) -> None:
    server = await shop(world)
    await world.serve(server, PRIVATE, 80)
    urls = (
        "http://shop.example@10.0.0.5/", "http://shop.example:80@10.0.0.5/", "http://10.0.0.5#@shop.example/",
        "http://10.0.0.5\\@shop.example/", "http://10.0.0.5?@shop.example/", "http://shop.example%40@10.0.0.5/",
        "http://shop.example /", "http:shop.example/", "//shop.example/", "/", "http:///", "http://",
        "https://shop.example/", "ftp://shop.example/", "http://shop.example/a#b",
    )  # fmt: skip
    async with egress_socket("shop.example", "10.0.0.0/8") as egress:
        for url in urls:
            assert is_refused(await say(egress, get(url, "Host: shop.example"))), url
    assert server.heard == []


async def test_no_search_list_completes_a_name(world: World) -> None:
    world.name("missing.example.corp.example", [PUBLIC])
    await world.serve(Server(), PUBLIC, 80)
    async with egress_socket("missing.example") as egress:
        assert status(await say(egress, get("http://missing.example/"))) == 502
    assert set(world.asked) == {"missing.example"}


async def test_a_name_with_too_many_addresses_is_refused(world: World) -> None:
    await shop(world, PUBLIC, OTHER_PUBLIC)
    with patch.object(resolve, "RESOLVED_ADDRESSES", 1):
        async with egress_socket("shop.example") as egress:
            assert is_refused(await say(egress, get("http://shop.example/")), "more than 1 addresses")


async def test_a_resolver_that_is_silent_is_not_waited_for(world: World) -> None:
    world.names["mute.example"] = []  # the resolver breaks on it, and says nothing
    with patch.object(resolve, "RESOLVE_SECONDS", 0.2), quiet_loop():
        async with egress_socket("mute.example") as egress:
            assert status(await say(egress, get("http://mute.example/"))) == 504


@contextlib.contextmanager
def quiet_loop() -> Iterator[None]:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    try:
        yield
    finally:
        loop.set_exception_handler(None)


async def test_a_redirect_is_an_answer_and_where_it_leads_is_vetted_anew(world: World) -> None:
    private = Server()
    await world.serve(private, PRIVATE, 80)
    away = b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.5/loot\r\nContent-Length: 0\r\n\r\n"
    await shop(world, answer=away)
    async with egress_socket("shop.example", "0.0.0.0/0") as egress:
        assert status(await say(egress, get("http://shop.example/"))) == 302
        try:
            await asyncio.to_thread(opened_by_proxy(egress), "http://shop.example/")
        except urllib.error.HTTPError as error:
            assert (error.code, error.url) == (403, "http://10.0.0.5/loot")
    assert private.heard == []


# --- TLS -----------------------------------------------------------------------------------------


async def connect(egress: Any, target: str, first: bytes) -> bytes:
    """What comes back through a tunnel for its first bytes."""
    reader, writer = await asyncio.open_connection(LOCAL, egress.port)
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200"), answer
    writer.write(first)
    said = b""
    with contextlib.suppress(ConnectionError):
        while not said.startswith(b"\x16") and (more := await reader.read(65536)):
            said += more
    writer.close()
    return said


DENIED = hello_module.ACCESS_DENIED


async def test_a_tunnel_carries_one_plain_request_to_its_host(world: World) -> None:
    """As undici and others send it."""
    server = await shop(world)
    async with egress_socket("shop.example") as egress:
        request = get("http://shop.example/").replace(b"http://shop.example/", b"/")
        assert status(await connect(egress, "shop.example:80", request + request)) == 200
        for other in (request.replace(b"shop", b"shot"), get("http://shop.example/")):
            assert is_refused(await connect(egress, "shop.example:80", other))
    assert len([head for head in server.heard if head]) == 1


async def test_a_tunnel_carries_only_tls_that_names_its_host(world: World) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if data := await reader.read(65536):
            heard.append(data)

    world.name("shop.example", [PUBLIC])
    await world.serve(listen, PUBLIC, 443)
    good = client_hello("shop.example")
    bad = {
        "another name": client_hello("other.example"),
        "a name below": client_hello("a.shop.example"),
        "no name": client_hello(None),
        "an address": client_hello("93.184.216.34"),
        "a name and a port": good.replace(b"shop.example", b"shop.ex:8443"),
        "a zero in it": good.replace(b"shop.example", b"shop.examp\0e"),
        "hidden": with_extension(good, 0xFE0D, b"\0"),
        "hidden by a draft": with_extension(good, 0xFFCE, b"\0"),
        "two names": with_extension(good, 0, b"\0\x08\0\0\5o.com"),
        "another protocol": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
        "SSL 2": b"\x80\x2e\x01\x00\x02" + bytes(64),
        "an alert": b"\x15\x03\x03\x00\x02\x02\x28",
        "another handshake": b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
        "an empty record": b"\x16\x03\x01\x00\x00" + good,
        "too long": b"\x16\x03\x01\x40\x00\x01\x00\xff\xff" + bytes(20_000),
        "announced too long": b"\x16\x03\x01\x40\x00\x01\x00\xff\xff",
        "another kind of record": b"\x17" + good[1:],
        "another kind of message": good[:5] + b"\x02" + good[6:],
        "too many records": fragmented(good, 1),
        "cut short": b"\x16\x03\x01\x00\x08\x01\x00\x00\x04\x03\x03\x00\x00",
    }
    async with egress_socket("shop.example") as egress:
        for what, first in bad.items():
            assert await connect(egress, "shop.example:443", first) == DENIED, what
        assert heard == []
        for first in (good, fragmented(good, len(good) // 8), good.replace(b"shop.example", b"SHOP.Example")):
            assert await connect(egress, "shop.example:443", first) == b""
            assert b"".join(heard) == first
            heard.clear()
    assert [one.problem != "" for one in egress.contacts] == [True] * len(bad) + [False] * 3


async def test_a_server_name_is_a_name_without_port_and_no_address(world: World) -> None:
    world.name("shop.ex", [PUBLIC])
    await world.serve(Server(), PUBLIC, 443)
    with_port = client_hello("shop.example").replace(b"shop.example", b"shop.ex:8443")
    async with egress_socket("shop.ex", PUBLIC) as egress:
        assert await connect(egress, "shop.ex:443", with_port) == DENIED
        assert await connect(egress, f"{PUBLIC}:443", client_hello(PUBLIC)) == DENIED


async def test_connect_needs_a_port_also_where_every_port_is_granted(world: World) -> None:
    async with egress_socket("shop.example:*") as egress:
        answer = await say(egress, b"CONNECT shop.example HTTP/1.1\r\nHost: shop.example\r\n\r\n")
        assert is_refused(answer, "needs a port")


async def test_a_hello_that_never_ends_is_not_waited_for(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    await world.serve(Server(), PUBLIC, 443)
    with patch.object(egress_proxy, "HEAD_SECONDS", 0.2):
        async with egress_socket("shop.example") as egress:
            assert await connect(egress, "shop.example:443", client_hello("shop.example")[:-1]) == b""
    assert egress.contacts[0].problem == "the TLS ClientHello did not come in time"


async def test_certificates_are_checked_by_the_client_end_to_end(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    await world.serve(Server(), PUBLIC, 443, names=["other.example"])
    async with egress_socket("shop.example") as egress:
        try:
            await asyncio.to_thread(opened_by_proxy(egress), "https://shop.example/")
        except urllib.error.URLError as error:
            assert isinstance(error.reason, ssl.SSLCertVerificationError)
        else:
            raise AssertionError


# --- hostile requests ----------------------------------------------------------------------------


async def test_a_request_that_two_readers_understand_differently_is_refused(world: World) -> None:
    server = await shop(world)
    line, host = b"POST http://shop.example/ HTTP/1.1\r\n", b"Host: shop.example\r\n"
    hidden = b"0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: shop.example\r\n\r\n"
    requests = {
        "length and chunks": line
        + host
        + b"Content-Length: 49\r\nTransfer-Encoding: chunked\r\n\r\n"
        + hidden,
        "two lengths": line + host + b"Content-Length: 0\r\nContent-Length: 49\r\n\r\n" + hidden,
        "signed length": line + host + b"Content-Length: +3\r\n\r\nabc",
        "unknown coding": line + host + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + hidden,
        "hidden coding": line + host + b"Transfer-Encoding: xchunked\r\n\r\n" + hidden,
        "space before colon": line + host + b"Content-Length : 49\r\n\r\n" + hidden,
        "folded": line + host + b"X-A: a\r\n Content-Length: 49\r\n\r\n" + hidden,
        "LF alone": line + host + b"X-A: a\nContent-Length: 49\r\n\r\n" + hidden,
        "CR alone": line + host + b"X-A: a\rContent-Length: 49\r\n\r\n" + hidden,
        "a zero byte": line + host + b"X-A: \0\r\n\r\n",
        "no host": line + b"\r\n",
        "two hosts": line + host + b"Host: other.example\r\n\r\n",
        "another host": line + b"Host: other.example\r\n\r\n",
        "another port": line + b"Host: shop.example:8080\r\n\r\n",
        "a host with a user": line + b"Host: shop.example@other.example\r\n\r\n",
        "CONNECT with a body": b"CONNECT shop.example:80 HTTP/1.1\r\n"
        + host
        + b"Content-Length: 3\r\n\r\nabc",
        "CONNECT without a port": b"CONNECT shop.example HTTP/1.1\r\n" + host + b"\r\n",
        "CONNECT to another": b"CONNECT shop.example:80 HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "CONNECT to a URL": b"CONNECT http://shop.example/ HTTP/1.1\r\n" + host + b"\r\n",
        "another method": b"TRACE http://shop.example/ HTTP/1.1\r\n" + host + b"\r\n",
        "another version": b"GET http://shop.example/ HTTP/2.0\r\n" + host + b"\r\n",
        "no request": b"hello\r\n\r\n",
        "spaces": b"GET  http://shop.example/ HTTP/1.1\r\n" + host + b"\r\n",
    }
    async with egress_socket("shop.example") as egress:
        for what, request in requests.items():
            assert is_refused(await say(egress, request)), what
    assert server.heard == []


async def test_a_broken_body_is_not_passed_on(world: World) -> None:
    server = await shop(world)
    head = b"POST http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with egress_socket("shop.example") as egress:
        for body in (b"x\r\n", b"3\r\nabcd\r\n0\r\n\r\n", b"-1\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n"):
            assert is_refused(await say(egress, head + body)), body
    assert all(b"GET" not in heard for heard in server.heard)


async def test_what_is_sent_behind_a_request_is_never_read(world: World) -> None:
    server = await shop(world)
    two = get("http://shop.example/1") + get("http://shop.example/2")
    hidden = b"GET /hidden HTTP/1.1\r\nHost: shop.example\r\n\r\n"
    body = b"POST http://shop.example/3 HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 1\r\n\r\nx" + hidden
    async with egress_socket("shop.example") as egress:
        assert (await say(egress, two)).count(b"HTTP/1.1 200") == 1
        await say(egress, body)
    assert [heard.split(b" ")[1] for heard in server.heard] == [b"/1", b"/3"]
    assert server.heard[1].endswith(b"\r\n\r\nx")


async def test_a_giant_head_is_refused(world: World) -> None:
    server = await shop(world)
    async with egress_socket("shop.example") as egress:
        many = [f"X-{number}: {'a' * 100}" for number in range(1000)]
        for headers in (many, ["X: " + "a" * 100_000]):
            assert is_refused(await say(egress, get("http://shop.example/", "Host: shop.example", *headers)))
        long = get("http://shop.example/" + "a" * 100_000)
        assert is_refused(await say(egress, long))
    assert server.heard == []


async def test_who_says_its_head_slowly_is_not_waited_for(world: World) -> None:
    with patch.object(request_head, "HEAD_SECONDS", 0.3):
        async with egress_socket("shop.example") as egress:
            reader, writer = await asyncio.open_connection(LOCAL, egress.port)  # type: ignore[attr-defined]

            async def drip() -> None:
                with contextlib.suppress(ConnectionError):
                    while True:
                        writer.write(b"a")
                        await writer.drain()
                        await asyncio.sleep(0.05)

            dripping = asyncio.create_task(drip())
            assert status(await reader.readline()) == 504
            dripping.cancel()
            writer.close()


async def test_an_answer_that_is_none_is_told_and_a_giant_head_in_it_is_not_read(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    server = Server()
    await world.serve(server, PUBLIC, 80)
    two_lengths = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    async with egress_socket("shop.example") as egress:
        for answer in (
            b"",
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
            two_lengths,
        ):
            server.answer = answer
            assert status(await say(egress, get("http://shop.example/"))) == 502, answer[:80]


async def test_a_worker_that_leaves_ends_its_connection_and_no_other(world: World) -> None:
    release = asyncio.Event()

    async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        await release.wait()
        writer.write(OK)

    world.name("shop.example", [PUBLIC])
    await world.serve(hold, PUBLIC, 80)
    async with egress_socket("shop.example") as egress:
        for _ in range(3):
            _, writer = await asyncio.open_connection(LOCAL, egress.port)  # type: ignore[attr-defined]
            writer.write(get("http://shop.example/"))
            await writer.drain()
            writer.transport.abort()
        release.set()
        assert status(await say(egress, get("http://shop.example/"))) == 200


# --- budgets -------------------------------------------------------------------------------------


async def test_requests_are_counted_refused_ones_too(world: World) -> None:
    server = await shop(world)
    async with egress_socket("shop.example", max_requests=2) as egress:
        assert status(await say(egress, get("http://shop.example/"))) == 200
        assert is_refused(await say(egress, get("http://other.example/")), "not among")
        assert is_refused(await say(egress, get("http://shop.example/")), "has used its 2 requests")
    assert len(server.heard) == 1


async def test_bytes_are_counted_in_both_directions(world: World) -> None:
    big = b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + bytes(50_000)
    server = await shop(world, answer=big)
    async with egress_socket("shop.example", max_bytes=40_000) as egress:
        assert len(await say(egress, get("http://shop.example/"))) < 45_000
    async with egress_socket("shop.example", max_bytes=40_000) as egress:
        post = b"POST http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 50000\r\n\r\n"
        assert is_refused(await say(egress, post + bytes(50_000)), "has used its 40000 bytes")
        assert egress.budget.bytes <= 40_000
    assert all(len(heard) < 41_000 for heard in server.heard)


async def test_an_answer_that_the_budget_cuts_does_not_look_whole(world: World) -> None:
    """To HTTP/1.0 the end of the connection is the end of the answer, unless it is torn down."""
    await shop(world, answer=b"HTTP/1.1 200 OK\r\n\r\n" + bytes(200_000))
    async with egress_socket("shop.example", max_bytes=100_000) as egress:
        reader, writer = await asyncio.open_connection(LOCAL, egress.port)  # type: ignore[attr-defined]
        writer.write(get("http://shop.example/", version="1.0"))
        try:
            await reader.read()
        except ConnectionResetError:
            pass
        else:
            raise AssertionError("it looks whole")
        finally:
            writer.close()
    assert egress.contacts[0].problem == "this call has used its 100000 bytes"


async def test_bytes_of_a_tunnel_are_counted(world: World) -> None:
    await shop(world, answer=b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000))
    await world.serve(Server(b"HTTP/1.1 200 OK\r\nContent-Length: 500000\r\n\r\n" + bytes(500_000)), PUBLIC, 443,
                      names=["shop.example"])  # fmt: skip
    async with egress_socket("shop.example", max_bytes=100_000) as egress:
        try:
            await asyncio.to_thread(opened_by_proxy(egress), "https://shop.example/")
        except (OSError, http.client.HTTPException):
            pass
        else:
            raise AssertionError
        assert egress.budget.bytes <= 100_000
    assert egress.contacts[0].problem == "this call has used its 100000 bytes"


async def test_connections_beyond_the_bound_wait_their_turn(world: World) -> None:
    now, most = 0, 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.05)
        now -= 1
        writer.write(OK)

    world.name("shop.example", [PUBLIC])
    await world.serve(count, PUBLIC, 80)
    with patch.object(egress_module, "NETWORK_CONNECTIONS", 2):
        async with egress_socket("shop.example") as egress:
            asked = (say(egress, get("http://shop.example/")) for _ in range(8))
            assert [status(answer) for answer in await asyncio.gather(*asked)] == [200] * 8
    assert most == 2


async def test_a_connection_on_which_nothing_moves_ends(world: World) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    world.name("shop.example", [PUBLIC])
    await world.serve(mute, PUBLIC, 80)
    await world.serve(mute, PUBLIC, 443)
    with patch.object(relay, "NETWORK_IDLE_SECONDS", 0.2):
        async with egress_socket("shop.example") as egress:
            assert status(await say(egress, get("http://shop.example/"))) == 504
            assert await connect(egress, "shop.example:443", client_hello("shop.example")) == b""
    assert {one.problem for one in egress.contacts} == {"the connection was idle for too long"}


async def test_when_the_time_is_up_nothing_goes_on(world: World) -> None:
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    world.name("shop.example", [PUBLIC])
    await world.serve(mute, PUBLIC, 80)
    async with egress_socket("shop.example", max_seconds=0.3) as egress:
        assert await say(egress, get("http://shop.example/")) == b""
        assert all(listener.fileno() == -1 for listener in egress._listeners)
    assert egress.contacts[0].problem == "it broke off"


async def test_contacts_that_are_remembered_are_bounded(world: World) -> None:
    with patch.object(egress_module, "NETWORK_CONTACTS", 2):
        async with egress_socket("shop.example") as egress:
            for _ in range(4):
                await say(egress, get("http://other.example/"))
    assert len(egress.contacts) == 2


async def test_closing_ends_what_goes_on(world: World) -> None:
    started = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started.set()
        await reader.read()

    world.name("shop.example", [PUBLIC])
    await world.serve(mute, PUBLIC, 80)
    async with egress_socket("shop.example") as egress:
        saying = asyncio.create_task(say(egress, get("http://shop.example/")))
        await started.wait()
    assert await saying == b""
