"""Operations of OpenAPI documents, called through a keep. Run by `tests/sources/openapi/test_calls.py`."""

import asyncio
import json
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from tests.network.inside.egress import Server
from tests.network.inside.http_tools import answer, redirect, serve
from tests.network.world import OTHER_PUBLIC, PRIVATE, PUBLIC, World
from tests.sources.openapi.documents import described, keep_of, operation
from toolkeep import Code, Danger, Keep, ToolResult
from toolkeep.config.settings import Run
from toolkeep.execution import http_call
from toolkeep.sources.openapi.operation_import import ImportOptions, import_document

BOOK = {"type": "object", "properties": {"title": {"type": "string"}}}
ALL = described(
    {
        "/books/{id}{matrix}": {
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
                {"name": "matrix", "in": "path", "required": True, "style": "matrix", "explode": True, "schema": {"type": "array", "items": {"type": "string"}}},
            ],
            "get": operation(
                "find",
                parameters=[
                    {"name": "id", "in": "query", "schema": {"type": "integer"}},
                    {"name": "tags", "in": "query", "explode": False, "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "words", "in": "query", "style": "spaceDelimited", "explode": False, "schema": {"type": "array", "items": {"type": "string"}}},
                    {"name": "filter", "in": "query", "style": "deepObject", "schema": {"type": "object"}},
                    {"name": "page[size]", "in": "query", "schema": {"type": "integer"}},
                    {"name": "shape", "in": "query", "content": {"application/json": {"schema": {"type": "object"}}}},
                    {"name": "X-Trace", "in": "header", "schema": {"type": "string"}},
                    {"name": "flavour", "in": "cookie", "schema": {"type": "string"}},
                    {"name": "Accept", "in": "header", "schema": {"type": "string"}},
                ],
                responses={"200": {"description": "ok", "content": {"application/json": {"schema": BOOK}}}},
            ),
        },
        "/books": {
            "post": operation("write", requestBody={"required": True, "content": {"application/json": {"schema": BOOK}}}),
            "put": operation("form", requestBody={"content": {"application/x-www-form-urlencoded": {"schema": {"type": "object"}, "encoding": {"deep": {"style": "deepObject"}, "shape": {"contentType": "application/json"}}}}}),
            "patch": operation("text", requestBody={"content": {"text/plain": {"schema": {"type": "string"}}}}),
            "delete": operation("remove"),
        },
    },
    security=[{"key": [], "pass": [], "asked": [], "baked": []}],
    components={
        "securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "pass": {"type": "http", "scheme": "basic"},
            "asked": {"type": "apiKey", "in": "query", "name": "api_key"},
            "baked": {"type": "apiKey", "in": "cookie", "name": "session"},
        }
    },
)  # fmt: skip
SAFE = dict.fromkeys(("upload", "raw", "get"), Danger.SAFE)
SECRETS = {"key": "k-123456", "pass": "ada:lovelace", "asked": "q&123456", "baked": "c-123456"}


def given(*, secrets: dict[str, str], url: str = "http://shop.example/v1") -> Keep:
    """A keep whose tools have these secrets, as those of an upstream have them."""
    keep = Keep()
    offers = [made.offer for made in import_document(ALL, ImportOptions(name="shop", url=url)) if made.offer]
    for offer in offers:
        runner = Run(kind="http", target=offer.runner.target, secrets=secrets)
        keep.register(replace(offer, tool=offer.tool.replace(danger=Danger.SAFE), runner=runner))  # type: ignore[union-attr]
    hosts = ("shop.example:*", "other.example:*", f"{PRIVATE}:*")
    held = [f"{kind}:{host}" for kind in ("net.read", "net.write") for host in hosts]
    keep.declare_agent("ada", capabilities=held)
    return keep


async def call(keep: Keep, tool: str, **arguments: Any) -> ToolResult:
    result = await keep.call(tool, arguments, agent="ada")
    for secret in SECRETS.values():
        assert secret not in result.text, "a secret in a result"
    return result


