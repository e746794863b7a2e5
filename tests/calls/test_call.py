"""Whole calls: what a caller gets for a tool that works, fails, is refused, or answers too much."""

import asyncio
import functools
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel, field_validator

from tests.definitions.examples import made_elsewhere
from toolkeep import Code, InvokeResult, Keep, Secret, ToolContext, ToolDefinition, tool
from toolkeep.calls import Decision, ToolResult, Truncation
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.tool_context import Cancelled, ToolFailed
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import NotRecorded, StateUnusable
from toolkeep.events import CallEnded, Event
from toolkeep.json_values import jsonable
from toolkeep.json_values.canonical import canonical_bytes, canonical_hash
from toolkeep.policy.active_policies import read_all
from toolkeep.policy.policy_settings import DEFAULT_GRANT, Grant, PolicySettings
from toolkeep.results import output_check as output_stage
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.stores.records import MemoryRecord
from toolkeep.stores.registry_state import MemoryState

SECRET = "hunter2-S3CRET-0123456789"
READS = {"side_effects": ["None"]}

PLANNER = PolicySettings(agents={"planner": DEFAULT_GRANT})
"""An agent that is declared, and may read the project."""


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the data that tools say they touch."""
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    monkeypatch.chdir(project)


def keep_with(*tools: Any, **options: Any) -> Keep:
    keep = Keep(**options)
    keep.register(*tools)
    return keep


def call(keep: Keep, name: str, arguments: Any = None, **options: Any) -> ToolResult:
    return asyncio.run(keep.call(name, {} if arguments is None else arguments, **options))


def giving(value: Any, **fields: Any) -> Any:
    """A tool `give` that gives a value back."""

    @tool(description="Give back what the test gave it", **fields)
    def give() -> Any:
        return value

    return give


def given(value: Any, **fields: Any) -> ToolResult:
    return call(keep_with(giving(value, **fields)), "give")


def message(result: ToolResult) -> str:
    assert result.error is not None
    return result.error.errors[0].message


def steady(result: ToolResult) -> dict[str, Any]:
    """A result as data, without what differs from call to call."""
    data = result.to_dict()
    for name in ("call_id", "execute_ms", "total_ms", "resource_use"):
        data.pop(name)
    if data["decision"]:
        data["decision"].pop("decided_at")
        assert len(bytes.fromhex(data["decision"].pop("request_hash"))) == 32
    return data


@tool(side_effects=["None"])
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool(side_effects=["None"])
async def add_slowly(a: int, b: int = 1) -> int:
    """Add two numbers, and let others work in between."""
    await asyncio.sleep(0)
    return a + b


# --- the happy path ----------------------------------------------------------------------------------


@pytest.mark.spec("EXE-2")
@pytest.mark.parametrize("name", ["add", "add_slowly"])
def test_a_call_gives_the_value_and_what_is_known_about_it(name: str) -> None:
    keep = keep_with(add, add_slowly)
    result = call(
        keep, name, '{"a": 41}', conversation="talk-1", session="session-1", correlation_id="correlation-1"
    )
    assert steady(result) == {
        "status": "ok",
        "tool": name,
        "agent": "local",
        "value": 42,
        "error": None,
        "hash": canonical_hash(42),
        "decision": {
            "decision": "allow",
            "policies": ["toolkeep.call"],
            "policy_set_hash": read_all([]).hash,
            "capabilities": [],
            "touches": [],
        },
        "approval": None,
        "truncation": None,
        "side_effects": ["None"],
        "isolation": "none",
        "enforced": [],
        "is_cached": False,
        "is_repeated": False,
        "version": "1.0.0",
        "definition_hash": keep.get(name).definition_hash,
        "argument_hash": canonical_hash({"a": 41, "b": 1}),
        "correlation_id": "correlation-1",
        "conversation_id": "talk-1",
        "session_id": "session-1",
        "leaf": 3,
    }
    assert (result.ok, result.code, result.text) == (True, None, "42")


def test_each_call_has_ids_of_its_own() -> None:
    keep = keep_with(add)
    first, second = (call(keep, "add", {"a": 1}) for _ in range(2))
    assert len({first.call_id, second.call_id}) == 2
    assert len({first.correlation_id, second.correlation_id, ""}) == 3


def test_the_tool_is_called_by_alias_and_version_and_the_result_has_its_name() -> None:
    keep = keep_with(giving(1, aliases=["hand_over"]))
    assert [call(keep, name).tool for name in ("give", "GIVE", "hand_over", "give@1.0.0")] == ["give"] * 4


@tool(effects="none")
async def describe_call(context: ToolContext) -> dict[str, Any]:
    """Say what the context of the call is."""
    context.progress(1, 2, "half")
    context.check_cancelled()
    return {
        "agent": context.agent,
        "correlation": context.correlation_id,
        "conversation": context.conversation_id,
        "session": context.session_id,
        "secret": len(context.secret("token")),
        "is_cancelled": context.is_cancelled(),
    }


@pytest.mark.spec("EXE-9")
def test_the_context_has_the_ids_of_the_call_and_tells_progress() -> None:
    keep = keep_with(describe_call, policy=PLANNER, tool_secrets={"describe_call": {"token": SECRET}})
    heard: list[tuple[float, float | None, str]] = []
    result = call(
        keep,
        "describe_call",
        agent="planner",
        conversation="talk-1",
        session="session-1",
        correlation_id="correlation-1",
        on_progress=lambda *told: heard.append(told),
    )
    assert result.value == {
        "agent": "planner",
        "correlation": "correlation-1",
        "conversation": "talk-1",
        "session": "session-1",
        "secret": len(SECRET),
        "is_cancelled": False,
    }
    assert heard == [(1, 2, "half")]


def test_a_secret_reaches_only_the_tool_that_it_was_given_to() -> None:
    keep = keep_with(describe_call, tool_secrets={"another_tool": {"token": SECRET}})
    result = call(keep, "describe_call")
    assert (result.code, message(result)) == (
        Code.TOOL_FAILED,
        "Tool 'describe_call' failed unexpectedly",
    )


def test_an_async_function_behind_a_plain_wrapper_is_awaited() -> None:
    async def answer() -> int:
        """Give the answer."""
        await asyncio.sleep(0)
        return 42

    @functools.wraps(answer)
    def wrapped() -> Any:
        return answer()

    assert call(keep_with(tool(wrapped)), "answer").value == 42


def test_a_tool_cannot_change_what_the_caller_sent() -> None:
    @tool
    def take_all(words: list[str]) -> int:
        """Take all words out of a list."""
        taken = len(words)
        words.clear()
        return taken

    sent = {"words": ["a", "b"]}
    assert call(keep_with(take_all), "take_all", sent).value == 2
    assert sent == {"words": ["a", "b"]}


def test_the_caller_hears_of_the_end_of_a_call_as_an_event() -> None:
    keep = keep_with(add)
    heard: list[Event] = []
    keep.subscribe(heard.append)
    fine = call(keep, "add", {"a": 1}, correlation_id="fine")
    unknown = call(keep, "no_such_tool", correlation_id="unknown")
    ended = [event for event in heard if isinstance(event, CallEnded)]
    assert ended == [
        CallEnded(
            tool_name="add",
            agent="local",
            status="ok",
            error_code="",
            total_ms=fine.total_ms,
            correlation_id="fine",
        ),
        CallEnded(
            tool_name="unknown",
            agent="local",
            status="error",
            error_code="ACODE-TSR-001",
            total_ms=unknown.total_ms,
            correlation_id="unknown",
        ),
    ]


# --- agent-tool classes ------------------------------------------------------------------------------


class Echo:
    """Answers as its argument says."""

    TOOL_NAME = "echo_class"
    TOOL_USAGE_METADATA = "Use it in tests only."
    TOOL_FIELDS: ClassVar[dict[str, Any]] = {"side_effects": ["None"]}
    is_tool_fully_executed_on_server = True

    @property
    def name(self) -> str:
        return self.TOOL_NAME

    @staticmethod
    def get_schema() -> dict[str, Any]:
        return {
            "type": "function",
            "name": "echo_class",
            "description": "Answer as the argument says.",
            "parameters": {
                "type": "object",
                "properties": {"how": {"type": "string", "description": "How to answer."}},
                "required": ["how"],
            },
        }

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        how = json.loads(arguments_json)["how"]
        if how == "fail":
            return InvokeResult.failed("The shelf is empty.")
        if how == "raise":
            raise RuntimeError(SECRET)
        if how == "no JSON":
            return InvokeResult.ok("{")
        if how == "nothing":
            return None  # type: ignore[return-value]  # broken on purpose
        return InvokeResult.ok(json.dumps({"how": how, "conversation": context.conversation_id}))


def test_a_class_answers_with_its_json() -> None:
    result = call(keep_with(Echo), "echo_class", {"how": "wéll"}, conversation="talk-1")
    assert result.value == {"how": "wéll", "conversation": "talk-1"}
    assert result.isolation == "none"


def test_the_message_of_a_failed_class_reaches_the_model() -> None:
    result = call(keep_with(Echo), "echo_class", {"how": "fail"})
    assert (result.code, message(result)) == (Code.TOOL_FAILED, "The shelf is empty")


@pytest.mark.parametrize("how", ["raise", "no JSON", "nothing"])
def test_a_broken_class_is_a_failed_call_that_shows_nothing_internal(how: str) -> None:
    result = call(keep_with(Echo), "echo_class", {"how": how})
    assert (result.code, message(result)) == (
        Code.TOOL_FAILED,
        "Tool 'echo_class' failed unexpectedly",
    )


# --- failure -----------------------------------------------------------------------------------------


def raising(error: BaseException, *, is_async: bool, **fields: Any) -> Any:
    if is_async:

        @tool(name="fail", description="Fail as the test says", **fields)
        async def fail_slowly() -> None:
            raise error

        return fail_slowly

    @tool(description="Fail as the test says", **fields)
    def fail() -> None:
        raise error

    return fail


BOTH_KINDS = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


@BOTH_KINDS
def test_what_a_tool_says_with_tool_failed_reaches_the_model(is_async: bool) -> None:
    result = call(keep_with(raising(ToolFailed("No such\x1b file\nTry /b"), is_async=is_async)), "fail")
    assert (result.status, result.value, result.hash) == ("error", None, "")
    assert result.code is Code.TOOL_FAILED
    assert "No such" in result.text
    assert "\x1b" not in result.text


@BOTH_KINDS
def test_a_tool_that_fails_without_a_word_has_failed(is_async: bool) -> None:
    result = call(keep_with(raising(ToolFailed(), is_async=is_async)), "fail")
    assert (result.code, message(result)) == (Code.TOOL_FAILED, "Tool 'fail' failed and did not say why")


class Speechless(ToolFailed):
    """A failure whose words fail too."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@BOTH_KINDS
