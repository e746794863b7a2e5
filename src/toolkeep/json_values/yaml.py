"""Strict YAML 1.2 loader: bytes in, JSON data with source positions out, or `FileUnreadable`.

A file is data: nothing in it runs. PyYAML (libyaml) supplies only the event stream, 17 × faster than ruamel;
the meaning of scalars is decided here by YAML 1.2 (`on` and `no` are strings). So no tag constructs an
object, and no alias expands beyond a limit (billion laughs).
"""

import codecs
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from toolkeep.errors import FileUnreadable
from toolkeep.json_values.pointers import child, steps_of
from toolkeep.limits import (
    DEFINITION_FILE_BYTES,
    DEFINITION_FILE_NODES,
    DOCUMENT_DEPTH,
    INTEGER_DIGITS,
)
from toolkeep.text.display import echo_name, visible

if TYPE_CHECKING:
    import yaml

_TOO_LARGE: Final = 10**INTEGER_DIGITS


@dataclass(frozen=True, slots=True)
class Place:
    """A source position; one-based line and column, in characters."""

    path: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.column}"

    @classmethod
    def after(cls, before: str, path: str) -> "Place":
        """The position after the text `before`."""
        breaks = [match.end() for match in _BREAK.finditer(before)]
        return cls(path, len(breaks) + 1, len(before) - (breaks[-1] if breaks else 0) + 1)


@dataclass(frozen=True, slots=True)
class Document:
    """Parsed data with source positions; aliases have the position of their anchor's content."""

    path: str
    data: Any
    _root: "Callable[[], _Node]" = field(repr=False)

    @classmethod
    def of_data(cls, data: Any, raw: bytes, path: str) -> "Document":
        """A document that was parsed before; for positions it is parsed again."""
        return cls(path, data, cache(lambda: _parse(raw, path, takes_numbers_as_keys=False).root))

    def place(self, pointer: str) -> Place:
        """The position of the value at a JSON Pointer, or of its nearest existing ancestor."""
        node = self._walk(pointer)[0]
        return Place(self.path, node.line, node.column)

    def key_place(self, pointer: str) -> Place:
        """The position of a member's key; for anything else that of the value."""
        node, is_found = self._walk(pointer)
        return Place(self.path, *node.key) if is_found and node.key else self.place(pointer)

    def is_plain(self, pointer: str) -> bool:
        """Whether the value is a plain scalar (unquoted, untagged)."""
        node, is_found = self._walk(pointer)
        return is_found and node.is_plain

    def _walk(self, pointer: str) -> tuple["_Node", bool]:
        node = self._root()
        for step in steps_of(pointer):
            try:
                node = child(node.members, step)
            except KeyError:
                return node, False
        return node, True


class ScalarRefused(ValueError):
    """A YAML number that JSON cannot represent; the text says what to do."""


def read_yaml(raw: bytes, path: str, *, takes_numbers_as_keys: bool = False) -> Document:
    """Parse the single document of a YAML file; an empty file is null.

    `FileUnreadable` names line and column.

    `takes_numbers_as_keys` reads the key `200:` as text, as OpenAPI authors mean it.
    """
    reader = _parse(raw, path, takes_numbers_as_keys=takes_numbers_as_keys)
    return Document(path, reader.data, lambda: reader.root)


def _parse(raw: bytes, path: str, *, takes_numbers_as_keys: bool) -> "_Reader":
    import yaml

    reader = _Reader(path, takes_numbers_as_keys=takes_numbers_as_keys)
    steps: dict[type, Any] = {
        yaml.DocumentStartEvent: reader.start_document,
        yaml.ScalarEvent: reader.read_scalar,
        yaml.AliasEvent: reader.read_alias,
        yaml.MappingStartEvent: reader.open_object,
        yaml.SequenceStartEvent: reader.open_list,
        yaml.MappingEndEvent: reader.close,
        yaml.SequenceEndEvent: reader.close,
    }
    for event in _events(_decode(raw, path), path):
        if step := steps.get(type(event)):
            step(event)
    return reader


