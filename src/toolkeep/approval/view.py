"""A question as lines for the person who is asked (POL-4): the exact call, and nothing that could deceive.

Comes in: a question, of which tool, agent, arguments and policies are the words of others. Goes out: lines no
wider than the screen. Every row of foreign words stands behind a margin, also where a long one goes on, so
none can pass for a line of ours. It does not protect from letters that look alike, beyond names.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, Literal, NamedTuple

from toolkeep.approval.coverage import ANY, Constraint
from toolkeep.approval.outline import outline
from toolkeep.approval.question import Answer, Question, covered
from toolkeep.limits import VIEW_CHARS
from toolkeep.wording import visible

Look = Literal["heading", "label", "foreign", "added", "removed", "note"]

MARGIN: Final = "  | "
GOES_ON: Final = "  : "
"""The margin of a row that goes on with the line above."""

_LABEL: Final = 13
_NARROWEST: Final = 24
_MARKS: Final = 3
"""Accents on one letter: Hebrew and Vietnamese need so many."""

_DIFFERENCE_HEAD: Final = 2
"""Lines that name the file, before those that change."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.@:/+-]+")


class Line(NamedTuple):
    """One row on the screen, and what it is."""

    text: str
    look: Look


def render_question(question: Question, *, now: float, width: int = 80) -> list[Line]:
    """The whole question; what matters most comes last, beside the prompt."""
    width = max(width, _NARROWEST)
    return [
        Line(f"Call {_hex(question.id)} waits for a person", "heading"),
        *_arguments(question, width),
        *_part("Difference", question.difference, question, width),
        *_part("It would touch", "\n".join(map(visible, question.touches)), question, width),
        *_part("Permitted by", "\n".join(map(name, question.policies)), question, width),
        *_label("Agent", name(question.agent), width),
        *(_label("Session", name(question.session), width) if question.session else ()),
        *(_label("Conversation", name(question.conversation), width) if question.conversation else ()),
        *_label("Tool", name(question.tool), width),
        *_label("Version", name(question.version), width),
        *_label("Danger", name(question.danger) + _often(question), width),
        *(line for why in question.why for line in _label("Why", steady(why), width)),
        *_label("Expires", f"{moment(question.expires_at)}, {until(question.expires_at, now)}", width),
    ]


def rows(text: str, width: int) -> Iterator[Line]:
    """Foreign text of several lines, each behind a margin and none wider than the screen."""
    for line in text.split("\n"):
        yield from _wrapped(MARGIN, steady(line), max(width, _NARROWEST), "foreign")


def steady(text: str) -> str:
    """One line in which every character is seen, stays on its line and covers no other."""
    shown = visible(text)
    if shown.isascii():
        return shown
    marks = _MARKS  # nothing stands before the first that a mark could sit on
    parts = []
    for char in shown:
        is_mark = unicodedata.category(char)[0] == "M"
        marks = marks + 1 if is_mark else (0 if char.isalpha() else _MARKS)
        parts.append(json.dumps(char)[1:-1] if is_mark and marks > _MARKS else char)
    return "".join(parts)


def name(text: str) -> str:
    """A name: as it is if it is plain; else in quotes, and how it is written if letters may look alike."""
    if _PLAIN_NAME.fullmatch(text):
        return text
    quoted = steady(json.dumps(text, ensure_ascii=False))
    return quoted if text.isascii() else f"{quoted}, written {json.dumps(text)}"


def fit(text: str, width: int) -> str:
    """One line of foreign text that is no wider than this, an ellipsis where something is missing."""
    shown = steady(text)
    if _cells(shown) <= width:
        return shown
    kept, used = [], 0
    for char in shown:
        used += _cells(char)
        if used > width - 2:
            break
        kept.append(char)
    return "".join(kept) + "…"


