"""What an agent's tools look like to each provider."""

import json
import subprocess
import sys
from typing import Any

import pytest

from toolkeep import Code, Keep, ToolDefinition, ToolkeepError, tool
from toolkeep.errors import UnknownProvider
from toolkeep.providers.export import PLAIN_EXPORT, gathered, prepare
from toolkeep.providers.vendor_registry import PROVIDERS, vendor_of


def made(name: str, schema: dict[str, Any] | None = None, **fields: Any) -> ToolDefinition:
    data = {
        "name": name,
        "description": f"Does {name}.",
        "parameters": schema or {"type": "object", "properties": {"a": {"type": "string"}}},
        **fields,
    }
    return ToolDefinition.from_dict(data)


def keeping(*definitions: ToolDefinition) -> Keep:
    keep = Keep()
    keep.register(*definitions)
    return keep


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "Where."}},
    "required": ["path"],
}
CLOSED: dict[str, Any] = {**SCHEMA, "additionalProperties": False}
SAID = "Does read.\n\nRead first."
SAID_CLOSED = f"{SAID}\n\nIt takes no other parameters."


@pytest.mark.spec("PRV-1")
@pytest.mark.parametrize(
    ("provider", "shape"),
    [
        ("anthropic", {"name": "read", "description": SAID, "input_schema": CLOSED}),
        (
            "openai",
            {"type": "function", "function": {"name": "read", "description": SAID, "parameters": CLOSED}},
        ),
        (
            "openai-responses",
            {"type": "function", "name": "read", "description": SAID, "parameters": CLOSED, "strict": False},
        ),
        (
            "gemini",
            {"functionDeclarations": [{"name": "read", "description": SAID, "parametersJsonSchema": CLOSED}]},
        ),
        (
            "bedrock",
            {"toolSpec": {"name": "read", "description": SAID_CLOSED, "inputSchema": {"json": SCHEMA}}},
        ),
        (
            "ollama",
            {
                "type": "function",
                "function": {"name": "read", "description": SAID_CLOSED, "parameters": SCHEMA},
            },
        ),
        ("json-schema", {"title": "read", "description": SAID, **CLOSED}),
    ],
)
def test_the_shape_of_a_tool_with_its_usage_after_the_description(
    provider: str, shape: dict[str, Any]
) -> None:
    keep = keeping(made("read", SCHEMA, usage_metadata="Read first."))
    exported = keep.tools_for(provider)
    assert list(exported) == [shape]
    moved = ["additionalProperties"] if provider in ("bedrock", "ollama") else []
    assert [loss.keyword for loss in exported.losses if loss.became == "moved"] == moved
    assert (len(exported.losses), exported.omitted, exported.aliases) == (len(moved), (), {"read": "read"})


