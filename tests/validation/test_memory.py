import pytest

from toolkeep import CheckedCall, Keep, Refusal
from toolkeep.errors import Code
from toolkeep.limits import QUIET_SECONDS, REFUSALS_IN_A_ROW, REMEMBERED_REFUSALS
from toolkeep.testing import FakeClock
from toolkeep.validation.memory import Caller, RefusalMemory

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


def test_a_thousand_refused_calls_are_remembered() -> None:
    memory = RefusalMemory()
    caller = Caller("a")
    assert not memory.is_repeated(caller, "t", b"first")
    for number in range(REMEMBERED_REFUSALS - 1):
        memory.is_repeated(caller, "t", str(number).encode())
    assert memory.is_repeated(caller, "t", b"first")
    for number in range(REMEMBERED_REFUSALS):
        memory.is_repeated(caller, "t", f"more {number}".encode())
    assert not memory.is_repeated(caller, "t", b"first")


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
    memory = RefusalMemory(clock)
    assert not any(memory.withholds_details("a", "t") for _ in range(REFUSALS_IN_A_ROW))
    assert memory.withholds_details("a", "t")
    clock.advance(QUIET_SECONDS)
    assert not memory.withholds_details("a", "t")
