"""Tables at the terminal: headings, what is cut and left out on a narrow screen, local times."""

import os
import time
from collections.abc import Iterator

import pytest

from toolkeep.cli import tables
from toolkeep.cli.tables import Column, say_table, short_time

COLUMNS = (
    Column("NAME", narrowest=6),
    Column("DANGER"),
    Column("TEXT", narrowest=8, is_optional=True),
    Column("MORE", is_optional=True),
)
ROW = ("a_tool_with_a_name", "critical", "what it does for you", "more")


@pytest.mark.parametrize(
    ("width", "heading", "row"),
    [
        (1 << 30, "NAME                DANGER    TEXT                  MORE", "  ".join(ROW)),
        (
            48,
            "NAME             DANGER    TEXT             MORE",
            "a_tool_with_a…   critical  what it does …   more",
        ),
        (30, "NAME       DANGER    TEXT", "a_tool_…   critical  what it…"),
        (20, "NAME        DANGER", "a_tool_w…   critical"),
        (13, "N…   DANGER", "a…   critical"),
    ],
)
def test_a_row_fits_the_screen_and_keeps_what_may_not_be_cut(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int, heading: str, row: str
) -> None:
    monkeypatch.setattr(tables, "screen_width", lambda: width)
    say_table(COLUMNS, [ROW])
    assert capsys.readouterr().out == f"{heading}\n{row}\n"


def test_no_cell_starts_a_line_or_hides_another(capsys: pytest.CaptureFixture[str]) -> None:
    say_table((Column("A"), Column("B")), [("x\ny", "\x1b[2J\u202e")])
    assert capsys.readouterr().out == "A     B\nx\\ny  \\u001b[2J\\u202e\n"


@pytest.fixture
def _far_east(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = os.environ.get("TZ", "UTC")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.setenv("TZ", before)
    time.tzset()


@pytest.mark.usefixtures("_far_east")
@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (1_794_866_400.0, "07:00:00"),  # of the same local day, another one in UTC
        (1_794_780_000.0, "11-16 07:00"),
        (1_700_000_000.0, "2023-11-15"),
    ],
)
def test_times_are_local_and_as_short_as_they_can_be(seconds: float, shown: str) -> None:
    assert short_time(seconds, now=1_794_880_800.0) == shown
