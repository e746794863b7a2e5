"""Strict JSON: bytes or Python data in, a fresh JSON value out, or `NotStrictJson` with the reason.

Refused: duplicate keys, NaN, Infinity, numbers too large for a float, lone surrogates, and anything that is
not JSON. The value that comes out shares no object with the input, so nobody can change it after the check.
"""

import json
import re
from typing import Any, Final, NamedTuple

import jiter

from toolkeep.errors import Code
from toolkeep.validation.call_size import Size, size_of


class NotStrictJson(ValueError):
    """Why a text or value is not acceptable JSON. Its message never quotes the input, which may be secret."""

    def __init__(self, reason: str, fix: str, *, path: str = "", code: Code = Code.NOT_JSON) -> None:
        super().__init__(reason)
        self.reason, self.fix, self.path, self.code = reason, fix, path, code


def infinite_number() -> NotStrictJson:
    """The reason for a number such as 1e400."""
    return NotStrictJson("a number is too large", "send a number between -1.8e308 and 1.8e308")


def too_many_digits(path: str = "") -> NotStrictJson:
    """The reason for an integer with too many digits: arithmetic on it takes quadratic time."""
    return NotStrictJson("a number has too many digits", "send a shorter number, or text", path=path)


def too_deep(depth: int) -> NotStrictJson:
    """The reason for nesting beyond the limit."""
    return NotStrictJson(
        f"arguments are nested deeper than {depth}", "send flatter data", code=Code.ARGUMENTS_TOO_BIG
    )


def too_many_containers(limit: int) -> NotStrictJson:
    """The reason for a flood of brackets."""
    return NotStrictJson(
        f"arguments hold more than {limit} objects and arrays",
        "send flatter or less data",
        code=Code.ARGUMENTS_TOO_BIG,
    )


_SHAPE = bytes(
    ord("0") if chr(i).isdecimal() and i < 128 else ord("e") if i == ord("E") else i for i in range(256)
)


_MANY_DIGITS = b"0" * 200
_LONG = b"0" * 16


class SchemaMismatch(NamedTuple):
    """A JSON value that the schema does not accept."""

    value: Any
    size: Size | None = None
    """Its size, if it was measured already."""


Objection = NotStrictJson | SchemaMismatch
"""Why a call is refused: it is not strict JSON, or it violates the schema."""


def parse_json(raw: bytes) -> Any:
    """Parse strict JSON. A number beyond the range of a float becomes inf: see `may_overflow`."""
    try:
        # Duplicate keys: parsers keep different ones, so what was approved might not be what the tool reads.
        return jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        raise why_not_json(raw) from None


def as_bytes(text: object) -> bytes:
    """JSON text in any of its Python forms, as bytes; empty if it is no text."""
    if type(text) is str:
        return text.encode("utf-8", "surrogatepass")
    try:
        return bytes(text) if type(text) in (bytes, bytearray, memoryview) else b""  # type: ignore[call-overload]  # looked at
    except ValueError:  # a memoryview that was released
        return b""


def parse_json_fully(raw: bytes, *, depth: int) -> Any:
    """Parse strict JSON; every number is finite and nothing nested deeper than `depth`."""
    value = parse_json(raw)
    check_numbers_and_depth(size_of(value), depth)
    return value


def check_numbers_and_depth(size: Size, depth: int) -> None:
    """Raise if a number is beyond a float, or containers are nested deeper than `depth`."""
    if not size.is_finite:
        raise infinite_number()
    if size.depth > depth:
        raise too_deep(depth)


def may_overflow(raw: bytes) -> bool:
    """Whether the text may hold a finite-looking number that a float cannot represent: a three-digit exponent
    after a digit, or two hundred digits in a row."""
    shape = raw.translate(_SHAPE)
    return b"0e000" in shape or b"0e+000" in shape or _MANY_DIGITS in shape


def may_hold_long_numbers(raw: bytes) -> bool:
    """Whether the text could hold a number beyond a float, or an integer beyond 2^53."""
    shape = raw.translate(_SHAPE)
    return _LONG in shape or b"0e000" in shape or b"0e+000" in shape


_INTEGER_BITS: Final = 14_000
"""As the parser's own limit of 4,300 digits. Converting longer integers takes quadratic time."""

_SCALARS: Final = frozenset((str, int, float, bool, type(None)))


