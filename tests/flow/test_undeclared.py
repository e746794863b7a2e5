"""What `lint --flow` names: roles and labels that nobody declared."""

from typing import Any

import pytest

from toolkeep.definitions.tool import ToolDefinition
from toolkeep.flow.flow_plan import make_plan
from toolkeep.flow.undeclared import PLACES, arguments_without_role, places_without_label
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("FLO-1", "FLO-2")

TEXT: dict[str, Any] = {"type": "string", "description": "Text."}


def a_tool(properties: dict[str, Any] | None = None, **fields: Any) -> ToolDefinition:
    given = {
        "name": "act",
        "description": "Acts.",
        "parameters": {"type": "object", "properties": properties or {}},
    }
    return ToolDefinition.from_dict({**given, **fields})


def test_arguments_without_a_role_are_named_where_a_call_acts() -> None:
    properties = {
        "to": TEXT,
        "count": {**TEXT, "type": "integer"},
        "any": {"description": "Anything.", "type": ["string", "boolean"]},
        "flag": {**TEXT, "type": ["boolean", "null"]},
        "mode": {**TEXT, "enum": ["a", "b"]},
        "kind": {"const": "x", "description": "X."},
        "body": {**TEXT, "x-flow": "content"},
        "said": {**TEXT, "x-flow": "record"},
        "file": {**TEXT, "x-touches": "fs.write"},
        "link": {**TEXT, "format": "uri"},
        "key": {**TEXT, "x-secret": True},
    }
    acts = a_tool(properties, capabilities=["fs.write"])
    assert arguments_without_role(make_plan(admit(acts)), acts) == ["to", "count", "any"]
    reads = a_tool({"to": TEXT, "count": TEXT}, effects="reads")
    assert arguments_without_role(make_plan(admit(reads)), reads) == []


@pytest.mark.parametrize(
    ("schema", "flow", "places"),
    [
        (None, {}, [""]),
        (None, {"/id": "system"}, [""]),
        (None, {"": "text"}, []),
        ({"type": "string"}, {}, [""]),
        ({"type": "integer"}, {}, []),
        ({"type": "string", "enum": ["a"]}, {}, []),
        (True, {}, [""]),
        ({"type": "array", "items": {"type": "object", "properties": {"id": TEXT, "n": {"type": "number"}, "a/b": TEXT}}},
         {"/*/id": "system"}, ["/*/a~1b"]),
        ({"type": "object", "properties": {"id": TEXT, "in": {"type": "object", "properties": {"x": TEXT}}}},
         {"/in": "text"}, ["/id"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {}, [""]),  # its keys
        ({"type": "object", "additionalProperties": TEXT}, {"/*": "system"}, [""]),
        ({"type": "object", "additionalProperties": False, "properties": {"n": {"type": "null"}}}, {}, []),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/t"}], "$defs": {
            "t": {"type": "object", "properties": {"name": TEXT, "child": {"$ref": "#/$defs/t"}}}}}, {}, ["/name"]),
        ({"type": "array", "prefixItems": [{"type": "integer"}, TEXT]}, {}, ["/*"]),
    ],
)  # fmt: skip
def test_text_in_a_result_without_a_label_is_named(schema: Any, flow: Any, places: list[str]) -> None:
    wrapped = {"type": "object", "properties": {"all": schema}} if schema is True else schema
    made = a_tool(output_schema=wrapped, flow=flow, effects="none")
    expected = [f"/all{place}" for place in places] if schema is True else places
    assert places_without_label(make_plan(admit(made)), made) == expected


def test_many_places_are_cut() -> None:
    wide = {"type": "object", "properties": {f"f{number}": TEXT for number in range(PLACES + 5)}}
    made = a_tool(output_schema=wide, effects="none")
    assert len(places_without_label(make_plan(admit(made)), made)) == PLACES
