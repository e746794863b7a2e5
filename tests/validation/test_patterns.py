"""Regular expressions mean what ECMA-262 says, wherever a schema has one."""

import json
from typing import Any

import pytest

from tests.definitions.examples import made_elsewhere
from toolkeep import Keep, Refusal
from toolkeep.validation.patterns import to_ecma262

pytestmark = pytest.mark.spec("VAL-1")


def keep_with(**root: Any) -> Keep:
    keep = Keep()
    keep.register(made_elsewhere(name="t", parameters={"type": "object", **root}))
    return keep


CASES = [
    ("^.$", "a", True),
    ("^.$", "\n", False),
    ("^.$", "\r", False),
    ("^.$", "\u2028", False),
    ("^.$", "\u2029", False),
    ("^.$", "\x85", True),
    ("^.$", "\U0001f600", True),
    (r"^a\.b$", "a.b", True),
    (r"^a\.b$", "axb", False),
    (r"^\\.$", "\\\r", False),
    ("^[.]$", ".", True),
    ("^[.]$", "a", False),
    ("^[^.]$", "\r", True),
    (r"^[\].]$", ".", True),
    (r"^[\].]$", "a", False),
    (r"\bx", "\xe9x", True),
    (r"x\b", "x\u0663", True),
    (r"\bx", "ax", False),
    (r"\Bx", "\xe9x", False),
    (r"\\b", "\\b", True),
    (r"^\w$", "\xe9", False),
    (r"^\d$", "\u0663", False),
    (r"^\s$", "\ufeff", True),
    (r"^\s$", "\x85", False),
    ("(?s)^.$", "\r", True),  # no ECMA-262: as the engine knows it
]


@pytest.mark.parametrize(("pattern", "text", "matches"), CASES)
def test_a_pattern_matches_as_in_ecma_262(pattern: str, text: str, matches: bool) -> None:
    keep = keep_with(
        properties={"a": {"type": "string", "pattern": pattern}}, patternProperties={pattern: True}
    )
    for arguments in ({"a": text}, json.dumps({"a": text})):
        assert keep.try_validate_arguments("t", arguments).success is matches
    named = keep_with(patternProperties={pattern: {"type": "null"}}, additionalProperties=True)
    assert named.try_validate_arguments("t", {text: 1}).success is not matches


def test_a_refusal_shows_a_pattern_as_it_was_written() -> None:
    keep = keep_with(properties={"a": {"type": "string", "pattern": r"^\b.$"}})
    refusal = keep.try_validate_arguments("t", {"a": "\r"})
    assert isinstance(refusal, Refusal)
    assert refusal.errors[0].expected == r"text matching ^\b.$"


def test_two_patterns_that_become_one_both_count() -> None:
    keep = keep_with(
        patternProperties={".": {"minimum": 3}, to_ecma262("."): {"maximum": 5}}, additionalProperties=False
    )
    assert [keep.try_validate_arguments("t", {"a": n}).success for n in (2, 4, 6)] == [False, True, False]
