"""Arguments as Cedar sees them: exactly typed, canonical where touched, left out where they cannot be held."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions.examples import JSON, with_properties
from toolkeep import ToolDefinition
from toolkeep.policy.cedar_engine import AgentEntity, CallFacts, Engine
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.cedar_values import ArgumentShape
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-2")

TYPES = with_properties(
    {
        "text": {"type": "string"},
        "whole": {"type": "integer"},
        "number": {"type": "number"},
        "truth": {"type": "boolean"},
        "maybe": {"type": ["string", "null"]},
        "wholes": {"type": "array", "items": {"type": "integer"}},
        "object": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
        "objects": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "integer"}}}},
        "union": {"type": ["string", "integer"]},
        "key": {"type": "string", "x-secret": True},
        "path": {"type": "string", "x-touches": "fs.read"},
        "a/b~": {"type": "array", "items": {"type": "string"}, "x-touches": "fs.read"},
        "command": {"type": "string", "x-touches": "process.spawn"},
        "argv": {"type": "array", "items": {"type": "string"}, "x-touches": "process.spawn"},
        "commands": {"type": "array", "items": {"type": "string", "x-touches": "process.spawn"}},
        "script": {
            "type": "string",
            "allOf": [{"x-touches": "fs.read"}, {"x-touches": "process.spawn"}],
        },
    }
)
SHAPE = ArgumentShape(TYPES)


def decimal(text: str) -> dict[str, Any]:
    return {"__extn": {"fn": "decimal", "arg": text}}


def seen(
    arguments: dict[str, Any], canonical: dict[str, str] | None = None
) -> tuple[dict[str, Any], list[Any]]:
    """The record, and what was left out of it."""
    lost: list[Any] = []
    return SHAPE.record(arguments, canonical or {}, lost), lost


HELD = [
    ("text", "a", "a"),
    ("text", '{"__entity": {"type": "Tool", "id": "x"}}', '{"__entity": {"type": "Tool", "id": "x"}}'),
    ("text", "__extn", "__extn"),
    ("text", "e\u0301\x00", "e\u0301\x00"),
    ("whole", 1, 1),
    ("whole", 2**63 - 1, 2**63 - 1),
    ("whole", -(2**63), -(2**63)),
    ("number", 1, decimal("1.0")),
    ("number", 1.0, decimal("1.0")),
    ("number", 0.1, decimal("0.1")),
    ("number", -0.0001, decimal("-0.0001")),
    ("number", 1e3, decimal("1000.0")),
    ("number", -0.0, decimal("-0.0")),
    ("number", 922337203685477.5, decimal("922337203685477.5")),
    ("number", 922337203685477, decimal("922337203685477.0")),
    ("truth", True, True),
    ("maybe", "a", "a"),
    ("wholes", [1, 2], [1, 2]),
    ("wholes", [], []),
    ("object", {"a": 1, "b": "x"}, {"a": 1, "b": "x"}),
    ("object", {}, {}),
    ("objects", [{"a": 1}, {}], [{"a": 1}, {}]),
]


@pytest.mark.parametrize(("name", "value", "expected"), HELD)
def test_what_cedar_can_hold_is_in_the_record(name: str, value: Any, expected: Any) -> None:
    record, lost = seen({name: value})
    assert json.dumps(record) == json.dumps({name: expected})
    assert lost == []


LEFT_OUT = [
    ("text", "\ud800"),
    ("text", 1),
    ("whole", 2**63),
    ("whole", -(2**63) - 1),
    ("whole", True),
    ("whole", 1.0),
    ("number", 0.1 + 0.2),
    ("number", 0.00001),
    ("number", 1e15),
    ("number", 922337203685478.0),
    ("number", 2**64),
    ("number", 10**400),
    ("number", float("nan")),
    ("number", float("inf")),
    ("number", True),
    ("truth", 1),
    ("text", None),
    ("wholes", [1, 2**63]),
    ("wholes", [1, True]),
    ("wholes", [1, None]),
    ("objects", [{"a": 1}, {"a": 2**63}]),
    ("objects", [{"a": 1, "more": 1}]),
    ("union", "a"),
    ("key", "hunter2"),
    ("nobody knows", 1),
]


@pytest.mark.parametrize(("name", "value"), LEFT_OUT)
def test_what_cedar_cannot_hold_is_left_out_whole_and_told(name: str, value: Any) -> None:
    assert seen({name: value}) == ({}, [(name,)])


def test_null_where_it_is_allowed_is_absence() -> None:
    assert seen({"maybe": None}) == ({}, [])


def test_a_record_keeps_what_can_be_held_and_tells_the_rest() -> None:
    assert seen({"object": {"a": 2**63, "b": "x"}}) == ({"object": {"b": "x"}}, [("object", "a")])


def test_touched_arguments_appear_canonical_or_not_at_all() -> None:
    arguments = {"path": "../x", "a/b~": ["y", "z"]}
    canonical = {"/path": "/home/x", "/a~1b~0/0": "/y", "/a~1b~0/1": "/z"}
    assert seen(arguments, canonical) == ({"path": "/home/x", "a/b~": ["/y", "/z"]}, [])
    del canonical["/a~1b~0/1"]
    assert seen(arguments, canonical) == ({"path": "/home/x"}, [("a/b~",)])
    assert seen(arguments) == ({}, [("path",), ("a/b~",)])


def test_a_command_appears_as_it_was_written() -> None:
    arguments = {"command": "git  log 'a b'", "commands": ["ls -l", "git log"]}
    found = {"/command": "/usr/bin/git", "/commands/0": "/usr/bin/ls", "/commands/1": "/usr/bin/git"}
    assert seen(arguments, found) == (arguments, [])
    assert seen(arguments) == (arguments, [])


@given(st.lists(st.text(max_size=4), min_size=1, max_size=4))
def test_the_words_of_a_command_are_one_text_that_no_other_words_give(words: list[str]) -> None:
    record, lost = seen({"argv": words}, {"/argv/0": "/usr/bin/git"})
    if lost:  # half a character
        assert lost == [("argv",)]
    else:
        assert shlex.split(record["argv"]) == words


def test_a_program_that_is_also_a_touched_file_appears_canonical() -> None:
    assert seen({"script": "./x"}, {"/script": "/home/x"}) == ({"script": "/home/x"}, [])
    assert seen({"script": "./x"}) == ({}, [("script",)])


ENGINE = Engine(
    read_policies([PolicySource(name="all", text='@id("all") permit(principal, action, resource);')])
)
AGENT = AgentEntity(id="local")


NAMES = st.sampled_from(list(TYPES["properties"]))


@given(st.dictionaries(NAMES | st.text(max_size=3), JSON, max_size=4))
@settings(max_examples=200, deadline=None)
def test_whatever_comes_in_the_record_fits_the_schema(arguments: dict[str, Any]) -> None:
    data = {"name": "tool_a", "description": "A tool.", "parameters": TYPES}
    engine = Engine(ENGINE.policies)
    verdict = engine.decide(AGENT, admit(ToolDefinition.from_elsewhere(data)), CallFacts(arguments=arguments))
    assert verdict.errors == ()
    assert verdict.is_allowed


def test_every_valid_real_call_gives_a_record_that_cedar_accepts(shared_data: Path) -> None:
    calls = [json.loads(line) for line in (shared_data / "calls.jsonl").read_text().splitlines()]
    valid = [call for call in calls if call["valid"]]
    for number, call in enumerate(valid):
        data = {"name": f"t{number}_{call['tool']}", "description": "A tool.", "parameters": call["schema"]}
        registered = admit(ToolDefinition.from_elsewhere(data))
        verdict = ENGINE.decide(AGENT, registered, CallFacts(arguments=call["arguments"]))
        assert (verdict.is_allowed, verdict.errors, verdict.is_cached) == (True, (), False)
    assert len(valid) == 1230
