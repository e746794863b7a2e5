"""What is wrong with a text that is no JSON, in words for a model, whatever the version of Python says about it."""

import pytest

from toolkeep.errors import Code
from toolkeep.validation.parse import why_not_json

GENERIC = "check quotes, commas and brackets there"


@pytest.mark.parametrize(
    ("text", "reason", "fix"),
    [
        ('{"a": 1,}', "malformed JSON at line 1 column 8", "remove the trailing comma"),
        ('{"a": 1 ,\n\n}', "malformed JSON at line 1 column 9", "remove the trailing comma"),
        ('{"a":\n [1,\n]}', "malformed JSON at line 2 column 4", "remove the trailing comma"),
        ('{"a":,}', "malformed JSON at line 1 column 6", GENERIC),
        ('{"a": [,]}', "malformed JSON at line 1 column 8", GENERIC),
        ('{"a" 1}', "malformed JSON at line 1 column 6", GENERIC),
        ("{'a': 1}", "malformed JSON at line 1 column 2", "use double quotes"),
        (
            '{"a": 1',
            "malformed JSON at line 1 column 8",
            "the text ends too early: close every bracket and string",
        ),
        ('{"a": NaN}', "NaN is not JSON", "send a finite number or null"),
        ('{"a": 1, "a": 2}', "an object has the same key twice", "send each property once"),
    ],
)
def test_a_fault_has_a_place_and_a_way_to_mend_it(text: str, reason: str, fix: str) -> None:
    found = why_not_json(text.encode())
    assert (found.reason, found.fix, found.code) == (reason, fix, Code.NOT_JSON)


@pytest.mark.parametrize("depth", [201, 5_000, 300_000])
def test_what_is_nested_too_deep_is_said_so_however_deep_the_interpreter_goes(depth: int) -> None:
    assert why_not_json(b"[" * depth + b"]" * depth).code is Code.ARGUMENTS_TOO_BIG
