"""Renders an approval request for a terminal, safe against deception (POL-4).

In comes a question whose tool, agent, arguments and policies are untrusted text. Out go lines no wider than
the screen. Every row of untrusted text has a margin, also when a long line wraps, so none can pass for a line
of ours. Control, bidi and zero-width characters are escaped. Homoglyphs are revealed in names only.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, Literal, NamedTuple

from toolkeep.approval.argument_summary import outline
from toolkeep.approval.coverage import ANY, Constraint
from toolkeep.approval.question import Answer, FlowLine, Question, covered
from toolkeep.calls import DEFAULT_POLICY
from toolkeep.limits import VIEW_CHARS
from toolkeep.text.columns import count_columns, sanitize_line
from toolkeep.text.display import visible

Look = Literal["heading", "label", "foreign", "added", "removed", "note"]

MARGIN: Final = "  | "
GOES_ON: Final = "  : "
"""The margin of a wrapped row."""

_LABEL: Final = 13
_NARROWEST: Final = 24
_DIFFERENCE_HEAD: Final = 2
"""Lines of a diff header."""

_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.@:/+-]+")


class Line(NamedTuple):
    """One row on the screen, and its style."""

    text: str
    look: Look


def render_question(question: Question, *, now: float, width: int = 80) -> list[Line]:
    """The whole question. What matters most comes last, next to the prompt: the start may scroll away."""
    width = max(width, _NARROWEST)
    return [
        Line(f"Call {_hex(question.id)} needs approval", "heading"),
        *_content(question, width),
        *_caller(question, width),
        *_about_tool(question, width),
        *_label("Expires", f"{moment(question.expires_at)}, {until(question.expires_at, now)}", width),
    ]


def render_questions(questions: Sequence[Question], *, now: float, width: int = 80) -> list[Line]:
    """The calls of one response, numbered, each as `render_question` shows it."""
    if len(questions) == 1:
        return render_question(questions[0], now=now, width=width)
    width = max(width, _NARROWEST)
    ends = min(question.expires_at for question in questions)
    lines = [Line(f"{len(questions)} calls of one response need approval", "heading")]
    for number, question in enumerate(questions, 1):
        lines.append(Line(f"{number}. Call {_hex(question.id)}", "heading"))
        lines += [*_content(question, width), *_about_tool(question, width)]
    lines += [*_caller(questions[0], width)]
    return [*lines, *_label("Expire", f"{moment(ends)}, {until(ends, now)}", width)]


def _content(question: Question, width: int) -> Iterator[Line]:
    yield from _arguments(question, width)
    yield from _part("Difference", question.difference, question, width)
    yield from _part("It would access", "\n".join(map(visible, question.touches)), question, width)
    yield from _part("Where it comes from", "\n".join(map(flow_line, question.flow)), question, width)
    yield from _part("Permitted by", _permitted_by(question), question, width)


def _caller(question: Question, width: int) -> Iterator[Line]:
    yield from _label("Agent", name(question.agent), width)
    if question.session:
        yield from _label("Session", name(question.session), width)
    if question.conversation:
        yield from _label("Conversation", name(question.conversation), width)


def _about_tool(question: Question, width: int) -> Iterator[Line]:
    yield from _label("Tool", name(question.tool), width)
    yield from _label("Version", name(question.version), width)
    yield from _label("Danger", name(question.danger) + _often(question), width)
    for why in question.why:
        yield from _label("Why", sanitize_line(why), width)


_ORIGINS: Final = {
    "user": "named by the user",
    "system": "made by a service",
    "outside": "from outside; the user did not name it",
    "unknown": "of unknown origin; the user did not name it",
}


def flow_line(line: FlowLine) -> str:
    """Where one value comes from, in words."""
    text = f"{visible(line.argument)} {visible(line.value)}: {_ORIGINS.get(line.origin, line.origin)}"
    if line.source:
        text += f"; {visible(line.source)} says: {visible(line.excerpt)}"
    return text


def _permitted_by(question: Question) -> str:
    if question.policies == (DEFAULT_POLICY,):
        return "the default, because you have no policies"
    return "\n".join(map(name, question.policies))


def rows(text: str, width: int) -> Iterator[Line]:
    """Untrusted multi-line text: each row has a margin and none is wider than the screen."""
    for line in text.split("\n"):
        yield from _wrapped(MARGIN, sanitize_line(line), max(width, _NARROWEST), "foreign")


def name(text: str) -> str:
    """A name as is if it is plain ASCII; else quoted, with its code points if it may contain homoglyphs."""
    # Unquoted only for ASCII without spaces: a name such as `safe, approved` could imitate our own words.
    if _PLAIN_NAME.fullmatch(text):
        return text
    quoted = sanitize_line(json.dumps(text, ensure_ascii=False))
    return quoted if text.isascii() else f"{quoted}, written {json.dumps(text)}"


def moment(seconds: float) -> str:
    """A timestamp in local time, with its zone."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %Z")


