"""Definitions as tools of a list, results as results: what a client and its model see."""

import asyncio
import json
from typing import Any

import pytest

from toolkeep import Keep, ToolDefinition, tool
from toolkeep.calls import RegisteredTool, ToolResult
from toolkeep.mcp_server.tools_list import ToolList, tool_data
from toolkeep.providers.mcp import annotations, result_data


def registered(keep: Keep, made: Any) -> RegisteredTool:
    keep.register(made)
    return keep.get(made.definition.name)


def made(**fields: Any) -> Any:
    @tool(name="made_tool", **fields)
    async def made_tool() -> dict[str, int]:
        """Do it."""
        return {"n": 1}

    return made_tool


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (False, True, False, True)),
        ({"side_effects": ["None"]}, (True, False, True, False)),
        ({"side_effects": ["FsRead"], "capabilities": ["fs.read"]}, (True, False, True, False)),
        ({"side_effects": ["NetRead"], "capabilities": ["net.read"]}, (True, False, True, True)),
        (
            {"side_effects": ["FsWrite"], "capabilities": ["fs.write"], "danger": "low"},
            (False, False, False, False),
        ),
        (
            {"side_effects": ["FsWrite"], "capabilities": ["fs.write"], "danger": "medium"},
            (False, True, False, False),
        ),
        (
            {
                "side_effects": ["NetWrite"],
                "capabilities": ["net.write"],
                "danger": "high",
                "idempotent": True,
            },
            (False, True, True, True),
        ),
        ({"side_effects": "reads"}, (True, False, True, True)),
        ({"side_effects": "reads", "capabilities": ["fs.read"]}, (True, False, True, False)),
        ({"side_effects": "reads", "capabilities": ["fs.read", "net.read"]}, (True, False, True, True)),
        ({"side_effects": "writes", "danger": "medium"}, (False, True, False, True)),
    ],
)
def test_annotations_follow_from_side_effects_and_danger(
    keep: Keep, fields: dict[str, Any], expected: tuple[bool, ...]
) -> None:
    names = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
    assert annotations(registered(keep, made(**fields)).definition) == dict(zip(names, expected, strict=True))


def test_a_tool_of_a_list_has_title_schema_and_no_secret(keep: Keep) -> None:
    shown = tool_data(keep.get("log_in"), is_modern=True)
    assert shown["title"] == "Log in"
    assert shown["inputSchema"]["properties"]["password"] == {
        "type": "string",
        "description": "The password.",
    }
    assert "hunter2" not in str(shown)


def test_the_same_tools_give_the_same_bytes(keep: Keep) -> None:
    listed = ToolList()
    first = listed.encode(keep.tools(), is_modern=True)
    assert (
        bytes(first)
        == bytes(listed.encode(keep.tools(), is_modern=True))
        == bytes(ToolList().encode(keep.tools(), is_modern=True))
    )


@pytest.mark.parametrize(
    ("schema", "is_modern", "is_shown"),
    [
        ({"type": "object", "properties": {"n": {"type": "integer"}}}, False, True),
        ({"type": "array", "items": {"type": "integer"}}, False, False),
        ({"type": "array", "items": {"type": "integer"}}, True, True),
    ],
)
def test_the_older_era_has_output_schemas_for_objects_only(
    keep: Keep, schema: dict[str, Any], is_modern: bool, is_shown: bool
) -> None:
    shown = tool_data(registered(keep, made(output_schema=schema)), is_modern=is_modern)
    assert ("outputSchema" in shown) is is_shown


def of(keep: Keep, value: Any, *, is_modern: bool = True, **fields: Any) -> dict[str, Any]:
    """The result of a tool that gives a value."""

    @tool(name="gives", side_effects=["None"], **fields)
    async def gives() -> Any:
        """Give."""
        return value

    keep.register(gives)
    result = asyncio.run(keep.call("gives", {}))
    data = result_data(result, keep.get("gives").definition, is_modern=is_modern)
    assert data.pop("_meta") == {"toolkeep/call": result.call_id}
    return data


def test_text_is_text(keep: Keep) -> None:
    assert of(keep, "hello") == {"content": [{"type": "text", "text": "hello"}]}


def test_an_object_is_structured_content_and_the_same_as_text(keep: Keep) -> None:
    assert of(keep, {"n": 2**70}, is_modern=False) == {
        "content": [{"type": "text", "text": '{"n":1180591620717411303424}'}],
        "structuredContent": {"n": 2**70},
    }


def test_a_list_is_structured_content_where_a_schema_says_so_and_the_era_has_it(keep: Keep) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert of(keep, [1], output_schema=schema)["structuredContent"] == [1]


