"""The schema that editors read: valid, complete, and as strict as the reader."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.config.bad import INVALID, Bad
from tests.config.examples import FULL, POLICY, SCENARIO_6, SEED
from tests.config.projects import accept, configure, project_file
from toolkeep import open_keep
from toolkeep.config.schema import FILE_SCHEMA, editor_schema
from toolkeep.definitions.serialization import OTHER_SPELLINGS
from toolkeep.definitions.tool import KEYS
from toolkeep.json_values.yaml import read_yaml

pytestmark = pytest.mark.spec("REG-5")


@pytest.fixture(scope="module")
def validator() -> Draft202012Validator:
    return Draft202012Validator(editor_schema())


def data_of(text: str | bytes) -> Any:
    return read_yaml(text.encode() if isinstance(text, str) else text, "c.yml").data


def faults(validator: Draft202012Validator, data: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(data)]


def test_it_is_a_schema() -> None:
    schema = editor_schema()
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_making_it_leaves_the_readers_schema_as_it_is() -> None:
    before = copy.deepcopy(FILE_SCHEMA)
    editor_schema()["properties"]["tier"].clear()
    assert before == FILE_SCHEMA


def test_it_accepts_a_file_that_uses_every_key(validator: Draft202012Validator) -> None:
    assert faults(validator, data_of(FULL)) == []


def test_the_file_that_uses_every_key_does(tmp_path: Path) -> None:
    data = data_of(FULL)
    registry = data["tool_registry"]
    assert data["approvals"].keys() == FILE_SCHEMA["properties"]["approvals"]["properties"].keys()
    assert data.keys() == FILE_SCHEMA["properties"].keys()
    assert registry.keys() == FILE_SCHEMA["properties"]["tool_registry"]["properties"].keys()
    assert {*registry["custom_tools"][0], "client_executed"} == {*KEYS, "run"} - {"source"}


def test_the_reader_accepts_it_too(tmp_path: Path) -> None:
    configure(tmp_path, FULL)
    configure(tmp_path, POLICY, name=".agent/policies/main.cedar")
    accept(tmp_path)
    assert project_file(tmp_path).counts
    keep = open_keep(project=tmp_path, follow_store=False)
    names = {"full_tool", "by_command", "by_http", "by_http_too", "by_wasm", "by_client", "listed"}
    assert {tool.name for tool in keep.tools() if tool.is_custom} == names
    # One is not installed, nobody answers for one, and the last has no document here.
    missing = ["acme", "store", "upstream:shop"]
    assert [skip.provider for skip in keep.start_up.skipped] == missing


@pytest.mark.parametrize("text", [SEED, SCENARIO_6], ids=["settings", "scenario_6"])
def test_it_accepts_the_seeds_own_examples(text: str, validator: Draft202012Validator) -> None:
    assert faults(validator, data_of(text)) == []


@pytest.mark.parametrize("bad", INVALID, ids=[bad.name for bad in INVALID])
def test_it_rejects_what_the_reader_rejects(bad: Bad, validator: Draft202012Validator) -> None:
    assert faults(validator, data_of(bad.text)) != []


@pytest.mark.parametrize("key", ["strict_mode", "cache_compiled_schemas"])
def test_it_rejects_what_cannot_be_switched_off(key: str, validator: Draft202012Validator) -> None:
    assert faults(validator, {"tool_registry": {key: False}}) != []
    assert faults(validator, {"tool_registry": {key: True}}) == []


GOOD_TOOL = {"name": "greet", "description": "Greets a person.", "version": "1.0.0"}


def with_tool(tool: Any) -> dict[str, Any]:
    return {"tools": {"custom": [tool]}}


@pytest.mark.parametrize(
    "change",
    [
        {"version": None},
        {"version": 1.0},
        {"name": "Greet!"},
        {"nonsense": 1},
        {"source": {"kind": "mcp"}},
        {"category": "zzz"},
        {"danger": "zzz"},
        {"enabled": "no"},
        {"aliases": [1]},
        {"side_effects": ["Fly"]},
        {"constraints": {"unknown": 1}},
        {"constraints": {"max_execution_time": 9999}},
        {"resource_bounds": {"unknown": 1}},
        {"run": {}},
        {"run": {"shell": "ls"}},
        {"run": {"python": "a:b", "wasm": "c"}},
        {"run": {"command": "ls"}},
        {"run": {"command": []}},
        {"run": {"command": [1]}},
        {"run": {"python": 1}},
        {"run": {"http": {}}},
        {"run": {"http": [1]}},
    ],
    ids=str,
)
def test_it_rejects_tools_that_the_reader_skips(
    change: dict[str, Any], validator: Draft202012Validator
) -> None:
    assert faults(validator, with_tool(GOOD_TOOL)) == []
    assert faults(validator, with_tool({**GOOD_TOOL, **change})) != []


@pytest.mark.parametrize("missing", ["name", "description", "version"])
def test_it_rejects_tools_without_what_is_needed(missing: str, validator: Draft202012Validator) -> None:
    tool = {key: value for key, value in GOOD_TOOL.items() if key != missing}
    assert faults(validator, with_tool(tool)) != []


@pytest.mark.parametrize(
    "change",
    [
        {"category": "Custom"},
        {"category": "FileSystem"},
        {"category": "web"},
        {"danger": "High"},
        {"side_effects": ["net_read"]},
        {"determinism": "non_deterministic"},
        {"constraints": {"required_isolation": "Strict"}},
        *({other: {} if other == "bounds" else word} for other, word in zip(OTHER_SPELLINGS, ("low", "json", "", "none"), strict=True)),
    ],
    ids=str,
)  # fmt: skip
def test_it_accepts_every_spelling_that_the_reader_accepts(
    change: dict[str, Any], validator: Draft202012Validator
) -> None:
    assert faults(validator, with_tool({**GOOD_TOOL, **change})) == []


def undescribed(schema: dict[str, Any], name: str) -> Iterator[str]:
    for key, inside in schema.get("properties", {}).items():
        if not inside.get("description", "").endswith("."):
            yield f"{name}/{key}"
        yield from undescribed(inside, f"{name}/{key}")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from undescribed(schema["additionalProperties"], f"{name}/*")


def test_every_key_of_the_file_has_a_description() -> None:
    assert list(undescribed(FILE_SCHEMA, "")) == []
