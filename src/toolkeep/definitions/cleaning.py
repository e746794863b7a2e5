"""Text of other systems without what a reader does not see: control characters, terminal escapes, marks of
direction, zero-width characters, tag letters and variation selectors.

Comes in: text, or a schema. Goes out: the same cleaned, and what was taken out, and where. Words are cleaned
at any depth of a schema; what a call must match exactly (names, allowed values, patterns) stays, and is named
where it holds something unseen. What a model is told in plain letters is `suspicion.py`'s to judge.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from toolkeep.characters import UNSEEN, Unseen, unseen
from toolkeep.definitions.parameter import FLOW_KEY, TOUCHES_KEY
from toolkeep.pointers import escaped

_BY_NAME: Final = frozenset(("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"))
_EXACT: Final = frozenset(
    (
        "$schema", "$id", "$ref", "$anchor", "$dynamicRef", "$dynamicAnchor", "$recursiveRef",
        "$recursiveAnchor", "$vocabulary", "type", "enum", "const", "default", "required",
        "dependentRequired", "dependencies", "pattern", "format", "contentEncoding", "contentMediaType",
    )
)  # fmt: skip
"""Keywords whose values decide what a call may hold: another text there is another schema."""

_FOR_THE_OPERATOR: Final = frozenset((FLOW_KEY, TOUCHES_KEY))
"""What an argument touches and what its role is: for the operator to say, not for an upstream."""

_ESCAPE: Final = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]?"
)
"""Sequences that a terminal obeys instead of showing them (ECMA-48), also cut ones."""
_LINE_BREAK: Final = re.compile("\r\n?|[\x85\u2028\u2029]")
_PICTURE: Final = re.compile("[#*0-9\u00a9\u00ae\u203c-\u3299\ufe0f\u20e3\U0001f000-\U0001faff]")
_JOINED_SCRIPT: Final = re.compile("[\u0600-\u06ff\u0700-\u0dff\u1000-\u109f\u1780-\u17ff\ufb50-\ufdff]")
"""Scripts that cannot be written without joiners."""
_MAY_JOIN: Final = frozenset("\u200c\u200d")
_MAY_SELECT: Final = frozenset("\ufe0e\ufe0f")
_MAY_HIDE: Final = re.compile(f"[\r\u2028\u2029{UNSEEN}]")


class Removal(msgspec.Struct, frozen=True):
    """What was taken out of one text, or is left in a name because nobody may change it."""

    place: str
    """JSON Pointer inside the definition."""
    kind: Unseen
    count: int
    is_left: bool = False

    def __str__(self) -> str:
        return f"{self.place} {'holds' if self.is_left else 'held'} {self.count} {self.kind.value}"


def clean_text(text: str) -> tuple[str, Counter[Unseen]]:
    """The text as a reader sees it, and how much of what was taken out."""
    removed: Counter[Unseen] = Counter()
    if not _MAY_HIDE.search(text):
        return text, removed
    text = _LINE_BREAK.sub("\n", text)
    text, count = _ESCAPE.subn("", text)
    if count:
        removed[Unseen.ESCAPE] = count
    kept: list[str] = []
    for index, char in enumerate(text):
        kind = unseen(char)
        if kind is None or _is_needed(text, index, kept):
            kept.append(char)
        else:
            removed[kind] += 1
    return "".join(kept), removed


def clean_schema(schema: dict[str, Any], place: str) -> tuple[dict[str, Any], list[Removal]]:
    """The schema with every word in it cleaned, and what was taken out; its meaning is the same."""
    texts = texts_in(schema)
    if _FOR_THE_OPERATOR.isdisjoint(texts) and not _may_hide(texts):
        return schema, []  # as nearly always
    removed: list[Removal] = []
    cleaned: dict[str, Any] = _schema(schema, place, removed)
    return cleaned, removed


def _may_hide(texts: list[str]) -> bool:
    """Whether there may be anything in them that a reader does not see."""
    plain = " ".join([text for text in texts if text.isascii()])
    # Ten times as fast as the pattern, and the same for ASCII.
    if not plain.replace("\n", " ").replace("\t", " ").isprintable():
        return True
    return bool(_MAY_HIDE.search(" ".join([text for text in texts if not text.isascii()])))


def clean_field(text: str, place: str) -> tuple[str, list[Removal]]:
    """`clean_text` of a field, with its place."""
    cleaned, counts = clean_text(text)
    return cleaned, [Removal(place, kind, count) for kind, count in counts.items()]


def texts_in(value: Any) -> list[str]:
    """Every text in JSON data, names too, in no particular order."""
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
    """Every text of a schema that a model may read, names and allowed values too, with its place."""
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
    """Whether emoji or a script need it: once, between what it joins, or after what it selects."""
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
            # An upstream that calls its recipient `content` would be asked about once, for any recipient.
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
    cleaned, found = clean_field(value, place)
    removed += found
    return cleaned


def _note_exact(value: Any, place: str, removed: list[Removal]) -> None:
    counts: Counter[Unseen] = Counter()
    for _, text in words_of(value, place):
        counts += clean_text(text)[1]
    removed += [Removal(place, kind, count, is_left=True) for kind, count in counts.items()]