def test_a_list_is_text_in_the_older_era(keep: Keep) -> None:
    schema = {"type": "array", "items": {"type": "integer"}}
    assert of(keep, [1], is_modern=False, output_schema=schema) == {
        "content": [{"type": "text", "text": "[1]"}]
    }


def test_bytes_are_a_picture_where_the_definition_says_so(keep: Keep) -> None:
    fields: dict[str, Any] = {"result_type": "binary", "metadata": {"mcp": {"mime_type": "image/png"}}}
    assert of(keep, b"\x89", **fields) == {
        "content": [{"type": "image", "data": "iQ==", "mimeType": "image/png"}]
    }


def test_other_bytes_are_a_resource(keep: Keep) -> None:
    (block,) = of(keep, b"ab", result_type="binary")["content"]
    assert (block["type"], block["resource"]["blob"], block["resource"]["mimeType"]) == (
        "resource",
        "YWI=",
        "application/octet-stream",
    )


CONTENT: dict[str, Any] = {"metadata": {"mcp": {"content": True}}}
URI = "file:///a"


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": "a", "annotations": {"audience": ["user"]}},
        {"type": "image", "data": "iQ==", "mimeType": "image/png"},
        {"type": "audio", "data": "", "mimeType": "audio/wav"},
        {"type": "resource_link", "uri": URI, "name": "a"},
        {"type": "resource", "resource": {"uri": URI, "text": "a"}},
        {"type": "resource", "resource": {"uri": URI, "blob": "iQ==", "mimeType": "image/png"}},
    ],
)
def test_content_is_given_as_it_is(keep: Keep, block: dict[str, Any]) -> None:
    assert of(keep, [block, block], **CONTENT)["content"] == [block, block]


@pytest.mark.parametrize(
    "block",
    [
        {"type": "elsewhere"},
        {"type": ["text"], "text": "a"},
        {"type": "text", "text": 5},
        {"type": "text", "text": "a", "annotations": []},
        {"type": "text", "text": "a", "_meta": "a"},
        {"type": "image", "mimeType": "image/png"},
        {"type": "image", "data": "***", "mimeType": "image/png"},
        {"type": "image", "data": "iQ", "mimeType": "image/png"},
        {"type": "audio", "data": "iQ=="},
        {"type": "resource_link", "uri": URI},
        {"type": "resource_link", "uri": "file:///a\x1b[2J", "name": "a"},
        {"type": "resource_link", "uri": "a b", "name": "a"},
        {"type": "resource", "resource": {"uri": URI}},
        {"type": "resource", "resource": {"uri": URI, "blob": "***"}},
        {"type": "resource", "resource": {"uri": URI, "text": "a", "blob": "iQ=="}},
        "text",
    ],
)
def test_content_that_is_none_is_shown_as_data(keep: Keep, block: Any) -> None:
    (shown,) = of(keep, [{"type": "text", "text": "a"}, block], **CONTENT)["content"]
    assert json.loads(shown["text"]) == [{"type": "text", "text": "a"}, block]


def test_an_object_that_was_cut_off_is_no_success_with_half_of_it(keep: Keep) -> None:
    result = asyncio.run(_long(keep))
    data = result_data(result, keep.get("long").definition, is_modern=True)
    assert data["isError"] is True
    assert "structuredContent" not in data


async def _long(keep: Keep) -> ToolResult:
    @tool(name="long", side_effects=["None"], output_schema={"type": "object", "additionalProperties": True})
    async def long() -> dict[str, str]:
        """Give much."""
        return {"a": "x" * 5000}

    keep.register(long)
    return await keep.call("long", {}, max_output_bytes=1000)


@pytest.mark.parametrize(
    ("parts", "word"),
    [({}, "additionalProperties"), ({"anyOf": [{"required": ["a"]}]}, "unevaluatedProperties")],
    ids=["plain", "composed"],
)
def test_a_listed_tool_says_that_its_objects_are_closed(keep: Keep, parts: dict[str, Any], word: str) -> None:
    inner = {"type": "object", "properties": {"b": {"type": "string"}}}
    parameters = {"type": "object", "properties": {"a": inner}, **parts}
    keep.register(ToolDefinition.from_dict({"name": "t", "description": "d", "parameters": parameters}))
    listed = tool_data(keep.get("t"), is_modern=True)["inputSchema"]
    assert listed[word] is False
    assert listed["properties"]["a"]["additionalProperties"] is False


def test_a_tool_without_parameters_has_properties_for_clients_that_need_them(keep: Keep) -> None:
    plain = {"name": "plain", "description": "Do it.", "parameters": {"type": "object"}, "version": "1.0.0"}
    keep.register(ToolDefinition.from_dict(plain))
    data = tool_data(keep.get("plain"), is_modern=True)
    assert data["inputSchema"] == {"type": "object", "properties": {}, "additionalProperties": False}
