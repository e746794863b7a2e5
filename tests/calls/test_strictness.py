"""The calls that other frameworks let through, and what toolkeep makes of them."""

import json
from typing import Any

import pytest

from toolkeep import ArgumentsRefused, CheckedCall, Keep, Refusal
from toolkeep.errors import Code

GOOD: dict[str, Any] = {"account": "DE89", "amount": 42}

BAD_CALLS: list[tuple[dict[str, Any], list[tuple[str, Code]]]] = [
    ({**GOOD, "amount": "42"}, [("/amount", Code.WRONG_TYPE)]),
    ({**GOOD, "amount": 42.5}, [("/amount", Code.WRONG_TYPE)]),
    ({**GOOD, "amount": True}, [("/amount", Code.WRONG_TYPE)]),
    ({**GOOD, "urgent": "yes"}, [("/urgent", Code.WRONG_TYPE)]),
    ({**GOOD, "urgent": 1}, [("/urgent", Code.WRONG_TYPE)]),
    ({**GOOD, "urgent": "false"}, [("/urgent", Code.WRONG_TYPE)]),
    ({**GOOD, "account": 123}, [("/account", Code.WRONG_TYPE)]),
    ({**GOOD, "account": None}, [("/account", Code.WRONG_TYPE)]),
    ({**GOOD, "memo": "x"}, [("/memo", Code.CONSTRAINT)]),
    ({**GOOD, "tags": '["a"]'}, [("/tags", Code.WRONG_TYPE)]),
    ({**GOOD, "tags": "a"}, [("/tags", Code.WRONG_TYPE)]),
    ({**GOOD, "mode": "FAST"}, [("/mode", Code.CONSTRAINT)]),
    ({"account": "DE89"}, [("/amount", Code.REQUIRED_MISSING)]),
    (
        {"account": 123, "amount": "lots", "urgent": "perhaps", "mode": "FAST", "memo": 1},
        [
            ("/account", Code.WRONG_TYPE),
            ("/amount", Code.WRONG_TYPE),
            ("/urgent", Code.WRONG_TYPE),
            ("/mode", Code.CONSTRAINT),
            ("/memo", Code.CONSTRAINT),
        ],
    ),
]


@pytest.mark.spec("VAL-2", "VAL-5")
@pytest.mark.parametrize(("arguments", "expected"), BAD_CALLS, ids=[json.dumps(c) for c, _ in BAD_CALLS])
def test_a_bad_call_is_refused_with_every_fault_by_its_pointer(
    keep: Keep, arguments: dict[str, Any], expected: list[tuple[str, Code]]
) -> None:
    for sent in (
        json.dumps(arguments),
        json.dumps(arguments).encode(),
        bytearray(json.dumps(arguments).encode()),
        arguments,
    ):
        check = keep.try_validate_arguments("transfer", sent, agent=str(type(sent)))
        assert isinstance(check, Refusal)
        assert [(error.path, error.code) for error in check.errors] == expected


@pytest.mark.spec("VAL-2")
@pytest.mark.parametrize(
    "text", ['{"account":"x","amount":42.0}', '{"account":"x","amount":4.2e1}', '{"account":"x","amount":42}']
)
def test_a_whole_number_is_an_integer_and_reaches_the_tool_as_int(keep: Keep, text: str) -> None:
    check = keep.try_validate_arguments("transfer", text)
    assert isinstance(check, CheckedCall)
    assert check.arguments["amount"] == 42
    assert type(check.arguments["amount"]) is int


@pytest.mark.spec("VAL-2", "VAL-5")
@pytest.mark.parametrize("text", ["[]", "1", "null", '"x"', '"{}"', "true"])
def test_arguments_that_are_no_object_have_the_wrong_type(keep: Keep, text: str) -> None:
    check = keep.try_validate_arguments("transfer", text)
    assert [(error.path, error.code) for error in check.errors] == [("", Code.WRONG_TYPE)]


@pytest.mark.spec("VAL-9")
def test_defaults_are_filled_in_after_validation(keep: Keep) -> None:
    check = keep.try_validate_arguments("transfer", GOOD)
    assert check.arguments == {"account": "DE89", "amount": 42, "urgent": False, "tags": None, "mode": "fast"}