@pytest.mark.spec("PRV-1")
def test_the_same_tools_give_the_same_bytes_in_every_process() -> None:
    code = (
        "import json; from toolkeep import open_keep; from toolkeep.providers.vendor_registry import PROVIDERS;"
        "keep = open_keep();"
        "print(json.dumps([keep.tools_for(name, strict=strict) for name in PROVIDERS for strict in (False, True)]))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={"PYTHONHASHSEED": seed, "HOME": "/nonexistent", "PATH": ""},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(shown) == 1
    assert shown.pop().count('"read_file"') >= len(PROVIDERS)


def test_an_export_may_be_changed_without_changing_the_next() -> None:
    keep = keeping(made("read", SCHEMA))
    first = keep.tools_for("anthropic")
    first[0]["input_schema"]["properties"]["path"]["type"] = "integer"
    first[0]["cache_control"] = {"type": "ephemeral"}
    assert keep.tools_for("anthropic")[0]["input_schema"] == CLOSED


@pytest.mark.spec("PRV-1", "REG-1")
def test_only_enabled_tools_that_the_agent_may_see_are_exported() -> None:
    keep = keeping(made("seen"), made("hidden"), made("off"))
    keep.disable("off")
    keep.declare_agent("writer")
    keep.use_policies(
        '@id("all") permit (principal, action, resource);',
        '@id("hide") forbid (principal == Agent::"writer", action == Action::"see", resource == Tool::"hidden");',
    )
    assert keep.tools_for("anthropic", agent="writer").aliases == {"seen": "seen"}
    assert set(keep.tools_for("anthropic", agent="local").aliases) == {"seen", "hidden"}


def test_an_agent_that_was_not_declared_is_shown_nothing() -> None:
    with pytest.raises(ToolkeepError) as refused:
        keeping(made("read")).tools_for("anthropic", agent="stranger")
    assert refused.value.code is Code.AGENT_UNKNOWN


def test_a_provider_that_nobody_knows_is_named_with_those_there_are() -> None:
    with pytest.raises(UnknownProvider) as refused:
        keeping().tools_for("skynet")
    assert "anthropic" in refused.value.hint


@pytest.mark.spec("PRV-1")
def test_one_bad_tool_is_left_out_with_its_reason_and_the_rest_is_sent() -> None:
    bad = {"type": "object", "properties": {"a b": {"type": "string"}}, "required": ["a b"]}
    keep = Keep()
    keep.register(
        made("good"), ToolDefinition.from_elsewhere({"name": "bad", "description": "d", "parameters": bad})
    )
    exported = keep.tools_for("anthropic")
    assert [one["name"] for one in exported] == ["good"]
    (left_out,) = exported.omitted
    assert (left_out.tool, left_out.problem.code) == ("bad", Code.NOT_EXPRESSIBLE)
    assert left_out.problem.field == "parameters/properties/a b"
    assert len(keep.tools_for("openai")) == 2


@pytest.mark.spec("PRV-1")
@pytest.mark.parametrize(("provider", "most"), [("openai", 128), ("openai-responses", 128), ("gemini", 512)])
def test_no_more_tools_are_sent_than_the_provider_takes(provider: str, most: int) -> None:
    keep = keeping(*(made(f"t{number:03d}") for number in range(most + 2)))
    exported = keep.tools_for(provider)
    assert len(exported.aliases) == most
    assert [one.tool for one in exported.omitted] == [f"t{most:03d}", f"t{most + 1:03d}"]


def test_a_name_that_is_taken_is_left_out() -> None:
    vendor = vendor_of("anthropic")
    prepared = prepare(made("read"), vendor, strict=False)
    exported = gathered([prepared, prepared], vendor, PLAIN_EXPORT)
    assert (len(exported), [one.tool for one in exported.omitted]) == (1, ["read"])


def test_the_strict_mode_of_cohere_takes_so_many_parameters_in_all() -> None:
    wide = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(150)}}
    keep = keeping(made("one", wide), made("three"), made("two", wide))
    assert len(keep.tools_for("cohere")) == 3
    exported = keep.tools_for("cohere", strict=True)
    assert list(exported.aliases) == ["one", "three"]
    assert [one.tool for one in exported.omitted] == ["two"]


@pytest.mark.spec("PRV-1")
def test_a_tool_without_a_strict_form_is_sent_as_it_is_and_says_so() -> None:
    odd = {
        "type": "object",
        "properties": {"a": {"type": "string"}},
        "required": ["missing"],
        "additionalProperties": False,
    }
    keep = Keep()
    keep.register(ToolDefinition.from_elsewhere({"name": "odd", "description": "d", "parameters": odd}))
    (exported,) = (exports := keep.tools_for("openai", strict=True))
    assert "strict" not in exported["function"]
    assert [(loss.keyword, loss.became) for loss in exports.losses] == [("strict", "refused")]
    assert keep.tools_for("llguidance").omitted[0].tool == "odd"


EXAMPLES = {"examples": [{"path": "a.txt"}, {"path": 3}]}


def test_examples_that_are_valid_calls_go_to_who_has_a_place_for_them() -> None:
    keep = keeping(made("read", SCHEMA, metadata=EXAMPLES))
    exported = keep.tools_for("anthropic")
    assert exported[0]["input_examples"] == [{"path": "a.txt"}]
    assert [(loss.keyword, loss.became) for loss in exported.losses] == [("examples", "refused")]
    elsewhere = keep.tools_for("openai")
    assert [(loss.keyword, loss.became) for loss in elsewhere.losses] == [("examples", "weakened")]


