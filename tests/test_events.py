"""Everything that can happen is documented, logged, and told to whoever listens."""

import inspect
import logging
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from tests.definitions.examples import made
from toolkeep import Refusal, events
from toolkeep.events import Bus, Event, StartUpBegan, ToolUnregistered, ValidationFailed, ValidationPassed
from toolkeep.keep.keep import Keep
from toolkeep.registry.resolve_tool import unknown_tool
from toolkeep.telemetry.logs import LogListener

EVENTS = [
    event
    for _, event in inspect.getmembers(events, inspect.isclass)
    if issubclass(event, Event) and event is not Event
]
LOGGERS = {
    "toolkeep.registry",
    "toolkeep.validation",
    "toolkeep.execution",
    "toolkeep.approval",
    "toolkeep.policy",
    "toolkeep.store",
    "toolkeep.audit",
    "toolkeep.server",
}
ONE, TWO = StartUpBegan(providers=("core",)), ToolUnregistered(tool_name="read_file", version="")


def example(event: type[Event]) -> Event:
    """One event of a class, with something in each field."""
    refusal = unknown_tool("made_up", {}, correlation_id="c-1")
    by_type: dict[Any, Any] = {
        str: "word",
        int: 3,
        bool: True,
        float: 0.5,
        tuple[str, ...]: ("a", "b"),
        datetime: datetime(2026, 1, 1, tzinfo=UTC),
    }
    special = {"refusal": refusal, "arguments": lambda: "{}"}
    fields = inspect.get_annotations(event)
    return event(
        **{name: special[name] if name in special else by_type[kind] for name, kind in fields.items()}
    )


# --- every event ---------------------------------------------------------------------------------


