"""Arguments that a tool wants repeated in headers: both say the same, or the call is refused."""

from typing import Any

import pytest

from toolkeep.mcp.headers import LOOPBACK, Headers, check_params, is_spoken_to
from toolkeep.wire.messages import ProtocolError

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


@pytest.mark.parametrize("name", [b"host", b"origin"])
def test_a_host_or_origin_that_stands_twice_is_none(name: bytes) -> None:
    raw = [(b"host", b"localhost"), (b"origin", b"http://localhost")]
    assert is_spoken_to(Headers(raw), LOOPBACK)
    assert not is_spoken_to(Headers([*raw, (name, dict(raw)[name])]), LOOPBACK)
