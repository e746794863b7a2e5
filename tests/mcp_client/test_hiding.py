"""Secrets in what a server says: found however JSON writes them, and hidden wherever they stand."""

import json
from typing import Any

import pytest

from toolkeep.mcp_client.transport import UpstreamError, answered, read

pytestmark = pytest.mark.spec("MCP-2", "AUD-5")

SECRET = "k3y/with+grün\\and=more"


def escaped(secret: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in secret)


@pytest.mark.parametrize(
    "written",
    [
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(SECRET)[1:-1].replace("/", "\\/"),  # as PHP writes it
        escaped(SECRET),
    ],
)
@pytest.mark.parametrize("place", ['"%s"', '{"a":["x%s!"]}', '{"k%s":1}'])
def test_a_secret_is_found_however_it_is_written(written: str, place: str) -> None:
    raw = f'{{"jsonrpc":"2.0","id":1,"result":{place % written}}}'.encode()
    assert SECRET in str(decoded(raw)).replace("\\\\", "\\")
    shown = str(read(raw, [SECRET]).result)
    assert "(hidden)" in shown
    assert "k3y" not in shown


def decoded(raw: bytes) -> Any:
    return json.loads(raw)["result"]


def test_errors_and_what_is_said_unasked_are_looked_through_too() -> None:
    error = {"code": -32000, "message": "x" * 290 + SECRET}
    failed = read(json.dumps({"jsonrpc": "2.0", "id": 1, "error": error}).encode(), [SECRET])
    with pytest.raises(UpstreamError) as caught:
        answered(failed)
    assert "k3y" not in caught.value.reason  # nor the part of it that would have been shown
    params = {"progressToken": 1, "progress": 1, "message": f"with {SECRET}"}
    told = json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
    assert read(told.encode(), [SECRET]).params["message"] == "with (hidden)"


def test_of_a_secret_that_holds_another_nothing_is_left() -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"result":"12345678-90"}'
    assert read(raw, ["12345678", "12345678-90"]).result == "(hidden)"


def test_what_is_too_short_to_be_looked_for_changes_nothing() -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"result":"to be or not to be"}'
    assert read(raw, ["be", ""]).result == "to be or not to be"