def _events(text: str, path: str) -> "Iterator[yaml.Event]":
    import yaml

    line, column = 1, 1
    _refuse_directives(text, 0, path)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            if isinstance(event, yaml.DocumentEndEvent):
                _refuse_directives(text, event.end_mark.index if event.end_mark else 0, path)
            yield event
            line, column = _line_and_column(event.end_mark)
    except yaml.MarkedYAMLError as error:
        raise _explain(error, text, path) from None
    except (yaml.YAMLError, ValueError, OverflowError):  # PyYAML lets some built-in errors through
        raise FileUnreadable(path, "what follows here is not YAML", line=line, column=column) from None


# Blank lines, comments and ends of documents, then the sign of a directive (YAML 1.2, 6.8).
_DIRECTIVE: Final = re.compile(r"(?:(?:\.\.\.)?[ \t]*(?:#[^\r\n]*)?(?:\r\n?|\n))*+(?=%)")


def _refuse_directives(text: str, start: int, path: str) -> None:
    """Refuse directives before libyaml sees them: it compares each with all before it, 18 s for 80,000."""
    if found := _DIRECTIVE.match(text, start):
        place = Place.after(text[: found.end()], path)
        reason = "lines that start with % are not read; remove it, every file is YAML 1.2"
        raise FileUnreadable(path, reason, line=place.line, column=place.column)


# --- text ----------------------------------------------------------------------------------------

_BREAK: Final = re.compile(r"\r\n?|\n")

_WIDE: Final = re.compile(rb"\xff\xfe|\xfe\xff|\0\0\xfe\xff|\0[^\0]\0[^\0]|[^\0]\0[^\0]\0")
"""Start of a file in UTF-16 or UTF-32: a byte order mark, or every other byte zero."""

