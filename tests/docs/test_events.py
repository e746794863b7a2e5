"""The page about events names every event, its fields and its log line."""

import logging

import pytest

from tests.docs.markdown import ROOT, headings_of
from toolkeep.events import Event
from toolkeep.telemetry.logs import _LINES

PAGE = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
EVENTS = [event for event in Event.__subclasses__() if event.__module__ == Event.__module__]


def section(event: type[Event]) -> str:
    """What stands under the heading of an event, in one line."""
    text = PAGE.split(f"\n### {event.__name__}\n")[1].split("\n#")[0]
    return " ".join(text.split())


def part(event: type[Event], label: str) -> str:
    """One of the points under the heading."""
    return section(event).split(f"- {label}: ")[1].split(" - ")[0]


@pytest.mark.spec("DOC-1")
def test_every_event_is_on_the_page_and_nothing_else() -> None:
    headings = [heading.removeprefix("### ") for heading in headings_of(PAGE) if heading.startswith("### ")]
    assert sorted(headings) == sorted(event.__name__ for event in EVENTS)


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_every_field_of_an_event_is_on_the_page(event: type[Event]) -> None:
    fields = part(event, "Fields")
    assert [name for name in event.__struct_fields__ if f"`{name}`" not in fields] == []


@pytest.mark.spec("DOC-1")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.__name__)
def test_the_log_line_of_an_event_is_on_the_page(event: type[Event]) -> None:
    line = _LINES[event]
    log = part(event, "Log")
    assert log.startswith(f"`{line.logger.name}`, {logging.getLevelName(line.level).lower()}")
    assert f": `{line.message}`" in log