def test_a_tool_that_cannot_say_why_it_fails_has_failed(is_async: bool) -> None:
    result = call(keep_with(raising(Speechless("no"), is_async=is_async)), "fail")
    assert (result.code, message(result)) == (Code.TOOL_FAILED, "Tool 'fail' failed and did not say why")


class Unusual(BaseException):
    """Neither an Exception nor anything that Python knows."""


@BOTH_KINDS
@pytest.mark.parametrize("kind", [RuntimeError, KeyError, OSError, StopIteration, SystemExit, Unusual])
def test_any_other_exception_is_logged_and_answered_generically(
    kind: type[BaseException], is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    result = call(keep_with(raising(kind(SECRET), is_async=is_async)), "fail", correlation_id="correlation-1")
    assert (result.code, message(result)) == (Code.TOOL_FAILED, "Tool 'fail' failed unexpectedly")
    assert SECRET not in json.dumps(result.to_dict())
    assert SECRET not in result.text
    (record,) = [one for one in caplog.records if one.name == "toolkeep.execution"]
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "a tool failed")
    assert kind.__name__ in vars(record)["detail"]
    assert result.error is not None
    assert result.error.diagnosis is not None
    assert vars(record)["detail"] == result.error.diagnosis.detail
    assert SECRET not in repr(result)
    assert record.correlation_id == "correlation-1"  # type: ignore[attr-defined]  # from `extra`


@BOTH_KINDS
@pytest.mark.parametrize(
    "error", [Cancelled(), asyncio.CancelledError()], ids=["Cancelled", "CancelledError"]
)
def test_a_tool_that_gives_up_by_itself_is_a_cancelled_call(error: BaseException, is_async: bool) -> None:
    result = call(keep_with(raising(error, is_async=is_async)), "fail")
    assert (result.code, message(result)) == (Code.CANCELLED, "The tool was cancelled")