@pytest.mark.spec("VAL-10")
def test_validate_arguments_raises_what_try_validate_arguments_returns(keep: Keep) -> None:
    assert keep.validate_arguments("transfer", GOOD)["amount"] == 42
    with pytest.raises(ArgumentsRefused) as caught:
        keep.validate_arguments("transfer", "{}")
    assert [error.path for error in caught.value.refusal.errors] == ["/account", "/amount"]
    assert caught.value.code is Code.REQUIRED_MISSING


@pytest.mark.spec("VAL-10")
@pytest.mark.parametrize(
    "arguments", [None, 3, object(), [], ("a",), {1: 2}, b"\xff", "\ud800", float("nan")]
)
def test_try_validate_arguments_never_raises(keep: Keep, arguments: Any) -> None:
    assert isinstance(keep.try_validate_arguments("transfer", arguments), Refusal)


@pytest.mark.spec("VAL-5")
def test_a_refusal_as_data_has_the_agreed_fields(keep: Keep) -> None:
    check = keep.try_validate_arguments("transfer", {**GOOD, "amount": "42"}, correlation_id="c-1")
    assert check.to_dict() == {
        "success": False,
        "tool": "transfer",
        "errors": [
            {
                "path": "/amount",
                "code": "ACODE-TSR-004",
                "message": "'amount' must be an integer, got string",
                "expected": "integer",
                "actual": '"42"',
                "suggestion": "Send an integer.",
            }
        ],
        "schema_hint": "transfer expects: {account: string, amount: integer, urgent?: boolean, "
        'tags?: string[] | null, mode?: "fast" | "safe"}',
        "correlation_id": "c-1",
        "repair": [{"op": "replace", "path": "/amount", "value": 42}],
    }


@pytest.mark.spec("VAL-5", "VAL-6")
def test_every_refusal_has_a_correlation_id_of_its_own(keep: Keep) -> None:
    first, second = (keep.try_validate_arguments("transfer", "{}") for _ in range(2))
    assert isinstance(first, Refusal)
    assert isinstance(second, Refusal)
    assert len({first.correlation_id, second.correlation_id, ""}) == 3


@pytest.mark.spec("VAL-5")
def test_the_text_for_a_model_names_all_and_ends_with_the_signature(keep: Keep) -> None:
    check = keep.try_validate_arguments("transfer", BAD_CALLS[-1][0])
    assert isinstance(check, Refusal)
    assert check.text.splitlines() == [
        "Call to 'transfer' refused: 5 problems.",
        "- /account: 'account' must be a string, got integer.",
        "- /amount: 'amount' must be an integer, got string.",
        "- /urgent: 'urgent' must be a boolean, got string.",
        '- /mode: \'mode\' is not an allowed value. Expected one of "fast", "safe", got "FAST". Use "fast".',
        "- /memo: Unknown property 'memo'. Expected one of account, amount, urgent, tags, mode. Remove 'memo'.",
        (
            "transfer expects: {account: string, amount: integer, urgent?: boolean, tags?: string[] | null, "
            'mode?: "fast" | "safe"}'
        ),
    ]


@pytest.mark.spec("VAL-8")
def test_an_unknown_tool_is_answered_with_the_nearest_names(keep: Keep) -> None:
    check = keep.try_validate_arguments("trasnfer", "{}")
    assert isinstance(check, Refusal)
    error = check.errors[0]
    assert error.code is Code.UNKNOWN_TOOL
    assert error.expected is not None
    named = error.expected.removeprefix("one of 8 tools: ").split(", ")
    assert named[0] == "transfer"
    assert {"read_file", "git_status"} < set(named)
    assert "write_file" not in named  # which the agent could not call
    assert len(named) == 8
    assert error.suggestion == "Did you mean 'transfer'?"


@pytest.mark.spec("DEF-2")
def test_a_tool_is_found_in_any_case(keep: Keep) -> None:
    assert keep.try_validate_arguments("TRANSFER", GOOD).success
