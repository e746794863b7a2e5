"""What a confined worker reaches through its way out. Run by `tests/execution/persistent/test_egress_port.py`."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.execution.denied import fetch_another
from tests.network.inside.egress import Server
from tests.network.inside.http_tools import answer, diagnosis, redirect, serve
from tests.network.world import LOCAL, OTHER_PUBLIC, PRIVATE, PUBLIC, World
from toolkeep import Code, Keep, ToolResult
from toolkeep.calls import Denied
from toolkeep.events import ContactRefused, Event, HostContacted
from toolkeep.sandbox.launch import interpreter
from toolkeep.sources.process_source import ProcessSource
from toolkeep.tools.catalog import built_in

PAGE = b"<html><head><title>Shelf</title><script>x()</script></head><body><h1>Books</h1><a href='/b'>Dune</a>"


class BuiltIns:
    """The built-in tools, as any other provider would bring them."""

    name = "mine"
    priority = 50

    def __init__(self, search_url: str = "") -> None:
        self._search_url = search_url

    def get_tool_definitions(self) -> list[Any]:
        return built_in(self._search_url)


async def fetch(url: str, *granted: str, **arguments: Any) -> ToolResult:
    async with Keep() as keep:
        keep.load(BuiltIns())
        held = [f"net.read:{host}" for host in granted or ("shop.example",)]
        keep.declare_agent("ada", capabilities=held, permissions=["tool.network.fetch"])
        result = await keep.call("http_fetch", {"url": url, **arguments}, agent="ada")
    assert PRIVATE not in result.text, "an address tells of the network here"
    return result


async def test_a_page_is_fetched_and_read(world: World) -> None:
    server = await serve(world, answer(PAGE, kind="text/html; charset=utf-8"))
    result = await fetch("http://shop.example/shelf?a=b", headers={"Accept-Language": "de"})
    assert (result.isolation, result.status) == ("strict", "ok"), result.text
    assert result.value == (
        f"[200 text/html, {len(PAGE)} bytes from http://shop.example/shelf?a=b]\n"
        "Shelf\n\n# Books\nDune [http://shop.example/b]"
    )
    assert b"GET /shelf?a=b HTTP/1.1" in server.heard[0]
    assert b"Accept-Language: de" in server.heard[0]


async def test_tls_is_checked_inside(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    await world.serve(Server(answer(b'"ok"')), PUBLIC, 443, names=["other.example"])
    result = await fetch("https://shop.example/")
    assert (result.code, "CERTIFICATE_VERIFY_FAILED" in result.text) == (Code.TOOL_FAILED, True), result.text


async def test_another_host_than_the_granted_is_refused_before_anything_runs(world: World) -> None:
    await serve(world, answer(b"x"), "other.example")
    result = await fetch("http://other.example/")
    assert result.code is Code.NOT_PERMITTED, result.text


async def test_a_redirect_leads_no_further_than_the_call(world: World) -> None:
    await serve(world, redirect("http://other.example/"))
    other = Server(answer(b"loot"))
    world.name("other.example", [OTHER_PUBLIC])
    await world.serve(other, OTHER_PUBLIC, 80)
    result = await fetch("http://shop.example/", "shop.example", "other.example")
    assert (result.code, other.heard) == (Code.TOOL_FAILED, []), result.text
    assert (diagnosis(result).denied, diagnosis(result).subject) == (Denied.HOST, "other.example:80")


async def test_a_denied_host_is_named_to_the_operator_and_to_the_model_as_its_argument_at_most(
    world: World,
) -> None:
    await serve(world, answer(b"x"))
    async with Keep() as keep:
        keep.register(fetch_another)
        keep.declare_agent("ada", capabilities=["net.read:shop.example"])
        named = {"url": "http://shop.example/", "other": "http://other.example/a"}
        mirrored = {**named, "other": named["other"][::-1]}
        results = [await keep.call("fetch_another", one, agent="ada") for one in (named, mirrored)]
    for result, path in zip(results, ("/other", ""), strict=True):
        assert (diagnosis(result).denied, diagnosis(result).subject) == (Denied.HOST, "other.example:80")
        assert "is not among the hosts that this call may reach" in diagnosis(result).detail
        assert "HTTPError: HTTP Error 403" in diagnosis(result).detail
        assert result.error is not None
        assert (result.error.errors[0].path, "other.example" in result.text) == (path, False)


async def test_a_name_that_leads_inside_is_refused(world: World) -> None:
    inside = Server(answer(b"loot"))
    world.name("shop.example", [LOCAL])
    await world.serve(inside, LOCAL, 80)
    result = await fetch("http://shop.example/")
    assert (result.code, inside.heard) == (Code.TOOL_FAILED, []), result.text


async def test_headers_that_are_not_the_callers_are_refused(world: World) -> None:
    server = await serve(world, answer(b"x"))
    for headers in ({"Host": "a"}, {"Proxy-Authorization": "a"}, {"A": "b\r\nC: d"}, {"A b": "c"}):
        result = await fetch("http://shop.example/", headers=headers)
        assert result.code is Code.TOOL_FAILED, result.text
    assert server.heard == []


async def test_an_error_of_the_server_is_told(world: World) -> None:
    await serve(world, answer(b"no such book", status="404 Not Found", kind="text/plain"))
    result = await fetch("http://shop.example/")
    assert (result.code, "404" in result.text, "no such book" in result.text) == (
        Code.TOOL_FAILED,
        True,
        True,
    )


async def test_what_is_not_text_is_left_out(world: World) -> None:
    await serve(world, answer(b"\x89PNG", kind="image/png"))
    result = await fetch("http://shop.example/")
    assert result.value == "[200 image/png, 4 bytes from http://shop.example/]\n[not text, so it is left out]"


async def test_two_calls_at_once_have_ways_of_their_own(world: World) -> None:
    await serve(world, answer(b"shop", kind="text/plain"))
    await serve(world, answer(b"other", kind="text/plain"), "other.example", OTHER_PUBLIC)
    results = await asyncio.gather(
        fetch("http://shop.example/"), fetch("http://other.example/", "other.example")
    )
    assert [result.value.splitlines()[1] for result in results] == ["shop", "other"]


# --- the web, searched ------------------------------------------------------------------------------


async def search(url: str, query: str = "dune", *granted: str) -> ToolResult:
    async with Keep() as keep:
        keep.load(BuiltIns(url))
        held = [f"net.read:{host}" for host in granted or ("search.example",)]
        keep.declare_agent("ada", capabilities=held, permissions=["tool.network.fetch"])
        return await keep.call("web_search", {"query": query, "max_results": 2}, agent="ada")


async def engine(world: World, said: bytes) -> Server:
    server = Server(said)
    world.name("search.example", [PUBLIC])
    await world.serve(server, PUBLIC, 80)
    return server


URL = "http://search.example/search"  # no worker trusts the authority of this world


async def test_results_are_told_in_words(world: World) -> None:
    results = [
        {"title": f"Book {n}", "url": f"https://b.example/{n}", "content": "A\n book."} for n in range(3)
    ]
    server = await engine(world, answer(json.dumps({"results": results}).encode()))
    result = await search(URL, "düne & co")
    assert result.value == "Book 0\nhttps://b.example/0\nA book.\n\nBook 1\nhttps://b.example/1\nA book.", (
        result.text
    )
    assert b"GET /search?q=d%C3%BCne+%26+co&format=json HTTP/1.1" in server.heard[0]


async def test_what_is_no_list_of_results_is_said_so(world: World) -> None:
    server = await engine(world, b"")
    for said in (b"<html>", b"[]", b"{}", b'{"results": 5}', b'{"results": [5]}', b"[" * 100_000):
        server.answer = answer(said)
        assert "did not return a list of results" in (await search(URL)).text


async def test_an_engine_that_gives_no_json_is_said_so(world: World) -> None:
    await engine(world, answer(b"", status="403 Forbidden"))
    assert "it must allow the format json" in (await search(URL)).text


async def test_without_an_engine_the_answer_says_what_to_do(world: World) -> None:
    assert "set web_search.url" in (await search("")).text


async def test_the_engine_is_asked_for_agents_that_may_talk_to_it(world: World) -> None:
    server = await engine(world, answer(b'{"results": []}'))
    assert (await search(URL)).value == "[nothing was found]"
    assert (await search(URL, "dune", "other.example")).code is Code.NOT_PERMITTED
    assert len(server.heard) == 1


# --- programs that stay, and what is told of contacts -------------------------------------------

ASKER = str(Path(__file__).resolve().parent / "asker.py")


async def ask(held: str, *urls: str) -> tuple[list[Any], list[tuple[str, str, str]]]:
    """What a program that stays gets for some addresses, one call each, and what was told of its contacts."""
    told: list[tuple[str, str, str]] = []

    def note(event: Event) -> None:
        if isinstance(event, HostContacted):
            told.append((event.method, event.host, ""))
        if isinstance(event, ContactRefused):
            told.append((event.method, event.host, event.reason))

    source = ProcessSource(argv=[interpreter(), "-I", "-S", ASKER], code=[ASKER])
    definition = {
        "name": "ask",
        "description": "Asks.",
        "side_effects": ["NetRead"],
        "capabilities": [held],
        "parameters": {"type": "object", "properties": {"url": {"type": "string"}}},
        "resource_bounds": {"max_network": {"max_requests": 1, "max_bytes": 10_000}},
    }
    async with Keep() as keep:
        keep.subscribe(note)
        keep.register(source.tool(definition))
        keep.declare_agent("ada", capabilities=[held])
        return [(await keep.call("ask", {"url": url}, agent="ada")).text for url in urls], told


async def test_a_program_that_stays_reaches_its_hosts_in_each_call_and_it_is_told(world: World) -> None:
    await serve(world, answer(b"shop", kind="text/plain"))
    said, told = await ask("net.read:shop.example", *["http://shop.example/"] * 3, "http://other.example/")
    assert said[:3] == ["shop"] * 3, said  # the budget is of one request, and of one call
    assert "is not among the hosts that this call may reach" in said[3], said
    assert [one[:2] for one in told] == [("GET", "shop.example")] * 3 + [("GET", "other.example")]
    assert [bool(one[2]) for one in told] == [False, False, False, True]


async def test_a_program_that_may_only_read_has_no_tls(world: World) -> None:
    await serve(world, answer(b"shop", kind="text/plain"))
    said, _ = await ask("net.read:shop.example", "https://shop.example/")
    assert "takes net.write of 'shop.example" in said[0], said
