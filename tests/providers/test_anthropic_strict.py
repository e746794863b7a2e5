"""Claude's strict mode."""

from typing import Any

import pytest

from toolkeep import Keep, ToolDefinition


def keeping(*tools: dict[str, Any]) -> Keep:
    keep = Keep()
    for given in tools:
        keep.register(ToolDefinition.from_dict({"description": "d", **given}))
    return keep


def of(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def strict_names(keep: Keep) -> list[str]:
    return [one["name"] for one in keep.tools_for("anthropic", strict=True) if one.get("strict")]


@pytest.mark.spec("PRV-1")
def test_what_the_subset_does_not_know_is_said_in_words_and_objects_are_closed() -> None:
    schema = of(
        code={"type": "string", "pattern": "^a+$", "minLength": 3},
        when={"type": "string", "format": "date"},
        odd={"type": "string", "format": "json-pointer"},
        list={"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 5},
    )
    (exported,) = keeping({"name": "t", "parameters": schema}).tools_for("anthropic", strict=True)
    assert exported["strict"] is True
    assert exported["input_schema"] == {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^a+$", "description": "(minLength: 3)"},
            "when": {"type": "string", "format": "date"},
            "odd": {"type": "string", "description": "(format: json-pointer)"},
            "list": {
                "type": "array",
                "items": {"type": "integer", "description": "(minimum: 1)"},
                "description": "(maxItems: 5) (minItems: 2)",
            },
        },
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "schema",
    [
        of(free={"type": "object"}),
        of(tags={"type": "object", "additionalProperties": {"type": "string"}}),
        of(a={"enum": [{"x": 1}]}),
        of(a={"$ref": "#/$defs/n"})
        | {"$defs": {"n": of(below={"type": "array", "items": {"$ref": "#/$defs/n"}})}},
    ],
    ids=["open", "map", "enum of objects", "recursive"],
)
def test_what_does_not_fit_in_the_subset_is_sent_without_the_flag(schema: dict[str, Any]) -> None:
    given = ToolDefinition.from_elsewhere({"name": "t", "description": "d", "parameters": schema})
    keep = Keep()
    keep.register(given)
    (exported,) = (exports := keep.tools_for("anthropic", strict=True))
    assert "strict" not in exported
    assert exported["input_schema"]["properties"] == schema["properties"]
    assert ("strict", "refused") in {(loss.keyword, loss.became) for loss in exports.losses}


@pytest.mark.spec("PRV-1")
def test_the_budget_of_strict_tools_goes_to_the_most_dangerous() -> None:
    needed = of(a={"type": "string"}) | {"required": ["a"]}
    safe = [{"name": f"safe{n:02d}", "parameters": needed} for n in range(19)]
    grave = [{"name": f"zap{n}", "parameters": needed, "danger": "high"} for n in range(3)]
    names = strict_names(keeping(*safe, *grave))
    assert len(names) == 20
    assert {"zap0", "zap1", "zap2"} <= set(names)


@pytest.mark.parametrize(
    ("schema", "most"),
    [
        (of(**{f"p{n}": {"type": "string"} for n in range(10)}), 2),
        (
            of(**{f"p{n}": {"type": ["string", "integer"]} for n in range(5)})
            | {"required": [f"p{n}" for n in range(5)]},
            3,
        ),
    ],
    ids=["optional parameters", "unions"],
)
def test_optional_parameters_and_unions_have_budgets_too(schema: dict[str, Any], most: int) -> None:
    keep = keeping(*({"name": f"t{n}", "parameters": schema} for n in range(5)))
    assert len(strict_names(keep)) == most
