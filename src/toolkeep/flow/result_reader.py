"""What a result shows, by the labels of its tool: text from outside, secrets, and values with their maker.

In: the labels of a definition and a result of it. Out: whether the result opens a session, whether it makes
it secret, and the values that the session knows from then on. A string that does not match its form is text.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec

from toolkeep.definitions.result_labels import ANY_STEP, PLAIN_TEXT, Label, read_labels
from toolkeep.definitions.vocabulary import Form

FORMS: Final = {
    Form.ID: re.compile(r"[A-Za-z0-9_.@+:/#-]{1,64}"),
    Form.EMAIL: re.compile(r"[A-Za-z0-9._+-]{1,64}@[A-Za-z0-9.-]{1,63}"),
    Form.URL: re.compile(r"https?://[A-Za-z0-9._~:/?#@!$&()*+,;=%-]{1,200}"),
    # Possessive: the ways to cut 32 characters into groups take 3 ms a value, and outsiders choose values.
    Form.IBAN: re.compile(r"[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]{1,4}+){3,8}+"),
    Form.DATE: re.compile(
        r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?", re.ASCII
    ),
    Form.NUMBER: re.compile(r"[+-]?\d{1,24}(?:\.\d{1,12})?", re.ASCII),
}
"""What a string of each typed form may be: ASCII, without quotes, backslashes or two spaces in a row. A value
that does not match loses its label: it is text."""

_EVERY: Final = {
    form: re.compile(rf"(?>{one.pattern})(?:\n(?>{one.pattern}))*+", re.ASCII) for form, one in FORMS.items()
}
READ_FIRST: Final = 8
"""Results of a tool that are read before its pattern is compiled, which takes some 10 ms."""
_PATTERN_BYTES: Final = 8_000
_PATTERN_WORDS: Final = 32
_PATTERN_STEPS: Final = 8
"""Definitions with more have no pattern, or one without their words: each alternative is tried in turn."""
_PLAIN_KEY: Final = re.compile(r"[^\x00-\x1f\"\\\x7f-\U0010ffff]{1,200}")
"""What JSON writes as it is."""


class Node:
    """The labels at and below one place of a result; once settled, every place has one."""

    __slots__ = ("anywhere", "below", "every", "is_secret", "is_system", "is_text", "label", "match")

    def __init__(self, label: Label | None = None) -> None:
        self.label = label
        self.below: dict[str, Node] = {}
        self.anywhere: Node = self
        """Of every item, and of every key that `below` does not name."""
        self.is_secret = self.is_system = self.is_text = False
        self.match: Callable[[str], object] | None = None
        """Of a typed form."""
        self.every: re.Pattern[str] | None = None
        """Of lines of a typed form."""

    def step(self, step: str) -> "Node":
        """The node of one step, made if there is none."""
        if step == ANY_STEP:
            self.anywhere = Node() if self.anywhere is self else self.anywhere
            return self.anywhere
        return self.below.setdefault(step, Node())

    def step_to(self, step: str) -> "Node":
        """The node of one step of a result."""
        return self.below.get(step) or self.anywhere

    def settle(self) -> Iterator["Node"]:
        """Work out what the label says, and hand it down to what has none of its own."""
        label = self.label
        if label is not None:
            self.is_secret, self.is_system = label.is_secret, label.is_system
            self.is_text = label.form is Form.TEXT
            if not self.is_text:
                self.match, self.every = FORMS[label.form].fullmatch, _EVERY[label.form]
        if self.below and self.anywhere is self:
            self.anywhere = Node()
        for node in (self.anywhere, *self.below.values()):
            if node is not self:
                node.label = node.label or label
                yield node


class Found(msgspec.Struct):
    """What a result shows."""

    opens: bool = False
    """Whether it shows text from outside."""
    is_secret: bool = False
    texts: list[str] = []
    """Texts that the service made."""
    system: list[Any] = []
    """Strings and numbers that the service made."""
    outside: list[Any] = []

    def add(self, value: Any, node: Node, words: frozenset[str]) -> None:
        """Take in a string, a number, a truth value or bytes."""
        self.is_secret |= node.is_secret
        if type(value) is str:
            if not value or value in words:
                return
            if node.match is not None and node.match(value):
                (self.system if node.is_system else self.outside).append(value)
            elif node.is_text and node.is_system:
                self.texts.append(value)
            else:
                self.opens = True
        elif type(value) is bytes:
            self.opens = True
        elif type(value) is not bool:
            (self.system if node.is_system else self.outside).append(value)


class ResultReader:
    """Reads the results of one tool."""

    __slots__ = ("_pattern", "_until_compiled", "has_labels", "root", "shows_secrets", "words")

    def __init__(self, flow: Mapping[str, Any], words: frozenset[str]) -> None:
        """`flow` are the labels as data; `words` are strings that the definition itself chose."""
        root = Node()
        labels = read_labels(flow)
        for steps, label in labels.items():
            node = root
            for step in steps:
                node = node.step(step)
            node.label = label
        unsettled = [root]
        while unsettled:
            unsettled += unsettled.pop().settle()
        self.root = root
        self._until_compiled = READ_FIRST if all(len(steps) <= _PATTERN_STEPS for steps in labels) else 0
        self.words = words
        self._pattern: re.Pattern[bytes] | None = None
        self.has_labels = any(label != PLAIN_TEXT for label in labels.values())
        """Whether a label says more than that a result is text from outside, as it is without one."""
        self.shows_secrets = any(label.is_secret for label in labels.values())

    def shows_values_alone(self, body: bytes) -> bool:
        """Whether a result in JSON certainly shows no text from outside and no secret; False says nothing.

        One regular expression over the body takes 24 µs for 4 KB, `read` 90.
        """
        if self._pattern is None:
            if self._until_compiled != 1:
                self._until_compiled -= self._until_compiled > 0
                return False
            self._until_compiled = 0
            self._pattern = _compiled(self.root, self.words)
        return self._pattern is not None and self._pattern.fullmatch(body) is not None

    def read(self, value: Any) -> Found:
        """What a result shows; of one without labels no more than its first text."""
        words = self.words
        if not self.has_labels and _has_text(value, words):
            return Found(opens=True)
        found = Found()
        # All values of one place at once, such as the ids of all items: half the time of one by one.
        waiting: list[tuple[list[Any], Node]] = [([value], self.root)]
        while waiting:
            values, node = waiting.pop()
            if node.every is not None and are_lines(values, node.every) and words.isdisjoint(values):
                found.is_secret |= node.is_secret
                (found.system if node.is_system else found.outside).extend(values)
                continue
            members: dict[str, list[Any]] = {}
            for here in values:
                kind = type(here)
                if kind is dict:
                    _group(here, members)
                elif kind is list:
                    waiting.append((here, node.anywhere))
                elif here is not None:
                    found.add(here, node, words)
            for key, inside in members.items():
                child = node.below.get(key)
                if child is None:
                    child = node.anywhere
                    if key not in words:  # a key that nobody declared is a value like any other
                        found.add(key, node, words)
                        found.is_secret |= child.is_secret
                waiting.append((inside, child))
        return found


def _group(members: dict[str, Any], groups: dict[str, list[Any]]) -> None:
    for key, inside in members.items():
        if key in groups:
            groups[key].append(inside)
        else:
            groups[key] = [inside]


def _has_text(value: Any, words: frozenset[str]) -> bool:
    """Whether anything in an unlabelled result is text: a string or key that the definition did not name."""
    waiting = [value]
    while waiting:
        here = waiting.pop()
        kind = type(here)
        if kind is str:
            if here and here not in words:
                return True
        elif kind is dict:
            if any(key and key not in words for key in here):
                return True
            waiting.extend(here.values())
        elif kind is list:
            waiting.extend(here)
        elif kind is bytes:
            return True
    return False


def are_lines(values: list[Any], every: "re.Pattern[str]") -> bool:
    """Whether all values are strings of a form; none of them may hold a line break."""
    try:
        joined = "\n".join(values)
    except TypeError:
        return False
    return joined.count("\n") == len(values) - 1 and every.fullmatch(joined) is not None


# --- the pattern ---------------------------------------------------------------------------------


def _compiled(root: Node, words: frozenset[str]) -> "re.Pattern[bytes] | None":
    plain = sorted(word for word in words if _PLAIN_KEY.fullmatch(word))
    plain = plain if len(plain) <= _PATTERN_WORDS else []
    if root.label is None and root.anywhere is root:
        pattern = rb"(?:[][{},:]++|%b|null)*+" % b"|".join(_scalars(root, plain))
    else:
        pattern = _value(root, plain, is_root=True)
    return re.compile(pattern) if len(pattern) <= _PATTERN_BYTES else None


def _value(node: Node, words: list[str], *, is_root: bool = False) -> bytes:
    """A pattern for what may stand at a node without opening a session or making it secret.

    The body is JSON as our encoder writes it, so that commas need no check. It must never match what `read`
    finds to be text or secret. Everything is possessive: no body makes it go back. Below the last label it
    follows a list, and at the root of the result an object: one that nests deeper is read.
    """
    # What is most likely first, which saves a tenth.
    scalars = b"|".join([*(() if node.is_secret else _scalars(node, words)), rb"null|\{\}|\[\]"])
    is_last = node.anywhere is node
    inside = b"(?>%b)" % scalars if is_last and not is_root else _value(node.anywhere, words)
    if len(inside) > _PATTERN_BYTES:
        return inside
    choices = [scalars, rb"\[(?:%b,?+)*+\]" % inside]
    keys = list(_keys(node, words, inside)) if not node.is_secret and (is_root or not is_last) else []
    if keys:
        choices.insert(0, rb"\{(?:(?:%b),?+)*+\}" % b"|".join(keys))
    return b"(?>%b)" % b"|".join(choices)


def _scalars(node: Node, words: list[str]) -> Iterator[bytes]:
    if node.label is not None and not node.is_text:
        yield b'"(?>%b)"' % FORMS[node.label.form].pattern.encode()
    elif node.is_text and node.is_system:
        yield rb'"(?:[^"\\]|\\.)*+"'
    yield rb"-?+[0-9][0-9.eE+-]*+"
    yield rb'true|false|""'
    if words:
        yield b'"(?:%b)"' % b"|".join(re.escape(word).encode() for word in words)


def _keys(node: Node, words: list[str], inside: bytes) -> Iterator[bytes]:
    """Members of an object. A key that a label names leads to its own node and to no other."""
    for key, child in node.below.items():
        if _PLAIN_KEY.fullmatch(key):
            yield b'"%b":%b' % (re.escape(key).encode(), _value(child, words))
    others = [word for word in words if word not in node.below]
    if others:
        yield b'"(?:%b)":%b' % (b"|".join(re.escape(word).encode() for word in others), inside)
    if node.label is not None and not node.is_text and not node.below and not node.anywhere.is_secret:
        yield b'"(?>%b)":%b' % (FORMS[node.label.form].pattern.encode(), inside)
