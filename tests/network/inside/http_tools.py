"""Tools that a server answers, called through a keep. Run by `tests/execution/test_http_runner.py`."""

import asyncio
import json
import zlib
from typing import Any
from unittest.mock import patch

from tests.network.inside.egress import NOT_PUBLIC, Server
from tests.network.world import LOCAL, METADATA, OTHER_PUBLIC, PRIVATE, PUBLIC, PUBLIC_6, World
from toolkeep import Code, HttpSource, Keep, ToolResult
from toolkeep.calls import Denied, Diagnosis
from toolkeep.execution import http_call
from toolkeep.limits import REDIRECTS
from toolkeep.network import http_exchange
from toolkeep.network.hosts import read_url

DEFINITION: dict[str, Any] = {
    "name": "ask_shop",
    "description": "Ask the shop.",
    "version": "1.0.0",
    "danger": "safe",
    "capabilities": ["net.write:shop.example"],
    "parameters": {
        "type": "object",
        "properties": {
            "title": {"type": "string", "description": "The title."},
            "count": {"type": "integer", "description": "How many."},
            "tags": {"type": "array", "items": {"type": "string"}, "description": "Words."},
        },
    },
}


def answer(
    body: bytes = b"{}", *headers: str, status: str = "200 OK", kind: str = "application/json"
) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Type: {kind}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def redirect(location: str, status: int = 302) -> bytes:
    return answer(b"", f"Location: {location}", status=f"{status} Found")


def diagnosis(result: ToolResult) -> Diagnosis:
    assert result.error is not None
    assert result.error.diagnosis is not None
    return result.error.diagnosis


class Shop:
    """A keep with one tool, and an agent that holds every host that the tests name."""

    def __init__(
        self, url: str = "http://shop.example", path: str = "/", *, method: str = "POST",
        headers: dict[str, str] | None = None, secrets: dict[str, str] | None = None,
        granted: tuple[str, ...] = (), **changes: Any,
    ) -> None:  # fmt: skip
        self.keep = Keep(tool_secrets={"ask_shop": secrets or {}})
        source = HttpSource(url=url, headers=headers or {})
        self.keep.register(source.tool({**DEFINITION, **changes}, path, method=method))
        hosts = ("shop.example:*", "*.shop.example:*", "other.example:*", "0.0.0.0/0:*", "[::/0]:*",
                 f"{PUBLIC}:*", *granted)  # fmt: skip
        held = [f"{kind}:{host}" for kind in ("net.read", "net.write") for host in hosts]
        self.keep.declare_agent("ada", capabilities=held)

    async def call(self, **arguments: Any) -> ToolResult:
        result = await self.keep.call("ask_shop", arguments, agent="ada")
        assert PRIVATE not in result.text, "an address tells of the network here"
        return result


async def serve(world: World, said: bytes, name: str = "shop.example", address: str = PUBLIC) -> Server:
    server = Server(said)
    world.name(name, [address])
    await world.serve(server, address, 80)
    return server


# --- what gets through ---------------------------------------------------------------------------


