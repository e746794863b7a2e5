"""References that reach out of the schema, or that never come to an end."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.hostile.unguarded import outcome
from toolkeep import ToolDefinition
from toolkeep.errors import Code, DefinitionError
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("VAL-1", "VAL-7")


def refused(schema: dict[str, Any]) -> list[tuple[str, Code]]:
    with pytest.raises(DefinitionError) as caught:
        admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": schema}))
    return [(problem.field, problem.code) for problem in caught.value.problems]


@pytest.fixture
def server() -> Iterator[tuple[str, list[str]]]:
    """A server on this machine that hands out a schema and remembers who asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the base class's name
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as httpd:
        threading.Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}/schema", asked
        httpd.shutdown()


def test_a_schema_on_the_network_is_refused_and_never_fetched(server: tuple[str, list[str]]) -> None:
    address, asked = server
    schema = {"type": "object", "properties": {"a": {"$ref": address}}}
    assert refused(schema) == [("parameters/properties/a/$ref", Code.SCHEMA_REFUSED)]
    assert asked == []


def test_without_the_guard_a_schema_on_the_network_is_fetched(server: tuple[str, list[str]]) -> None:
    address, asked = server
    jsonschema_rs.validator_for({"$ref": address})
    assert asked == ["/schema"]


def test_a_schema_in_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text('{"const": "from the file"}')
    schema = {"properties": {"a": {"$ref": path.as_uri()}}}
    assert refused({"type": "object", **schema}) == [("parameters/properties/a/$ref", Code.SCHEMA_REFUSED)]
    assert jsonschema_rs.validator_for(schema).is_valid({"a": "other"}) is False  # read, without the guard


@pytest.mark.parametrize(
    "reference", ["other.json", "//evil/x", "urn:example:x", "#/$defs/missing", "#missing", "#/type"]
)
def test_a_reference_that_leads_nowhere_here_is_refused(reference: str) -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": reference}}}
    assert refused(schema) == [("parameters/properties/a/$ref", Code.SCHEMA_REFUSED)]
    odd = {"type": "object", "properties": {"a/b~": {"$ref": reference}}}
    assert refused(odd) == [("parameters/properties/a~1b~0/$ref", Code.SCHEMA_REFUSED)]


@pytest.mark.parametrize(
    "definitions",
    [
        {"a": {"$ref": "#/$defs/a"}},
        {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}},
        {"a": {"not": {"$ref": "#/$defs/a"}}},
        {"a": {"if": {"$ref": "#/$defs/a"}, "then": True}},
    ],
)
def test_a_cycle_that_consumes_no_input_is_refused(definitions: dict[str, Any]) -> None:
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": definitions}
    assert [code for _, code in refused(schema)] == [Code.SCHEMA_REFUSED]


def laughs(keyword: str, depth: int) -> dict[str, Any]:
    """Each definition applies the next one twice: 2 ** depth evaluations of one value."""
    definitions: dict[str, Any] = {
        f"d{i}": {keyword: [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]}
        for i in range(depth)
    }
    definitions[f"d{depth}"] = {"type": "integer", "minimum": 10}
    return {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
@pytest.mark.parametrize("depth", [9, 16, 40])
def test_references_that_unfold_exponentially_are_refused(keyword: str, depth: int) -> None:
    assert [code for _, code in refused(laughs(keyword, depth))] == [Code.SCHEMA_REFUSED]


def test_without_the_guard_exponential_references_never_end() -> None:
    code = f"import jsonschema_rs as J; J.Draft202012Validator({laughs('anyOf', 40)!r}).is_valid({{'a': 1}})"
    assert outcome(code) == "never ends"


def test_recursion_that_doubles_at_each_level_of_input_is_refused() -> None:
    node = {"anyOf": [{"type": "object", "properties": {"k": {"$ref": "#/$defs/n"}}} for _ in range(2)]}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    assert [code for _, code in refused(schema)] == [Code.SCHEMA_REFUSED]


def test_recursion_through_properties_and_items_is_allowed() -> None:
    node = {
        "type": "object",
        "properties": {
            "value": {"type": "integer"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/n"}},
        },
    }
    schema = {"type": "object", "properties": {"tree": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": schema}))
    assert tool.arguments.is_valid({"tree": {"value": 1, "children": [{"value": 2, "children": []}]}})
    assert not tool.arguments.is_valid({"tree": {"value": 1, "children": [{"value": 2, "extra": 0}]}})


def test_recursion_through_several_parts_at_once_registers() -> None:
    """Each level applies more of the same schemas; what is made for a place must not grow without end."""
    node = {
        "allOf": [
            {"properties": {"k": {"$ref": "#/$defs/n"}, "i": {"type": "integer"}}},
            {"properties": {"k": {"type": "object", "additionalProperties": True}}},
        ]
    }
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": node}}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": schema}))
    assert tool.arguments.is_valid({"a": {"k": {"k": {"i": 1}}}})


def test_definitions_that_fan_out_by_name_register_at_once() -> None:
    """Two names at each of nineteen levels: half a million places, but only nineteen kinds of them."""
    definitions: dict[str, Any] = {
        f"d{i}": {"type": "object", "properties": {name: {"$ref": f"#/$defs/d{i + 1}"} for name in "ab"}}
        for i in range(19)
    }
    definitions["d19"] = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": schema}))
    assert tool.arguments.is_valid({"a": {"a": {"b": {}}}})
