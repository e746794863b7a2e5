"""Arguments that a tool wants repeated in headers: both say the same, or the call is refused."""

from typing import Any

import pytest
from hypothesis import given as property_of
from hypothesis import strategies as st

from toolkeep.mcp_protocol.jsonrpc import Message, ProtocolError
from toolkeep.mcp_server.http_headers import (
    LOOPBACK,
    Headers,
    Heads,
    check_modern,
    check_params,
    is_allowed_host,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "inner": {"type": "object", "properties": {"count": {"type": "integer", "x-mcp-header": "Count"}}},
        "other": {"type": "string", "x-mcp-header": "not a token"},
    },
}


@pytest.mark.parametrize(
    ("header", "arguments"),
    [
        ({}, {}),
        ({}, {"other": "x"}),
        ({"region": "eu"}, {"region": "eu"}),
        ({"region": "=?base64?w7w=?="}, {"region": "ü"}),
        ({"count": "42.0"}, {"inner": {"count": 42}}),
        ({"count": "42"}, {"inner": {"count": 42.0}}),
        ({"region": "true"}, {"region": True}),
    ],
)
def test_headers_that_say_the_same_pass(header: dict[str, str], arguments: dict[str, Any]) -> None:
    check_params(given(header), SCHEMA, arguments)


@pytest.mark.parametrize(
    ("header", "arguments"),
    [
        ({}, {"region": "eu"}),
        ({"region": "eu"}, {}),
        ({"region": "eu"}, {"region": None}),
        ({"region": "eu"}, {"region": "us"}),
        ({"region": "eu"}, {"region": ["eu"]}),
        ({"region": "=?base64?ZXU?="}, {"region": "eu"}),
        ({"region": "=?base64?/w==?="}, {"region": "ÿ"}),
        ({"count": "4.2e1"}, {"inner": {"count": 42}}),
        ({"count": "41"}, {"inner": {"count": 42}}),
        ({"count": "1"}, {"inner": {"count": float("inf")}}),
        ({"count": "1"}, {"inner": {"count": float("nan")}}),
    ],
)
def test_headers_that_say_something_else_are_refused(
    header: dict[str, str], arguments: dict[str, Any]
) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_params(given(header), SCHEMA, arguments)
    assert caught.value.code == -32020


def given(header: dict[str, str]) -> Headers:
    return Headers([(f"mcp-param-{name}".encode(), value.encode()) for name, value in header.items()])


def test_headers_that_stand_twice_are_found_in_one_go() -> None:
    seen: list[bytes] = []

    class Name(bytes):
        def __eq__(self, other: object) -> bool:
            seen.append(self)
            return bytes.__eq__(self, other)

        __hash__ = bytes.__hash__

    headers = Headers([(Name(b"x%d" % (number // 2)), b"") for number in range(2000)])
    assert headers.is_doubled(b"x7")
    assert len(seen) < 20_000


@pytest.mark.parametrize("name", [b"host", b"origin"])
def test_a_host_or_origin_that_stands_twice_is_none(name: bytes) -> None:
    raw = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    assert is_allowed_host(Headers(raw), LOOPBACK)
    assert not is_allowed_host(Headers([*raw, (name, dict(raw)[name])]), LOOPBACK)


# --- heads that are remembered -------------------------------------------------------------------

VERSIONS = st.sampled_from(["2026-07-28", " 2026-07-28 ", "2025-11-25", "2099-01-01", ""])
METHODS = st.sampled_from(["tools/call", "tools/list", "prompts/get", ""])
NAMES = st.sampled_from(["a", "b", " a", "=?base64?YQ==?=", "=?base64?!?=", "ü", ""])
VALUES = st.sampled_from(["2026-07-28", "2025-11-25", "2099-01-01", 7, None])
OBJECTS: st.SearchStrategy[Any] = st.sampled_from([{}, {"roots": {}}, [], None, 0])


@property_of(
    headers=st.fixed_dictionaries(
        {"host": st.just("localhost")},
        optional={"mcp-protocol-version": VERSIONS, "mcp-method": METHODS, "mcp-name": NAMES},
    ),
    twice=st.sampled_from(["", "mcp-protocol-version", "mcp-method", "mcp-name"]),
    method=METHODS,
    params=st.fixed_dictionaries(
        {},
        optional={
            "name": st.sampled_from(["a", "b", "", 7]),
            "_meta": st.one_of(
                st.none(),
                st.fixed_dictionaries(
                    {},
                    optional={
                        "io.modelcontextprotocol/protocolVersion": VALUES,
                        "io.modelcontextprotocol/clientCapabilities": OBJECTS,
                    },
                ),
            ),
        },
    ),
)
def test_a_head_agrees_with_nothing_that_would_be_refused(
    headers: dict[str, str], twice: str, method: str, params: dict[str, Any]
) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    found = Headers([*raw, *(one for one in raw if one[0] == twice.encode())])
    message = Message(1, method, params)
    heads = Heads(LOOPBACK)
    for _ in range(2):  # read, and remembered
        if heads.read(found).agrees(message):
            assert check_modern(found, message) == heads.read(found).version


def test_heads_are_remembered_within_bounds() -> None:
    heads = Heads(LOOPBACK)
    for number in range(1000):
        heads.read(Headers([(b"host", b"localhost"), (b"mcp-name", b"%d" % number)]))
    assert 0 < len(heads._known) <= 64
    before = dict(heads._known)
    heads.read(Headers([(b"host", b"localhost"), (b"mcp-name", b"x" * 2000)]))
    heads.read(Headers([(b"host", b"evil.example.com")]))
    heads.read(Headers([(b"host", b"localhost"), (b"host", b"localhost")]))
    assert heads._known == before


def test_a_head_that_is_known_is_no_pass_for_a_header_that_stands_twice() -> None:
    heads = Heads(LOOPBACK)
    assert heads.read(Headers([(b"host", b"localhost")])).is_allowed
    assert not heads.read(Headers([(b"host", b"evil.example.com"), (b"host", b"localhost")])).is_allowed


VERSION, CAPABILITIES = (
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientCapabilities",
)
SAID = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "a"}
META: dict[str, Any] = {VERSION: "2026-07-28", CAPABILITIES: {}}


@pytest.mark.parametrize(
    ("headers", "method", "params", "agrees"),
    [
        ({}, "tools/call", {}, True),
        ({"mcp-method": "tools/list"}, "tools/list", {}, True),
        ({}, "tools/list", {}, False),
        ({}, "tools/call", {"name": "b"}, False),
        ({}, "tools/call", {"_meta": None}, False),
        ({}, "tools/call", {"_meta": {VERSION: "2026-07-28"}}, False),
        ({}, "tools/call", {"_meta": {**META, CAPABILITIES: 0}}, False),
        ({}, "tools/call", {"_meta": {**META, VERSION: "2025-11-25"}}, False),
        ({"mcp-protocol-version": "2099-01-01"}, "tools/call", {}, False),
        (
            {"mcp-protocol-version": "2099-01-01"},
            "tools/call",
            {"_meta": {**META, VERSION: "2099-01-01"}},
            False,
        ),
    ],
)
def test_a_head_agrees_with_a_body_that_says_the_same(
    headers: dict[str, str],
    method: str,
    params: dict[str, Any],
    agrees: bool,
) -> None:
    raw = {"host": "localhost", **SAID, **headers}
    found = Headers([(name.encode(), value.encode()) for name, value in raw.items()])
    message = Message(1, method, {"name": "a", "_meta": META, **params})
    assert Heads(LOOPBACK).read(found).agrees(message) is agrees