async def test_every_argument_and_every_secret_stands_in_its_place(world: World) -> None:
    server = await serve(world, answer(b'{"title": "Dune"}'))
    keep = given(secrets=SECRETS)
    result = await call(
        keep, "find", id="a/b", matrix=["x", "y"], id_query=7, tags=["a", "b,c"], words=["d", "e"],
        filter={"year": 1965, "by": {"name": "F"}}, page_size=5, shape={"a": [1]}, **{"X-Trace": "t-1", "flavour": "sweet"},
    )  # fmt: skip
    assert result.value == {"title": "Dune"}, result.text
    head = server.heard[0].decode()
    assert head.split(" ")[1] == (
        "/v1/books/a%2Fb;matrix=x;matrix=y?id=7&tags=a,b%2Cc&words=d%20e&filter[year]=1965&filter[by][name]=F"
        "&page[size]=5&shape=%7B%22a%22%3A%5B1%5D%7D&api_key=q%26123456"
    )
    lines = head.split("\r\n")
    assert "X-Key: k-123456" in lines
    assert "Authorization: Basic YWRhOmxvdmVsYWNl" in lines
    assert "X-Trace: t-1" in lines
    assert "Cookie: session=c-123456; flavour=sweet" in lines


async def test_bodies_are_sent_as_their_media_type_wants(world: World) -> None:
    server = await serve(world, answer(b"", kind="text/plain"))
    keep = given(secrets=SECRETS)
    assert (await call(keep, "write", body={"title": "Dünen"})).ok
    assert (await call(keep, "form", body={"a": "x&y", "deep": {"b": 1}, "shape": {"c": 2}, "n": [1, 2]})).ok
    assert (await call(keep, "text", body="one\ntwo")).ok
    assert (await call(keep, "remove")).ok
    heard = [one.partition(b"\r\n\r\n") for one in server.heard]
    assert json.loads(heard[0][2]) == {"title": "Dünen"}
    assert heard[1][2] == b"a=x%26y&deep[b]=1&shape=%7B%22c%22%3A2%7D&n=1&n=2"
    assert b"Content-Type: application/x-www-form-urlencoded" in heard[1][0]
    assert (heard[2][2], b"Content-Type: text/plain" in heard[2][0]) == (b"one\ntwo", True)
    assert (heard[3][0].split(b" ")[0], heard[3][2]) == (b"DELETE", b"")


async def test_forms_with_files_arrive_as_another_parser_reads_them(world: World) -> None:
    server = await serve(world, answer(b"", kind="text/plain"))
    schema = {"type": "object", "required": ["cover"], "properties": {"title": {"type": "string"}, "cover": {"type": "string", "format": "binary"}}}  # fmt: skip
    upload = operation("upload", requestBody={"content": {"multipart/form-data": {"schema": schema}}})
    raw = operation("raw", requestBody={"content": {"image/png": {}}})
    keep = keep_of(described({"/covers": {"post": upload, "put": raw}}), dangers=SAFE)
    file = {"content": "iVBORw0KGgo=", "file_name": "../a.png"}
    assert (await call(keep, "upload", body={"title": 'x"\r\n--', "cover": file})).ok
    assert (await call(keep, "raw", body={"content": "iVBORw0KGgo="})).ok
    assert not (await call(keep, "upload", body={"title": "x"})).ok
    failed = await call(keep, "upload", body={"cover": {"content": "***"}})
    assert (failed.ok, "not base64" in failed.text) == (False, True)
    assert len(server.heard) == 2
    heard = server.heard[0].partition(b"\r\n")[2]
    message: Any = BytesParser(policy=HTTP).parsebytes(heard)
    assert [(part.get_param("name", header="content-disposition"), part.get_filename(), part.get_payload(decode=True)) for part in message.get_payload()] == [
        ("title", None, b'x"\r\n--'), ("cover", "a.png", b"\x89PNG\r\n\x1a\n"),
    ]  # fmt: skip
    head, _, body = server.heard[1].partition(b"\r\n\r\n")
    assert (b"Content-Type: image/png" in head, body) == (True, b"\x89PNG\r\n\x1a\n")


