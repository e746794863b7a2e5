"""A repair is offered where a lossless fix is unambiguous, and nowhere else."""

import json
from typing import Any

import pytest

from toolkeep import Keep, Refusal, ToolDefinition, open_keep

pytestmark = pytest.mark.spec("VAL-5")

PROPERTIES: dict[str, Any] = {
    "count": {"type": "integer"},
    "ratio": {"type": "number"},
    "flag": {"type": "boolean"},
    "tags": {"type": "array", "items": {"type": "string"}},
    "options": {
        "type": "object",
        "properties": {"deep": {"type": "integer"}, "start_line": {"type": "integer"}},
    },
    "mode": {"enum": ["fast", "safe"]},
    "level": {"enum": [1, 2]},
    "text": {"type": "string", "pattern": "^[0-9]+$"},
    "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    "either": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
    "numbers": {"type": "array", "items": {"type": "integer"}},
}


@pytest.fixture(scope="module")
def keep() -> Keep:
    keep = open_keep()
    parameters = {"type": "object", "properties": PROPERTIES}
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    return keep


def repair(keep: Keep, arguments: Any) -> list[dict[str, Any]] | None:
    check = keep.try_validate_arguments("t", json.dumps(arguments), agent=json.dumps(arguments))
    assert isinstance(check, Refusal)
    return None if check.repair is None else list(check.repair)


@pytest.mark.parametrize(
    ("arguments", "path", "value"),
    [
        ({"count": "42"}, "/count", 42),
        ({"count": "-7"}, "/count", -7),
        ({"ratio": "0.5"}, "/ratio", 0.5),
        ({"ratio": "3"}, "/ratio", 3),
        ({"flag": "true"}, "/flag", True),
        ({"flag": "False"}, "/flag", False),
        ({"tags": '["a", "b"]'}, "/tags", ["a", "b"]),
        ({"options": '{"deep": 1}'}, "/options", {"deep": 1}),
        ({"mode": "FAST"}, "/mode", "fast"),
        ({"level": "2"}, "/level", 2),
        ({"text": 42}, "/text", "42"),
        ({"maybe": "42"}, "/maybe", 42),
        ({"maybe": "null"}, "/maybe", None),
        ({"numbers": [1, "2"]}, "/numbers/1", 2),
        ({"options": {"deep": "1"}}, "/options/deep", 1),
        ('{"count": 1}', "", {"count": 1}),
    ],
)
def test_a_value_of_the_wrong_type_that_says_the_same_is_replaced(
    keep: Keep, arguments: Any, path: str, value: Any
) -> None:
    assert repair(keep, arguments) == [{"op": "replace", "path": path, "value": value}]


@pytest.mark.parametrize(
    ("arguments", "source", "target"),
    [
        ({"cout": 1}, "/cout", "/count"),
        ({"Count": 1}, "/Count", "/count"),
        ({"options": {"startLine": 1}}, "/options/startLine", "/options/start_line"),
        ({"options": {"start-line": 1}}, "/options/start-line", "/options/start_line"),
    ],
)
def test_a_misspelt_name_is_moved(keep: Keep, arguments: Any, source: str, target: str) -> None:
    assert repair(keep, arguments) == [{"op": "move", "from": source, "path": target}]


def test_several_faults_are_repaired_together(keep: Keep) -> None:
    assert repair(keep, {"count": "1", "mode": "SAFE", "flga": True}) == [
        {"op": "replace", "path": "/count", "value": 1},
        {"op": "replace", "path": "/mode", "value": "safe"},
        {"op": "move", "from": "/flga", "path": "/flag"},
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        {"count": "42.0"},
        {"count": 42.5},
        {"count": "042"},
        {"count": "1e3"},
        {"count": "forty-two"},
        {"count": True},
        {"flag": 1},
        {"flag": "yes"},
        {"tags": "a"},
        {"tags": "a,b"},
        {"tags": '["a"'},
        {"tags": '{"a": 1}'},
        {"text": 4.5},
        {"text": -4},
        {"mode": "quick"},
        {"unheard_of": 1},
        {"count": "1", "unheard_of": 1},
        {"cout": "x"},
        {"either": "x"},
        {"options": '{"deep": 1, "deep": 2}'},
        {"options": '{"deep": 1e400}'},
    ],
)
def test_what_is_lossy_or_ambiguous_is_not_repaired(keep: Keep, arguments: Any) -> None:
    assert repair(keep, arguments) is None


def test_a_required_name_that_was_misspelt_is_found_again() -> None:
    keep = open_keep()
    parameters = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
    keep.register(ToolDefinition.from_elsewhere({"name": "t", "parameters": parameters}))
    assert repair(keep, {"pth": "x"}) == [{"op": "move", "from": "/pth", "path": "/path"}]
    assert repair(keep, {}) is None


@pytest.mark.spec("TLS-1")
@pytest.mark.parametrize(
    ("tool", "arguments", "moves"),
    [
        (
            "run_command",
            {"command": "ls", "working_dir": ".", "timeout_secs": 5},
            {"/working_dir": "/working_directory", "/timeout_secs": "/timeout_seconds"},
        ),
        (
            "write_file",
            {"path": "a", "content": "", "create_dirs": True},
            {"/create_dirs": "/create_directories"},
        ),
    ],
)
def test_abbreviated_parameters_of_built_in_tools_are_repaired(
    tool: str, arguments: dict[str, Any], moves: dict[str, str]
) -> None:
    check = open_keep().try_validate_arguments(tool, arguments)
    assert isinstance(check, Refusal)
    assert check.repair == tuple({"op": "move", "from": old, "path": new} for old, new in moves.items())