SECRET: dict[str, Any] = {"type": "string", "x-secret": True}


@pytest.mark.parametrize(
    "definition",
    [
        made("read", SCHEMA, metadata=EXAMPLES, sensitive=True),
        made("read", {**SCHEMA, "properties": {**SCHEMA["properties"], "key": SECRET}}, metadata=EXAMPLES),
        made("read", {**SCHEMA, "properties": {**SCHEMA["properties"], "keys": {"type": "array", "items": SECRET}}}, metadata=EXAMPLES),
        made("read", {**SCHEMA, "properties": {**SCHEMA["properties"], "key": {"$ref": "#/$defs/key"}}, "$defs": {"key": SECRET}}, metadata=EXAMPLES),
    ],
    ids=["sensitive", "parameter", "inside a parameter", "by reference"],
)  # fmt: skip
def test_a_tool_with_secrets_shows_no_examples(definition: ToolDefinition) -> None:
    assert "input_examples" not in keeping(definition).tools_for("anthropic")[0]


def test_tools_that_are_not_loaded_are_found_by_the_providers_search() -> None:
    keep = keeping(made("a"), made("b"))
    searched, loaded, deferred = keep.tools_for("anthropic", loaded=["a"])
    assert searched == {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"}
    assert ("defer_loading" in loaded, deferred["defer_loading"]) == (False, True)
    assert keep.tools_for("openai-responses", loaded=["a"])[0] == {"type": "tool_search"}
    exported = keep.tools_for("openai", loaded=["a"])
    assert [(loss.tool, loss.keyword) for loss in exported.losses] == [("b", "loaded")]


def test_a_mark_for_the_cache_stands_after_what_is_loaded() -> None:
    keep = keeping(made("a"), made("b"))
    marked = [one.get("cache_control") for one in keep.tools_for("anthropic", cache=True)]
    assert marked == [None, {"type": "ephemeral"}]
    with_search = keep.tools_for("anthropic", cache=True, loaded=["a"])
    assert ["cache_control" in one for one in with_search] == [False, True, False]
    assert keep.tools_for("bedrock", cache=True)[-1] == {"cachePoint": {"type": "default"}}
    assert len(keep.tools_for("openai", cache=True)) == 2


def test_callers_and_outputs_go_to_who_knows_them() -> None:
    output = {"type": "object", "properties": {"n": {"type": "integer"}}}
    metadata = {
        "anthropic": {"allowed_callers": ["code_execution_20260120"]},
        "openai": {"allowed_callers": ["programmatic"]},
    }
    keep = keeping(made("read", SCHEMA, metadata=metadata, output_schema=output))
    assert keep.tools_for("anthropic")[0]["allowed_callers"] == ["code_execution_20260120"]
    responses = keep.tools_for("openai-responses")[0]
    assert (responses["allowed_callers"], responses["output_schema"]) == (["programmatic"], output)
    declaration = keep.tools_for("gemini")[0]["functionDeclarations"][0]
    assert declaration["responseJsonSchema"] == output
    assert {loss.keyword for loss in keep.tools_for("mistral").losses} == {"allowed_callers", "output_schema"}


def test_a_lone_definition_that_cannot_be_expressed_raises_with_its_problem() -> None:
    bad = {"type": "object", "properties": {"a b": {"type": "string"}}, "required": ["a b"]}
    definition = ToolDefinition.from_elsewhere({"name": "bad", "description": "d", "parameters": bad})
    with pytest.raises(ToolkeepError) as refused:
        definition.to_claude_format()
    assert refused.value.code is Code.DEFINITION_INVALID


@tool(side_effects=["None"])
def echo(text: str) -> str:
    """Give back a text.

    Args:
        text: What.
    """
    return text


def test_the_list_goes_into_json_like_any_other() -> None:
    keep = Keep()
    keep.register(echo)
    assert json.loads(json.dumps(keep.tools_for("openai"))) == list(keep.tools_for("openai"))
