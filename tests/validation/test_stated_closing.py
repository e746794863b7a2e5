"""What a model is told of closed objects: all that validation closes, and nothing that a valid call needs."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.providers.vendors.corpus import real_calls, real_tools
from tests.validation.test_close_objects import CASES, TAGGED, TURNED, A, B
from tests.validation.test_official_suite import groups
from toolkeep import ToolDefinition
from toolkeep.errors import DefinitionError
from toolkeep.providers.export import Omitted, prepare
from toolkeep.providers.vendor_registry import vendor_of
from toolkeep.registry.admit import admit
from toolkeep.validation.example import example_call
from toolkeep.validation.stated_closing import state_closed_root, state_closing

pytestmark = pytest.mark.spec("PRV-1")
PROVIDERS = (
    "anthropic", "openai", "openai-responses", "gemini", "bedrock", "mistral", "cohere", "ollama", "mcp",
    "json-schema",
)  # fmt: skip


def stated(schema: dict[str, Any]) -> jsonschema_rs.Validator:
    told = copy.deepcopy(schema)
    is_closed = state_closing(told)
    return jsonschema_rs.Draft202012Validator(state_closed_root(told) if is_closed else told)


@pytest.mark.parametrize(("name", "place", "value", "is_accepted"), CASES)
def test_the_schema_says_what_validation_does(name: str, place: Any, value: Any, is_accepted: bool) -> None:
    told = stated({"type": "object", "properties": {"p": place}, "$defs": {"A": A}})
    assert told.is_valid({"p": value}) is is_accepted
    assert not told.is_valid({"p": value, "z": 1})


@pytest.mark.parametrize(("name", "place", "value"), TURNED)
def test_nothing_is_closed_where_that_would_turn_a_verdict(name: str, place: Any, value: Any) -> None:
    is_one_of = name.startswith("one of")  # a model may be told of more there, never of less
    assert stated({"type": "object", "properties": {"p": place}}).is_valid({"p": value}) is is_one_of


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"properties": {"p": {"$ref": "#/$defs/A"}, "q": {"allOf": [{"$ref": "#/$defs/A"}, B]}}}, {"p": {"a": 1}, "q": {"a": 1, "b": 1}}),
        ({"properties": {"p": {"$ref": "#/$defs/A"}, "q": {"not": {"$ref": "#/$defs/A"}}}}, {"q": {"a": "x", "z": 1}}),
        ({"anyOf": [{**A, "additionalProperties": True}, B]}, {"a": 1, "z": 1}),
        ({"properties": {"p": {"$ref": "#here"}}, "$defs": {"X": {**A, "$anchor": "here"}}}, {"p": {"a": 1}}),
        ({"oneOf": TAGGED}, {"kind": "x", "x": 1}),
    ],
    ids=["a base", "below not", "an open alternative", "an anchor", "alternatives at the root"],
)  # fmt: skip
@pytest.mark.parametrize("provider", PROVIDERS)
def test_no_valid_call_is_forbidden(provider: str, schema: dict[str, Any], value: Any) -> None:
    parameters = {"type": "object", **schema, "$defs": {"A": A, **schema.get("$defs", {})}}
    tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    assert tool.arguments.is_valid(value)
    made = prepare(tool, vendor_of(provider), strict=False)
    assert not isinstance(made, Omitted)
    jsonschema_rs.Draft202012Validator(made.shown.schema).validate(value)


def test_every_call_of_the_official_suite_that_passes_is_still_permitted(shared_data: Path) -> None:
    count = 0
    for group in groups(shared_data / "json-schema-test-suite"):
        place = {"type": "object", "properties": {"p": group.schema}}
        try:
            tool = admit(ToolDefinition.from_elsewhere({"name": "t", "parameters": place}))
        except DefinitionError:
            continue
        told = stated(tool.arguments.schema)
        for test in group.tests:
            if tool.arguments.is_valid({"p": test["data"]}):
                count += 1
                assert told.is_valid({"p": test["data"]}), (group.file, test["description"])
    assert count > 500


def test_every_unknown_key_in_a_real_call_is_forbidden_by_an_export_or_named(shared_data: Path) -> None:
    """Of 421 real refusals, 24 came from unknown keys in objects that exports showed as open."""
    tools = real_tools(shared_data, step=15)
    calls = [(tool, call) for tool in tools if (call := example_call(tool)) is not None]
    calls += [(admit(definition), call) for definition, call in real_calls(shared_data)[::15]]
    probes = 0
    for tool, call in calls:
        refused = [probe for probe in _with_unknown_keys(call) if not tool.arguments.is_valid(probe)]
        probes += len(refused)
        for provider in PROVIDERS:
            made = prepare(tool, vendor_of(provider), strict=False)
            assert not isinstance(made, Omitted)
            judge = jsonschema_rs.Draft202012Validator(made.shown.schema)
            assert judge.is_valid(call), (provider, tool.name)
            named = {loss.keyword for loss in made.losses} & {"additionalProperties", "unevaluatedProperties"}
            assert named or not any(map(judge.is_valid, refused)), (provider, tool.name)
    assert probes > 200


def _with_unknown_keys(call: Any) -> Iterator[Any]:
    """The call with one more key, in each of its objects in turn."""
    count = json.dumps(call).count("{")
    for number in range(count):
        copied = json.loads(json.dumps(call))
        objects = list(_objects(copied))
        if number < len(objects):
            objects[number]["zz_unknown"] = 1
            yield copied


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inside in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _objects(inside)