# Non-printable characters of YAML 1.2, 5.1, and the extra line breaks of YAML 1.1: libyaml honors those, so
# that positions, and what a reviewer sees as one line, would differ.
_UNPRINTABLE_ASCII: Final = re.compile(r"[^\t\n\r\x20-\x7e]")
_UNPRINTABLE: Final = (
    "[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
"""Compiled where a file needs it, which takes 8 ms; most files are ASCII."""


def _decode(raw: bytes, path: str) -> str:
    if len(raw) > DEFINITION_FILE_BYTES:
        raise FileUnreadable(path, f"is over {DEFINITION_FILE_BYTES} bytes", line=1, column=1)
    if _WIDE.match(raw):
        raise FileUnreadable(path, "is in UTF-16 or UTF-32; save it as UTF-8", line=1, column=1)
    body = raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        place = Place.after(body[: error.start].decode(), path)
        reason = f"the byte 0x{body[error.start]:02X} is not UTF-8; save the file as UTF-8"
        raise FileUnreadable(path, reason, line=place.line, column=place.column) from None
    if found := _UNPRINTABLE_ASCII.search(text) if text.isascii() else re.search(_UNPRINTABLE, text):
        place = Place.after(text[: found.start()], path)
        code = f"{ord(found.group()):04X}"
        reason = (
            f"the character U+{code} may not stand in YAML; remove it, or write \\u{code} in double quotes"
        )
        raise FileUnreadable(path, reason, line=place.line, column=place.column)
    return text


# --- scalars -------------------------------------------------------------------------------------

_WORDS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_STARTS_NUMBER: Final = frozenset("+-.0123456789")
_DECIMAL: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEX: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")


def plain_scalar(text: str) -> Any:
    """Resolve a plain scalar by the core schema (YAML 1.2, 10.3.2): null, boolean, number, or text.

    Raises `ScalarRefused` for a number that JSON cannot represent.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _STARTS_NUMBER:  # 7 × faster for text than trying each pattern
        return text
    if _DECIMAL.fullmatch(text):
        return _short_integer(text, 10)
    if _OCTAL.fullmatch(text) or _HEX.fullmatch(text):
        return _short_integer(text[2:], 8 if text[1] == "o" else 16)
    if _FLOAT.fullmatch(text):
        return _finite_float(text)
    if _NOT_FINITE.fullmatch(text):
        raise ScalarRefused(f"{text} is not a number that JSON has; write a finite one, or text in quotes")
    return text


def _short_integer(digits: str, base: int) -> int:
    # Python refuses longer decimal text (quadratic time); it parses other bases, but could not print the
    # result.
    if base != 10 or len(digits.lstrip("+-")) <= INTEGER_DIGITS:
        number = int(digits, base)
        if abs(number) < _TOO_LARGE:
            return number
    raise ScalarRefused(
        f"an integer has more than {INTEGER_DIGITS} digits; write a shorter one, or text in quotes"
    )


def _finite_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ScalarRefused("a number is beyond 1.8e308; write a smaller one, or text in quotes")
    return number


# --- lists and objects ---------------------------------------------------------------------------

_CORE: Final = "tag:yaml.org,2002:"
_FITTING: Final = {_CORE + "null": type(None), _CORE + "bool": bool, _CORE + "int": int}


class _Mark(Protocol):
    """A parser position, zero-based."""

    line: int
    column: int


class _Node:
    """The position of a value and of its members."""

    __slots__ = ("column", "is_plain", "key", "line", "members")

    def __init__(self, mark: "_Mark | None" = None, *, members: Any = None, is_plain: bool = False) -> None:
        self.line, self.column = _line_and_column(mark)
        self.members: dict[str, _Node] | list[_Node] | None = members
        self.is_plain = is_plain
        self.key: tuple[int, int] | None = None


class _Open:
    """An open list or object."""

    __slots__ = ("anchor", "chars_before", "data", "deepest", "key", "key_place", "node", "values_before")

    def __init__(self, data: Any, node: _Node, anchor: str | None, *, values: int, chars: int) -> None:
        self.data, self.node, self.anchor = data, node, anchor
        self.values_before, self.chars_before = values, chars
        self.deepest = 0
        self.key: str | None = None
        self.key_place = (1, 1)

    @property
    def expects_key(self) -> bool:
        return self.key is None and type(self.data) is dict


class _Anchored(NamedTuple):
    """An anchored value, and the size that each alias of it adds."""

    data: Any
    node: _Node
    values: int
    chars: int
    height: int


class _Reader:
    """Consumes the parser events of one file; `data` and `root` are complete after the last."""

    def __init__(self, path: str, *, takes_numbers_as_keys: bool) -> None:
        self.path = path
        self._takes_numbers_as_keys = takes_numbers_as_keys
        self.data: Any = None
        self.root = _Node()
        self._documents = 0
        self._open: list[_Open] = []
        self._anchors: dict[str, _Anchored | None] = {}
        self._values = 0
        self._chars = 0

    def start_document(self, event: "yaml.DocumentStartEvent") -> None:
        """Only one document is allowed."""
        self._documents += 1
        if self._documents > 1:
            raise self._refuse(event, "a second document starts here; keep one document in a file")

    def read_scalar(self, event: "yaml.ScalarEvent") -> None:
        """Handle a key or a scalar value."""
        if not event.value.isascii() and _SURROGATE.search(event.value):  # libyaml checks it itself
            raise self._refuse(event, f"a \\u escape is half of a surrogate pair; {_WHOLE}")
        value = self._meaning(event)
        node = _Node(event.start_mark, is_plain=event.implicit[0])
        self._name_anchor(event, _Anchored(value, node, 1, len(event.value), 0))
        if self._open and self._open[-1].expects_key:
            self._start_member(event, value, self._open[-1])
        else:
            self._count(event, 1, len(event.value))
            self._put(value, node)

    def read_alias(self, event: "yaml.AliasEvent") -> None:
        """Expand an alias into a copy of its anchor's value."""
        anchor = event.anchor or ""
        name = echo_name(anchor)
        if self._open and self._open[-1].expects_key:
            raise self._refuse(event, f"the alias *{name} cannot be a key; write the key out")
        if anchor not in self._anchors:
            fix = "put text that starts with * in quotes, or write the value out"
            raise self._refuse(event, f"nothing before this has the anchor &{name}; {fix}")
        anchored = self._anchors[anchor]
        if anchored is None:
            raise self._refuse(event, f"the alias *{name} is inside its own value; write the value out")
        # Counted before copying: nested aliases double the size at each level (billion laughs).
        self._descend(event, anchored.height)
        self._count(event, anchored.values, anchored.chars)
        node = _Node(event.start_mark, members=anchored.node.members, is_plain=anchored.node.is_plain)
        self._put(_copy(anchored.data), node)

    def open_object(self, event: "yaml.MappingStartEvent") -> None:
        """Open an object."""
        self._open_container(event, {}, _Node(event.start_mark, members={}), "map")

    def open_list(self, event: "yaml.SequenceStartEvent") -> None:
        """Open a list."""
        self._open_container(event, [], _Node(event.start_mark, members=[]), "seq")

    def close(self, _event: "yaml.CollectionEndEvent") -> None:
        """Close the innermost list or object."""
        closed = self._open.pop()
        if self._open:
            self._open[-1].deepest = max(self._open[-1].deepest, closed.deepest)
        if closed.anchor is not None:
            values, chars = self._values - closed.values_before, self._chars - closed.chars_before
            height = closed.deepest - len(self._open)
            self._anchors[closed.anchor] = _Anchored(closed.data, closed.node, values, chars, height)

    def _open_container(self, event: "yaml.CollectionStartEvent", data: Any, node: _Node, tag: str) -> None:
        if event.tag not in (None, _CORE + tag):
            raise self._refuse_tag(event)
        if self._open and self._open[-1].expects_key:
            fix = "write the key as text, in quotes where it starts with a bracket"
            raise self._refuse(event, f"a list or an object cannot be a key; {fix}")
        self._name_anchor(event, None)
        opened = _Open(data, node, event.anchor, values=self._values, chars=self._chars)
        self._count(event, 1, 0)
        self._put(data, node)
        self._open.append(opened)
        self._descend(event, 0)

    def _descend(self, event: "yaml.NodeEvent", height: int) -> None:
        """Check the nesting depth here, with `height` more levels below."""
        depth = len(self._open) + height
        if depth > DOCUMENT_DEPTH:
            reason = f"lists and objects are nested deeper than {DOCUMENT_DEPTH}; write flatter data"
            raise self._refuse(event, reason)
        if self._open:
            self._open[-1].deepest = max(self._open[-1].deepest, depth)

    def _count(self, event: "yaml.NodeEvent", values: int, chars: int) -> None:
        """Count the expanded size of the file, before anything is copied."""
        self._values += values
        self._chars += chars
        if self._values > DEFINITION_FILE_NODES:
            limit = f"{DEFINITION_FILE_NODES} values"
        elif self._chars > DEFINITION_FILE_BYTES:
            limit = f"{DEFINITION_FILE_BYTES} characters"
        else:
            return
        raise self._refuse(event, f"the file comes to more than {limit}, aliases written out; split it")

    def _name_anchor(self, event: "yaml.NodeEvent", anchored: _Anchored | None) -> None:
        if event.anchor is None:
            return
        if event.anchor in self._anchors:
            name = echo_name(event.anchor)
            raise self._refuse(event, f"the anchor &{name} is written twice; give this one another name")
        self._anchors[event.anchor] = anchored

    def _put(self, value: Any, node: _Node) -> None:
        if not self._open:
            self.data, self.root = value, node
            return
        container = self._open[-1]
        members: Any = container.node.members
        if container.key is None:
            container.data.append(value)
            members.append(node)
        else:
            node.key = container.key_place
            container.data[container.key] = value
            members[container.key] = node
            container.key = None

    def _start_member(self, event: "yaml.ScalarEvent", key: Any, container: _Open) -> None:
        if event.implicit[0] and key == "<<":
            raise self._refuse(event, "merge keys (<<) are not read; write the keys out")
        if self._takes_numbers_as_keys and type(key) is int:
            key = str(key)
        if type(key) is not str:
            shown = f"the key {echo_name(event.value)} is not text" if event.value else "the key is empty"
            raise self._refuse(event, f"{shown}; write it in quotes")
        members: Any = container.node.members
        # The last of two keys would win silently; a reviewer may have read the first.
        if first := members.get(key):
            line, column = first.key or (first.line, first.column)
            twice = f"the key {echo_name(key)} is written twice, first at line {line}, column {column}"
            raise self._refuse(event, f"{twice}; keep one of the two")
        self._chars += len(key)
        container.key, container.key_place = key, _line_and_column(event.start_mark)

    def _meaning(self, event: "yaml.ScalarEvent") -> Any:
        text: str = event.value
        try:
            if event.tag is not None:
                return self._tagged(event, event.tag, text)
            if event.implicit[0]:
                return plain_scalar(text)
        except ScalarRefused as refused:
            raise self._refuse(event, str(refused)) from None
        return text

    def _tagged(self, event: "yaml.ScalarEvent", tag: str, text: str) -> Any:
        if tag == _CORE + "str":
            return text
        if tag == _CORE + "float" and _FLOAT.fullmatch(text):
            return _finite_float(text)
        if tag in _FITTING:
            value = plain_scalar(text)
            if type(value) is _FITTING[tag]:
                return value
        raise self._refuse_tag(event)

    def _refuse_tag(self, event: Any) -> FileUnreadable:
        tag = event.tag
        shown = echo_name("!!" + tag.removeprefix(_CORE) if tag.startswith(_CORE) else tag)
        fix = "remove it, or put text that starts with ! in quotes"
        return self._refuse(event, f"the tag {shown} is unknown or does not match the value after it; {fix}")

    def _refuse(self, event: "yaml.Event", reason: str) -> FileUnreadable:
        line, column = _line_and_column(event.start_mark)
        return FileUnreadable(self.path, reason, line=line, column=column)


def _copy(value: Any) -> Any:
    if type(value) is dict:
        return {key: _copy(member) for key, member in value.items()}
    return [_copy(item) for item in value] if type(value) is list else value


def _line_and_column(mark: "_Mark | None") -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


# --- what the parser could not read --------------------------------------------------------------

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WHOLE: Final = "write the character itself, or \\U and eight digits"
_SPACES: Final = "indent with spaces, not with tabs"

_HINTS: Final = (
    ("a tab character", _SPACES),
    ("mapping values are not allowed", "put text that holds a colon in quotes, or fix the indentation"),
    ("expected ',' or ']'", "close the [ of {start}, or put a comma before this"),
    ("expected ',' or '}'", "close the {{ of {start}, or put a comma before this"),
    ("unexpected end of stream", "close the quote of {start}"),
    ("unexpected document", "close the quote of {start}"),
    ("expected key", "fix the indentation, or the quotes before this"),
    ("expected <block end>", "fix the indentation, or the quotes before this"),
    ("expected '-' indicator", "start each item of the list of {start} with - in the same column"),
    ("expected ':'", "write a colon and a space after the key of {start}, or fix the indentation"),
    ("alphabetic or numeric character", "put text that starts with * or & in quotes"),
    ("node content", "write a value here, or put text that starts with a bracket or comma in quotes"),
    ("entries are not allowed", "start the list on a line of its own, or put the text in quotes"),
    ("unknown escape character", "write \\\\ for a backslash, or use single quotes"),
    ("invalid Unicode character escape", _WHOLE),
    ("comment or line break", "start the text on the next line"),
    ("tag handle", "put text that starts with ! in quotes"),
    ("<document start>", "keep one document in a file"),
)


def _explain(error: "yaml.MarkedYAMLError", text: str, path: str) -> FileUnreadable:
    """The parser's message, with a hint for common mistakes."""
    problem = visible(error.problem or "is not YAML")
    line, column = _line_and_column(error.problem_mark)
    hint = _hint(problem, text[error.problem_mark.index :][:1] if error.problem_mark else "")
    start = "line {}, column {}".format(*_line_and_column(error.context_mark))
    reason = f"{problem}; {hint.format(start=start)}" if hint else problem
    return FileUnreadable(path, reason, line=line, column=column)


def _hint(problem: str, here: str) -> str:
    if "cannot start any token" in problem:
        return _SPACES if here == "\t" else f"put text that starts with {visible(here)} in quotes"
    return next((hint for words, hint in _HINTS if words in problem), "")
