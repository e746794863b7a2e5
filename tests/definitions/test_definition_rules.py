"""The rules for a definition that need no schema: by hand they refuse, from elsewhere some only warn."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from tests.definitions.examples import fields_of, made, made_elsewhere
from toolkeep import Code, ToolDefinition
from toolkeep.definitions.constraints import Bounds
from toolkeep.definitions.definition_rules import problems_of, refuse_problems
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import DefinitionInvalid, Problem


def refusing(make: Callable[..., ToolDefinition], **fields: Any) -> Sequence[Problem]:
    """The problems that refuse the definition."""
    try:
        definition = make(**fields)
    except DefinitionInvalid as error:
        assert all(problem.message and problem.fix for problem in error.problems)
        assert all(problem.code is Code.DEFINITION_INVALID for problem in error.problems)
        return error.problems
    assert problems_of(definition)[0] == []
    return ()


def wrong(make: Callable[..., ToolDefinition], **fields: Any) -> list[str]:
    """The fields that refuse the definition."""
    return fields_of(list(refusing(make, **fields)))


def warned(definition: ToolDefinition) -> list[str]:
    """The fields that only warn."""
    return fields_of(problems_of(definition)[1])


def test_a_good_definition_has_no_problems() -> None:
    assert problems_of(made()) == ([], [])
    assert problems_of(made_elsewhere()) == ([], [])


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize(
    "name", ["", "Read", "read-file", "9", "_a", "a" * 65, "execute", "run", "call", "invoke"]
)
def test_a_bad_name_by_hand_is_refused(name: str) -> None:
    assert wrong(made, name=name) == ["name"]


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize("alias", ["", "Read", "read-file", "a" * 65, "run"])
def test_aliases_obey_the_rules_of_names(alias: str) -> None:
    assert wrong(made, aliases=["fine", alias]) == ["aliases/1"]


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize("aliases", [["read_file"], ["open_file", "open_file"]])
def test_an_alias_that_repeats_a_name_is_refused(aliases: list[str]) -> None:
    assert wrong(made, aliases=aliases) == [f"aliases/{len(aliases) - 1}"]


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize("name", ["Read-File", "run", "_", "9", "A" * 64])
def test_a_portable_name_from_elsewhere_is_accepted(name: str) -> None:
    definition = made_elsewhere(name=name, aliases=["Other-Name"])
    assert problems_of(definition) == ([], [])


@pytest.mark.spec("DEF-2")
@pytest.mark.parametrize("name", ["", "a b", "a.b", "A" * 65, "é", "a\n"])
def test_an_odd_name_from_elsewhere_is_refused_until_it_is_mapped(name: str) -> None:
    assert wrong(made_elsewhere, name=name) == ["name"]


@pytest.mark.spec("DEF-2")
def test_an_alias_from_elsewhere_repeats_the_name_in_any_case() -> None:
    assert wrong(made_elsewhere, name="Read", aliases=["read"]) == ["aliases/0"]


@pytest.mark.spec("DEF-3")
@pytest.mark.parametrize("description", ["", " \n\t", "x" * 1025])
def test_a_blank_or_long_description_refuses_by_hand_and_warns_from_elsewhere(description: str) -> None:
    assert wrong(made, description=description) == ["description"]
    assert wrong(made_elsewhere, description=description) == []
    assert warned(made_elsewhere(description=description)) == ["description"]


@pytest.mark.spec("DEF-3")
def test_a_description_may_have_1024_characters() -> None:
    assert wrong(made, description="é" * 1024) == []


@pytest.mark.spec("DEF-3")
@pytest.mark.parametrize(
    "version",
    [
        "0.0.0",
        "1.2.3",
        "10.20.30",
        "1.0.0-alpha.1",
        "1.0.0-0a",
        "1.0.0+build.01",
        "1.0.0-a-b+c",
        "1.0.0-" + "a" * 26,
    ],
)
def test_a_semantic_version_is_accepted(version: str) -> None:
    assert wrong(made, version=version) == []


@pytest.mark.spec("DEF-3")
@pytest.mark.parametrize(
    "version",
    ["", "1", "1.0", "1.0.0.0", "v1.0.0", "01.0.0", "1.0.0-", "1.0.0-01", "1.0.0-a..b", "1.0.0+", "1.0.0 ",
     "1.0.0\n", "1.0.٣", "1.0.0-" + "a" * 27],
)  # fmt: skip
def test_what_is_no_semantic_version_of_32_characters_is_refused(version: str) -> None:
    assert wrong(made, version=version) == ["version"]


@pytest.mark.spec("DEF-3")
def test_permissions_hold_up_to_4096_bytes_of_json() -> None:
    assert wrong(made, required_permissions=["x" * 4092]) == []
    assert wrong(made, required_permissions=["x" * 4093]) == ["required_permissions"]
    assert wrong(made, required_permissions=["é" * 2047]) == ["required_permissions"]


@pytest.mark.spec("DEF-3", "DEF-6")
def test_constraints_hold_up_to_4096_bytes_of_json() -> None:
    assert wrong(made, constraints={"max_output_size": 10**4094}) == [
        "constraints",
        "constraints/max_output_size",
    ]


@pytest.mark.spec("DEF-4")
@pytest.mark.parametrize(
    ("isolation", "fields"),
    [
        (None, ["constraints/required_isolation"]),
        ("none", ["constraints/required_isolation"]),
        ("standard", ["constraints/required_isolation"]),
        ("strict", []),
        ("restricted", []),
    ],
)
def test_code_execution_needs_strict_or_restricted(isolation: str | None, fields: list[str]) -> None:
    definition = partial(made, category="code_execution", constraints={"required_isolation": isolation})
    assert wrong(definition) == fields


@pytest.mark.spec("DEF-6")
@pytest.mark.parametrize(
    ("seconds", "is_fine"),
    [(1, True), (600, True), (60.5, True), (0, False), (0.999, False), (600.001, False), (-1, False)],
)
def test_execution_time_is_between_a_second_and_ten_minutes(seconds: float, is_fine: bool) -> None:
    expected = [] if is_fine else ["constraints/max_execution_time"]
    assert wrong(made, constraints={"max_execution_time": seconds}) == expected


@pytest.mark.spec("DEF-6")
@pytest.mark.parametrize(
    ("size", "is_fine"),
    [
        (1024, True),
        (100 * 1024**2, True),
        (1023, False),
        (0, False),
        (100 * 1024**2 + 1, False),
        (2**70, False),
    ],
)
def test_output_size_is_between_1_kb_and_100_mb(size: int, is_fine: bool) -> None:
    expected = [] if is_fine else ["constraints/max_output_size"]
    assert wrong(made, constraints={"max_output_size": size}) == expected


@pytest.mark.spec("DEF-6")
@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize("field", ["max_memory", "max_cpu"])
def test_bounds_are_above_zero(field: str, value: int) -> None:
    assert wrong(made, resource_bounds={field: value}) == [f"resource_bounds/{field}"]


@pytest.mark.spec("DEF-6")
def test_bounds_of_the_network_are_above_zero() -> None:
    definition = partial(made, resource_bounds={"max_network": {"max_requests": 0, "max_bytes": -5}})
    assert wrong(definition) == [
        "resource_bounds/max_network/max_requests",
        "resource_bounds/max_network/max_bytes",
    ]


@pytest.mark.spec("DEF-7")
def test_none_beside_another_effect_is_refused() -> None:
    definition = partial(made, side_effects=["None", "FsRead"], capabilities=["fs.read"])
    assert wrong(definition) == ["side_effects"]


@pytest.mark.spec("DEF-7")
def test_a_pure_tool_has_no_effects() -> None:
    assert wrong(made, determinism="Pure", side_effects=["FsRead"], capabilities=["fs.read"]) == [
        "determinism"
    ]


@pytest.mark.spec("DEF-7")
@pytest.mark.parametrize("effects", [None, [], ["None"]])
def test_a_pure_tool_may_say_that_it_has_none(effects: Any) -> None:
    assert wrong(made, determinism="Pure", side_effects=effects) == []


WRITES = [
    ("NetWrite", "net.write"),
    ("FsWrite", "fs.write"),
    ("DbWrite", "db.write"),
    ("ProcessSpawn", "process.spawn"),
]
READS = [("NetRead", "net.read"), ("FsRead", "fs.read"), ("DbRead", "db.read")]


@pytest.mark.spec("DEF-7")
@pytest.mark.parametrize(("effect", "capability"), WRITES)
def test_no_side_effects_allowed_and_a_write_effect_is_refused(effect: str, capability: str) -> None:
    definition = partial(
        made,
        side_effects=[effect],
        capabilities=[capability],
        danger="low",
        constraints={"allow_side_effects": False},
    )
    assert wrong(definition) == ["constraints/allow_side_effects"]


@pytest.mark.spec("DEF-7")
@pytest.mark.parametrize(("effect", "capability"), READS)
def test_no_side_effects_allowed_and_a_read_effect_is_fine(effect: str, capability: str) -> None:
    definition = partial(
        made, side_effects=[effect], capabilities=[capability], constraints={"allow_side_effects": False}
    )
    assert wrong(definition) == []


@pytest.mark.spec("DEF-7")
@pytest.mark.parametrize(("effect", "capability"), WRITES + READS)
def test_an_effect_needs_its_capability(effect: str, capability: str) -> None:
    others = [f"{kind}:x" for _, kind in WRITES + READS if kind != capability]
    assert wrong(made, side_effects=[effect], capabilities=others, danger="high") == ["capabilities"]
    scoped = [f"{capability}:x"]
    assert wrong(made, side_effects=[effect], capabilities=scoped, danger="high") == []


@pytest.mark.spec("DEF-8")
@pytest.mark.parametrize(("effect", "capability"), WRITES)
def test_a_write_effect_needs_a_stated_danger(effect: str, capability: str) -> None:
    assert wrong(made, side_effects=[effect], capabilities=[capability]) == ["danger"]
    assert wrong(made, side_effects=[effect], capabilities=[capability], danger="safe") == []


@pytest.mark.spec("DEF-8")
@pytest.mark.parametrize(("effect", "capability"), READS)
def test_a_read_effect_needs_no_stated_danger(effect: str, capability: str) -> None:
    assert wrong(made, side_effects=[effect], capabilities=[capability]) == []


def marked(kind: str) -> list[dict[str, Any]]:
    """Schemas of parameters with a mark at every place that an author may write one."""
    mark = {"type": "string", "x-touches": kind}
    inside = {"type": "object", "properties": {"to": mark}}
    return [
        {"type": "object", "properties": {"to": mark}},
        {"type": "object", "properties": {"to": {"anyOf": [mark, {"type": "null"}]}}},
        {"type": "object", "properties": {"to": {"type": "array", "items": mark}}},
        {"type": "object", "properties": {"options": inside}},
        {"type": "object", "properties": {"to": {"$ref": "#/$defs/Target"}}, "$defs": {"Target": mark}},
    ]


@pytest.mark.spec("DEF-7", "DEF-8")
@pytest.mark.parametrize(("effect", "capability"), WRITES)
def test_a_mark_of_a_write_kind_at_any_depth_is_no_read(effect: str, capability: str) -> None:
    """Else a tool that writes where nobody looked would count as one that only reads, and run unasked."""
    for parameters in marked(capability):
        definition = made(parameters=parameters, capabilities=["fs.read"])
        assert definition.effects is None, effect
        assert definition.is_undeclared
        assert definition.danger_level is Danger.MEDIUM


@pytest.mark.spec("DEF-8")
@pytest.mark.parametrize(("effect", "capability"), READS)
def test_a_mark_of_a_read_kind_at_any_depth_implies_its_effect(effect: str, capability: str) -> None:
    for parameters in marked(capability):
        definition = made(parameters=parameters, capabilities=["fs.read"])
        assert {"FsRead", effect} == {found.value for found in definition.effects or ()}
        assert definition.danger_level is Danger.SAFE


@pytest.mark.spec("DEF-7")
@pytest.mark.parametrize("stated", [[], ["None"], ["Reads"], ["FsRead"]])
@pytest.mark.parametrize(("effect", "capability"), WRITES)
def test_no_write_effect_beside_a_mark_of_a_write_kind(
    effect: str, capability: str, stated: list[str]
) -> None:
    for parameters in marked(capability):
        fields = {"parameters": parameters, "side_effects": stated, "capabilities": ["fs.read"]}
        (problem,) = refusing(made, **fields)
        assert (problem.field, effect in problem.fix) == ("side_effects", True)
        imported = made_elsewhere(**fields)
        assert warned(imported) == ["side_effects"]
        assert imported.effects is None
        assert imported.danger_level is Danger.MEDIUM


@pytest.mark.spec("DEF-7")
@pytest.mark.parametrize(("effect", "capability"), WRITES)
def test_a_write_effect_beside_its_mark_is_fine(effect: str, capability: str) -> None:
    for parameters in marked(capability):
        for stated in (effect, "Writes"):
            definition = made(
                parameters=parameters, side_effects=[stated], capabilities=[capability], danger="low"
            )
            assert definition.danger_level is Danger.LOW


@pytest.mark.spec("DEF-1")
@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"description": "half \ud800"}, "description"),
        ({"usage_metadata": "\udc00"}, "usage_metadata"),
        ({"required_permissions": ["\ud800"]}, "required_permissions/0"),
        ({"capabilities": ["fs.read:\ud800"]}, "capabilities/0"),
        ({"source": {"kind": "mcp", "name": "\ud800"}}, "source/name"),
    ],
)
def test_text_that_json_cannot_hold_is_refused(fields: dict[str, Any], field: str) -> None:
    assert wrong(made, **fields) == [field]


@pytest.mark.spec("DEF-1", "DEF-6")
def test_a_number_that_json_cannot_hold_is_refused() -> None:
    bounds = Bounds(max_cpu_cores=float("nan"))
    assert wrong(made().replace, resource_bounds=bounds) == ["resource_bounds/max_cpu"]


@pytest.mark.spec("DEF-12")
def test_all_problems_come_at_once() -> None:
    definition = partial(
        made,
        name="Run It",
        description="",
        version="1",
        aliases=["call"],
        category="code_execution",
        constraints={"max_execution_time": 0, "max_output_size": 1},
        resource_bounds={"max_memory": 0},
        side_effects=["NetWrite"],
        determinism="Pure",
    )
    assert wrong(definition) == [
        "name",
        "aliases/0",
        "description",
        "version",
        "constraints/max_execution_time",
        "constraints/max_output_size",
        "constraints/required_isolation",
        "resource_bounds/max_memory",
        "determinism",
        "danger",
        "capabilities",
    ]


@pytest.mark.spec("DEF-12")
def test_a_problem_says_field_code_message_and_mend() -> None:
    assert [problem.to_dict() for problem in refusing(made, name="run")] == [
        {
            "field": "name",
            "code": "ACODE-TSR-009",
            "message": "'run' is reserved",
            "fix": "use snake_case such as 'read_file', at most 64 characters",
        }
    ]


@pytest.mark.spec("DEF-12")
def test_problems_are_raised_together_and_none_is_silence() -> None:
    problem = Problem(field="name", code=Code.DEFINITION_INVALID, message="is reserved", fix="use another")
    refuse_problems("run", [])
    with pytest.raises(DefinitionInvalid) as caught:
        refuse_problems("run", [problem, problem])
    assert (caught.value.name, caught.value.problems) == ("run", (problem, problem))
    assert caught.value.code is Code.DEFINITION_INVALID