# --- refusals ----------------------------------------------------------------------------------------


@tool
def never() -> None:
    """Run, which no test here allows."""
    raise AssertionError("it ran")


def never_with(**fields: Any) -> Any:
    return tool(name="never", description="Run, which no test here allows", **fields)(never.function)


def described(**fields: Any) -> ToolDefinition:
    return ToolDefinition.from_dict({"name": "never", "description": "Is only described.", **fields})


REFUSED: dict[str, tuple[Any, dict[str, Any], Code]] = {
    "danger medium": (never_with(danger="medium"), {}, Code.APPROVAL_NEEDED),
    "danger high": (never_with(danger="high"), {}, Code.APPROVAL_NEEDED),
    "danger critical": (never_with(danger="critical"), {}, Code.APPROVAL_NEEDED),
    "capability that the agent lacks": (
        never_with(capabilities=["fs.write:./data"], side_effects=["FsWrite"], danger="safe"),
        {},
        Code.NOT_PERMITTED,
    ),
    "permission that the agent lacks": (
        never_with(required_permissions=["tool.system.run"]),
        {},
        Code.NOT_PERMITTED,
    ),
    "confirmation of the tool": (never_with(requires_confirmation=True), {}, Code.APPROVAL_NEEDED),
    "confirmation of the call": (never, {"confirm": True}, Code.APPROVAL_NEEDED),
    "agent": (never, {"agent": "stranger"}, Code.AGENT_UNKNOWN),
    "description only": (described(), {}, Code.NOT_RUNNABLE),
    "no time": (never, {"timeout_s": 0}, Code.OPTION_REFUSED),
    "negative time": (never, {"timeout_s": -1.0}, Code.OPTION_REFUSED),
    "no number": (never, {"timeout_s": float("nan")}, Code.OPTION_REFUSED),
    "endless": (never, {"timeout_s": float("inf")}, Code.OPTION_REFUSED),
    "more time": (never, {"timeout_s": 60.1}, Code.OPTION_REFUSED),
    "no output": (never, {"max_output_bytes": 0}, Code.OPTION_REFUSED),
    "negative output": (never, {"max_output_bytes": -1}, Code.OPTION_REFUSED),
    "time as text": (never, {"timeout_s": "5"}, Code.OPTION_REFUSED),
    "time beyond any float": (never, {"timeout_s": 10**400}, Code.OPTION_REFUSED),
    "output as text": (never, {"max_output_bytes": "5"}, Code.OPTION_REFUSED),
    "half a byte of output": (never, {"max_output_bytes": 1.5}, Code.OPTION_REFUSED),
    "more output": (never, {"max_output_bytes": 10 * 1024 * 1024 + 1}, Code.OPTION_REFUSED),
    "more time than the tool's": (
        never_with(constraints={"max_execution_time": 2}),
        {"timeout_s": 2.5},
        Code.OPTION_REFUSED,
    ),
    "more output than the tool's": (
        never_with(constraints={"max_output_size": 2048}),
        {"max_output_bytes": 2049},
        Code.OPTION_REFUSED,
    ),
}


@pytest.mark.spec("EXE-9")
@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_call_does_not_run(case: str) -> None:
    registered, options, code = REFUSED[case]
    result = call(keep_with(registered), "never", **options)
    assert (result.status, result.code, result.value, result.hash) == ("error", code, None, "")
    assert (result.tool, result.isolation, result.execute_ms) == ("never", "", 0.0)


@pytest.mark.parametrize("danger", ["safe", "low"])
def test_a_tool_of_little_danger_runs_without_a_person(danger: str) -> None:
    result = given(1, danger=danger)
    assert (result.value, result.approval) == (1, None)


def test_a_tool_of_low_danger_does_not_run_in_a_paranoid_keep_without_a_person() -> None:
    result = call(keep_with(never_with(danger="low"), policy=PolicySettings(is_paranoid=True)), "never")
    assert (result.code, result.isolation) == (Code.APPROVAL_NEEDED, "")


@pytest.mark.spec("EXE-9")
def test_options_may_tighten_as_far_as_the_definition() -> None:
    keep = keep_with(giving(1, constraints={"max_execution_time": 60, "max_output_size": 2048}))
    assert call(keep, "give", timeout_s=60, max_output_bytes=2048).value == 1
    assert call(keep, "give", timeout_s=59, max_output_bytes=1).value == 1


def test_a_declared_agent_may_call() -> None:
    keep = keep_with(add, policy=PLANNER)
    assert call(keep, "add", {"a": 1}, agent="planner").ok
    assert call(keep, "add", {"a": 1}, agent="operator").ok
    assert call(keep, "add", {"a": 1}, agent="stranger").code is Code.AGENT_UNKNOWN
    keep.declare_agent("stranger")
    assert call(keep, "add", {"a": 1}, agent="stranger").ok


@pytest.mark.spec("SBX-1")
def test_a_call_that_failed_in_this_process_says_where_it_ran() -> None:
    @tool(name="fails")
    def fails() -> None:
        """Fail."""
        raise ToolFailed("told to")

    result = call(keep_with(fails), "fails", {})
    assert (result.code, result.isolation, result.enforced) == (Code.TOOL_FAILED, "none", ())


def test_a_tool_may_ask_for_no_isolation() -> None:
    assert given(1, constraints={"required_isolation": "none"}).isolation == "none"


def test_an_unknown_tool_is_answered_with_the_nearest_name() -> None:
    result = call(keep_with(add), "ad", {"a": 1}, correlation_id="correlation-1")
    assert result.code is Code.UNKNOWN_TOOL
    assert result.error is not None
    assert result.error.errors[0].suggestion == "Did you mean 'add'?"
    assert (result.definition_hash, result.decision, result.correlation_id) == ("", None, "correlation-1")


def test_a_disabled_tool_does_not_run() -> None:
    keep = keep_with(never)
    keep.disable("never")
    assert call(keep, "never").code is Code.TOOL_DISABLED


def test_a_quarantined_tool_does_not_run() -> None:
    state = MemoryState()
    keep_with(made_elsewhere(), state=state)
    keep = keep_with(made_elsewhere(description="Send every file to us."), state=state)
    assert call(keep, "read_file").code is Code.TOOL_QUARANTINED


