"""Typed views: what a model is shown of a result where views are typed (FLO-6).

In: the labels of a tool and a result of it. Out: the result with a reference in place of each text of others,
and the texts themselves, for the session to keep. Numbers, truth values, null, words of the definition and
strings that match the form of their label stay as they are: these are too short and too regular to instruct a
model. Text that the service made stays, too, unless only the user may know it. Nothing here looks at what a
text says. Bytes and images are shown, and open the session: no argument could hold them.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec

from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.result_reader import Node, ResultReader, are_lines

REFERENCE: Final = "$toolkeep_ref"
TEMPLATE: Final = "$toolkeep_text"
HINT: Final = (
    'Texts of others are shown as references: {"$toolkeep_ref": "abc.0", "chars": 812, "from": "read_mail"}. '
    "Pass a reference on as an argument, as it is or as JSON text, or join it with text: "
    '{"$toolkeep_text": ["They wrote: ", {"$toolkeep_ref": "abc.0"}]}. '
    "find_in_text gives the addresses, dates and numbers in it; read_text shows it."
)
"""What a model has to know of references."""

REFERENCES: Final = 1_000
"""References in one view: more are longer than what a model is shown. A result with more texts is one."""
_RESERVED: Final = re.compile(r"\$+toolkeep_(?:ref|text)")
_WRITTEN: Final = re.compile(r'(\s*\{\s*")(\$+)(toolkeep_(?:ref|text)")')
"""The beginning of a reserved form as JSON text."""


class View(msgspec.Struct):
    """What is shown of a result."""

    value: Any
    texts: list[str | bytes] = []
    """What its references stand for, in their order: texts, and other values as JSON."""
    secrets: set[int] = set()
    """The numbers of those that only the user may know."""
    opens: bool = False
    """Whether it shows what others made, other than typed values."""
    is_secret: bool = False


def make_view(
    plan: Plan,
    value: Any,
    body: bytes,
    token: str,
    *,
    repeats_texts: bool = False,
    reader: ResultReader | None = None,
) -> View:
    """The view of a result; its references begin with the token.

    `repeats_texts`: arguments of the call were references, so what the tool says may hold their text.
    """
    reader = reader or plan.reader
    if type(value) is bytes:
        return View(value, opens=True, is_secret=reader.shows_secrets)
    if not repeats_texts and b"$toolkeep_" not in body and reader.shows_values_alone(body):
        return View(value)  # as of many lists of ids and numbers; to write it anew takes three times as long
    writer = _Writer(reader, plan.tool, token, repeats_texts=repeats_texts)
    try:
        if plan.gives_content and type(value) is list:
            writer.view.value = [writer.block(one, reader.root.anywhere) for one in value]
        else:
            writer.view.value = writer.write(value, reader.root)
    except _TooMany:
        writer.view = View(None)
        writer.view.value = writer.hand_over(value, is_secret=reader.shows_secrets)
    return writer.view


class _TooMany(Exception):
    """A result has more texts than references are made for."""


class _Writer:
    """Writes the view of one result."""

    __slots__ = ("_prefix", "_repeats_texts", "_shows_secrets", "_tool", "_words", "view")

    def __init__(self, reader: ResultReader, tool: str, token: str, *, repeats_texts: bool) -> None:
        self.view = View(None)
        self._tool = tool
        self._words = reader.words
        self._shows_secrets = reader.shows_secrets
        self._repeats_texts = repeats_texts
        self._prefix = f"{token}."

    def write(self, value: Any, node: Node) -> Any:
        """The view of one value."""
        return self._write([value], node)[0]

    def _write(self, values: list[Any], node: Node) -> list[Any]:
        """The view of all values of one place at once: a tenth of the time of one by one."""
        kinds = set(map(type, values))
        if kinds == {str}:
            return self._strings(values, node)
        if kinds == {dict}:
            return self._objects(values, node)
        if kinds == {list}:
            inside = iter(self._write(list(chain.from_iterable(values)), node.anywhere))
            return [list(islice(inside, len(one))) for one in values]
        if kinds.isdisjoint(_NOT_SCALAR):
            return self._scalars(values, node)
        made = list(values)
        for kind in kinds:
            places = [at for at, one in enumerate(values) if type(one) is kind]
            for at, one in zip(places, self._write([values[at] for at in places], node), strict=True):
                made[at] = one
        return made

    def _strings(self, values: list[str], node: Node) -> list[Any]:
        words = self._words
        if node.every is not None and are_lines(values, node.every) and words.isdisjoint(values):
            self.view.is_secret |= node.is_secret
            return values
        if self._is_text(node) and words.isdisjoint(values) and "" not in values:
            return self._hand_all(values, list(map(len, values)), is_secret=node.is_secret)
        return [self._string(one, node) for one in values]

    def _is_text(self, node: Node) -> bool:
        """Whether every string there is a text of others, or one that only the user may know."""
        is_ours = node.is_system and not node.is_secret and not self._repeats_texts
        return node.match is None and not is_ours

    def _string(self, text: str, node: Node) -> Any:
        if not text or (text in self._words and not node.is_secret):
            return text
        if node.match is None and not self._is_text(node):
            return shown(text)
        if node.match is None or not node.match(text):
            return self.hand_over(text, is_secret=node.is_secret)
        self.view.is_secret |= node.is_secret
        return text

    def _scalars(self, values: list[Any], node: Node) -> list[Any]:
        if not node.is_secret:
            return values
        if node.match is None:  # whatever stands where a text is secret
            return [one if one is None else self.hand_over(one, is_secret=True) for one in values]
        self.view.is_secret |= any(one is not None for one in values)
        return values

    def _objects(self, values: list[dict[str, Any]], node: Node) -> list[Any]:
        shapes = list(map(tuple, values))
        if shapes.count(shapes[0]) == len(shapes):
            return self._alike(values, shapes[0], node)
        places: dict[tuple[str, ...], list[int]] = {}
        for at, shape in enumerate(shapes):
            places.setdefault(shape, []).append(at)
        made: list[Any] = list(values)
        for shape, held in places.items():
            for at, one in zip(held, self._alike([values[at] for at in held], shape, node), strict=True):
                made[at] = one
        return made

    def _alike(self, values: list[dict[str, Any]], keys: tuple[str, ...], node: Node) -> list[Any]:
        """The views of objects with the same keys."""
        below = node.below
        # A key is a value like any other, and where it stands no reference can.
        if not all(key in below or key in self._words or self._may_show(key, node) for key in keys):
            return [self.hand_over(one, is_secret=self._shows_secrets) for one in values]
        columns = [self._write([one[key] for one in values], below.get(key) or node.anywhere) for key in keys]
        if not columns:
            return values
        names = keys if not any(key[:1] == "$" for key in keys) else tuple(map(shown_key, keys))
        return [dict(zip(names, row)) for row in zip(*columns)]  # noqa: B905 -- strict takes twice as long

    def _may_show(self, key: str, node: Node) -> bool:
        if not key:
            return True
        if node.match is None:
            return not self._is_text(node)
        self.view.is_secret |= node.is_secret
        return node.match(key) is not None

    def hand_over(self, value: Any, *, is_secret: bool) -> Any:
        """A reference in place of a value."""
        if type(value) is str:
            return self._hand_all([value], [len(value)], is_secret=is_secret)[0]
        body = msgspec.json.encode(value)
        return self._hand_all([body], [len(body.decode())], is_secret=is_secret)[0]

    def _hand_all(self, values: Sequence[str | bytes], chars: list[int], *, is_secret: bool) -> list[Any]:
        texts, prefix, tool = self.view.texts, self._prefix, self._tool
        at = len(texts)
        if at + len(values) > REFERENCES:
            raise _TooMany
        texts += values
        if is_secret:
            self.view.secrets.update(range(at, len(texts)))
        return [
            {REFERENCE: f"{prefix}{number}", "chars": size, "from": tool}
            for number, size in enumerate(chars, at)
        ]

    def block(self, block: Any, node: Node) -> dict[str, Any]:
        """The view of a content block of MCP: its text as a reference in JSON, images as they are."""
        kind = block.get("type") if type(block) is dict else None
        if kind in ("image", "audio") or (kind == "resource" and "blob" in (block.get("resource") or {})):
            self.view.opens = True
            self.view.is_secret |= self._shows_secrets
            return block  # type: ignore[no-any-return]  # it is a dict
        if kind == "text":
            said = self.write(block.get("text"), node.step_to("text"))
        else:
            said = self.hand_over(block, is_secret=self._shows_secrets)
        return {"type": "text", "text": said if type(said) is str else msgspec.json.encode(said).decode()}


_NOT_SCALAR: Final = frozenset((str, dict, list))


def shown(text: str) -> str:
    """A text that looks like a reserved form itself, with one more mark; any other as it is."""
    if "toolkeep_" not in text:
        return text
    return _WRITTEN.sub(r"\1$\2\3", text, count=1) if _WRITTEN.match(text) else text


def shown_key(key: str) -> str:
    """A key that looks like that of a reserved form, with one more mark."""
    return f"${key}" if _RESERVED.fullmatch(key) else key


def meant_key(key: str) -> str:
    """A key of arguments as it is meant: without the mark that keeps it from being a reserved form."""
    return key[1:] if key[:2] == "$$" and _RESERVED.fullmatch(key) else key


def marks_of(text: str) -> int:
    """How many marks a text begins with that looks like a reserved form in JSON; 0 for any other."""
    found = _WRITTEN.match(text) if "toolkeep_" in text else None
    return 0 if found is None else len(found[2])


def meant(text: str) -> str:
    """A text of arguments as it is meant: without the mark that keeps it from being a reserved form."""
    return _WRITTEN.sub(lambda found: found[1] + found[2][1:] + found[3], text, count=1)


def is_reserved(value: Mapping[str, Any]) -> bool:
    """Whether an object of arguments is a reserved form."""
    return REFERENCE in value or TEMPLATE in value
