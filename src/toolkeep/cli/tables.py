"""Tables on a terminal: headings, local times, and rows that fit the screen.

In come cells of untrusted text. Out goes one line for each row: a wrapped row would start a line of its own,
which could pass for another row. Where the output is no terminal, nothing is cut.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import click

from toolkeep.cli.options import is_terminal
from toolkeep.text.columns import count_columns, fit, sanitize_line

_GAP: Final = "  "
_UNCUT: Final = 1 << 30


class Column(NamedTuple):
    """A column of a table."""

    heading: str
    narrowest: int = 0
    """Its cells may be cut to this width; 0 if they are never cut."""
    is_optional: bool = False
    """It is left out where the screen has no room for it; of several, the last one first."""


COLORS: Final[Mapping[str, str]] = {
    "medium": "yellow",
    "high": "red",
    "critical": "bright_red",
    "quarantined": "yellow",
    "error": "red",
}
"""Colours of whole cells."""


def screen_width() -> int:
    """Columns of the terminal on stdout; practically unbounded if it is none."""
    if not is_terminal(sys.stdout):
        return _UNCUT
    import shutil

    return shutil.get_terminal_size().columns


class Table:
    """Prints rows one by one below each other; `samples` give the widths."""

    def __init__(self, columns: Sequence[Column], samples: Sequence[Sequence[str]]) -> None:
        self._columns = columns
        screen = screen_width()
        self._is_cut = screen < _UNCUT
        headings = [column.heading for column in columns]
        cells = [headings, *([sanitize_line(cell) for cell in row] for row in samples)]
        self._widths = [max(map(count_columns, column)) for column in zip(*cells, strict=True)]
        self._shown = _chosen(columns, self._widths, screen)
        _shrink(columns, self._widths, self._shown, screen)

    def say_headings(self) -> None:
        """Print the headings."""
        self.say_row([column.heading for column in self._columns])

    def say_row(self, row: Sequence[str]) -> None:
        """Print a row."""
        cells = (self._cell(sanitize_line(row[at]), self._widths[at]) for at in self._shown)
        click.echo(_GAP.join(cells).rstrip())

    def _cell(self, text: str, width: int) -> str:
        cut = fit(text, width) if self._is_cut else text
        columns = count_columns(cut) - (cut != text)  # the ellipsis takes one column on most terminals
        color = COLORS.get(text.partition(" ")[0])
        return (click.style(cut, fg=color) if color else cut) + " " * (width - columns)


def say_table(columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with headings."""
    table = Table(columns, rows)
    table.say_headings()
    for row in rows:
        table.say_row(row)


def _narrowest(column: Column, width: int) -> int:
    return min(width, max(column.narrowest, len(column.heading))) if column.narrowest else width


def _chosen(columns: Sequence[Column], widths: Sequence[int], screen: int) -> list[int]:
    """The columns that there is room for."""
    shown = list(range(len(columns)))
    for at in reversed(range(len(columns))):
        needed = sum(_narrowest(columns[one], widths[one]) + len(_GAP) for one in shown) - len(_GAP)
        if needed <= screen:
            break
        if columns[at].is_optional:
            shown.remove(at)
    return shown


def _shrink(columns: Sequence[Column], widths: list[int], shown: Sequence[int], screen: int) -> None:
    """Take from the widest column that may be cut, until the row fits; on a very narrow screen below its
    narrowest width, because a wrapped row could pass for two."""
    excess = sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) - screen
    while excess > 0:
        spare = [at for at in shown if widths[at] > _narrowest(columns[at], widths[at])]
        spare = spare or [at for at in shown if columns[at].narrowest and widths[at] > 1]
        if not spare:
            return
        widths[max(spare, key=lambda at: widths[at])] -= 1
        excess -= 1


def short_time(seconds: float, now: float | None = None) -> str:
    """A local time for a table: the time of today, the day and minute of this year, else the date."""
    moment = datetime.fromtimestamp(seconds).astimezone()
    today = datetime.fromtimestamp(time.time() if now is None else now).astimezone()
    if moment.date() == today.date():
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%m-%d %H:%M" if moment.year == today.year else "%Y-%m-%d")