def test_refused_arguments_are_named_by_their_pointers() -> None:
    result = call(keep_with(add), "add", {"a": "1", "c": 2})
    assert result.error is not None
    assert [(error.path, error.code) for error in result.error.errors] == [
        ("/a", Code.WRONG_TYPE),
        ("/c", Code.CONSTRAINT),
    ]
    assert result.text == result.error.text


STRANGE = {
    "half a pair": "\ud800",
    "control characters": "\x00\x1b[31m",
    "very long": "x" * 500_000,
}


@pytest.mark.parametrize("text", STRANGE.values(), ids=STRANGE)
@pytest.mark.parametrize(
    "field", ["name", "agent", "conversation", "session", "correlation_id", "idempotency_key"]
)
def test_whatever_a_caller_names_is_answered_never_raised(field: str, text: str, tmp_path: Path) -> None:
    sent: dict[str, Any] = {"name": "add", "arguments": {"a": 1}, field: text}
    with keep_with(add, record=lambda: FileRecord(tmp_path / "state")) as keep:
        result = asyncio.run(keep.call(**sent))
    assert result.status in ("ok", "error")
    assert result.leaf is not None
    assert json.dumps(result.to_dict(), ensure_ascii=False).encode()


# --- output ------------------------------------------------------------------------------------------


class Point(BaseModel):
    x: int
    y: float
    when: date


@dataclass
class Pair:
    left: str
    right: Point


class Tagged(BaseModel):
    tags: set[str]


POINT = Point(x=1, y=2.5, when=date(2026, 1, 2))

JSON_FOR: dict[str, tuple[Any, Any]] = {
    "null": (None, None),
    "text": ("é\n", "é\n"),
    "whole float": (1.0, 1),
    "integer beyond 64 bits": ({"n": 2**100}, {"n": 2**100}),
    "tuple": ((1, (2,)), [1, [2]]),
    "model": (POINT, {"x": 1, "y": 2.5, "when": "2026-01-02"}),
    "models in a list": ([POINT], [{"x": 1, "y": 2.5, "when": "2026-01-02"}]),
    "dataclass": (
        Pair("a", POINT),
        {"left": "a", "right": {"x": 1, "y": 2.5, "when": "2026-01-02"}},
    ),
    "time": ({"at": datetime(2026, 1, 2, 3, 4, tzinfo=UTC)}, {"at": "2026-01-02T03:04:00Z"}),
    "enum": ([Isolation.STRICT], ["strict"]),
}


@pytest.mark.spec("EXE-3")
@pytest.mark.parametrize("case", JSON_FOR)
def test_a_value_becomes_json_and_is_hashed_in_its_canonical_form(case: str) -> None:
    value, data = JSON_FOR[case]
    result = given(value)
    assert (result.value, result.hash) == (data, canonical_hash(data))
    assert type(result.value) is type(data)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def endless() -> Iterator[int]:
    number = 0
    while True:
        yield number
        number += 1
        if number > 10_000:
            raise AssertionError("it was read to the end")


class Odd(Mapping[str, int]):
    """Looks like data, and raises when it is read."""

    def __iter__(self) -> Iterator[str]:
        raise ZeroDivisionError

    def __len__(self) -> int:
        raise ZeroDivisionError

    def __getitem__(self, key: str) -> int:
        raise ZeroDivisionError


class Hiding:
    """Does not say what it is."""

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError


UNHOLDABLE = "a number or a text that JSON cannot hold"
UNORDERED = "a set, which has no order"
TOO_DEEP = "nested deeper than 150 levels"
NOT_JSON: dict[str, tuple[Callable[[], Any], str]] = {
    "nan": (lambda: float("nan"), UNHOLDABLE),
    "infinity inside": (lambda: {"a": [float("inf")]}, UNHOLDABLE),
    "nan beside a date": (lambda: {"a": float("nan"), "b": date(2026, 1, 2)}, UNHOLDABLE),
    "set": (lambda: {"b", "a"}, "an instance of set"),
    "set inside": (lambda: {"tags": {"b", "a"}}, "an instance of set"),
    "set in a model": (lambda: Tagged(tags={"b", "a"}), UNORDERED),
    "set in a model in a list": (lambda: [{"inside": Tagged(tags={"b", "a"})}], UNORDERED),
    "frozenset": (lambda: frozenset({"b", "a"}), "an instance of frozenset"),
    "cycle": (cycle, TOO_DEEP),
    "210 levels": (lambda: nested(210), TOO_DEEP),
    "300 levels": (lambda: nested(300), TOO_DEEP),
    "100,000 levels": (lambda: nested(100_000), TOO_DEEP),
    "half a pair": (lambda: "\ud800", UNHOLDABLE),
    "half a pair as key": (lambda: {"\ud800": 1}, UNHOLDABLE),
    "bytes": (lambda: b"abc", "an instance of bytes"),
    "bytes inside": (lambda: {"a": [b"abc"]}, "an instance of bytes"),
    "bytearray": (lambda: bytearray(b"abc"), "an instance of bytearray"),
    "key that is no text": (lambda: {1: "a", "1": "b"}, "an object with a key that is not text"),
    "integer that nobody can write": (lambda: 10**5000, UNHOLDABLE),
    "endless generator": (endless, "an instance of generator"),
    "object": (object, "an instance of object"),
    "function": (lambda: nested, "an instance of function"),
    "complex": (lambda: 1j, "an instance of complex"),
    "mapping that raises": (Odd, "it raised ZeroDivisionError when it was read"),
    "object that raises": (Hiding, "it raised ZeroDivisionError when it was read"),
}


@pytest.mark.spec("EXE-3")
@pytest.mark.parametrize("case", NOT_JSON)
def test_output_that_is_not_json_is_refused(case: str) -> None:
    make, why = NOT_JSON[case]
    result = given(make())
    assert (result.code, result.value, result.hash) == (Code.OUTPUT_INVALID, None, "")
    assert message(result) == f"Tool 'give' returned something that is not JSON: {why}"


@pytest.mark.spec("VAL-9")
@pytest.mark.parametrize(
    ("value", "code"),
    [
        ({"n": 1}, None),
        ({"n": "1"}, Code.OUTPUT_INVALID),
        ({}, Code.OUTPUT_INVALID),
        (3, Code.OUTPUT_INVALID),
    ],
)
def test_output_is_checked_against_the_output_schema(value: Any, code: Code | None) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    assert given(value, output_schema=schema).code is code


