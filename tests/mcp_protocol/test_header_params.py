"""What headers repeat: the same text comes out, and nothing else gets into a head."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.mcp_protocol.header_params import (
    decoded,
    header_value,
    mirrored_headers,
    wrong_with_annotations,
)


@given(st.text())
def test_a_text_comes_out_of_a_header_as_it_went_in(text: str) -> None:
    value = header_value(text)
    assert value.isascii()
    assert value == "" or (value.isprintable() and value == value.strip())
    assert decoded(value) == text


def test_arguments_are_repeated_by_their_own_form() -> None:
    inner = {"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "N"}}}
    properties: dict[str, Any] = {
        "a": {"type": "string", "x-mcp-header": "A"},
        "b": {"type": "boolean", "x-mcp-header": "B"},
        "c": {"type": "string", "x-mcp-header": "C"},
        "d": {"type": "string"},
        "inner": inner,
    }
    arguments = {"a": "=?base64?eA==?=", "b": False, "c": None, "d": "x", "inner": {"n": 3}}
    assert mirrored_headers({"properties": properties}, arguments) == {
        "Mcp-Param-A": "=?base64?PT9iYXNlNjQ/ZUE9PT89?=",
        "Mcp-Param-B": "false",
        "Mcp-Param-N": "3",
    }


@pytest.mark.parametrize(
    ("properties", "is_fine"),
    [
        ({"a": {"type": "string", "x-mcp-header": "Region"}}, True),
        ({"a": {"type": "string", "x-mcp-header": ""}}, False),
        ({"a": {"type": "string", "x-mcp-header": "My Region"}}, False),
        ({"a": {"type": "string", "x-mcp-header": "A\r\nB"}}, False),
        ({"a": {"type": "string", "x-mcp-header": 7}}, False),
        ({"a": {"type": "number", "x-mcp-header": "N"}}, False),
        ({"a": {"type": ["string", "null"], "x-mcp-header": "N"}}, False),
        ({"a": {"type": "object", "properties": {"b": {"type": "array", "x-mcp-header": "B"}}}}, False),
        ({"a": {"type": "string", "x-mcp-header": "R"}, "b": {"type": "string", "x-mcp-header": "r"}}, False),
        ("x", True),
    ],
)
def test_annotations_that_no_header_can_follow_are_found(properties: Any, is_fine: bool) -> None:
    assert (wrong_with_annotations({"properties": properties}) == "") is is_fine
