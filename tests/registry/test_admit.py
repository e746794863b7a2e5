"""A definition becomes a registered tool: the rules about its schemas, by hand and from elsewhere."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.definitions.examples import fields_of, made, made_elsewhere, read, with_properties
from toolkeep import Code, Limits, ToolDefinition, open_keep
from toolkeep.definitions.parameter import ANY_TYPE
from toolkeep.errors import DefinitionError, DefinitionInvalid, Problem, SchemaBroken, SchemaRefused
from toolkeep.registry.admit import admit, check_definition
from toolkeep.validation.compile import Compilation
from toolkeep.validation.tool_schemas import ToolSchemas


def refused(parameters: Any, **fields: Any) -> list[str]:
    """The fields that refuse a definition by hand."""
    return fields_of(check_definition(made(parameters=parameters, **fields))[0])


def test_a_good_definition_is_registered_with_its_hash_and_runner() -> None:
    definition = made(parameters=with_properties({"path": {"type": "string"}}, required=["path"]))
    runner = object()
    registered = admit(definition, runner=runner)
    assert registered.definition is definition
    assert (registered.name, registered.runner) == ("read_file", runner)
    assert registered.definition_hash == definition.hash
    assert registered.warnings == ()
    assert registered.output is None
    assert registered.arguments.is_valid({"path": "a"})
    assert not registered.arguments.is_valid({})


def test_name_and_version_are_always_those_of_the_definition() -> None:
    registered = admit(made())
    renamed = replace(registered, definition=registered.definition.replace(name="other", version="2.0.0"))
    assert (registered.name, registered.version) == ("read_file", "1.0.0")
    assert (renamed.name, renamed.version) == ("other", "2.0.0")
    assert replace(registered, name="invented", version="9").name == "read_file"


@pytest.mark.spec("VAL-9")
def test_an_output_schema_is_compiled_as_it_is_written() -> None:
    registered = admit(made(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}}))
    assert registered.output is not None
    assert registered.output.is_valid({"n": 1, "more": 2})
    assert not registered.output.is_valid({"n": "1"})


def test_with_a_problem_in_one_schema_neither_can_be_used() -> None:
    fine = Compilation(admit(made()).arguments, [], [])
    problem = Problem(field="output_schema", code=Code.SCHEMA_BROKEN, message="is broken", fix="fix it")
    broken = Compilation(None, [problem], [])
    for schemas in (
        ToolSchemas("read_file", {}, lambda: (fine, broken)),
        ToolSchemas("read_file", {}, lambda: (broken, fine)),
    ):
        for name in ("arguments", "output"):
            with pytest.raises(SchemaBroken, match="is broken"):
                getattr(schemas, name)


AUTHOR_RULES = [
    pytest.param(
        {"path": {}}, {}, "parameters/properties/path", id="no type", marks=pytest.mark.spec("VAL-3")
    ),
    pytest.param(
        {"path": True}, {}, "parameters/properties/path", id="anything", marks=pytest.mark.spec("VAL-3")
    ),
    pytest.param(
        {"path": {"description": "The file."}},
        {},
        "parameters/properties/path",
        id="described but untyped",
        marks=pytest.mark.spec("VAL-3"),
    ),
    pytest.param(
        {"box": {"type": "object", "properties": {"in": {}}}},
        {},
        "parameters/properties/box/properties/in",
        id="untyped below",
        marks=pytest.mark.spec("VAL-3"),
    ),
    pytest.param(
        {"path": {"type": "string", "default": "a"}},
        {"required": ["path"]},
        "parameters/properties/path",
        id="required with a default",
    ),
    pytest.param(
        {"n": {"type": "integer", "default": "3"}},
        {},
        "parameters/properties/n",
        id="default of another type",
    ),
    pytest.param(
        {"n": {"type": "integer", "maximum": 5, "default": 6}},
        {},
        "parameters/properties/n",
        id="default outside its range",
    ),
    pytest.param(
        {"n": {"type": "string", "enum": ["a"], "default": "b"}},
        {},
        "parameters/properties/n",
        id="default outside its enum",
    ),
    pytest.param(
        {"n": {"type": "string", "default": None}}, {}, "parameters/properties/n", id="default null"
    ),
    pytest.param(
        {"n": {"type": "string", "enum": ["a", 1]}}, {}, "parameters/properties/n", id="enum of another type"
    ),
    pytest.param(
        {"n": {"type": "integer", "minimum": 2, "enum": [1, 2]}},
        {},
        "parameters/properties/n",
        id="enum outside its range",
    ),
    pytest.param({"n": {"type": "array"}}, {}, "parameters/properties/n", id="array without items"),
    pytest.param({"startLine": {"type": "integer"}}, {}, "parameters/properties/startLine", id="camel case"),
    pytest.param(
        {"start-line": {"type": "integer"}}, {}, "parameters/properties/start-line", id="kebab case"
    ),
    pytest.param({"9th": {"type": "integer"}}, {}, "parameters/properties/9th", id="starts with a digit"),
    pytest.param(
        {"path": {"type": "string"}},
        {"required": ["path", "mode"]},
        "parameters/required",
        id="required absent",
    ),
]


@pytest.mark.parametrize("schema", [{"type": "object"}, {"type": list(ANY_TYPE)}])
def test_a_free_map_and_a_free_value_are_taken_by_hand(schema: dict[str, Any]) -> None:
    tool = admit(made(parameters=with_properties({"n": schema})))
    assert tool.arguments.is_valid({"n": {"any": [{"thing": 1}]}})
    assert tool.arguments.is_valid({"n": [1]}) is (schema["type"] != "object")


@pytest.mark.spec("DEF-5")
@pytest.mark.parametrize(("properties", "keywords", "field"), AUTHOR_RULES)
def test_a_rule_for_authors_refuses_by_hand(
    properties: dict[str, Any], keywords: dict[str, Any], field: str
) -> None:
    with pytest.raises(SchemaRefused) as caught:
        admit(made(parameters=with_properties(properties, **keywords)))
    assert [(problem.field, problem.code) for problem in caught.value.problems] == [
        (field, Code.SCHEMA_REFUSED)
    ]
    assert all(problem.fix for problem in caught.value.problems)


@pytest.mark.spec("DEF-2", "DEF-5")
@pytest.mark.parametrize(("properties", "keywords", "field"), AUTHOR_RULES)
def test_a_rule_for_authors_warns_from_elsewhere(
    properties: dict[str, Any], keywords: dict[str, Any], field: str
) -> None:
    registered = admit(made_elsewhere(parameters=with_properties(properties, **keywords)))
    assert fields_of(registered.warnings) == [field]


@pytest.mark.spec("DEF-5")
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "default": "a"},
        {"type": "integer", "minimum": 1, "maximum": 5, "default": 5},
        {"type": "number", "default": 1},
        {"type": "boolean", "default": False},
        {"type": ["string", "null"], "default": None},
        {"type": "array", "items": {"type": "string"}, "default": []},
        {"type": "array", "enum": [[1], [2]]},
        {"type": "object", "enum": [{"a": 1}]},
        {
            "type": "object",
            "properties": {"deep": {"type": "object", "properties": {"n": {"type": "integer"}}}},
        },
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"anyOf": [{"type": "string"}, {"type": "integer"}], "default": 3},
        {"oneOf": [{"type": "string"}, {"type": "null"}]},
        {"enum": ["a", 1, None]},
        {"const": 5},
    ],
)
def test_a_parameter_that_keeps_the_rules_is_accepted(schema: dict[str, Any]) -> None:
    assert check_definition(made(parameters=with_properties({"value": schema}))) == ((), ())


@pytest.mark.spec("DEF-5")
def test_schema_data_by_hand_needs_no_descriptions() -> None:
    assert refused(with_properties({"value": {"type": "string"}})) == []


@pytest.mark.spec("DEF-2")
def test_from_elsewhere_a_blank_description_and_an_untyped_property_are_named_warnings() -> None:
    definition = made_elsewhere(description="", parameters=with_properties({"path": {}}))
    registered = admit(definition)
    assert fields_of(registered.warnings) == ["description", "parameters/properties/path"]
    assert registered.arguments.is_valid({"path": [1, {"any": None}]})


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize("touches", ["fs.delete", {"kind": "fs.read", "form": "hose"}, 5])
def test_a_touch_of_no_known_kind_is_refused(touches: Any) -> None:
    parameters = with_properties({"path": {"type": "string", "x-touches": touches}})
    assert refused(parameters) == ["parameters/properties/path/x-touches"]


@pytest.mark.spec("VAL-1", "VAL-5")
@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        (with_properties({"path": {"type": "text"}}), "parameters/properties/path/type"),
        (with_properties({"n": {"type": "integer", "minimum": "1"}}), "parameters/properties/n/minimum"),
        (with_properties({"n": {"type": "string"}}, required="n"), "parameters/required"),
    ],
)
def test_a_schema_that_is_none_is_broken_with_its_place(parameters: Any, field: str) -> None:
    with pytest.raises(SchemaBroken) as caught:
        admit(made(parameters=parameters))
    assert [(problem.field, problem.code) for problem in caught.value.problems] == [
        (field, Code.SCHEMA_BROKEN)
    ]


@pytest.mark.spec("DEF-12")
def test_problems_of_every_field_come_at_once_under_the_widest_error() -> None:
    definition = read(
        name="Read",
        description="",
        parameters=with_properties({"path": {}, "n": {"type": "integer", "default": "x"}}),
        output_schema={"type": "text"},
    )
    with pytest.raises(DefinitionInvalid) as caught:
        admit(definition)
    assert [(problem.field, problem.code) for problem in caught.value.problems] == [
        ("name", Code.DEFINITION_INVALID),
        ("description", Code.DEFINITION_INVALID),
        ("parameters/properties/path", Code.SCHEMA_REFUSED),
        ("parameters/properties/n", Code.SCHEMA_REFUSED),
        ("output_schema/type", Code.SCHEMA_BROKEN),
    ]
    assert caught.value.code is Code.DEFINITION_INVALID


@pytest.mark.spec("DEF-12")
def test_checking_registers_nothing_and_gives_what_would_be_raised() -> None:
    definition = read(name="run", parameters=with_properties({"path": {}}))
    with pytest.raises(DefinitionError) as caught:
        admit(definition)
    assert check_definition(definition) == (caught.value.problems, ())


@pytest.mark.spec("VAL-7")
def test_limits_of_the_keep_are_in_force() -> None:
    parameters = with_properties({"path": {"type": "string", "description": "x" * 100}})
    definition = made(parameters=parameters)
    assert check_definition(definition) == ((), ())
    assert fields_of(check_definition(definition, limits=Limits(schema_bytes=100))[0]) == ["parameters"]


@pytest.mark.spec("VAL-1")
def test_a_near_miss_of_a_keyword_is_a_warning_by_hand_too() -> None:
    parameters = with_properties({"path": {"type": "string", "maxlength": 5}})
    problems, warnings = check_definition(made(parameters=parameters))
    assert problems == ()
    assert [(w.field, w.fix) for w in warnings] == [
        ("parameters/properties/path/maxlength", "did you mean 'maxLength'?")
    ]


@pytest.mark.spec("DEF-2")
def test_a_bad_default_from_elsewhere_is_shown_but_never_applied() -> None:
    properties = {
        "lines": {"type": "integer", "default": "ten"},
        "mode": {"type": "string", "default": "fast"},
    }
    keep = open_keep(built_in=False)
    keep.register(ToolDefinition.from_elsewhere({"name": "read", "inputSchema": with_properties(properties)}))
    assert keep.validate_arguments("read", {}) == {"mode": "fast"}
    exported = keep.get("read").definition.to_claude_format()["input_schema"]
    assert exported["properties"]["lines"]["default"] == "ten"


@pytest.mark.spec("POL-3")
def test_a_permission_that_nobody_can_hold_is_refused_by_hand_with_the_one_that_was_meant() -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        admit(made(required_permissions=["tool.filesystem.read", "tool.filesystem.reed"]))
    (problem,) = caught.value.problems
    assert (problem.field, problem.fix) == ("required_permissions/1", "did you mean 'tool.filesystem.read'?")
    with pytest.raises(DefinitionInvalid, match="name it under `permissions`"):
        admit(made(required_permissions=["shop.order"]))


@pytest.mark.spec("POL-3")
def test_permissions_that_configuration_adds_exist() -> None:
    assert admit(made(required_permissions=["shop.order"]), permissions=["shop.order"]).warnings == ()


@pytest.mark.spec("POL-3")
def test_from_elsewhere_an_unknown_permission_is_a_named_warning() -> None:
    (warning,) = admit(made_elsewhere(required_permissions=["shop.order"])).warnings
    assert warning.field == "required_permissions/0"


@pytest.mark.spec("POL-3")
def test_permissions_that_the_host_adds_exist_in_its_keep() -> None:
    wanted = made(name="order", required_permissions=["shop.order"])
    with open_keep(permissions=["shop.order"]) as keep:
        keep.register(wanted)
        assert keep.get("order").warnings == ()
    with open_keep() as keep, pytest.raises(DefinitionInvalid):
        keep.register(wanted)


@pytest.mark.spec("DEF-8")
def test_an_import_whose_marks_contradict_its_effects_may_write() -> None:
    """Else it would run beside calls that rely on what they read, and its result be kept."""
    path = {"path": {"type": "string", "x-touches": "fs.write"}}
    parameters = with_properties(path)
    assert admit(made_elsewhere(side_effects=["None"], parameters=parameters)).may_write
    assert not admit(made_elsewhere(side_effects=["None"])).may_write