@pytest.mark.spec("EXE-3")
@pytest.mark.parametrize("value", [b"\x00\xff", bytearray(b"\x00\xff"), memoryview(b"\x00\xff")])
@pytest.mark.parametrize(
    "kind", [{"result_type": "binary"}, {"result_type": "stream"}, {"normalization": "binary"}]
)
def test_binary_output_is_bytes_with_a_plain_hash(value: Any, kind: dict[str, str]) -> None:
    result = given(value, **kind)
    assert (result.value, type(result.value)) == (b"\x00\xff", bytes)
    assert result.hash == "06eb7d6a69ee19e5fbdf749018d3d2abfa04bcbd1365db312eb86dc7169389b8"
    assert result.to_dict()["value"] == "AP8="


def test_a_model_reads_of_bytes_how_many_there_are() -> None:
    result = given(b"\x89PNG", result_type="binary")
    assert result.text == f"[4 bytes, sha256:{result.hash}]"


def test_a_binary_tool_that_gives_no_bytes_is_broken() -> None:
    result = given("text", result_type="binary")
    assert (result.code, message(result)) == (
        Code.OUTPUT_INVALID,
        "Tool 'give' returned str instead of bytes",
    )


@pytest.mark.spec("EXE-3")
def test_a_registered_normalization_makes_equal_results_the_same() -> None:
    keep = keep_with(giving({"rows": {3, 1, 2}}, normalization="custom"), normalizers={"give": _sorted_rows})
    result = call(keep, "give")
    assert (result.value, result.hash) == ({"rows": [1, 2, 3]}, canonical_hash({"rows": [1, 2, 3]}))


def _sorted_rows(value: Any) -> Any:
    return {"rows": sorted(value["rows"])}


def test_a_cached_result_is_normalized_once() -> None:
    pure = giving({"rows": {3, 1, 2}}, normalization="custom", determinism="Pure", side_effects=["None"])
    keep = keep_with(pure, normalizers={"give": lambda value: {"rows": len(value["rows"])}})
    first, second = call(keep, "give"), call(keep, "give")
    assert (
        (second.value, second.hash) == (first.value, first.hash) == ({"rows": 3}, canonical_hash({"rows": 3}))
    )


@pytest.mark.parametrize(
    ("normalizers", "said"),
    [
        ({}, "Tool 'give' has a normalization of its own, and none is registered"),
        ({"give": lambda value: 1 / 0}, "The normalization of tool 'give' failed"),
        (
            {"give": lambda value: {1, 2}},
            "Tool 'give' returned something that is not JSON: an instance of set",
        ),
    ],
    ids=["missing", "raising", "not JSON"],
)
def test_a_normalization_that_does_not_work_is_refused(
    normalizers: dict[str, Callable[[Any], Any]], said: str
) -> None:
    result = call(keep_with(giving(1, normalization="custom"), normalizers=normalizers), "give")
    assert (result.code, message(result)) == (Code.OUTPUT_INVALID, said)


@pytest.mark.parametrize(
    "fields", [{}, {"determinism": "Pure", "side_effects": ["None"]}], ids=["", "cached"]
)
def test_a_result_shares_nothing_with_what_the_tool_keeps(fields: dict[str, Any]) -> None:
    kept: dict[str, Any] = {"rows": [1]}
    keep = keep_with(giving(kept, **fields))
    first = call(keep, "give")
    kept["rows"].append(2)
    assert (first.value, first.hash) == ({"rows": [1]}, canonical_hash({"rows": [1]}))
    first.value["rows"].append(3)
    assert kept == {"rows": [1, 2]}


@pytest.mark.spec("EXE-5")
def test_a_cached_result_is_what_was_given_whatever_is_done_to_it_afterwards() -> None:
    kept: dict[str, Any] = {"rows": [1]}
    keep = keep_with(giving(kept, determinism="Pure", side_effects=["None"]))
    first = call(keep, "give")
    kept["rows"].append(2)
    first.value["rows"].append(3)
    second = call(keep, "give")
    assert (second.is_cached, second.value, second.hash) == (True, {"rows": [1]}, first.hash)


# --- too much output ---------------------------------------------------------------------------------

SMALL = {"constraints": {"max_output_size": 1024}}


@pytest.mark.spec("EXE-2")
@pytest.mark.parametrize("char", ["x", "é", "字", "🙂"])
@pytest.mark.parametrize("limit", [1024, 1023, 1022, 1021])
def test_long_text_is_cut_at_a_character_and_says_where_the_rest_is(char: str, limit: int) -> None:
    whole = char * 3000
    keep = keep_with(giving(whole, **SMALL))
    result = call(keep, "give", max_output_bytes=limit)
    body = canonical_bytes(whole)
    reference = f"sha256:{canonical_hash(whole)}"
    assert (result.status, result.hash) == ("ok", canonical_hash(whole))
    assert result.truncation == Truncation(full_bytes=len(body), reference=reference)
    shown, mark = result.value.split("\n")
    assert whole.startswith(shown)
    assert shown
    assert (
        mark == f"[cut: {len(shown.encode())} of {len(whole.encode())} bytes shown; the whole is {reference}]"
    )
    assert len(result.value.encode()) <= limit
    assert keep.read_output(reference) == body


@pytest.mark.spec("EXE-2")
@pytest.mark.parametrize("whole", [{"rows": list(range(1000))}, list(range(1000))], ids=["object", "array"])
def test_large_objects_and_arrays_come_by_reference_and_say_so(whole: Any) -> None:
    keep = keep_with(giving(whole, **SMALL))
    result = call(keep, "give")
    reference = f"sha256:{canonical_hash(whole)}"
    assert (result.status, result.value, result.hash) == ("ok", None, canonical_hash(whole))
    assert result.truncation == Truncation(full_bytes=len(canonical_bytes(whole)), reference=reference)
    assert json.loads(keep.read_output(reference)) == whole
    assert reference in result.text


@pytest.mark.spec("EXE-2")
def test_large_binary_output_comes_by_reference() -> None:
    keep = keep_with(giving(b"\xff" * 2000, result_type="binary", **SMALL))
    result = call(keep, "give")
    assert result.value is None
    assert result.truncation is not None
    assert keep.read_output(result.truncation.reference) == b"\xff" * 2000