async def test_answers_of_other_kinds_are_text_or_bytes(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    said: list[tuple[bytes, str, dict[str, Any], Any]] = [
        (b"a=1&b=%20", "application/x-www-form-urlencoded", {"text/plain": {}}, "a=1&b=%20"),
        (b"--x\r\n\r\na\r\n--x--", "multipart/form-data; boundary=x", {}, "--x\r\n\r\na\r\n--x--"),
        (b"\x89PNG\xff", "image/png", {"image/png": {}}, b"\x89PNG\xff"),
        (b"<b>", "text/html", {"image/png": {}}, b"<b>"),
    ]  # fmt: skip
    for port, (body, kind, content, value) in enumerate(said, 8100):
        await world.serve(Server(answer(body, kind=kind)), PUBLIC, port)
        get = operation("get", responses={"200": {"content": content}})
        keep = keep_of(described({"/x": {"get": get}}), url=f"http://shop.example:{port}/v1", dangers=SAFE)
        result = await call(keep, "get")
        assert result.value == value, (result.text, result.value)


async def test_a_secret_that_is_not_there_is_named_and_nothing_is_asked(world: World) -> None:
    server = await serve(world, answer())
    result = await call(given(secrets={}), "remove")
    assert result.error is not None
    assert (result.error.code, server.heard) == (Code.SECRET_UNAVAILABLE, [])


async def test_what_breaks_out_of_its_place_is_refused_and_nothing_is_asked(world: World) -> None:
    server = await serve(world, answer())
    keep = given(secrets=SECRETS)
    for bad in (
        {"id": "../../admin"},
        {"id": ".."},
        {"id": "%2e%2e"},
        {"X-Trace": "a\r\nEvil: 1"},
        {"X-Trace": "é"},
    ):
        result = await call(keep, "find", **{"id": "1", "matrix": ["x"], **bad})
        assert not result.ok, bad
    assert server.heard == []


async def test_a_server_that_is_not_there_is_asked_again_only_where_that_is_safe(world: World) -> None:
    server = await serve(world, answer(b"", status="503 Gone"))
    with patch.object(http_call, "RETRY_SECONDS", 0.0):
        assert not (await call(given(secrets=SECRETS), "find", id="1", matrix=["x"])).ok
        assert len(server.heard) == 3
        assert not (await call(given(secrets=SECRETS), "write", body={})).ok
    assert len(server.heard) == 4


async def test_an_answer_that_does_not_fit_the_document_is_refused(world: World) -> None:
    world.name("shop.example", [PUBLIC])
    said = [(b'{"title": 5}', "application/json"), (b"<html>", "text/html"), (b"{", "application/json")]
    for port, (body, kind) in enumerate([*said, (b"[]", "application/json")], 8000):
        await world.serve(Server(answer(body, kind=kind)), PUBLIC, port)
        keep = given(secrets=SECRETS, url=f"http://shop.example:{port}/v1")
        result = await call(keep, "find", id="1", matrix=["x"])
        assert (result.ok, result.error and result.error.code) == (False, Code.OUTPUT_INVALID), result.text


async def test_an_answer_without_end_is_cut_off(world: World) -> None:
    world.name("shop.example", [PUBLIC])

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
        while True:
            writer.write(b" " * 65_536)
            await writer.drain()

    await world.serve(pours, PUBLIC, 80)
    with patch.object(http_call, "OUTPUT_CAP_BYTES", 1_000_000):
        result = await call(given(secrets=SECRETS), "find", id="1", matrix=["x"])
    assert (result.error and result.error.code) == Code.OUTPUT_TOO_BIG, result.text


async def test_a_redirect_to_a_private_address_is_refused(world: World) -> None:
    inside = Server(answer(b'{"secret": 1}'))
    await world.serve(inside, PRIVATE, 80)
    await serve(world, redirect(f"http://{PRIVATE}/"))
    result = await call(given(secrets=SECRETS), "find", id="1", matrix=["x"])
    assert (result.error and result.error.code, inside.heard) == (Code.NOT_PERMITTED, [])


async def test_a_redirect_to_another_host_takes_no_secret_along(world: World) -> None:
    world.name("other.example", [OTHER_PUBLIC])
    other = Server(answer(b"{}"))
    await world.serve(other, OTHER_PUBLIC, 80)
    await serve(world, redirect("http://other.example/x", 307))
    keep = given(secrets=SECRETS)
    await call(keep, "find", id="1", matrix=["x"])
    for heard in other.heard:
        assert not any(secret.encode() in heard for secret in SECRETS.values())
        assert b"api_key" not in heard


async def test_a_complaint_that_repeats_a_secret_hides_it(world: World) -> None:
    await serve(world, answer(b"bad key k-123456", status="401 No", kind="text/plain"))
    result = await call(given(secrets=SECRETS), "find", id="1", matrix=["x"])
    assert "(hidden)" in result.text


async def test_a_host_that_is_not_held_is_not_asked(world: World) -> None:
    server = await serve(world, answer())
    keep = keep_of(ALL, url="http://shop.example/v1")
    keep.declare_agent("eve", capabilities=["net.read:elsewhere.example"])
    result = await keep.call("find", {"id": "1", "matrix": ["x"]}, agent="eve")
    assert (result.error and result.error.code, server.heard) == (Code.NOT_PERMITTED, [])