async def test_arguments_go_as_json_and_the_answer_comes_as_json(world: World) -> None:
    server = await serve(world, answer(b'{"found": [1, 2]}'))
    result = await Shop(path="/find").call(title="Dünen", count=2)
    assert (result.value, result.isolation) == ({"found": [1, 2]}, "remote"), result.text
    head, _, body = server.heard[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /find HTTP/1.1\r\nHost: shop.example\r\n")
    assert b"Accept-Encoding: identity" in head and b"Content-Type: application/json" in head  # noqa: PT018 -- one thing
    assert json.loads(body) == {"title": "Dünen", "count": 2}


async def test_places_in_path_and_query_are_filled_and_the_rest_becomes_the_query(world: World) -> None:
    server = await serve(world, answer())
    shop = Shop(
        path="/books/{title}/x?n={count}&fixed=1", method="GET", capabilities=["net.read:shop.example"]
    )
    assert (await shop.call(title="a/b ?#%&=é", tags=["x y", "&"])).ok
    assert (await shop.call(title="Dune", count=3)).ok
    assert [heard.split(b" ")[1] for heard in server.heard] == [
        b"/books/a%2Fb%20%3F%23%25%26%3D%C3%A9/x?fixed=1&tags=x%20y&tags=%26",
        b"/books/Dune/x?n=3&fixed=1",
    ]


async def test_what_the_path_uses_is_not_in_the_body(world: World) -> None:
    server = await serve(world, answer())
    for method in ("PUT", "PATCH", "POST"):
        assert (await Shop(path="/books/{title}", method=method).call(title="Dune", count=3)).ok
    assert (await Shop(path="/books/{title}", method="DELETE").call(title="Dune", count=3)).ok
    asked = [
        (heard.split(b" ")[0], heard.split(b" ")[1], heard.partition(b"\r\n\r\n")[2])
        for heard in server.heard
    ]
    assert asked == [
        (b"PUT", b"/books/Dune", b'{"count": 3}'), (b"PATCH", b"/books/Dune", b'{"count": 3}'),
        (b"POST", b"/books/Dune", b'{"count": 3}'), (b"DELETE", b"/books/Dune?count=3", b""),
    ]  # fmt: skip


async def test_https_is_asked_with_a_checked_certificate(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    await world.serve(Server(answer(b'"ok"')), PUBLIC, 443, names=["shop.example"])
    assert (await Shop("https://shop.example").call()).value == "ok"


async def test_ipv6_is_asked(world: World) -> None:
    server = await serve(world, answer(b'"six"'), address=PUBLIC_6)
    result = await Shop(f"http://[{PUBLIC_6}]", capabilities=[f"net.write:[{PUBLIC_6}]"]).call()
    assert (result.value, f"Host: [{PUBLIC_6}]\r\n".encode() in server.heard[0]) == ("six", True), result.text


async def test_a_host_that_an_argument_names_is_reached_by_the_address_that_it_names(world: World) -> None:
    await serve(world, answer(b'"six"'), address=PUBLIC_6)
    site = {"type": "string", "description": "A site.", "x-touches": "net.write"}
    parameters = {"type": "object", "properties": {"site": site}}
    shop = Shop(f"http://[{PUBLIC_6}]", capabilities=["net.write"], parameters=parameters)
    assert (await shop.call(site=f"http://[{PUBLIC_6}]/")).value == "six"
    assert (await shop.call(site="http://shop.example/")).code is Code.NOT_PERMITTED


async def test_secrets_stand_in_headers_and_in_no_error(world: World) -> None:
    server = await serve(world, answer(b"no, s3cret is wrong\x1b", status="401 No", kind="text/plain"))
    shop = Shop(headers={"Authorization": "Bearer {secret:key}", "X-Fixed": "1"}, secrets={"key": "s3cret"})
    result = await shop.call()
    assert b"Authorization: Bearer s3cret\r\nX-Fixed: 1\r\n" in server.heard[0]
    assert (result.code, "s3cret" in result.text, "\x1b" in result.text) == (Code.TOOL_FAILED, False, False)
    assert "its server answered with status 401: no, (hidden) is wrong" in result.text
    missing = await Shop(headers={"Authorization": "{secret:key}"}).call()
    assert missing.code is Code.SECRET_UNAVAILABLE
    broken = await Shop(headers={"A": "{secret:key}"}, secrets={"key": "a\r\nX-Evil: 1"}).call()
    assert (broken.code, len(server.heard)) == (Code.NOT_RUNNABLE, 1)


async def test_a_server_does_not_say_its_secrets_back(world: World) -> None:
    server = await serve(world, b"")
    known = {"key": 's3cret"key', "pair": "ada:pass-w0rd", "unused": "1234567890"}
    headers = {"Authorization": "Basic {basic:pair}", "X-Key": "{secret:key}"}
    binary = {"result_type": "binary", "normalization": "binary"}
    cases: list[tuple[bytes, dict[str, Any], Any]] = [
        (answer(b'{"s3cret\\"key": ["I know \\u00733cret\\"key"]}'), {}, {"(hidden)": ["I know (hidden)"]}),
        (answer('é s3cret"key'.encode("utf-16"), kind="text/plain; charset=utf-16"), {}, "é (hidden)"),
        (answer(b'\xffs3cret"key\x00', kind="image/png"), binary, b"\xff(hidden)\x00"),
        (answer(b'"Basic YWRhOnBhc3MtdzByZA== is ada:pass-w0rd"'), {}, "Basic (hidden) is (hidden)"),
        (answer(b'"1234567890"'), {}, "1234567890"),
    ]
    for said, changes, value in cases:
        server.answer = said
        result = await Shop(headers=headers, secrets=known, **changes).call()
        assert (result.code, result.value) == (None, value), (said, result.text)


async def test_a_server_does_not_say_its_secrets_back_in_a_redirect(world: World) -> None:
    await serve(world, redirect("http://s3cret-key.shop.example/", 307))
    held = ["net.write:shop.example", "net.write:*.shop.example"]
    shop = Shop(headers={"X-Key": "{secret:key}"}, secrets={"key": "s3cret-key"}, capabilities=held)
    assert "(hidden).shop.example" in diagnosis(await shop.call()).text
    server = await serve(world, answer(status="404 Gone"), "s3cret-key.shop.example", OTHER_PUBLIC)
    assert "its server answered with status 404" in (await shop.call()).text
    server.answer = answer(status="500 Gone")
    assert diagnosis(await shop.call()).detail == "(hidden).shop.example answered with status 500"


async def test_answers_are_read_as_their_type_says(world: World) -> None:
    cases: list[tuple[bytes, dict[str, Any], Any]] = [
        (answer(b'{"a": 1}', kind="application/problem+json"), {}, {"a": 1}),
        (answer("Dünen".encode(), kind="text/plain"), {}, "Dünen"),
        (answer("Dünen".encode("latin-1"), kind="text/plain; charset=iso-8859-1"), {}, "Dünen"),
        (answer(b'{"a": 1}'), {"result_type": "string"}, '{"a": 1}'),
        (answer(b'{"a": 1}', kind="text/html"), {"result_type": "object"}, {"a": 1}),
        (
            answer(b"\xff\x00", kind="image/png"),
            {"result_type": "binary", "normalization": "binary"},
            b"\xff\x00",
        ),
        (answer(b"", status="204 None"), {}, None),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n", {}, "ab"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b'"ok"'), {}, "ok"),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", {}, "until the end"),
    ]
    server = await serve(world, b"")
    for said, changes, value in cases:
        server.answer = said
        result = await Shop(**changes).call()
        assert (result.code, result.value) == (None, value), (said, result.text)


# --- what does not -------------------------------------------------------------------------------


async def test_what_goes_wrong_is_told_by_its_code(world: World) -> None:
    server = await serve(world, b"")
    cases: list[tuple[bytes, dict[str, Any], Code, str]] = [
        (answer(status="404 No"), {}, Code.TOOL_FAILED, "its server answered with status 404"),
        (answer(status="503 No"), {}, Code.TOOL_FAILED, "its server answered with status 503"),
        (answer(b"[1,"), {}, Code.OUTPUT_INVALID, "what its server answered is not JSON"),
        (answer(b"NaN"), {}, Code.OUTPUT_INVALID, "is not JSON"),
        (answer(b"hello", kind="text/plain"), {"result_type": "array"}, Code.OUTPUT_INVALID, "is not JSON"),
        (answer(b"\xff", kind="text/plain"), {}, Code.OUTPUT_INVALID, "is not text that can be read"),
        (answer(b"ab", kind="text/plain; charset=hex"), {}, Code.OUTPUT_INVALID, "is not text that can be read"),
        (answer(b"+AGE-", kind="text/plain; charset=utf-7"), {}, Code.OUTPUT_INVALID, "is not text"),
        (answer(b"[" * 200_001 + b"]" * 200_001), {}, Code.OUTPUT_TOO_BIG, "is too much"),
        (answer(zlib.compress(bytes(9999)), "Content-Encoding: deflate"), {}, Code.TOOL_FAILED, "sent a compressed response"),
        (b"", {}, Code.TOOL_FAILED, "broke off, or is not HTTP/1.1; whether what was asked for was done"),
        (b"SSH-2.0-x\r\n\r\n", {}, Code.TOOL_FAILED, "is not HTTP/1.1"),
        (answer()[:-1], {}, Code.TOOL_FAILED, "broke off"),
        (answer(b"{}", "X: " + "a" * 200_000), {}, Code.TOOL_FAILED, "broke off, or is not HTTP/1.1"),
        (answer(bytes(5000)), {"resource_bounds": {"max_network": {"max_requests": 1, "max_bytes": 4000}}},
         Code.NOT_PERMITTED, "has used its 4000 bytes"),
    ]  # fmt: skip
    for said, changes, code, words in cases:
        server.answer = said
        result = await Shop(**changes).call()
        assert (result.code, words in result.text, "ask_shop" in result.text) == (code, True, True), (
            result.text
        )


async def test_an_answer_beyond_the_cap_is_not_read_to_its_end(world: World) -> None:
    await serve(world, answer(bytes(300_000), kind="text/plain"))
    with patch.object(http_call, "OUTPUT_CAP_BYTES", 100_000):
        result = await Shop().call()
    assert (result.code, "more than 100000 bytes" in result.text) == (Code.OUTPUT_TOO_BIG, True)


async def test_a_server_that_cannot_be_reached_or_trusted_is_told(world: World) -> None:
    world.name("shop.example", [OTHER_PUBLIC])
    refused = await Shop().call()
    assert (refused.code, "its server could not be reached" in refused.text) == (Code.TOOL_FAILED, True)
    world.name("other.example", [PUBLIC])
    await world.serve(Server(), PUBLIC, 443, names=["shop.example"])
    untrusted = await Shop("https://other.example", capabilities=["net.write:other.example"]).call()
    assert "the certificate of its server is invalid" in untrusted.text
    plain = await serve(world, answer(), "third.shop.example")
    await world.serve(plain, PUBLIC, 8443)
    with patch.object(http_exchange, "DIAL_SECONDS", 0.5):
        shop = Shop("https://third.shop.example:8443", capabilities=["net.write:third.shop.example:8443"])
        no_tls = await shop.call()
    assert (no_tls.code, "TLS with" in no_tls.text, plain.heard) == (Code.TOOL_FAILED, True, [b""])
    missing = await Shop("http://no.shop.example", capabilities=["net.write:no.shop.example"]).call()
    assert "its server could not be resolved" in missing.text
    assert "'no.shop.example' could not be resolved" in diagnosis(missing).detail


async def test_a_server_that_is_silent_is_given_up_at_the_deadline(world: World) -> None:
    gone = asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await reader.read()
            await reader.read()
        finally:
            gone.set()

    world.name("shop.example", [PUBLIC])
    await world.serve(mute, PUBLIC, 80)
    shop = Shop()
    result = await shop.keep.call("ask_shop", {}, agent="ada", timeout_s=0.3)
    assert result.code is Code.TIMED_OUT
    await gone.wait()


async def test_failures_suspend_the_tool(world: World) -> None:
    await serve(world, answer(status="500 No"))
    shop = Shop()
    codes = [(await shop.call()).code for _ in range(6)]
    assert codes == [Code.TOOL_FAILED] * 5 + [Code.CIRCUIT_OPEN]


async def test_only_hosts_that_the_definition_requires_are_reached_though_the_agent_holds_more(
    world: World,
) -> None:
    server = await serve(world, answer())
    for capabilities in (
        [],
        ["net.write"],
        ["net.write:*"],
        ["net.write:other.example"],
        ["net.read:shop.example"],
    ):
        result = await Shop(capabilities=capabilities).call()
        assert result.code is Code.NOT_PERMITTED, capabilities
        assert "does not require net.write:shop.example" in result.text, result.text
    reads = await Shop(method="GET", capabilities=["net.write:other.example"]).call()
    assert "does not require net.read:shop.example" in reads.text
    assert (server.heard, world.asked) == ([], [])


async def test_a_name_that_leads_inside_is_refused(world: World) -> None:
    server = await serve(world, answer(), address=PRIVATE)
    for addresses in (*([one] for one in NOT_PUBLIC), [PUBLIC, PRIVATE], [PRIVATE, PUBLIC]):
        world.name("shop.example", list(addresses))
        result = await Shop().call()
        assert result.code is Code.NOT_PERMITTED, addresses
        assert "its server resolves to an address that is not public" in result.text
        assert (diagnosis(result).denied, diagnosis(result).subject) == (Denied.HOST, "shop.example")
    assert server.heard == []


async def test_private_addresses_that_no_grant_names_are_refused(world: World) -> None:
    server = Server(answer())
    for address in (PRIVATE, LOCAL, METADATA):
        await world.serve(server, address, 80)
    for host in (
        PRIVATE,
        "167772165",
        "0xa.5",
        "[::ffff:10.0.0.5]",
        LOCAL,
        "127.1",
        METADATA,
        "[::1]",
        "[fd00::1]",
    ):
        shop = Shop(f"http://{host}", capabilities=[f"net.write:{read_url(f'http://{host}/').scope}"])
        result = await shop.keep.call("ask_shop", {}, agent="ada")
        assert (result.code, "has no grant for net.write" in result.text) == (Code.NOT_PERMITTED, True), host
    assert server.heard == []


async def test_a_private_server_is_asked_by_a_grant_that_names_it_and_the_record_says_so(
    world: World,
) -> None:
    server = Server(answer())
    await world.serve(server, PRIVATE, 80)
    await world.serve(server, LOCAL, 8080)
    world.name("api.corp", [PRIVATE])
    for url, needs, granted, where in (
        ("http://10.0.0.5", "10.0.0.5", "10.0.0.0/8", "10.0.0.5/32"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1:8080", "127.0.0.1/32"),
        ("http://api.corp", "api.corp", "api.corp=10.0.0.0/8", "10.0.0.0/8"),
    ):
        shop = Shop(url, capabilities=[f"net.write:{needs}"], granted=(granted,))
        result = await shop.keep.call("ask_shop", {}, agent="ada")
        assert result.ok, (url, result.text)
        assert result.decision is not None
        assert result.decision.touches == (f"net.write:{needs} (private: {where})",)
    plain = Shop("http://api.corp", capabilities=["net.write:api.corp"], granted=("api.corp",))
    result = await plain.keep.call("ask_shop", {}, agent="ada")
    assert (result.code, PRIVATE in result.text) == (Code.NOT_PERMITTED, False)
    assert diagnosis(result).remedy == (
        f"it resolves to {PRIVATE}, which needs its own grant: api.corp:80={PRIVATE}"
    )
    assert len(server.heard) == 3


async def test_a_name_that_is_bound_anew_is_dialled_where_it_was_vetted(world: World) -> None:
    private = Server(answer(b'"loot"'))
    await world.serve(private, PRIVATE, 80)
    await serve(world, answer(b'"public"'))
    world.name("shop.example", [PUBLIC], [PRIVATE])
    assert (await Shop().call()).value == "public"
    assert world.asked == ["shop.example"]
    assert (await Shop().call()).code is Code.NOT_PERMITTED
    assert private.heard == []


async def test_an_argument_does_not_lead_to_another_place_of_the_server(world: World) -> None:
    server = await serve(world, answer())
    shop = Shop(path="/books/{title}/x", method="GET", capabilities=["net.read:shop.example"])
    for title in ("..", ".", "../admin", "a/../b", "..\\admin", "%2e%2e", "a/%2E%2E/b", ""):
        assert (await shop.call(title=title)).code is Code.TOOL_FAILED, title
    assert (await shop.call()).code is Code.TOOL_FAILED
    assert server.heard == []
    assert (await shop.call(title="a..b/...")).ok


# --- redirects -----------------------------------------------------------------------------------

BOTH = ["net.write:shop.example", "net.write:other.example", "net.write:0.0.0.0/0"]


async def test_a_redirect_is_followed_where_the_call_may_go_and_headers_stay_at_home(world: World) -> None:
    first = await serve(world, b"")
    first.turns = [redirect("/there", 307), redirect("http://other.example/far", 307)]
    second = await serve(world, answer(b'"there"'), "other.example", OTHER_PUBLIC)
    shop = Shop(headers={"X-Key": "{secret:key}"}, secrets={"key": "s3cret"}, capabilities=BOTH)
    assert (await shop.call(count=1)).value == "there"
    assert [b"s3cret" in heard for heard in first.heard] == [True, True]
    assert [heard.split(b" ")[1] for heard in first.heard] == [b"/", b"/there"]
    assert b"s3cret" not in second.heard[0]
    assert second.heard[0].startswith(b"POST /far HTTP/1.1") and second.heard[0].endswith(b'{"count": 1}')  # noqa: PT018 -- one thing


async def test_a_post_that_is_redirected_becomes_a_get_unless_its_method_is_kept(world: World) -> None:
    server = await serve(world, b"")
    for status, method in ((301, b"GET"), (302, b"GET"), (303, b"GET"), (307, b"POST"), (308, b"POST")):
        server.heard.clear()
        server.turns = [redirect("/there", status), answer(b'"there"')]
        assert (await Shop().call(count=1)).value == "there", status
        assert [heard.split(b" ")[0] for heard in server.heard] == [b"POST", method], status


async def test_a_redirect_to_what_may_not_be_reached_is_refused(world: World) -> None:
    server = await serve(world, b"")
    private = Server(answer())
    await world.serve(private, PRIVATE, 80)
    await world.serve(private, OTHER_PUBLIC, 80)
    world.name("third.example", [OTHER_PUBLIC])
    world.name("inside.example", [PRIVATE])
    locations = (
        "http://10.0.0.5/", "http://167772165/", "//10.0.0.5/", "http://[::ffff:a00:5]/", "http://inside.example/",
        "http://third.example/", "http://other.example@10.0.0.5/", "http://shop.example:8080/", "file:///etc/passwd",
        "http://10.0.0.5\\@shop.example/", "gopher://shop.example/", "http://", "http:///x", "ws://shop.example/",
    )  # fmt: skip
    for location in locations:
        server.answer = redirect(location, 307)
        shop = Shop(capabilities=[*BOTH, "net.write:inside.example"])
        shop.keep.declare_agent("ada", capabilities=[*BOTH, "net.write:inside.example"])
        result = await shop.call()
        assert result.code in (Code.NOT_PERMITTED, Code.TOOL_FAILED), (location, result.text)
    assert private.heard == []


async def test_a_redirect_from_https_to_http_is_refused(world: World) -> None:
    server = await serve(world, answer())
    await world.serve(Server(redirect("http://shop.example/", 307)), PUBLIC, 443, names=["shop.example"])
    result = await Shop("https://shop.example").call()
    assert (result.code, "from https to http" in result.text) == (Code.NOT_PERMITTED, True)
    assert server.heard == []


async def test_a_redirect_to_read_needs_no_more_than_reading_and_one_to_write_needs_writing(
    world: World,
) -> None:
    await serve(world, redirect("http://other.example/", 307))
    other = await serve(world, answer(), "other.example", OTHER_PUBLIC)
    result = await Shop(capabilities=["net.write:shop.example", "net.read:other.example"]).call()
    assert (result.code, other.heard) == (Code.NOT_PERMITTED, [])


async def test_a_loop_of_redirects_ends(world: World) -> None:
    server = await serve(world, redirect("/again"))
    result = await Shop().call()
    assert (result.code, f"more than {REDIRECTS} times" in result.text) == (Code.TOOL_FAILED, True)
    assert len(server.heard) == REDIRECTS + 1
    bounded = await Shop(resource_bounds={"max_network": {"max_requests": 2, "max_bytes": 10_000}}).call()
    assert (bounded.code, "has used its 2 requests" in bounded.text) == (Code.NOT_PERMITTED, True)


async def test_isolation_that_nobody_here_could_give_is_refused(world: World) -> None:
    for level in ("standard", "strict", "restricted"):
        result = await Shop(constraints={"required_isolation": level}).call()
        assert result.code is Code.ISOLATION_UNAVAILABLE