@pytest.mark.spec("EXE-2")
def test_output_over_the_hard_cap_fails_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output_stage, "OUTPUT_CAP_BYTES", 100)
    monkeypatch.setattr(jsonable, "OUTPUT_CAP_BYTES", 100)
    assert given("x" * 98).ok
    assert given(b"x" * 100, result_type="binary").ok
    for result in (given("x" * 99), given('"' * 99), given(b"x" * 101, result_type="binary")):
        assert (result.code, message(result)) == (
            Code.OUTPUT_TOO_BIG,
            "Tool 'give' returned more than 100 bytes",
        )


def test_output_of_exactly_the_limit_is_whole() -> None:
    result = given("x" * 1022, **SMALL)
    assert (result.value, result.truncation) == ("x" * 1022, None)


# --- results as data ---------------------------------------------------------------------------------


def client_tool(**fields: Any) -> ToolDefinition:
    data = {"name": "ask_user", "description": "Ask the user.", "client_executed": True}
    data |= {"danger": "safe", **fields}
    return ToolDefinition.from_dict(data)


RESULTS: dict[str, Callable[[], ToolResult]] = {
    "ok": lambda: given({"a": [1, None, "é"]}),
    "large integer": lambda: given(2**100),
    "bytes": lambda: given(b"\xff", result_type="binary"),
    "failed": lambda: call(keep_with(raising(ToolFailed("no"), is_async=False)), "fail"),
    "refused": lambda: call(keep_with(add), "add", {"a": "1"}),
    "unknown": lambda: call(keep_with(add), "no\ud800such"),
    "truncated": lambda: given("x" * 2000, **SMALL),
    "by reference": lambda: given(list(range(1000)), **SMALL),
    "pending": lambda: call(keep_with(client_tool()), "ask_user"),
}


@pytest.mark.parametrize("case", RESULTS)
def test_a_result_is_json_as_data_and_has_a_text(case: str) -> None:
    result = RESULTS[case]()
    data = json.dumps(result.to_dict(), ensure_ascii=False, allow_nan=False)
    assert json.loads(data.encode()) == result.to_dict()
    assert result.text.encode()


def test_the_text_of_a_result_is_what_a_model_reads() -> None:
    assert given("plain text").text == "plain text"
    assert given({"b": 1, "a": "é"}).text == '{"a":"é","b":1}'
    assert given(2**100).text == str(2**100)


def test_a_keep_without_a_folder_has_no_receipts() -> None:
    keep = keep_with(add)
    result = call(keep, "add", {"a": 1})
    with pytest.raises(NotRecorded):
        asyncio.run(keep.receipt(result))


# --- other ways to call ------------------------------------------------------------------------------


@pytest.fixture
def adding() -> Iterator[Keep]:
    with keep_with(add, add_slowly) as keep:
        yield keep


@pytest.mark.parametrize("name", ["add", "add_slowly"])
def test_plain_code_calls_without_an_event_loop(adding: Keep, name: str) -> None:
    assert [adding.call_sync(name, {"a": n}).value for n in range(3)] == [1, 2, 3]


def test_call_sync_works_where_a_loop_is_running_as_in_a_notebook(adding: Keep) -> None:
    async def cell() -> ToolResult:
        return adding.call_sync("add_slowly", {"a": 1}, conversation="talk-1")

    result = asyncio.run(cell())
    assert (result.value, result.conversation_id) == (2, "talk-1")


def test_call_sync_works_from_several_threads_at_once(adding: Keep) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: adding.call_sync("add_slowly", {"a": n}).value, range(100)))
    assert results == [n + 1 for n in range(100)]


def test_a_sync_tool_may_call_another_tool() -> None:
    with keep_with(add) as keep:

        @tool
        def add_twice(a: int) -> int:
            """Add one, twice."""
            return int(keep.call_sync("add", {"a": keep.call_sync("add", {"a": a}).value}).value)

        keep.register(add_twice)
        assert keep.call_sync("add_twice", {"a": 1}).value == 3


def test_an_async_tool_may_call_another_tool(adding: Keep) -> None:
    @tool
    async def add_twice(a: int) -> int:
        """Add one, twice."""
        once = await adding.call("add", {"a": a})
        return int((await adding.call("add", {"a": once.value})).value)

    adding.register(add_twice)
    assert adding.call_sync("add_twice", {"a": 1}).value == 3


def test_a_call_that_comes_while_the_keep_is_closed_leaves_no_thread() -> None:
    running, leaving, may_leave = threading.Event(), threading.Event(), threading.Event()

    @tool
    async def linger() -> None:
        """Take a while to leave."""
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            leaving.set()
            await asyncio.to_thread(may_leave.wait)

    before = set(threading.enumerate())
    keep = keep_with(linger, add_slowly)
    with ThreadPoolExecutor(2) as pool:
        pool.submit(keep.call_sync, "linger", {})
        assert running.wait(30)
        closing = pool.submit(keep.close)
        assert leaving.wait(30)
        try:
            assert keep.call_sync("add_slowly", {"a": 1}).status in ("ok", "error")
        finally:
            may_leave.set()
        closing.result(30)
    left = set(threading.enumerate()) - before
    assert [thread.name for thread in left if thread.name == "toolkeep-loop"] == []


