"""Words, signature and repair of a refusal are made when they are read, and say what was refused."""

import copy
import gc
import json
import logging
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from toolkeep import Keep, Refusal, ToolDefinition, Violation, tool
from toolkeep.errors import Code
from toolkeep.limits import DEFERRED_BYTES
from toolkeep.validation.compile import CompiledSchema
from toolkeep.validation.repair import repair_of
from toolkeep.validation.report import _Wording

pytestmark = pytest.mark.spec("VAL-5")


@tool
def send(account: str, amount: int, urgent: bool = False, note: str = "") -> str:
    """Send money to an account.

    Args:
        account: Account that receives the money.
        amount: Whole euros to send.
        urgent: Whether it goes out today.
        note: A word on it.
    """
    return account


BAD: dict[str, Any] = {"account": 1, "amount": "7", "urgnt": True}
"""A wrong type, a number as text, a name that is misspelt: each with a sure repair."""


@pytest.fixture
def keep() -> Keep:
    keep = Keep()
    keep.register(send)
    return keep


def refused(keep: Keep, arguments: Any = BAD, **caller: str) -> Refusal:
    check = keep.try_validate_arguments("send", arguments, **caller)
    assert isinstance(check, Refusal)
    return check


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was worked out so far."""
    made: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            made.append(name)
            return function(*arguments, **named)

        return call

    monkeypatch.setattr(_Wording, "worded", noted("words", _Wording.worded))
    monkeypatch.setattr(CompiledSchema, "hint", noted("signature", CompiledSchema.hint))
    monkeypatch.setattr("toolkeep.validation.explain_refusal.repair_of", noted("repair", repair_of))
    return made


READINGS: dict[str, tuple[Callable[[Refusal], object], list[str]]] = {
    "code": (lambda refusal: refusal.code, []),
    "codes and paths": (lambda refusal: [(error.path, error.code) for error in refusal.errors], []),
    "correlation id": (lambda refusal: refusal.correlation_id, []),
    "one message": (lambda refusal: refusal.errors[0].message, ["words"]),
    "all of one violation": (lambda refusal: refusal.errors[0].to_dict(), ["words"]),
    "signature": (lambda refusal: refusal.schema_hint, ["signature"]),
    "repair": (lambda refusal: refusal.repair, ["repair"]),
    "text": (lambda refusal: refusal.text, ["repair", "signature", "words", "words", "words"]),
    "data": (lambda refusal: refusal.to_dict(), ["repair", "signature", "words", "words", "words"]),
}


@pytest.mark.parametrize("reading", READINGS)
def test_only_what_is_read_is_worked_out(keep: Keep, made: list[str], reading: str) -> None:
    read, expected = READINGS[reading]
    refusal = refused(keep)
    assert made == []
    first = read(refusal)
    assert sorted(made) == expected
    assert read(refusal) == first
    assert sorted(made) == expected  # and once


def test_a_whole_call_that_is_refused_makes_its_words_once_for_what_is_kept(
    keep: Keep, made: list[str]
) -> None:
    heard: list[object] = []
    keep.subscribe(heard.append)
    result = keep.call_sync("send", BAD)
    assert result.code is Code.WRONG_TYPE
    assert [type(event).__name__ for event in heard] == ["ValidationFailed", "CallEnded"]
    assert made == ["words", "words", "words", "signature", "repair"]
    assert result.text
    assert len(made) == 5


def test_a_log_of_warnings_makes_no_words(
    keep: Keep, made: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "toolkeep.validation")
    refused(keep)
    assert [record.getMessage() for record in caplog.records] == ["validation failed"]
    assert made == []


def test_a_log_at_debug_has_the_words(keep: Keep, made: list[str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "toolkeep.validation")
    refusal = refused(keep)
    assert caplog.records[-1].__dict__["errors"] == [error.to_dict() for error in refusal.errors]
    assert made == ["words", "words", "words"]


FORMS: dict[str, Callable[[], Any]] = {
    "dict": lambda: copy.deepcopy(BAD),
    "bytearray": lambda: bytearray(json.dumps(BAD), "ascii"),
    "memoryview": lambda: memoryview(bytearray(json.dumps(BAD), "ascii")),
}


@pytest.mark.parametrize("form", FORMS)
def test_words_are_about_the_call_as_it_was_refused(keep: Keep, form: str) -> None:
    expected = refused(keep, correlation_id="c", agent="first").to_dict()
    arguments = FORMS[form]()
    refusal = refused(keep, arguments, correlation_id="c", agent="second")
    if isinstance(arguments, dict):
        arguments.clear()
        arguments["account"] = "another call"
    else:
        arguments[:] = b" " * len(arguments)
    assert refusal.to_dict() == expected


def test_words_are_about_the_tool_as_it_was_called(keep: Keep) -> None:
    expected = refused(keep, correlation_id="c", agent="first").text
    refusal = refused(keep, correlation_id="c", agent="second")
    keep.unregister("send")
    keep.register(tool(name="send", description="Send nothing to nobody.")(lambda: None))
    assert refusal.text == expected


def test_threads_that_read_at_once_read_the_same(keep: Keep) -> None:
    readers = 8
    for number in range(20):
        refusal = refused(keep, agent=str(number))
        gate = threading.Barrier(readers)
        read: list[tuple[str, Any]] = []

        def reader(refusal: Refusal = refusal, gate: threading.Barrier = gate, read: Any = read) -> None:
            gate.wait()
            read.append((refusal.text, refusal.to_dict()))

        threads = [threading.Thread(target=reader) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(read) == readers
        assert all(one == read[0] for one in read)


def held_by(refusal: Refusal) -> list[object]:
    """Everything that a refusal keeps alive of the call, but for the tool's own schema."""
    seen: dict[int, object] = {}
    waiting: list[object] = [refusal]
    while waiting:
        one = waiting.pop()
        if (
            id(one) in seen
            or isinstance(one, (type, CompiledSchema))
            or type(one).__name__ == "RegisteredTool"
        ):
            continue
        if type(one).__name__ in ("function", "module", "builtin_function_or_method"):
            continue
        seen[id(one)] = one
        waiting += gc.get_referents(one)
    return list(seen.values())