def test_the_names_of_the_seed_are_among_the_events() -> None:
    assert {event.__name__ for event in EVENTS} >= {
        "ToolDefinitionCreatedEvent",
        "ToolDefinitionUpdatedEvent",
        "ToolDefinitionDeletedEvent",
        "ToolDefinitionValidatedEvent",
        "ToolDefinitionRejected",
        "ConstraintViolated",
    }


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_says_what_happened_in_its_own_docstring(event: type[Event]) -> None:
    own = event.__dict__.get("__doc__")
    assert own
    assert own.strip().split("\n")[0].endswith((".", ":"))
    assert own != Event.__doc__


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_never_changes(event: type[Event]) -> None:
    told = example(event)
    for name in event.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(told, name, "other")


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_has_a_line_in_the_log_with_its_fields(
    event: type[Event], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="toolkeep")
    bus = Bus()
    bus.subscribe(LogListener(), timed=True)
    bus.tell(example(event))
    assert caplog.records
    assert {record.name for record in caplog.records} <= LOGGERS
    record = caplog.records[0]
    assert record.getMessage()
    assert "%(" not in record.getMessage()
    if "tool_name" in event.__struct_fields__:
        assert record.__dict__["tool_name"] == "word"


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_that_nobody_reads_is_not_written(
    event: type[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in LOGGERS:
        monkeypatch.setattr(logging.getLogger(name), "propagate", False)
    written: list[int] = []
    monkeypatch.setattr(logging.Logger, "handle", lambda _, record: written.append(record.levelno))
    LogListener()(example(event))
    assert set(written) <= {logging.ERROR}  # which reaches stderr where the host set up no logging


@pytest.mark.parametrize("level", [logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR])
def test_refused_calls_are_logged_at_the_level_that_was_chosen(
    level: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="toolkeep")
    LogListener(validation_failure_level=level)(example(ValidationFailed))
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (level, "validation failed"),
        (logging.DEBUG, "validation failed in detail"),
    ]


def test_an_unknown_event_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Homemade(Event, frozen=True, kw_only=True):
        """A host's own."""

    caplog.set_level(logging.DEBUG)
    LogListener()(Homemade())
    assert caplog.records == []


# --- the bus -------------------------------------------------------------------------------------


def test_listeners_hear_every_event_in_order() -> None:
    bus, first, second = Bus(), list[Event](), list[Event]()
    bus.subscribe(first.append)
    bus.subscribe(second.append)
    bus.tell(ONE)
    bus.tell(TWO)
    assert (first, second) == ([ONE, TWO], [ONE, TWO])


def test_a_listener_that_stops_hears_no_more_and_the_others_do() -> None:
    bus, first, second = Bus(), list[Event](), list[Event]()
    stop = bus.subscribe(first.append)
    bus.subscribe(second.append)
    bus.tell(ONE)
    stop()
    stop()
    bus.tell(TWO)
    assert (first, second) == ([ONE], [ONE, TWO])


def test_a_listener_that_subscribed_twice_stops_once() -> None:
    bus, heard = Bus(), list[Event]()
    listener = heard.append
    stop = bus.subscribe(listener)
    bus.subscribe(listener)
    stop()
    bus.tell(ONE)
    assert heard == [ONE]


def test_a_listener_may_stop_while_it_listens() -> None:
    bus, heard = Bus(), list[Event]()

    def once(event: Event) -> None:
        heard.append(event)
        stop()

    stop = bus.subscribe(once)
    bus.subscribe(heard.append)
    bus.tell(ONE)
    bus.tell(TWO)
    assert heard == [ONE, ONE, TWO]


def test_a_listener_that_fails_is_logged_without_its_words_and_the_others_hear(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR, logger="toolkeep.events")

    def fail(event: Event) -> None:
        raise RuntimeError("sk-live-4242")

    bus, heard = Bus(), list[Event]()
    bus.subscribe(fail)
    bus.subscribe(heard.append)
    bus.tell(ONE)
    assert heard == [ONE]
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("ERROR", "a listener failed")
    assert (record.__dict__["event"], record.__dict__["error_type"]) == ("StartUpBegan", "RuntimeError")
    assert "sk-live-4242" not in str(record.__dict__)


def test_a_listener_can_still_be_interrupted() -> None:
    def interrupt(event: Event) -> None:
        raise KeyboardInterrupt

    bus = Bus()
    bus.subscribe(interrupt)
    with pytest.raises(KeyboardInterrupt):
        bus.tell(ONE)


# --- calls that pass -----------------------------------------------------------------------------


def passing() -> Keep:
    keep = Keep()
    keep.register(made())
    return keep


def test_of_calls_that_pass_only_a_timed_listener_hears() -> None:
    keep, heard, timed = passing(), list[Event](), list[Event]()
    keep.subscribe(heard.append)
    keep.validate_arguments("read_file", {})
    keep.subscribe(timed.append, timed=True)
    keep.validate_arguments("read_file", {}, agent="ada")
    (passed,) = timed
    assert isinstance(passed, ValidationPassed)
    assert passed == ValidationPassed(tool_name="read_file", agent="ada", validation_ms=passed.validation_ms)
    assert heard == []


def test_after_the_last_timed_listener_stops_no_call_is_timed() -> None:
    bus = Bus()
    stop = bus.subscribe(lambda event: None, timed=True)
    assert bus.timed
    stop()
    assert not bus.timed


def test_a_refused_call_is_told_with_its_refusal_and_redacted_arguments() -> None:
    keep, heard = passing(), list[Event]()
    keep.subscribe(heard.append)
    refusal = keep.try_validate_arguments("read_file", {"unknown": 1}, agent="ada")
    (failed,) = heard
    assert isinstance(failed, ValidationFailed)
    assert (failed.tool_name, failed.agent) == ("read_file", "ada")
    assert isinstance(refusal, Refusal)
    assert failed.refusal.correlation_id == refusal.correlation_id
    assert "unknown" in failed.arguments()


def test_events_are_data_that_can_be_compared_and_written() -> None:
    assert msgspec.structs.asdict(TWO) == {"tool_name": "read_file", "version": ""}
    assert ToolUnregistered(tool_name="read_file", version="") == TWO
