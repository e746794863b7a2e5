"""Formats a refusal as text for a model: short, ordered, with a next step."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolkeep.errors import FAILURES
from toolkeep.limits import MODEL_TEXT_CHARS
from toolkeep.text.display import counted, echo_name, shorten

if TYPE_CHECKING:
    from toolkeep.calls import Violation

_HINT_CHARS = 360
"""Characters of the signature, and of the JSON Patch: together three fifths of `MODEL_TEXT_CHARS`."""
_LINE_CHARS = 220
"""Characters of one of several violations: at least one fits beside the longest signature and patch."""
_TOLD_CHARS = 20
"""An expectation shorter than this says nothing."""
_written = json.JSONEncoder(separators=(",", ":")).encode
"""`json.dumps` creates an encoder each time, which takes longer than the rest of a short refusal."""


def refusal_text(
    tool: str,
    errors: "Sequence[Violation]",
    hint: str,
    repair: Sequence[dict[str, Any]] | None,
    *,
    is_repeated: bool = False,
) -> str:
    """One line per violation, then repair and signature; at most `MODEL_TEXT_CHARS` characters."""
    count = counted(len(errors), "problem")
    ended = "failed" if errors[0].code in FAILURES else f"refused: {count}"
    head = [f"Call to '{echo_name(tool)}' {ended}."]
    if is_repeated:
        head.append("This exact call was refused before. Do not repeat it; change the arguments.")
    tail = [shorten(hint, _HINT_CHARS)] if hint else []
    # A patch that does not fit is left out whole: a truncated one would be wrong.
    if repair and len(patch := _written(list(repair))) <= _HINT_CHARS:
        tail.insert(0, f"This JSON Patch would make it valid: {patch}")
    room = MODEL_TEXT_CHARS - sum(len(line) + 1 for line in (*head, *tail)) - 20
    lines: list[str] = []
    for position, error in enumerate(errors):
        most = _LINE_CHARS if len(errors) > 1 else MODEL_TEXT_CHARS
        line = _line(error, min(most, max(60, room)))
        if len(line) + 1 > room:
            lines.append(f"- … and {len(errors) - position} more.")
            break
        lines.append(line)
        room -= len(line) + 1
    return "\n".join((*head, *lines, *tail))


def _line(error: "Violation", most: int) -> str:
    """What is wrong and what to do. In a short line the expectation between them is cut, never the advice."""
    words = error.words
    message, expected, actual, suggestion = words.message, words.expected, words.actual, words.suggestion
    got = f", got {actual}" if actual is not None and "got " not in message else ""
    place = f"{error.path}: " if error.path else ""
    told = f" Expected {expected}{got}." if expected and expected not in message else ""
    advice = "" if expected and expected in suggestion else f" {suggestion}"
    problem = f"- {place}{message}."
    room = most - len(problem) - len(advice)
    if len(told) > room:
        told = shorten(told, room) if room > _TOLD_CHARS else ""
    return shorten(shorten(problem, max(most - len(advice), most // 2)) + told + advice, most)
