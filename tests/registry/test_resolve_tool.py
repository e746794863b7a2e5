"""The answer to a name under which no tool answers: unknown, disabled or quarantined."""

import logging
from typing import Any

import msgspec
import pytest

from tests.definitions.examples import made
from toolkeep import Code, Refusal
from toolkeep.calls import Violation
from toolkeep.definitions.vocabulary import ToolState
from toolkeep.errors import ArgumentsRefused
from toolkeep.events import Event, ToolUnanswered
from toolkeep.keep.keep import Keep
from toolkeep.registry.admit import admit
from toolkeep.registry.resolve_tool import unavailable_tool, unknown_tool
from toolkeep.registry.snapshot import with_state

pytestmark = pytest.mark.spec("VAL-8")


def without_aliases(*names: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names, ())


def test_the_refusal_names_the_nearest_tools_and_the_one_that_was_meant() -> None:
    refusal = unknown_tool(
        "reed_file", without_aliases("write_file", "read_file", "list_directory"), correlation_id="c-1"
    )
    assert refusal.code is Code.UNKNOWN_TOOL
    assert (refusal.tool, refusal.correlation_id) == ("reed_file", "c-1")
    assert refusal.errors == (
        Violation(
            "",
            Code.UNKNOWN_TOOL,
            "Unknown tool 'reed_file'",
            "one of 3 tools: read_file, write_file, list_directory",
            None,
            "Did you mean 'read_file'?",
        ),
    )


def test_nothing_is_suggested_when_nothing_is_near() -> None:
    refusal = unknown_tool("quux", without_aliases("read_file", "list_directory"))
    assert refusal.errors[0].suggestion == "Use one of the tools that are listed."


def test_a_keep_without_tools_says_so() -> None:
    refusal = unknown_tool("quux", {})
    assert refusal.errors[0].expected == "no tool is registered"


def test_at_most_twenty_names_are_listed_and_the_rest_is_counted() -> None:
    expected = (
        unknown_tool("tool_1", without_aliases(*(f"tool_{number}" for number in range(1000))))
        .errors[0]
        .expected
    )
    start, _, names = expected.partition(": ")
    listed, _, rest = names.partition(" and ")
    assert start == "one of 1000 tools"
    assert listed.split(", ")[0] == "tool_1"
    assert len(set(listed.split(", "))) == 20
    assert rest == "980 more"


def test_a_name_that_would_deceive_is_shown_harmless_and_short() -> None:
    refusal = unknown_tool("\u202e" + "x" * 1000, without_aliases("read_file"))
    assert refusal.tool.startswith("\\u202exxx")
    assert len(refusal.tool) <= 80
    assert "\u202e" not in refusal.text


@pytest.mark.spec("VAL-6")
def test_every_refusal_carries_a_correlation_id() -> None:
    first, second = unknown_tool("a", {}), unknown_tool("a", {})
    assert len(first.correlation_id) == 16
    assert first.correlation_id != second.correlation_id


def test_an_unknown_tool_is_a_warning_without_its_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="toolkeep")
    keep, told = Keep(), list[Event]()
    keep.subscribe(told.append)
    refusal = keep.try_validate_arguments("made_up", {}, correlation_id="c-1")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.tool, refusal.correlation_id) == (Code.UNKNOWN_TOOL, "made_up", "c-1")
    unanswered = ToolUnanswered(tool_name="unknown", error_code="ACODE-TSR-001", correlation_id="c-1")
    assert told == [unanswered]
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "tool does not answer")
    assert record.__dict__.items() >= msgspec.structs.asdict(unanswered).items()
    assert "made_up" not in str(record.__dict__)


def test_a_tool_that_does_not_answer_is_offered_to_nobody() -> None:
    keep = Keep()
    keep.register(made(), made(name="read_line"))
    keep.disable("read_file")
    refusal = keep.try_validate_arguments("reed_file", {})
    assert refusal.errors[0].expected == "the only tool: read_line"


CLOSED = [
    pytest.param(ToolState.DISABLED, Code.TOOL_DISABLED, "Tool 'read_file' is disabled", id="disabled"),
    pytest.param(
        ToolState.QUARANTINED,
        Code.TOOL_QUARANTINED,
        "Tool 'read_file' is quarantined until a person accepts it",
        id="quarantined",
    ),
]


@pytest.mark.spec("REG-1")
@pytest.mark.parametrize(("state", "code", "message"), CLOSED)
def test_a_tool_that_is_closed_says_so_and_not_why(state: ToolState, code: Code, message: str) -> None:
    closed = with_state(admit(made()), state, "secret-project/.agent/config.yml:3:5")
    refusal = unavailable_tool(closed, correlation_id="c-1")
    assert (refusal.tool, refusal.code, refusal.correlation_id) == ("read_file", code, "c-1")
    assert refusal.errors == (
        Violation("", code, message, "an enabled tool", None, "Do without it, or ask the operator."),
    )
    assert "config.yml" not in refusal.text + str(refusal.to_dict())


def test_every_refusal_of_a_closed_tool_carries_a_correlation_id() -> None:
    closed = with_state(admit(made()), ToolState.DISABLED, "why")
    first, second = unavailable_tool(closed), unavailable_tool(closed)
    assert len(first.correlation_id) == 16
    assert first.correlation_id != second.correlation_id


@pytest.mark.spec("REG-1")
@pytest.mark.parametrize("name", ["read_file", "READ_FILE", "cat", "read_file@1.0.0", "CAT@1.0.0"])
@pytest.mark.parametrize("arguments", [{}, "{", {"unknown": 1}])
def test_a_disabled_tool_is_refused_whatever_it_is_called_with(name: str, arguments: Any) -> None:
    keep, told = Keep(), list[Event]()
    keep.register(made(aliases=["cat"]))
    keep.disable("read_file")
    keep.subscribe(told.append)
    refusal = keep.try_validate_arguments(name, arguments, correlation_id="c-1")
    assert isinstance(refusal, Refusal)
    assert (refusal.code, refusal.tool) == (Code.TOOL_DISABLED, "read_file")
    assert told == [ToolUnanswered(tool_name="read_file", error_code="ACODE-TSR-012", correlation_id="c-1")]
    with pytest.raises(ArgumentsRefused):
        keep.validate_arguments(name, arguments)
    keep.enable("read_file")
    assert keep.try_validate_arguments(name, {}).success


@pytest.mark.spec("REG-1", "REG-2")
def test_of_a_tool_with_one_version_disabled_the_other_answers() -> None:
    keep = Keep()
    keep.register(made(), made(version="2.0.0"))
    keep.disable("read_file@2.0.0")
    asked = ["read_file", "Read_File", "read_file@1.0.0", "read_file@2.0.0", "read_file@3.0.0"]
    checks = [keep.try_validate_arguments(name, {}) for name in asked]
    assert [
        check.code.value if isinstance(check, Refusal) else check.registered.version for check in checks
    ] == ["1.0.0", "1.0.0", "1.0.0", "ACODE-TSR-012", "ACODE-TSR-001"]


@pytest.mark.spec("REG-1")
def test_a_misspelt_alias_leads_to_its_tool() -> None:
    refusal = unknown_tool("file_raed", {"read_file": ("file_read",), "list_directory": ()})
    assert refusal.errors[0].suggestion == "Did you mean 'read_file'?"
    keep = Keep()
    keep.register(made(aliases=["file_open"]))
    hidden = keep.try_validate_arguments("file_opne", {})
    assert isinstance(hidden, Refusal)
    assert hidden.errors[0].suggestion == "Did you mean 'read_file'?"
