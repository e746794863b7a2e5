"""Remove invisible characters from imported text: control characters, terminal escapes, bidi marks,
zero-width characters, tag letters and variation selectors.

In: text, or a schema. Out: the same sanitized, with what was removed and where. A person approves what is
visible; text that only the model can read would bypass that review. Annotations are cleaned at any depth of a
schema; names, allowed values and patterns, which a call must match exactly, stay and are reported. Visible
text is judged by `injection_scan`.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from toolkeep.definitions.parameter_marks import FLOW_KEY, TOUCHES_KEY
from toolkeep.json_values.pointers import escaped
from toolkeep.text.unicode import UNSEEN, Invisible, invisible_kind

_BY_NAME: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_EXACT: Final = frozenset(
    (
        "$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef",
        "$recursiveAnchor", "$vocabulary", "type", "enum", "const", "default", "required",
        "dependentRequired", "dependencies", "pattern", "format", "contentEncoding", "contentMediaType",
    )
)  # fmt: skip
"""Keywords whose values decide what a call may hold: changing the text would change the schema."""

_FOR_THE_OPERATOR: Final = frozenset((FLOW_KEY, TOUCHES_KEY))
"""What an argument touches, and its role: the operator decides, not the upstream."""

_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
"""Sequences that a terminal executes instead of showing (ECMA-48), also truncated ones."""
_LINE_BREAK: Final = re.compile("\r\n?|[\x85\u2028\u2029]")
_PICTURE: Final = re.compile("[#*0-9\u00a9\u00ae\u203c-\u3299\ufe0f\u20e3\U0001f000-\U0001faff]")
_JOINED_SCRIPT: Final = re.compile("[\u0600-\u06ff\u0700-\u0dff\u1000-\u109f\u1780-\u17ff\ufb50-\ufdff]")
"""Scripts that need joiners."""
_MAY_JOIN: Final = frozenset("\u200c\u200d")
_MAY_SELECT: Final = frozenset("\ufe0e\ufe0f")
_MAY_HIDE: Final = re.compile(f"[\r\u2028\u2029{UNSEEN}]")


class Removal(msgspec.Struct, frozen=True):
    """What was removed from a text, or is left in a name because it must not change."""

    place: str
    """JSON Pointer inside the definition."""
    kind: Invisible
    count: int
    is_left: bool = False

    def __str__(self) -> str:
        return f"{self.place} {'holds' if self.is_left else 'held'} {self.count} {self.kind.value}"


def sanitize_text(text: str) -> tuple[str, Counter[Invisible]]:
    """The visible text, and how many characters of each kind were removed."""
    removed: Counter[Invisible] = Counter()
    if not _MAY_HIDE.search(text):
        return text, removed
    text = _LINE_BREAK.sub("\n", text)
    text, count = _ESCAPE.subn("", text)
    if count:
        removed[Invisible.ESCAPE] = count
    kept: list[str] = []
    for index, char in enumerate(text):
        kind = invisible_kind(char)
        if kind is None or _is_needed(text, index, kept):
            kept.append(char)
        else:
            removed[kind] += 1
    return "".join(kept), removed


def sanitize_schema(schema: dict[str, Any], place: str) -> tuple[dict[str, Any], list[Removal]]:
    """The schema with all annotations sanitized, and what was removed; it accepts the same values."""
    texts = texts_in(schema)
    if _FOR_THE_OPERATOR.isdisjoint(texts) and not _may_hide(texts):
        return schema, []  # the common case
    removed: list[Removal] = []
    cleaned: dict[str, Any] = _schema(schema, place, removed)
    return cleaned, removed


def _may_hide(texts: list[str]) -> bool:
    """Whether the texts may contain invisible characters."""
    plain = " ".join([text for text in texts if text.isascii()])
    # Ten times as fast as the pattern, with the same result for ASCII.
    if not plain.replace("\n", " ").replace("\t", " ").isprintable():
        return True
    return bool(_MAY_HIDE.search(" ".join([text for text in texts if not text.isascii()])))


def sanitize_field(text: str, place: str) -> tuple[str, list[Removal]]:
    """`sanitize_text` of a field, with its place."""
    cleaned, counts = sanitize_text(text)
    return cleaned, [Removal(place, kind, count) for kind, count in counts.items()]


def texts_in(value: Any) -> list[str]:
    """Every string in JSON data, names too, in no particular order."""
    texts: list[str] = []
    waiting = [value]
    for item in waiting:
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, dict):
            texts.extend(item)
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
    return texts


def words_of(value: Any, place: str) -> Iterator[tuple[str, str]]:
    """Every string of a schema that a model may read, names and allowed values too, with its place."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, inside in value.items():
            here = f"{place}/{escaped(key)}"
            yield here, key
            yield from words_of(inside, here)
    elif isinstance(value, list):
        for index, inside in enumerate(value):
            yield from words_of(inside, f"{place}/{index}")


def _is_needed(text: str, index: int, kept: list[str]) -> bool:
    """Whether an emoji or a script needs the character: once, between what it joins, or after what it
    selects."""
    char, before, after = text[index], kept[-1] if kept else "", text[index + 1 : index + 2]
    if char in _MAY_SELECT:
        return before != char and before not in _MAY_SELECT and bool(_PICTURE.match(before))
    if char not in _MAY_JOIN:
        return False
    return any(script.match(before) and script.match(after) for script in (_JOINED_SCRIPT, _PICTURE))


def _schema(schema: Any, place: str, removed: list[Removal]) -> Any:
    if isinstance(schema, list):
        return [_schema(item, f"{place}/{index}", removed) for index, item in enumerate(schema)]
    if not isinstance(schema, dict):
        return _annotation(schema, place, removed)
    cleaned: dict[str, Any] = {}
    for keyword, value in schema.items():
        here = f"{place}/{escaped(keyword)}"
        if keyword in _FOR_THE_OPERATOR:
            # Or an upstream declares its recipient `content`: one approval would then cover any recipient.
            continue
        if keyword in _EXACT:
            _note_exact(value, here, removed)
            cleaned[keyword] = value
        elif keyword in _BY_NAME and isinstance(value, dict):
            _note_exact(list(value), here, removed)
            cleaned[keyword] = {
                name: _schema(inside, f"{here}/{escaped(name)}", removed) for name, inside in value.items()
            }
        else:
            cleaned[keyword] = _schema(value, here, removed)
    return cleaned


def _annotation(value: Any, place: str, removed: list[Removal]) -> Any:
    if not isinstance(value, str):
        return value
    cleaned, found = sanitize_field(value, place)
    removed += found
    return cleaned


def _note_exact(value: Any, place: str, removed: list[Removal]) -> None:
    counts: Counter[Invisible] = Counter()
    for _, text in words_of(value, place):
        counts += sanitize_text(text)[1]
    removed += [Removal(place, kind, count, is_left=True) for kind, count in counts.items()]