def until(seconds: float, now: float) -> str:
    """The time left until a timestamp."""
    return f"in {duration(seconds - now)}" if seconds > now else "which has passed"


def duration(seconds: float) -> str:
    """A duration in its two largest units."""
    left = max(0, round(seconds))
    days, hours, minutes = left // 86_400, left // 3_600 % 24, left // 60 % 60
    counts = ((days, "d"), (hours, "h"), (minutes, "min"), (left % 60, "s"))
    first = next((at for at, (count, _) in enumerate(counts) if count), len(counts) - 1)
    return " ".join(f"{count} {unit}" for count, unit in counts[first : first + 2] if count) or "0 s"


def rule_text(question: Question, constraints: Sequence[Constraint]) -> str:
    """What a remembered approval covers: one line for each argument, free ones last."""
    data = " for the same per-call data" if question.data_hash else ""
    head = f"{name(question.agent)} calls {name(question.tool)} {question.version}{data}"
    if not constraints:
        return f"{head}, which takes no arguments"
    ordered = sorted(constraints, key=lambda one: one.kind == ANY)
    return "\n".join([f"{head} with", *(f"  {name(one.name)} {_demand(one)}" for one in ordered)])


def preview_answer(question: Question, answer: Answer) -> str:
    """Preview of the rule that an answer would create; raises `AnswerRefused` for an invalid answer."""
    return rule_text(question, covered(question, answer))


def _demand(one: Constraint) -> str:
    match one.kind:
        case "equal":
            return f"equal to {sanitize_line(one.shown)}" if one.bound else "left out"
        case "any":
            return "anything"
        case "folder":
            return f"in the folder {sanitize_line(one.bound)}"
        case "host":
            return f"at the host {sanitize_line(one.bound)}"
        case "domain":
            return f"at the mail domain {sanitize_line(one.bound)}"
        case "max":
            return f"from 0 to {sanitize_line(one.bound)}"


def _arguments(question: Question, width: int) -> Iterator[Line]:
    shown = outline(question.argument_data, VIEW_CHARS)
    yield from _part("Arguments", shown.text, question, width, room=len(shown.text))
    if shown.is_cut:
        yield Line("  Long values are cut here; see all of them:", "note")
        yield Line(f"  toolkeep approvals show {_hex(question.id)} --json", "note")


def _part(title: str, text: str, question: Question, width: int, room: int = VIEW_CHARS) -> Iterator[Line]:
    """A titled section of the question; says how much of it is omitted."""
    if not text:
        return
    yield Line(f"{title}:", "label")
    for number, line in enumerate(text[:room].split("\n")):
        is_change = title == "Difference" and number >= _DIFFERENCE_HEAD
        yield from _wrapped(MARGIN, sanitize_line(line), width, _look(line) if is_change else "foreign")
    if (cut := len(text) - room) > 0:
        yield Line(f"  {cut} characters are left out here; see all of them:", "note")
        yield Line(f"  toolkeep approvals show {_hex(question.id)} --json", "note")
    # Plain right-to-left letters are legitimate and not escaped, but they can reorder the row: say so.
    if any(unicodedata.bidirectional(char) in ("R", "AL") for char in text[:room]):
        yield Line("  Some of this reads right to left:", "note")
        yield Line("  it may be shown in another order.", "note")


def _label(label: str, text: str, width: int) -> Iterator[Line]:
    yield from _wrapped(f"{label + ':':<{_LABEL}} ", text, width, "label")


def _wrapped(first: str, text: str, width: int, look: Look) -> Iterator[Line]:
    """Wrap rows ourselves.

    A terminal would continue at the left edge, where untrusted text could forge our lines.
    """
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
        cells = count_columns(char)
        if used + cells > width:
            found.append(row)
            row, used = "", 0
        row, used = row + char, used + cells
    return [*found, row]


def _look(line: str) -> Look:
    if line.startswith("+"):
        return "added"
    return "removed" if line.startswith("-") else "foreign"


def _often(question: Question) -> str:
    if question.acts > 1:
        return ", needs approval every time, confirmed twice"
    return "" if question.may_be_remembered else ", needs approval every time"


def _hex(text: str) -> str:
    """Our own hex id; anything else is shown as an untrusted name."""
    return name(text)[:64]