class Snapshot:
    """A fresh copy of Python data that is JSON already, with its size in values and characters.

    The copy is what is checked and later run: the caller keeps the original and could change it between the
    check and the run (TOCTOU). Only exact dict (with str keys), list, str, int, float, bool and None are
    accepted: a subclass could return something else each time it is read.
    """

    def __init__(self, value: object, *, depth: int, values: int, containers: int | None = None) -> None:
        self.values = 0
        self.chars = 0
        self._containers = 0
        self._max_values = values
        self._max_containers = values if containers is None else containers
        self._max_depth = depth
        self.value = self._copy(value, "", 0)

    def _copy(self, value: Any, path: str, depth: int) -> Any:
        self.values += 1
        kind = type(value)
        if kind is dict or kind is list:
            self._enter(len(value), depth)
            if kind is list:
                return [self._copy(item, f"{path}/{i}", depth + 1) for i, item in enumerate(value)]
            return {self._key(key, path): self._copy(value[key], f"{path}/{key}", depth + 1) for key in value}
        if kind is str:
            return self._text(value, path)
        if kind is float and value - value != 0:
            raise NotStrictJson("NaN and Infinity are not JSON", "send a finite number", path=path)
        if kind is int and value.bit_length() > _INTEGER_BITS:
            raise too_many_digits(path)
        if kind not in _SCALARS:
            raise NotStrictJson(
                f"a Python {kind.__name__[:40]} is not JSON", "send plain dicts, lists and scalars", path=path
            )
        return value

    def _enter(self, length: int, depth: int) -> None:
        """Count one more object or array before descending into it."""
        if depth == self._max_depth:
            raise too_deep(self._max_depth)
        self._containers += 1
        if self._containers > self._max_containers:
            raise too_many_containers(self._max_containers)
        if self.values + length > self._max_values:
            raise NotStrictJson(
                f"arguments hold more than {self._max_values} values",
                "send less data",
                code=Code.ARGUMENTS_TOO_BIG,
            )

    def _text(self, text: str, path: str) -> str:
        self.chars += len(text)
        try:
            text.encode()
        except UnicodeEncodeError:
            raise NotStrictJson("text contains a lone surrogate", "send valid Unicode", path=path) from None
        return text

    def _key(self, key: object, path: str) -> str:
        if type(key) is not str:
            raise NotStrictJson("an object key is not text", "use text keys", path=path)
        return self._text(key, path)


# --- why a text is not strict JSON ---------------------------------------------------------------
#
# Runs only after the parser has refused. The parser's own message may quote the text, which may hold a
# secret. So the text is read once more with the standard library, whose errors are structured, and the
# reason says what is wrong and where, never what stands there.

_PARSER_DEPTH = 200
"""The nesting at which the parser gives up."""
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"', re.DOTALL)
_LONE_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class _Found(Exception):
    def __init__(self, reason: str, fix: str) -> None:
        self.reason, self.fix = reason, fix


def why_not_json(raw: bytes) -> NotStrictJson:
    """The reason, for the caller to raise."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        return NotStrictJson(f"byte {error.start} is not UTF-8", "send JSON encoded in UTF-8")
    if not text.strip():
        return NotStrictJson("arguments are empty", "send a JSON object, {} for no arguments")
    try:
        json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constants)
    except _Found as found:
        return NotStrictJson(found.reason, found.fix)
    except json.JSONDecodeError as error:
        position = fault_position(text, error)
        line, column = text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)
        return NotStrictJson(f"malformed JSON at line {line} column {column}", _fix(text, position))
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
    """Where to fix a text: at a trailing comma, which Python reports since 3.13 and skips before."""
    before = text[: error.pos].rstrip()
    is_past_comma = text[error.pos : error.pos + 1] in ("}", "]") and before.endswith(",")
    return len(before) - 1 if is_past_comma else error.pos


def is_trailing_comma(text: str, position: int) -> bool:
    """Whether a comma at the position stands between a value and a closing bracket."""
    before, after = text[:position].rstrip(), text[position + 1 :].lstrip()
    return text[position] == "," and after[:1] in ("}", "]") and before[-1:] not in (":", ",", "[", "{")


def _depth(text: str) -> int:
    """How deep brackets are nested outside strings."""
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


def _fix(text: str, position: int) -> str:
    """A hint from the characters at the fault, without quoting them."""
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