def moment(seconds: float) -> str:
    """A time that everybody reads the same."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def until(seconds: float, now: float) -> str:
    """How far away a time is."""
    return f"in {duration(seconds - now)}" if seconds > now else "which is over"


def duration(seconds: float) -> str:
    """A length of time in its two largest units."""
    left = max(0, round(seconds))
    days, hours, minutes = left // 86_400, left // 3_600 % 24, left // 60 % 60
    counts = ((days, "d"), (hours, "h"), (minutes, "min"), (left % 60, "s"))
    first = next((at for at, (count, _) in enumerate(counts) if count), len(counts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in counts[first : first + 2] if count) or "0 s"


def rule_text(question: Question, constraints: Sequence[Constraint]) -> str:
    """What passes unasked under a remembered yes: one line for each argument, free ones last."""
    head = f"{name(question.agent)} calls {name(question.tool)} {question.version}"
    if not constraints:
        return f"{head}, which takes no arguments"
    ordered = sorted(constraints, key=lambda one: one.kind == ANY)
    return "\n".join([f"{head} with", *(f"  {name(one.name)} {_demand(one)}" for one in ordered)])


def preview_answer(question: Question, answer: Answer) -> str:
    """`rule_text` of a yes before it is given; raises `AnswerRefused` for one that would not count."""
    return rule_text(question, covered(question, answer))


def _demand(one: Constraint) -> str:
    match one.kind:
        case "equal":
            return f"equal to {steady(one.shown)}" if one.bound else "left out"
        case "any":
            return "anything"
        case "folder":
            return f"in the folder {steady(one.bound)}"
        case "host":
            return f"at the host {steady(one.bound)}"
        case "domain":
            return f"at the mail domain {steady(one.bound)}"
        case "max":
            return f"from 0 to {steady(one.bound)}"


def _arguments(question: Question, width: int) -> Iterator[Line]:
    shown = outline(question.argument_data, VIEW_CHARS)
    yield from _part("Arguments", shown.text, question, width, room=len(shown.text))
    if shown.is_cut:
        yield Line("  Long values are cut here; see all of them:", "note")
        yield Line(f"  toolkeep approve show {_hex(question.id)} --json", "note")


def _part(title: str, text: str, question: Question, width: int, room: int = VIEW_CHARS) -> Iterator[Line]:
    """A part of the question under its title; says how much of it is left out."""
    if not text:
        return
    yield Line(f"{title}:", "label")
    for number, line in enumerate(text[:room].split("\n")):
        is_change = title == "Difference" and number >= _DIFFERENCE_HEAD
        yield from _wrapped(MARGIN, steady(line), width, _look(line) if is_change else "foreign")
    if (cut := len(text) - room) > 0:
        yield Line(f"  {cut} characters are left out here; see all of them:", "note")
        yield Line(f"  toolkeep approve show {_hex(question.id)} --json", "note")
    if any(unicodedata.bidirectional(char) in ("R", "AL") for char in text[:room]):
        yield Line("  Some of this reads right to left:", "note")
        yield Line("  it may be shown in another order.", "note")


def _label(label: str, text: str, width: int) -> Iterator[Line]:
    yield from _wrapped(f"{label + ':':<{_LABEL}} ", text, width, "label")


def _wrapped(first: str, text: str, width: int, look: Look) -> Iterator[Line]:
    """Rows that the terminal need not break: it would go on at the left edge, where our lines begin."""
    for number, row in enumerate(_broken(text, width - len(first))):
        if number == 0:
            yield Line(first + row, look)
        else:
            yield Line(GOES_ON.ljust(len(first)) + row, look if look != "label" else "foreign")


def _broken(text: str, width: int) -> Iterable[str]:
    if text.isascii():
        return [text[at : at + width] for at in range(0, len(text), width)] or [""]
    found, row, used = [], "", 0
    for char in text:
        cells = _cells(char)
        if used + cells > width:
            found.append(row)
            row, used = "", 0
        row, used = row + char, used + cells
    return [*found, row]


def _cells(text: str) -> int:
    """The columns that text takes at most: terminals disagree about what is wide."""
    return len(text) if text.isascii() else sum(1 if char.isascii() else 2 for char in text)


def _look(line: str) -> Look:
    if line.startswith("+"):
        return "added"
    return "removed" if line.startswith("-") else "foreign"


def _often(question: Question) -> str:
    if question.acts > 1:
        return ", asked every time, and twice"
    return "" if question.may_be_remembered else ", asked every time"


def _hex(text: str) -> str:
    """Our own id; anything else in its place is shown as the name that it is."""
    return name(text)[:64]