def test_what_was_read_to_the_end_holds_no_arguments(keep: Keep) -> None:
    refusal = refused(keep, {**BAD, "note": "a sentence that is in the call alone"})
    assert "a sentence that is in the call alone" in held_by(refusal)
    assert refusal.text
    assert "a sentence that is in the call alone" not in held_by(refusal)


def test_the_refusal_of_a_large_call_holds_no_arguments(keep: Keep, made: list[str]) -> None:
    large = "x" * DEFERRED_BYTES
    refusal = refused(keep, {**BAD, "note": large})
    assert sorted(made) == ["repair", "signature", "words", "words", "words"]
    assert large not in held_by(refusal)
    assert refusal.repair is not None


def test_the_refusal_of_a_call_that_can_have_many_errors_holds_no_arguments(keep: Keep) -> None:
    """Each error holds on to what it is about, so that a hundred times less is as much."""
    alternatives = [{"type": "string", "maxLength": 1, "const": str(number)} for number in range(100)]
    parameters = {"type": "object", "properties": {"a": {"anyOf": alternatives}}}
    keep.register(ToolDefinition.from_elsewhere({"name": "choose", "parameters": parameters}))
    large = "x" * (DEFERRED_BYTES // 50)
    refusal = keep.try_validate_arguments("choose", {"a": large})
    assert isinstance(refusal, Refusal)
    assert large not in held_by(refusal)


def test_a_refusal_goes_without_the_help_of_the_garbage_collector(keep: Keep) -> None:
    refused(keep).text  # noqa: B018 -- what is made once for a tool is made now
    found = []
    gc.disable()
    try:
        for _ in range(3):  # threads of earlier tests may leave something, once
            gc.collect()
            refused(keep)
            refused(keep).text  # noqa: B018 -- read and dropped
            found.append(gc.collect())
    finally:
        gc.enable()
    assert min(found) == 0


COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda one: pickle.loads(pickle.dumps(one)),  # noqa: S301 -- our own
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_a_copy_says_the_same_and_holds_nothing_of_the_call(keep: Keep, way: str) -> None:
    refusal = refused(keep, {**BAD, "note": "a sentence that is in the call alone"})
    again = COPIES[way](refusal)
    assert "a sentence that is in the call alone" not in held_by(again) or way == "copy"
    assert again.to_dict() == refusal.to_dict()
    assert COPIES[way](refusal.errors[0]) == refusal.errors[0]
    assert isinstance(again, Refusal)


def test_violations_are_values(keep: Keep) -> None:
    first, second = refused(keep, agent="a").errors[0], refused(keep, agent="b").errors[0]
    plain = Violation(
        "/account",
        Code.WRONG_TYPE,
        "'account' must be a string, got integer",
        "string",
        "1",
        "Send a string.",
    )
    assert first == second == plain
    assert len({first, second, plain}) == 1
    assert first != refused(keep, {"account": 2, "amount": 1}, agent="c").errors[0]
    assert first != "/account"
    assert repr(first) == repr(plain)
    assert repr(plain).startswith(
        "Violation(path='/account', code=<Code.WRONG_TYPE: 'ACODE-TSR-004'>, message="
    )


@pytest.mark.parametrize("field", ["path", "code", "message", "expected", "actual", "suggestion"])
def test_a_violation_cannot_be_changed(keep: Keep, field: str) -> None:
    violation = refused(keep).errors[0]
    before = violation.to_dict()
    with pytest.raises(AttributeError):
        setattr(violation, field, "something else")
    assert violation.to_dict() == before


@pytest.mark.spec("VAL-10")
def test_a_bug_of_ours_while_wording_is_not_the_readers(
    keep: Keep, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise ValueError("a value of the call")

    refusal = refused(keep)
    monkeypatch.setattr(_Wording, "_words", stumble)
    monkeypatch.setattr("toolkeep.validation.explain_refusal.repair_of", stumble)
    assert [(error.path, error.code.value[-3:]) for error in refusal.errors] == [
        ("/account", "004"),
        ("/amount", "004"),
        ("/urgnt", "005"),
    ]
    assert refusal.errors[0].message == "The arguments do not fit"
    assert refusal.repair is None
    logged = "".join(f"{record.getMessage()}{vars(record)}" for record in caplog.records)
    assert "a violation could not be worded" in logged
    assert "a repair could not be tried" in logged
    assert "a value of the call" not in logged


def test_faults_at_one_place_that_say_the_same_are_told_once() -> None:
    from toolkeep import ToolDefinition

    keep = Keep()
    twice = {"allOf": [{"minimum": 3}, {"minimum": 3}, {"maximum": -3}]}
    keep.register(
        ToolDefinition.from_elsewhere(
            {"name": "send", "parameters": {"type": "object", "properties": {"amount": twice}}}
        )
    )
    refusal = refused(keep, {"amount": 1})
    assert [(error.path, error.expected) for error in refusal.errors] == [
        ("/amount", "at least 3"),
        ("/amount", "at most -3"),
    ]
