"""Values that a session knows of one kind, and whether a value is among them (FLO-2).

Texts are kept folded, in one bounded buffer that is searched as it is: no index is built before a call needs
one, and a session at rest costs no more than the buffer. A value is found whole: between bounds of words, and
not as a part of a longer address, path or number. Numbers are compared by value, dates by day. Where the
buffer is full, later values are not known, which makes a person be asked once more and permits nothing.
"""

import re
import unicodedata
from collections.abc import Collection
from typing import Any, Final

_SPACE: Final = re.compile(r"\s+")
_MARKS: Final = re.compile(r"[^\w\s\x00-\x7f]")
"""Punctuation beyond ASCII, such as typographic quotes; it bounds a word, and remains a character."""
_NUMBER: Final = re.compile(
    r"(?<![\w.,-])(?<![0-9][/:])[-+]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,24})(?:\.[0-9]{1,12})?"
    r"(?!\w|[-.,/:][0-9])"
)
_ISO: Final = re.compile(r"(?<!\d)([0-9]{4})-([0-9]{2})-([0-9]{2})(?!\d)")
_DAY: Final = re.compile("-[0-9][0-9]-[0-9][0-9]")
_NAMES: Final = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTHS: Final = {name[:length]: number for number, name in enumerate(_NAMES, 1) for length in (3, len(name))}
_WRITTEN: Final = re.compile(
    r"\b(?:(?P<first>\d{1,2})(?:st|nd|rd|th)?\.? (?:of )?(?P<then>[a-z]{3,9})"
    r"|(?P<month>[a-z]{3,9})\.? (?P<day>\d{1,2})(?:st|nd|rd|th)?)\b(?:,? (?P<year>\d{4}))?"
)
_JOINS: Final = frozenset(b"./:@-+#?&=%~_\\*$[]{}")
"""Between two word characters, these make one address, path or name of what stands on both sides."""
_JOINED: Final = 16
"""Joining characters in a row that are followed; what has more goes on."""
_OCCURRENCES: Final = 100
"""Occurrences of a value that are looked at. Without it, a list of short values blocks the process."""
_COMMA: Final = ord(",")
_WORD: Final = frozenset(b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ").union(
    range(128, 256)
)
_NEXT: Final = _WORD | _JOINS | {_COMMA}
"""Without one of these beside it, nothing goes on."""
_SEPARATOR: Final = b"\n"
_MARK: Final = 0xFF
"""On both sides of a number."""


class KnownValues:
    """What a session knows of one kind: said by the user, made by a service, typed from outside."""

    __slots__ = ("_text", "is_full", "limit")

    def __init__(self, limit: int) -> None:
        self._text = bytearray(_SEPARATOR)
        self.limit = limit
        self.is_full = False

    def __len__(self) -> int:
        return len(self._text)

    def add_text(self, text: str) -> None:
        """Free text: its words, numbers and dates are known from now on."""
        folded = fold(text)
        marks = [number_mark(found[0]) for found in _NUMBER.finditer(_ISO.sub(" ", folded))]
        marks += [_date_mark(*found) for found in written_dates(folded)]
        self._add(folded.encode("utf-8", "surrogatepass"), *marks)

    def add_values(self, values: Collection[Any]) -> None:
        """Values of results: strings of a typed form, and numbers."""
        strings = [value for value in values if type(value) is str]
        marks = [number_mark(value) for value in values if type(value) is not str]
        marks += [number_mark(one) for one in strings if one[0] <= "9" and _NUMBER.fullmatch(one)]
        # All at once: one by one takes five times as long. A typed form needs no folding but that of case.
        folded = "\n".join(strings).lower()
        if _DAY.search(folded):
            marks += [_date_mark(*map(int, found)) for found in _ISO.findall(folded)]
        self._add(folded.encode(), *marks)

    def _add(self, *pieces: bytes) -> None:
        self._text += b"".join([piece + _SEPARATOR for piece in pieces])
        if len(self._text) > self.limit:
            lines = dict.fromkeys(bytes(self._text).split(_SEPARATOR))  # what is known twice needs no room
            lines.pop(b"", None)
            self._text = bytearray(_SEPARATOR)
            for line in lines:
                if len(self._text) + len(line) < self.limit:
                    self._text += line + _SEPARATOR
                else:
                    self.is_full = True

    def has_text(self, value: str) -> bool:
        """Whether a string is known, whole."""
        text = fold(value).strip().encode("utf-8", "surrogatepass")
        if not text:  # of white space alone, nobody named it
            return False
        known, size = self._text, len(text)
        at = known.find(text)
        for _ in range(_OCCURRENCES):
            if at < 0:
                return False
            if known[at - 1] == known[at + size] == _MARK:
                return True
            if not (_goes_on(known, at, -1) or _goes_on(known, at + size - 1, 1)):
                return True  # no part of a longer word, address, path, pattern or number
            at = known.find(text, at + 1)
        return any(_SEPARATOR + exact + _SEPARATOR in known for exact in (text, b"\xff%s\xff" % text))

    def has_number(self, value: Any) -> bool:
        """Whether a number is known, by its value."""
        return _SEPARATOR + number_mark(value) + _SEPARATOR in self._text

    def has_dates(self, text: str) -> bool:
        """Whether every day that a text names is known; False if it names none."""
        named = list(written_dates(fold(text)))
        return bool(named) and all(self._has_day(*day) for day in named)

    def _has_day(self, year: int, month: int, day: int) -> bool:
        marks = {_date_mark(year, month, day), _date_mark(0, month, day)}
        return any(_SEPARATOR + mark + _SEPARATOR in self._text for mark in marks)


