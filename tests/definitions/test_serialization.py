"""Definitions as JSON data: nothing lost, order kept, every unreadable field told at once."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.definitions.examples import JSON, TEXT, fields_of, made
from toolkeep import Category, Code, Danger, Determinism, Isolation, SideEffect, ToolDefinition
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.constraints import Bounds, Constraints, NetworkBounds
from toolkeep.definitions.serialization import definition_from_dict
from toolkeep.definitions.tool import KEYS, Source
from toolkeep.definitions.vocabulary import Normalization, ResultType, Word
from toolkeep.errors import DefinitionInvalid, Problem

EVERY_FIELD: dict[str, Any] = {
    "name": "copy_rows",
    "description": "Copy rows.",
    "version": "2.1.0-rc.1+build.5",
    "category": "database",
    "parameters": {
        "type": "object",
        "properties": {
            "target": {"type": "string", "x-touches": {"kind": "db.write", "form": "database"}},
            "password": {"type": "string", "x-secret": True},
            "limit": {"type": "integer", "minimum": 1, "default": 10},
        },
        "required": ["target"],
    },
    "output_schema": {"type": "array", "items": {"type": "integer"}},
    "result_type": "array",
    "normalization": "json",
    "constraints": {
        "max_execution_time": 1.5,
        "max_output_size": 4096,
        "required_isolation": "strict",
    },
    "resource_bounds": {
        "max_memory": 1048576,
        "max_cpu": 0.5,
        "max_network": {"max_requests": 3, "max_bytes": 65536},
    },
    "required_permissions": ["tool.db.write"],
    "capabilities": ["db.write:orders", "db.read"],
    "side_effects": ["DbRead", "DbWrite"],
    "flow": {"/*": "system"},
    "determinism": "NonDeterministic",
    "idempotent": True,
    "danger": "high",
    "requires_confirmation": True,
    "sensitive": True,
    "client_executed": True,
    "usage_metadata": "Use it at night.",
    "enabled": False,
    "aliases": ["clone_rows"],
    "source": {"kind": "mcp", "origin": "warehouse", "name": "copy.rows"},
    "metadata": {"owner": None, "tags": [1, 2.5, {"deep": True}]},
}


@pytest.mark.spec("DEF-1")
def test_every_field_is_read_into_its_type() -> None:
    definition = ToolDefinition.from_dict(EVERY_FIELD)
    assert definition == ToolDefinition(
        name="copy_rows",
        description="Copy rows.",
        version="2.1.0-rc.1+build.5",
        category=Category.DATABASE,
        parameters=EVERY_FIELD["parameters"],
        output_schema=EVERY_FIELD["output_schema"],
        result_type=ResultType.ARRAY,
        normalization=Normalization.JSON,
        constraints=Constraints(
            max_execution_time_s=1.5, max_output_bytes=4096, required_isolation=Isolation.STRICT
        ),
        resource_bounds=Bounds(
            max_memory_bytes=1048576,
            max_cpu_cores=0.5,
            max_network=NetworkBounds(max_requests=3, max_bytes=65536),
        ),
        required_permissions=("tool.db.write",),
        capabilities=(Capability("db.write", "orders"), Capability("db.read")),
        side_effects=(SideEffect.DB_READ, SideEffect.DB_WRITE),
        flow=EVERY_FIELD["flow"],
        determinism=Determinism.NON_DETERMINISTIC,
        idempotent=True,
        danger=Danger.HIGH,
        requires_confirmation=True,
        sensitive=True,
        client_executed=True,
        usage_metadata="Use it at night.",
        enabled=False,
        aliases=("clone_rows",),
        source=Source(kind="mcp", origin="warehouse", name="copy.rows"),
        metadata=EVERY_FIELD["metadata"],
    )


@pytest.mark.spec("DEF-1")
def test_every_field_is_written_as_it_was_read_in_a_fixed_order() -> None:
    written = ToolDefinition.from_dict(EVERY_FIELD).to_dict()
    assert json.dumps(written) == json.dumps(EVERY_FIELD)
    assert tuple(written) == KEYS


@pytest.mark.spec("DEF-1")
def test_what_equals_its_default_is_left_out() -> None:
    assert ToolDefinition(name="a", description="A.").to_dict() == {
        "name": "a",
        "description": "A.",
        "version": "1.0.0",
        "category": "general",
        "parameters": {"type": "object", "properties": {}},
    }


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize("field", [key for key in KEYS if key not in ("name", "description")])
def test_null_means_the_default(field: str) -> None:
    assert made(**{field: None}) == made()


@pytest.mark.spec("DEF-1", "DEF-7")
def test_no_effects_and_unknown_effects_stay_apart() -> None:
    assert ToolDefinition.from_dict(made(side_effects=[]).to_dict()).side_effects == ()
    assert ToolDefinition.from_dict(made().to_dict()).side_effects is None


def words(of: type[Word]) -> st.SearchStrategy[str]:
    return st.sampled_from([word.value for word in of])


SCHEMAS = st.dictionaries(TEXT, JSON, max_size=5)
DEFINITIONS = st.fixed_dictionaries(
    {"name": TEXT, "description": TEXT},
    optional={
        "version": TEXT,
        "category": words(Category) | st.sampled_from([0, 10, 100]),
        "parameters": st.fixed_dictionaries({"type": st.just("object"), "properties": SCHEMAS}),
        "output_schema": SCHEMAS,
        "result_type": words(ResultType),
        "normalization": words(Normalization),
        "constraints": st.fixed_dictionaries(
            {},
            optional={
                "max_execution_time": st.integers(1, 600) | st.floats(1, 600),
                "max_output_size": st.integers(1, 2**70),
                "allow_side_effects": st.booleans(),
                "required_isolation": words(Isolation),
            },
        ),
        "required_permissions": st.lists(TEXT, max_size=3),
        "capabilities": st.lists(st.sampled_from(["fs.read:./docs", "net.write", "db.read:a:b"])),
        "side_effects": st.lists(words(SideEffect), max_size=3),
        "determinism": words(Determinism),
        "idempotent": st.booleans(),
        "danger": words(Danger),
        "sensitive": st.booleans(),
        "enabled": st.booleans(),
        "aliases": st.lists(TEXT, max_size=3),
        "source": st.fixed_dictionaries({"kind": st.sampled_from(["hand", "mcp"]), "origin": TEXT}),
        "usage_metadata": TEXT,
        "metadata": SCHEMAS,
    },
)


@pytest.mark.spec("DEF-1")
@given(DEFINITIONS)
def test_a_round_trip_through_json_keeps_equality_order_and_hash(data: dict[str, Any]) -> None:
    definition = definition_from_dict(data)
    text = json.dumps(definition.to_dict())
    again = definition_from_dict(json.loads(text))
    assert again == definition
    assert again.hash == definition.hash
    assert json.dumps(again.to_dict()) == text
    assert list(again.properties) == list(data.get("parameters", {}).get("properties", {}))


@pytest.mark.spec("DEF-5", "DEF-9")
def test_parameters_may_be_a_list() -> None:
    listed = made(
        parameters=[
            {"name": "path", "description": "The file.", "type": "string", "required": True},
            {"name": "lines", "description": "How many.", "type": "integer", "default": 3},
        ]
    )
    assert listed == made(
        parameters={
            "type": "object",
            "properties": {
                "path": {"type": "string", "description": "The file."},
                "lines": {"type": "integer", "description": "How many.", "default": 3},
            },
            "required": ["path"],
        }
    )
    assert list(listed.properties) == ["path", "lines"]


def test_an_empty_list_of_parameters_is_none() -> None:
    assert made(parameters=[]) == made()


@pytest.mark.parametrize(
    ("spelling", "field", "value"),
    [
        ("danger_level", "danger", "low"),
        ("normalisation", "normalization", "binary"),
        ("bounds", "resource_bounds", {"max_cpu": 2}),
    ],
)
def test_other_spellings_are_read(spelling: str, field: str, value: Any) -> None:
    assert made(**{spelling: value}) == made(**{field: value})


def test_a_field_under_two_spellings_is_refused() -> None:
    assert wrong_fields(danger="critical", danger_level="safe") == ["danger"]


def wrong_fields(**fields: Any) -> list[str]:
    with pytest.raises(DefinitionInvalid) as caught:
        made(**fields)
    assert {problem.code for problem in caught.value.problems} == {Code.DEFINITION_INVALID}
    assert all(problem.message and problem.fix for problem in caught.value.problems)
    return fields_of(caught.value.problems)


@pytest.mark.spec("DEF-12")
@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"name": 5}, ["name"]),
        ({"description": ["A."]}, ["description"]),
        ({"version": 1.0}, ["version"]),
        ({"category": "kitchen"}, ["category"]),
        ({"parameters": "none"}, ["parameters"]),
        ({"parameters": [5, {"name": "a", "type": "no"}]}, ["parameters/0", "parameters/1"]),
        ({"parameters": [{"name": "a", "type": "string"}] * 2}, ["parameters"]),
        ({"parameters": {"properties": {"a": {1, 2}}}}, ["parameters/properties/a"]),
        ({"output_schema": []}, ["output_schema"]),
        ({"result_type": "text"}, ["result_type"]),
        ({"normalization": "xml"}, ["normalization"]),
        ({"constraints": []}, ["constraints"]),
        (
            {"constraints": {"max_execution_time": "60", "max_output_size": 1.5, "allow_side_effects": 0}},
            [
                "constraints/max_execution_time",
                "constraints/max_output_size",
                "constraints/allow_side_effects",
            ],
        ),
        ({"constraints": {"required_isolation": "total"}}, ["constraints/required_isolation"]),
        ({"constraints": {"max_time": 1}}, ["constraints/max_time"]),
        ({"constraints": {1: 2, "a": 3}}, ["constraints/1", "constraints/a"]),
        ({"constraints": {"max_execution_time": float("nan")}}, ["constraints/max_execution_time"]),
        ({"constraints": {"max_execution_time": 10**400}}, ["constraints/max_execution_time"]),
        ({"constraints": {"max_execution_time": True}}, ["constraints/max_execution_time"]),
        ({"resource_bounds": {"max_memory": True}}, ["resource_bounds/max_memory"]),
        ({"resource_bounds": {"max_cpu": float("inf")}}, ["resource_bounds/max_cpu"]),
        ({"resource_bounds": {"max_network": 5}}, ["resource_bounds/max_network"]),
        (
            {"resource_bounds": {"max_network": {"max_requests": 1}}},
            ["resource_bounds/max_network/max_bytes"],
        ),
        ({"required_permissions": "tool"}, ["required_permissions"]),
        ({"required_permissions": ["a", 5]}, ["required_permissions/1"]),
        ({"capabilities": ["fs.read", "fs.eat", 5]}, ["capabilities/1", "capabilities/2"]),
        ({"side_effects": "NetRead"}, ["side_effects"]),
        ({"side_effects": ["Nothing"]}, ["side_effects/0"]),
        ({"determinism": "always"}, ["determinism"]),
        ({"idempotent": "yes"}, ["idempotent"]),
        ({"danger": "deadly"}, ["danger"]),
        ({"requires_confirmation": 1}, ["requires_confirmation"]),
        ({"sensitive": 0}, ["sensitive"]),
        ({"client_executed": "no"}, ["client_executed"]),
        ({"usage_metadata": {}}, ["usage_metadata"]),
        ({"enabled": "true"}, ["enabled"]),
        ({"aliases": {"a": 1}}, ["aliases"]),
        ({"source": {"kind": "web"}}, ["source/kind"]),
        ({"source": {"kind": ["mcp"]}}, ["source/kind"]),
        ({"metadata": {"a": float("nan")}}, ["metadata/a"]),
        ({"metadata": []}, ["metadata"]),
        ({"colour": "red"}, ["colour"]),
    ],
)
def test_a_field_that_cannot_be_read_is_told(fields: dict[str, Any], wrong: list[str]) -> None:
    assert wrong_fields(**fields) == wrong


@pytest.mark.parametrize(
    ("field", "fix"),
    [("effect", "did you mean 'effects'?"), ("owner", "use metadata for fields of your own")],
)
def test_a_misspelled_field_is_told_with_the_one_that_was_meant(field: str, fix: str) -> None:
    with pytest.raises(DefinitionInvalid) as refused:
        definition_from_dict(made().to_dict() | {field: "none"})
    assert [(problem.field, problem.fix) for problem in refused.value.problems] == [(field, fix)]


@pytest.mark.spec("DEF-12")
def test_every_unreadable_field_and_every_broken_rule_comes_at_once() -> None:
    fields = wrong_fields(
        name="Bad Name",
        description=" ",
        version="one",
        category="kitchen",
        danger="deadly",
        side_effects=["NetWrite"],
        constraints={"max_output_size": "big"},
        colour="red",
    )
    assert fields == [
        "colour",
        "category",
        "constraints/max_output_size",
        "danger",
        "name",
        "description",
        "version",
        "capabilities",
    ]


@pytest.mark.parametrize("data", [None, 5, "read_file", [], [("name", "a")]])
def test_a_definition_is_an_object(data: Any) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        ToolDefinition.from_dict(data)
    assert caught.value.problems == (
        Problem(
            field="",
            code=Code.DEFINITION_INVALID,
            message=f"expected an object, got {type(data).__name__}",
            fix="use an object",
        ),
    )