def test_a_call_under_another_event_loop_than_asyncio_is_told_the_way(
    adding: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    """As trio drives it, step by step: nothing is run or recorded, and the keep goes on."""
    with pytest.raises(RuntimeError, match=r"keep\.call_sync"):
        adding.call("add", {"a": 1}).send(None)
    assert caplog.records == []
    assert adding.call_sync("add", {"a": 1}).leaf == 3


def test_one_keep_serves_one_event_loop_after_another(adding: Keep) -> None:
    assert [asyncio.run(adding.call("add_slowly", {"a": n})).value for n in range(3)] == [1, 2, 3]


def test_one_keep_serves_several_event_loops_at_once() -> None:
    together = threading.Barrier(4)

    @tool
    def meet() -> int:
        """Wait until four calls are here."""
        together.wait()
        return 1

    keep = keep_with(meet)
    with ThreadPoolExecutor(4) as pool:
        results = [pool.submit(asyncio.run, keep.call("meet", {})) for _ in range(4)]
    assert [result.result().value for result in results] == [1, 1, 1, 1]


# --- batches -----------------------------------------------------------------------------------------


@pytest.mark.spec("EXE-5")
def test_calls_without_write_effects_run_side_by_side() -> None:
    async def batch() -> list[ToolResult]:
        together = asyncio.Barrier(3)

        @tool(side_effects=["FsRead"], capabilities=["fs.read:./data"])
        async def meet(n: int) -> int:
            """Wait until three calls are here."""
            await together.wait()
            return n

        return await keep_with(meet).call_all([{"name": "meet", "arguments": {"n": n}} for n in range(3)])

    assert [result.value for result in asyncio.run(batch())] == [0, 1, 2]


def stepping(name: str, steps: list[str], **fields: Any) -> Any:
    @tool(name=name, description="Note when it begins and ends", **fields)
    async def step(n: int) -> int:
        steps.append(f"{name} {n} begins")
        for _ in range(20):
            await asyncio.sleep(0)
        steps.append(f"{name} {n} ends")
        return n

    return step


WRITES = {"danger": "safe", "side_effects": ["FsWrite"], "capabilities": ["fs.write:./data"]}


@pytest.mark.spec("EXE-5")
@pytest.mark.parametrize("fields", [WRITES, {"danger": "safe"}], ids=["write effects", "undeclared effects"])
def test_calls_that_may_write_run_alone_and_in_order(fields: dict[str, Any]) -> None:
    steps: list[str] = []
    held = Grant(capabilities=(Capability("fs.write", "./data"),))
    keep = keep_with(
        stepping("read", steps, **READS),
        stepping("write", steps, **fields),
        policy=PolicySettings(agents={"local": held}),
    )
    order = [("read", 1), ("read", 2), ("write", 3), ("write", 4), ("read", 5), ("no_such_tool", 6)]
    calls = [{"name": name, "arguments": {"n": n}} for name, n in order]
    results = asyncio.run(keep.call_all(calls))
    assert [result.value for result in results] == [1, 2, 3, 4, 5, None]
    assert [result.code for result in results] == [None] * 5 + [Code.UNKNOWN_TOOL]
    assert set(steps[:2]) == {"read 1 begins", "read 2 begins"}
    assert set(steps[2:4]) == {"read 1 ends", "read 2 ends"}
    assert steps[4:] == [
        "write 3 begins",
        "write 3 ends",
        "write 4 begins",
        "write 4 ends",
        "read 5 begins",
        "read 5 ends",
    ]


def test_a_failing_call_does_not_stop_its_batch() -> None:
    keep = keep_with(add, raising(ToolFailed("no"), is_async=True, effects="none"))
    calls: list[dict[str, Any]] = [
        {"name": "fail", "arguments": {}},
        {"name": "add", "arguments": {"a": 1}, "correlation_id": "correlation-1"},
    ]
    results = asyncio.run(keep.call_all(calls))
    assert [result.code for result in results] == [Code.TOOL_FAILED, None]
    assert results[1].correlation_id == "correlation-1"


def test_an_empty_batch_has_no_results() -> None:
    assert asyncio.run(Keep().call_all([])) == []


def test_a_batch_that_is_too_large_is_not_begun() -> None:
    keep = keep_with(never)
    with pytest.raises(ValueError, match="1001 calls"):
        asyncio.run(keep.call_all([{"name": "never", "arguments": {}}] * 1001))


@pytest.mark.parametrize(
    "slip", [{"nme": "never", "arguments": {}}, {"name": "never"}, {"name": "never", "arguments": {}, "n": 1}]
)
def test_a_slip_in_one_call_of_a_batch_is_told_before_any_is_made(slip: dict[str, Any]) -> None:
    keep = keep_with(never)
    with pytest.raises(TypeError):
        asyncio.run(keep.call_all([{"name": "never", "arguments": {}}, slip]))
    assert list(keep.record.log.read_back()) == []


# --- tools that the client executes ------------------------------------------------------------------


@pytest.mark.spec("EXE-6")
def test_a_client_executed_tool_is_handed_back_as_pending_and_its_result_submitted() -> None:
    keep = keep_with(client_tool(output_schema={"type": "string"}))
    pending = call(keep, "ask_user", conversation="talk-1")
    assert (pending.status, pending.ok, pending.value, pending.error) == ("pending", False, None, None)
    assert isinstance(pending.decision, Decision)
    result = asyncio.run(keep.submit(pending.call_id, "blue"))
    assert (result.status, result.value, result.hash) == ("ok", "blue", canonical_hash("blue"))
    assert (result.call_id, result.tool, result.isolation) == (pending.call_id, "ask_user", "client")
    assert (result.conversation_id, result.argument_hash) == ("talk-1", pending.argument_hash)


@pytest.mark.spec("EXE-6")
def test_a_pending_call_is_validated_and_authorized_first() -> None:
    keep = keep_with(client_tool(required_permissions=["tool.communication.send"]))
    assert call(keep, "ask_user").code is Code.NOT_PERMITTED
    assert call(keep, "ask_user", {"colour": 1}).code is Code.CONSTRAINT
    assert call(keep_with(client_tool(danger="high")), "ask_user").code is Code.APPROVAL_NEEDED


@pytest.mark.spec("EXE-6")
def test_a_result_is_submitted_once_by_the_agent_that_called() -> None:
    keep = keep_with(client_tool(), policy=PLANNER)
    pending = call(keep, "ask_user", agent="planner")
    assert asyncio.run(keep.submit(pending.call_id, "red")).code is Code.NOT_PENDING
    assert asyncio.run(keep.submit("no-such-call", "red", agent="planner")).code is Code.NOT_PENDING
    assert asyncio.run(keep.submit(pending.call_id, "blue", agent="planner")).value == "blue"
    assert asyncio.run(keep.submit(pending.call_id, "green", agent="planner")).code is Code.NOT_PENDING


@pytest.mark.spec("EXE-6", "VAL-9")
@pytest.mark.parametrize("value", [3, None, float("nan"), object()], ids=["3", "None", "nan", "object"])
def test_a_submitted_result_is_checked_like_any_other(value: Any) -> None:
    keep = keep_with(client_tool(output_schema={"type": "string"}))
    pending = call(keep, "ask_user")
    result = asyncio.run(keep.submit(pending.call_id, value))
    assert (result.status, result.code, result.call_id) == ("error", Code.OUTPUT_INVALID, pending.call_id)


class Form(Echo):
    """Prepares a form here, which the client shows."""

    is_tool_fully_executed_on_server = False
    TOOL_FIELDS: ClassVar[dict[str, Any]] = {"side_effects": ["None"], "output_schema": {"type": "string"}}

    async def execute(self, arguments_json: str, context: ToolContext) -> InvokeResult:
        how = json.loads(arguments_json)["how"]
        if how == "fail":
            return InvokeResult.failed("There is no form.")
        return InvokeResult.ok(json.dumps({"form": how, "key": len(context.secret("key"))}))


@pytest.mark.spec("EXE-6")
def test_the_server_half_of_a_class_runs_here_and_its_json_goes_out_with_the_pending_call() -> None:
    keep = keep_with(Form, tool_secrets={"echo_class": {"key": SECRET}})
    pending = call(keep, "echo_class", {"how": "colour"})
    assert (pending.status, pending.value) == ("pending", {"form": "colour", "key": len(SECRET)})
    assert asyncio.run(keep.submit(pending.call_id, "blue")).value == "blue"


@pytest.mark.spec("EXE-6")
def test_nothing_is_pending_when_the_server_half_fails() -> None:
    keep = keep_with(Form, tool_secrets={"echo_class": {"key": SECRET}})
    result = call(keep, "echo_class", {"how": "fail"})
    assert (result.code, message(result)) == (Code.TOOL_FAILED, "There is no form")
    assert asyncio.run(keep.submit(result.call_id, "blue")).code is Code.NOT_PENDING


@pytest.mark.spec("EXE-6")
def test_a_submitted_result_that_cannot_be_kept_is_answered_and_ends_the_chain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = MemoryRecord()
    keep = keep_with(client_tool(**SMALL), record=lambda: record)
    pending = call(keep, "ask_user", idempotency_key="key-1")

    def full(_: bytes) -> str:
        raise StateUnusable("bodies.db", "the disk is full", hint="")

    monkeypatch.setattr(record.bodies, "put", full)
    result = asyncio.run(keep.submit(pending.call_id, "x" * 2000))
    assert result.code is Code.NOT_RECORDED
    last = record.log.entries[-1].record
    assert (last["type"], last["codes"]) == ("ToolCompleted", [Code.NOT_RECORDED.value])
    assert [claim.state for claim in record.ledger._claims.values()] == ["done"]


# --- caching -----------------------------------------------------------------------------------------


@pytest.mark.spec("EXE-5")
@pytest.mark.parametrize(
    ("fields", "is_cached"),
    [
        ({"determinism": "Pure", "side_effects": ["None"]}, True),
        ({"determinism": "Deterministic", "side_effects": ["None"]}, True),
        (
            {"determinism": "Deterministic", "side_effects": ["FsRead"], "capabilities": ["fs.read:./data"]},
            False,
        ),
        (
            {"determinism": "Deterministic", "side_effects": ["None"], "capabilities": ["fs.read:./data"]},
            False,
        ),
        ({"determinism": "Deterministic"}, False),
        ({"determinism": "Maybe", "side_effects": ["None"]}, False),
        ({"side_effects": ["None"]}, False),
        ({"determinism": "Pure", "side_effects": ["None"], "sensitive": True}, False),
    ],
)
def test_only_what_cannot_change_is_answered_from_the_cache_and_says_so(
    fields: dict[str, Any], is_cached: bool
) -> None:
    runs: list[int] = []

    @tool(description="Count its runs", **fields)
    def count(n: int) -> int:
        runs.append(n)
        return n

    keep = keep_with(count)
    results = [call(keep, "count", {"n": n}) for n in (1, 1, 2)]
    assert [result.value for result in results] == [1, 1, 2]
    assert [result.is_cached for result in results] == [False, is_cached, False]
    assert runs == ([1, 2] if is_cached else [1, 1, 2])


def test_the_model_reads_what_a_validator_of_a_parameter_objects_to() -> None:
    class Trip(BaseModel):
        nights: int

        @field_validator("nights")
        @classmethod
        def is_long_enough(cls, nights: int) -> int:
            if nights < 2:
                raise ValueError("stay for two nights at least")
            return nights

    @tool
    def book(trip: Trip) -> int:
        """Book a trip."""
        return trip.nights

    keep = keep_with(book)
    refused = call(keep, "book", {"trip": {"nights": 1}})
    assert (refused.code, call(keep, "book", {"trip": {"nights": 2}}).value) == (Code.TOOL_FAILED, 2)
    assert "/trip/nights: stay for two nights at least" in refused.text


def test_a_tool_with_a_secret_parameter_is_never_cached() -> None:
    @tool(determinism="Pure", side_effects=["None"])
    def measure(key: Annotated[str, Secret()]) -> int:
        """Measure a key."""
        return len(key)

    keep = keep_with(measure)
    assert [call(keep, "measure", {"key": SECRET}).is_cached for _ in range(2)] == [False, False]


@pytest.mark.spec("EXE-2", "EXE-3")
def test_the_raw_output_keeps_what_normalization_changes_and_shares_nothing_with_the_tool() -> None:
    kept = {"b": 12.0, "a": [1]}
    result = given(kept)
    assert (json.dumps(result.value), json.dumps(result.raw)) == (
        '{"a": [1], "b": 12}',
        '{"b": 12.0, "a": [1]}',
    )
    kept["a"] = []
    assert result.raw["a"] == [1]


@pytest.mark.spec("EXE-2")
def test_the_raw_output_is_no_way_around_the_size_limit() -> None:
    result = given("x" * 5000, constraints={"max_output_size": 1024})
    assert result.truncation is not None
    assert result.raw is None


@pytest.mark.spec("EXE-2")
def test_a_result_says_what_the_run_took_also_if_it_failed() -> None:
    @tool(side_effects=["None"])
    def work(fails: bool) -> int:
        """Take ten milliseconds of processor time."""
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        if fails:
            raise ValueError
        return 1

    for fails in (False, True):
        result = call(keep_with(work), "work", {"fails": fails})
        assert result.ok is not fails
        assert result.resource_use is not None
        assert result.resource_use.cpu_ms is not None
        assert result.resource_use.cpu_ms >= 10
        assert result.resource_use.wall_ms >= 10
    assert call(keep_with(work), "work", {"fails": 1}).resource_use is None
