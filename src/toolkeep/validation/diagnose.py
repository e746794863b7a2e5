"""Why a text is not strict JSON, in words for a model. Runs only after the parser has refused.

The parser's own message is English and may quote the text; this reads the text once more with the
standard library, whose errors are structured, and says what is wrong and where, never what stands there.
"""

import json
import re

from toolkeep.errors import Code
from toolkeep.validation.reasons import NotStrictJson, too_many_digits

_PARSER_DEPTH = 200
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class _Found(Exception):
    def __init__(self, reason: str, mend: str) -> None:
        self.reason, self.mend = reason, mend


def why_not_json(raw: bytes) -> NotStrictJson:
    """The reason, to be raised."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return NotStrictJson(f"byte {error.start} is not UTF-8", "send JSON encoded in UTF-8")
    if not text.strip():
        return NotStrictJson("arguments are empty", "send a JSON object, {} for no arguments")
    try:
        json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except _Found as found:
        return NotStrictJson(found.reason, found.mend)
    except json.JSONDecodeError as error:
        position = fault_position(text, error)
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        return NotStrictJson(f"malformed JSON at line {line} column {column}", _mend(text, position))
    except RecursionError:
        return _too_deep()
    except ValueError:
        return too_many_digits()
    if _LONE_SURROGATE.search(text):
        return NotStrictJson("a \\u escape is half of a surrogate pair", "escape both halves, or send UTF-8")
    if _depth(text) > _PARSER_DEPTH:
        return _too_deep()
    return NotStrictJson("the arguments could not be checked", "send simpler values", code=Code.CHECK_FAILED)


def fault_position(text: str, error: json.JSONDecodeError) -> int:
    """Where to mend a text: at a trailing comma, which Python names since 3.13, and passes before."""
    before = text[: error.pos].rstrip()
    is_past_comma = text[error.pos : error.pos + 1] in ("}", "]") and before.endswith(",")
    return len(before) - 1 if is_past_comma else error.pos


def is_trailing_comma(text: str, position: int) -> bool:
    """Whether a comma stands there between a value and a closing bracket."""
    before, after = text[:position].rstrip(), text[position + 1 :].lstrip()
    return text[position] == "," and after[:1] in ("}", "]") and before[-1:] not in (":", ",", "[", "{")


def _depth(text: str) -> int:
    """How deep brackets are nested, those in strings left out."""
    deepest = depth = 0
    for char in _STRING.sub("", text):
        if char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _too_deep() -> NotStrictJson:
    return NotStrictJson("arguments are nested too deep", "send flatter data", code=Code.ARGUMENTS_TOO_BIG)


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Found("an object has the same key twice", "send each property once")
    return dict(pairs)


def _no_constants(constant: str) -> object:
    raise _Found(f"{constant} is not JSON", "send a finite number or null")


def _mend(text: str, position: int) -> str:
    """A hint from what stands at the fault, without repeating it."""
    here = text[position : position + 1]
    before = text[:position].rstrip()
    if position >= len(text.rstrip()):
        return "the text ends too early: close every bracket and string"
    if text.lstrip()[:3] == "```":
        return "send JSON only, without a code fence"
    if here == "'":
        return "use double quotes"
    if is_trailing_comma(text, position):
        return "remove the trailing comma"
    if here == "/" or text[position : position + 1] == "#":
        return "JSON has no comments"
    if ord(here) < ord(" "):
        return "escape control characters inside strings, for example \\n"
    if before.endswith(("}", "]")) and text.lstrip()[0] in "{[":
        return "send exactly one JSON object and nothing after it"
    return "check quotes, commas and brackets there"
