"""One message in bytes: read strictly, and the arguments left to the door of validation."""

from typing import Any

import pytest

from toolkeep.limits import MCP_VALUES
from toolkeep.mcp_protocol.jsonrpc import INVALID_REQUEST, PARSE_ERROR, Message, Unreadable, read_message


def read(raw: bytes) -> Message:
    return read_message(raw)


def refused(raw: bytes) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        read_message(raw)
    return caught.value


def test_arguments_stay_the_bytes_that_they_were() -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a": 1, "a":2}}}'
    message = read(raw)
    assert (message.id, message.method, message.arguments) == (1, "tools/call", b'{"a": 1, "a":2}')
    assert message.params["name"] == "t"


CALL = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{%b}}'


@pytest.mark.parametrize(
    ("inside", "rest", "arguments"),
    [
        (b'"_meta":{"capabilities":{}},"arguments":{}', {"_meta": {"capabilities": {}}}, b"{}"),
        (b'"_meta":{"arguments":{}},"arguments":{}', {"_meta": {"arguments": {}}}, b"{}"),
        (b'"arguments":{},"_meta":{"arguments":{}}', {"_meta": {"arguments": {}}}, b"{}"),
        (b'"name":"\\"arguments\\":{}","arguments":{}', {"name": '"arguments":{}'}, b"{}"),
        (b'"_meta":{"arguments":[2]},"arguments":2', {"_meta": {"arguments": [2]}}, b"2"),
    ],
)
def test_the_same_bytes_elsewhere_are_not_taken_for_the_arguments(
    inside: bytes, rest: dict[str, Any], arguments: bytes
) -> None:
    message = read(CALL % inside)
    assert {key: value for key, value in message.params.items() if key != "arguments"} == rest
    assert message.arguments == arguments


def test_arguments_are_not_looked_for_without_end() -> None:
    copies = b",".join(b'"%d":{"arguments":{}}' % number for number in range(1000))
    error = refused(CALL % (b'"_meta":{%b},"arguments":{}' % copies))
    assert (error.code, error.id) == (PARSE_ERROR, None)


def test_arguments_under_an_escaped_name_are_read_all_the_same() -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"\\u0061rguments":{"a":1}}}'
    assert read(raw).arguments == {"a": 1}


@pytest.mark.parametrize("given", [b"[1]", b"5", b'"x"', b"null", b"true"])
def test_what_is_no_object_under_an_escaped_name_is_not_taken_for_nothing(given: bytes) -> None:
    assert read(CALL % (b'"\\u0061rguments":' + given)).arguments == given


@pytest.mark.parametrize("part", [b"[],", b"{},", b"0,", b'"a,b",', b'"\\"",', b'{"a":{}},'])
def test_a_message_of_too_many_values_is_refused_before_it_is_read(part: bytes) -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":[%b0]}}' % (part * MCP_VALUES)
    assert (refused(raw).code, refused(raw).id) == (INVALID_REQUEST, None)


@pytest.mark.parametrize("text", [b"[{," * MCP_VALUES, b'\\",[{' * MCP_VALUES])
def test_long_texts_are_one_value_whatever_they_hold(text: bytes) -> None:
    raw = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"%b"}}' % text
    assert len(read(raw).params["x"]) == len(text.replace(b"\\", b""))


def test_the_values_of_arguments_are_counted_elsewhere() -> None:
    arguments = b"[%b0]" % (b"0," * MCP_VALUES)
    assert read(CALL % (b'"arguments":' + arguments)).arguments == arguments


@pytest.mark.parametrize("raw", [b'"' + b'\\"' * 2_000_000, b'"' + b'\\"' * 2_000_000 + b"\\"])
def test_a_text_that_does_not_end_is_not_looked_at_again_and_again(raw: bytes) -> None:
    assert refused(b"[" * MCP_VALUES + b"," + raw).code == INVALID_REQUEST


@pytest.mark.parametrize(
    "raw",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","name":"b","arguments":{}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"arguments":{"a":1},"arguments":{"a":2}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{},"params":{"arguments":{}}}',
        b'{"jsonrpc":"2.0","id":NaN,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"',
        b'{"jsonrpc":"2.0","id":1,"method":"ping"} {}',
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 500 + b"]" * 500 + b"}",
        b'{"jsonrpc":"2.0","id":1,"method":"p","params":{"x":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}}",
        b"\xff\xfe",
        b"",
    ],
)
def test_what_is_no_strict_json_is_refused(raw: bytes) -> None:
    assert (refused(raw).code, refused(raw).id) == (PARSE_ERROR, None)


@pytest.mark.parametrize("text", [rb"\ud83d", rb"\uDe00", rb"a\ud800b"])
def test_a_request_with_half_a_character_is_refused_under_its_id(text: bytes) -> None:
    """Else its client would wait for ever: over pipes nothing else says which request it was."""
    error = refused(CALL % (b'"arguments":{"text":"%b"}' % text))
    assert (error.code, error.id) == (PARSE_ERROR, 1)
    assert refused(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"%b"}' % text).id is None
    assert refused(b'{"jsonrpc":"2.0","id":{},"method":"%b"}' % text).id is None


@pytest.mark.parametrize(
    "raw",
    [
        b"[]",
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b"1",
        b'{"id":1,"method":"ping"}',
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":null,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":true,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":{},"method":"ping"}',
        b'{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":"' + b"x" * 300 + b'","method":"ping"}',
    ],
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    assert (refused(raw).code, refused(raw).id) == (INVALID_REQUEST, None)


@pytest.mark.parametrize(
    "part", [b'"method":5', b'"method":"ping","params":[1]', b'"method":"ping","params":7', b'"x":1']
)
def test_a_broken_request_with_an_id_is_refused_under_it(part: bytes) -> None:
    assert refused(b'{"jsonrpc":"2.0","id":"a",' + part + b"}").id == "a"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"jsonrpc":"2.0","id":"s","result":{"a":1}}', {"a": 1}),
        (b'{"jsonrpc":"2.0","id":"s","result":null}', None),
    ],
)
def test_an_answer_has_no_method(raw: bytes, expected: Any) -> None:
    message = read(raw)
    assert (message.id, message.method, message.result) == ("s", "", expected)