@pytest.mark.parametrize("value", [None, "None", "null"])
def test_a_property_that_says_nothing_is_removed(keep: Keep, value: Any) -> None:
    removed = [{"op": "remove", "path": "/count"}]
    assert repair(keep, {"mode": "fast", "count": value}) == removed
    assert repair(keep, {"verbose": None}) == [{"op": "remove", "path": "/verbose"}]
    assert repair(keep, {"numbers": [1, value]}) is None  # an item is not left out: the others would move
    assert repair(keep, {"verbose": 1}) is None  # it says something, which would be lost


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("['a', \"it's\",]", ["a", "it's"]),
        ("('a', 'b')", ["a", "b"]),
        ("('a')", None),
        (r"['\x41']", None),
        ("['a' 'b']", None),
        ("[__import__('os')]", None),
        ("[" * 40 + "]" * 40, None),
    ],
)
def test_a_python_literal_is_replaced(keep: Keep, written: str, meant: Any) -> None:
    wanted = None if meant is None else [{"op": "replace", "path": "/tags", "value": meant}]
    assert repair(keep, {"tags": written}) == wanted
    options = repair(keep, {"options": "{'deep': 1, 'start_line': 2}", "flag": "True"})
    assert options is not None
    assert [one["value"] for one in options] == [{"deep": 1, "start_line": 2}, True]


def test_a_longer_name_for_a_missing_one_is_moved(keep: Keep) -> None:
    properties = {name: {"type": "string"} for name in ("path", "start", "end", "file_hash")}
    parameters = {"type": "object", "properties": properties, "required": ["path", "start"]}
    keep.register(ToolDefinition.from_elsewhere({"name": "read", "parameters": parameters}))

    def refused(**arguments: str) -> Refusal:
        check = keep.try_validate_arguments("read", json.dumps(arguments), agent=json.dumps(arguments))
        assert isinstance(check, Refusal)
        return check

    both = refused(file_path="a", line_start="b")
    assert both.repair is not None
    assert [one["path"] for one in both.repair] == ["/path", "/start"]
    # The optional `end` may mean something else than `line_end`: the name is told, not moved.
    optional = refused(path="a", start="b", line_end="c")
    assert (optional.errors[0].suggestion, optional.repair) == ("Did you mean 'end'?", None)
    other = refused(filename="a", start="b")
    assert (
        other.errors[1].suggestion == "Missing: 'path'. Rename 'filename' if you meant that, else remove it."
    )
    assert refused(path="a", start="b", file_path="c").errors[0].suggestion == "Remove 'file_path'."


@pytest.mark.parametrize("key", ["404", "04", "+4", "0"])
def test_a_numeric_name_is_explained_and_repaired(keep: Keep, key: str) -> None:
    pages = {"type": "object", "additionalProperties": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]}}
    parameters = {"type": "object", "properties": {"pages": pages, "n": {"type": "integer"}}}
    name = f"pages_{len(key)}{ord(key[0])}"
    keep.register(ToolDefinition.from_elsewhere({"name": name, "parameters": parameters}))
    check = keep.try_validate_arguments(name, json.dumps({"pages": {key: "3"}, "n": "1"}))
    assert isinstance(check, Refusal)
    assert [error.path for error in check.errors] == [f"/pages/{key}", "/n"]
    assert check.repair is not None
    assert [(one["path"], one["value"]) for one in check.repair] == [(f"/pages/{key}", 3), ("/n", 1)]


def test_a_property_that_only_required_names_can_be_sent(keep: Keep) -> None:
    inner: dict[str, Any] = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a", "x"],
    }
    parameters = {**inner, "properties": {**inner["properties"], "inner": inner}}
    keep.register(ToolDefinition.from_elsewhere({"name": "unlisted", "parameters": parameters}))
    passed = keep.try_validate_arguments("unlisted", {"a": 1, "x": [2], "inner": {"a": 1, "x": 3}})
    assert not isinstance(passed, Refusal)
    for arguments in ({"a": 1}, {"a": 1, "x": 1, "y": 1}):
        check = keep.try_validate_arguments("unlisted", arguments)
        assert isinstance(check, Refusal)
        assert "x: any JSON" in check.schema_hint


def test_a_short_line_keeps_its_advice(keep: Keep) -> None:
    properties = {f"a_property_with_a_long_name_{n}": {"type": "string"} for n in range(20)}
    parameters = {"type": "object", "properties": {**properties, "count": {"type": "integer"}}}
    keep.register(ToolDefinition.from_elsewhere({"name": "wide", "parameters": parameters}))
    check = keep.try_validate_arguments("wide", {"county": 1, "x" * 80: 2})
    assert isinstance(check, Refusal)
    first, second = check.text.splitlines()[1:3]
    assert first.endswith("… Did you mean 'count'?")
    assert second.endswith(f"Remove '{'x' * 80}'.")
