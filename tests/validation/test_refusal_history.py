from typing import Any

import pytest

from toolkeep import CheckedCall, Keep, Refusal
from toolkeep.calls import Unreadable
from toolkeep.errors import Code
from toolkeep.limits import QUIET_SECONDS, REFUSALS_IN_A_ROW, REMEMBERED_REFUSALS
from toolkeep.testing import FakeClock
from toolkeep.validation.refusal_history import Caller, RefusalHistory

BAD = '{"account": 1, "amount": "x"}'
GOOD = '{"account": "a", "amount": 1}'


def is_repeated(keep: Keep, arguments: str, **caller: str) -> bool:
    check = keep.try_validate_arguments("transfer", arguments, **caller)
    assert isinstance(check, Refusal)
    assert ("Do not repeat it" in check.text) is check.is_repeated
    return check.is_repeated


@pytest.mark.spec("VAL-7")
def test_a_second_identical_refused_call_is_called_that(keep: Keep) -> None:
    assert [is_repeated(keep, BAD) for _ in range(3)] == [False, True, True]


@pytest.mark.spec("VAL-7")
def test_other_agents_conversations_tools_and_arguments_are_other_calls(keep: Keep) -> None:
    assert not is_repeated(keep, BAD)
    assert not is_repeated(keep, BAD, agent="another")
    assert not is_repeated(keep, BAD, conversation="another")
    assert not is_repeated(keep, BAD + " ")
    assert is_repeated(keep, BAD)


def test_a_call_of_another_session_and_one_that_cannot_be_read_are_no_repetition(keep: Keep) -> None:
    cut = Unreadable(Code.CALL_UNFINISHED, "the call was not run: it was cut", "make the whole call again")
    calls: list[tuple[Any, str]] = [(BAD, "a"), (BAD, "b"), (cut, "a"), (cut, "a")]
    with keep:
        for arguments, session in calls:
            result = keep.call_sync("transfer", arguments, session=session)
            assert result.error is not None
            assert not result.error.is_repeated, (arguments, session)


def test_a_thousand_refused_calls_are_remembered() -> None:
    memory = RefusalHistory()

    def is_known(arguments: str) -> bool:
        return memory.note(Caller("a"), "t", arguments.encode()).is_repeated

    assert not is_known("first")
    for number in range(REMEMBERED_REFUSALS - 1):
        is_known(str(number))
    assert is_known("first")
    for number in range(REMEMBERED_REFUSALS):
        is_known(f"more {number}")
    assert not is_known("first")


def test_rows_of_a_thousand_agents_are_remembered_the_newest() -> None:
    """Whoever may name agents must not fill memory with them."""
    memory = RefusalHistory()
    for number in range(REMEMBERED_REFUSALS + 10):
        memory.note(Caller(str(number)), "t", b"")
    assert len(memory.rows) == REMEMBERED_REFUSALS
    assert next(iter(memory.rows)) == ("10", "t")


@pytest.mark.spec("VAL-7")
def test_after_many_refusals_in_a_row_only_the_first_problem_is_named(keep: Keep) -> None:
    for number in range(REFUSALS_IN_A_ROW):
        check = keep.try_validate_arguments("transfer", f'{{"account": {number}, "amount": "x"}}')
        assert [error.path for error in check.errors] == ["/account", "/amount"]
    short = keep.try_validate_arguments("transfer", BAD)
    assert [error.code for error in short.errors] == [Code.REFUSED_REPEATEDLY, Code.WRONG_TYPE]
    other = keep.try_validate_arguments("transfer", BAD, agent="another")
    assert [error.path for error in other.errors] == ["/account", "/amount"]


@pytest.mark.spec("VAL-7")
def test_a_call_that_passes_ends_the_row(keep: Keep) -> None:
    for _ in range(REFUSALS_IN_A_ROW + 5):
        keep.try_validate_arguments("transfer", BAD)
    assert isinstance(keep.try_validate_arguments("transfer", GOOD), CheckedCall)
    check = keep.try_validate_arguments("transfer", BAD)
    assert [error.path for error in check.errors] == ["/account", "/amount"]


@pytest.mark.spec("VAL-7")
def test_a_quiet_while_ends_the_row() -> None:
    clock = FakeClock()
    memory = RefusalHistory(clock)

    def is_too_often() -> bool:
        return memory.note(Caller("a"), "t", b"").is_too_often

    assert not any(is_too_often() for _ in range(REFUSALS_IN_A_ROW))
    assert is_too_often()
    clock.advance(QUIET_SECONDS)
    assert not is_too_often()
