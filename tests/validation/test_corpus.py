"""Real tools and real calls: what registers, what is refused and why, what passes."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Keep, Refusal, ToolDefinition, open_keep
from toolkeep.errors import DefinitionError


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def definition(name: str, description: str, schema: dict[str, Any]) -> ToolDefinition:
    return ToolDefinition.from_elsewhere({"name": name, "description": description, "parameters": schema})


@pytest.mark.spec("DEF-2", "VAL-1", "VAL-4")
def test_every_real_tool_registers_or_is_refused_for_a_dangling_reference(shared_data: Path) -> None:
    """The eight refused ones refer to definitions that their documents do not hold."""
    keep = open_keep()
    refused: list[str] = []
    lapses: Counter[str] = Counter()
    tools = lines(shared_data / "tools.jsonl")
    for number, tool in enumerate(tools):
        schema = tool.get("schema_normalised") or tool["schema"]
        try:
            keep.register(definition(f"t{number}_{tool['name']}", tool["description"], schema))
        except DefinitionError as error:
            assert [problem.message for problem in error.problems] == ["leads nowhere"]
            refused.append(tool["name"])
    for registered in keep.tools():
        lapses.update(warning.message for warning in registered.warnings)
    assert sorted(refused) == [
        "createAnswer",
        "createChatCompletion",
        "createClassification",
        "createEmbedding",
        "createImage",
        "createImageEdit",
        "createImageVariation",
        "createSearch",
    ]
    assert len([held for held in keep.tools() if not held.is_built_in]) == len(tools) - 8
    assert lapses["declares no type"] == 158
    assert lapses["its default does not satisfy its own schema"] == 36


@pytest.fixture(scope="module")
def calls(shared_data: Path) -> tuple[Keep, list[tuple[str, dict[str, Any]]]]:
    keep = open_keep()
    named = []
    for number, call in enumerate(lines(shared_data / "calls.jsonl")):
        tool = definition(f"t{number}_{call['tool']}", "A real tool.", call["schema"])
        keep.register(tool)
        named.append((tool.name, call))
    return keep, named


@pytest.mark.spec("VAL-2")
def test_every_valid_real_call_passes(calls: tuple[Keep, list[tuple[str, dict[str, Any]]]]) -> None:
    keep, named = calls
    passed = [
        keep.try_validate_arguments(name, json.dumps(call["arguments"])).success
        for name, call in named
        if call["valid"]
    ]
    assert passed == [True] * 1230


@pytest.mark.spec("VAL-2", "VAL-5")
def test_every_invalid_real_call_is_refused_with_pointers(
    calls: tuple[Keep, list[tuple[str, dict[str, Any]]]],
) -> None:
    keep, named = calls
    invalid = [(name, call) for name, call in named if not call["valid"]]
    assert len(invalid) == 10
    for name, call in invalid:
        check = keep.try_validate_arguments(name, json.dumps(call["arguments"]))
        assert isinstance(check, Refusal)
        assert all(error.path.count("/") >= 1 for error in check.errors)