def fold(text: str) -> str:
    """A text as it is compared: in lower case, every run of white space one space.

    Not case folded: `straße.example` and `strasse.example` are two hosts.
    """
    folded = text.lower()
    if not folded.isascii():
        folded = _MARKS.sub(_apart, folded)
    elif "  " not in folded and folded.isprintable():
        return folded
    return _SPACE.sub(" ", folded)


def _apart(found: "re.Match[str]") -> str:
    """A mark between spaces, so that a value with one more is another; an accent stays in its word."""
    return found[0] if unicodedata.category(found[0]).startswith("M") else f" {found[0]} "


def written_dates(folded: str) -> "list[tuple[int, int, int]]":
    """The days that a folded text names as (year, month, day); the year is 0 where it names none."""
    found = [(int(year), int(month), int(day)) for year, month, day in _ISO.findall(folded)]
    for one in _WRITTEN.finditer(folded):
        month = _MONTHS.get(one["then"] or one["month"])
        if month is not None:
            found.append((int(one["year"] or 0), month, int(one["first"] or one["day"])))
    return found


def number_mark(value: Any) -> bytes:
    """A number in the one form that equal numbers share. No text holds the byte 255."""
    if type(value) is str:
        value = value.replace(",", "")
        value = float(value) if "." in value else int(value)
    whole = int(value) if value == value // 1 and abs(value) < 2**63 else value
    return b"\xff%s\xff" % str(whole).encode()


def _date_mark(year: int, month: int, day: int) -> bytes:
    return b"\xfe%d-%d-%d\xfe" % (year, month, day)


def _goes_on(text: bytearray, at: int, step: int) -> bool:
    """Whether a word or a pattern goes on beyond the character at one end of what was found.

    The text begins and ends with a separator, so that there is always a next character.
    """
    edge = text[at]
    at += step
    if text[at] not in _NEXT or (edge not in _WORD and edge not in _JOINS):
        return False
    if text[at] == _COMMA:  # of a number, not of a list
        return _is_digit(edge) and _is_digit(text[at + step])
    joined = bytearray([edge] if edge in _JOINS else [])
    while text[at] in _JOINS:
        joined.append(text[at])
        at += step
        if len(joined) > _JOINED:
            return True
    # `data/*` names what is in a folder, not the folder; `**data**` is the same word in bold.
    return text[at] in _WORD or (b"*" in joined and bool(joined.strip(b"*_")))


def _is_digit(byte: int) -> bool:
    return 48 <= byte <= 57
