"""References of typed views: what each stands for, and arguments that name them (FLO-6).

A reference belongs to one session of one agent, and is forgotten with it, when its room is needed, or when
the process ends. What nobody gave out, what belongs to another session and what was forgotten look the same:
one lookup among the session's own, which does not find it. Arguments are resolved before they are validated,
never twice, and nothing is copied before all sizes are added up: a short template could stand for gigabytes.
"""

import re
import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from toolkeep.calls import UsedReference
from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.result_reader import ResultReader
from toolkeep.flow.session_state import SessionState
from toolkeep.flow.typed_view import (
    REFERENCE,
    TEMPLATE,
    View,
    is_reserved,
    make_view,
    marks_of,
    meant,
    meant_key,
)
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import Place, pointer_at
from toolkeep.limits import KIB, MIB

SESSION_BYTES: Final = 4 * MIB
ALL_BYTES: Final = 64 * MIB
"""Room for what references of one session, and of all, stand for; the oldest give way, never the newest."""
_RESULT_BYTES: Final = KIB
"""What a result takes beside its texts: many short ones would take far more than their characters."""
USED: Final = 200
"""References in the arguments of one call."""
_SHAPE: Final = re.compile(r"([A-Za-z0-9_-]{16})\.(0|[1-9][0-9]{0,3})")
_POINTER_CHARS: Final = 1_000
"""Of the place of a reference: the log holds one for each, and property names can be as long as arguments."""
_BESIDE: Final = frozenset({REFERENCE, "chars", "from"})
"""What a view writes into a reference; a model may copy all of it or only the first."""


class Text(NamedTuple):
    """What a reference stands for."""

    said: str | bytes
    """A text, or another value as JSON: of its own for each use, which a tool may change."""
    tool: str
    """Whose result it is from."""
    is_secret: bool


class _Given(msgspec.Struct, frozen=True, gc=False):
    """What the references of one result stand for."""

    texts: list[str | bytes]
    secrets: set[int]
    tool: str
    size: int


class _OfSession:
    """The references of one session, by the token that they begin with."""

    __slots__ = ("by_token", "size")

    def __init__(self) -> None:
        self.by_token: OrderedDict[str, _Given] = OrderedDict()
        self.size = 0


class References:
    """The references that a keep has given out."""

    def __init__(self, *, session_bytes: int = SESSION_BYTES, all_bytes: int = ALL_BYTES) -> None:
        self._session_bytes, self._all_bytes = session_bytes, all_bytes
        self._lock = threading.Lock()
        self._sessions: OrderedDict[SessionState, _OfSession] = OrderedDict()
        self._size = 0

    def view(
        self,
        session: SessionState,
        plan: Plan,
        value: Any,
        body: bytes,
        *,
        repeats_texts: bool,
        reader: ResultReader | None = None,
    ) -> View:
        """The view of a result for a session, which knows its references from then on."""
        token = secrets.token_urlsafe(12)
        view = make_view(plan, value, body, token, repeats_texts=repeats_texts, reader=reader)
        if view.texts:
            size = _RESULT_BYTES + sum(map(sys.getsizeof, view.texts))
            self._put(session, token, _Given(view.texts, view.secrets, plan.tool, size))
        return view

    def _put(self, session: SessionState, token: str, given: _Given) -> None:
        with self._lock:
            held = self._sessions.setdefault(session, _OfSession())
            self._sessions.move_to_end(session)
            held.by_token[token] = given
            held.size += given.size
            self._size += given.size
            while held.size > self._session_bytes and len(held.by_token) > 1:
                _, oldest = held.by_token.popitem(last=False)
                held.size -= oldest.size
                self._size -= oldest.size
            while self._size > self._all_bytes and len(self._sessions) > 1:
                _, idle = self._sessions.popitem(last=False)
                self._size -= idle.size

    def find(self, session: SessionState, reference: str) -> Text | None:
        """What a reference stands for; None for anything that this session was not given, or that is gone."""
        shape = _SHAPE.fullmatch(reference)
        with self._lock:
            held = self._sessions.get(session)
            given = None if shape is None or held is None else held.by_token.get(shape[1])
        number = 0 if shape is None else int(shape[2])
        if given is None or number >= len(given.texts):
            return None
        return Text(given.texts[number], given.tool, number in given.secrets)


# --- arguments -----------------------------------------------------------------------------------


class ReferenceRefused(Exception):
    """Arguments name a reference that cannot be resolved; `path` is its JSON Pointer."""

    def __init__(self, path: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.path, self.message, self.fix = path, message, fix


class Resolved(NamedTuple):
    """Arguments with texts in place of references."""

    used: tuple[UsedReference, ...]
    written: bytes
    """The arguments as they were, as canonical JSON, if they had references."""


def resolve(
    arguments: dict[str, Any], find: Callable[[str], Text | None], *, most_chars: int
) -> Resolved | None:
    """Resolve the references in arguments, in place; None if nothing had to change.

    Raises `ReferenceRefused`, and changes nothing then. `most_chars` bounds everything that they stand for,
    together.
    """
    reading = _Reading(find, most_chars)
    reading.look(arguments)
    if not (reading.changes or reading.marked):
        return None
    written = canonical_bytes(arguments) if reading.used else b""
    reading.change()
    return Resolved(tuple(reading.used), written)


class _Reading:
    """Finds what is to be changed in arguments, and adds up what they would hold."""

    def __init__(self, find: Callable[[str], Text | None], most_chars: int) -> None:
        self._find = find
        self._left, self._most = most_chars, most_chars
        self._count = 0
        self.changes: list[tuple[Any, str | int, str | bytes | list[str | bytes]]] = []
        """A list or object, the place in it, and what is to stand there: a text, or parts that are joined."""
        self.marked: list[dict[str, Any]] = []
        """Objects with marked keys, the outer ones first."""
        self.used: list[UsedReference] = []

    def look(self, arguments: dict[str, Any]) -> None:
        """Look through all arguments."""
        waiting: list[tuple[Place, Any, Any]] = list(self._members(None, arguments))
        while waiting:
            at, holder, here = waiting.pop()
            kind = type(here)
            if kind is str:
                self._text(at, holder, here)
            elif kind is list:
                waiting.extend(((at, number), here, one) for number, one in enumerate(here))
            elif kind is dict:
                if is_reserved(here):
                    self._form(at, holder, here)
                else:
                    waiting.extend(self._members(at, here))

    def change(self) -> None:
        """Put texts in the place of references, and take marks off."""
        for holder, step, said in self.changes:
            if isinstance(said, list):
                holder[step] = "".join(one if isinstance(one, str) else one.decode() for one in said)
            else:
                holder[step] = msgspec.json.decode(said) if isinstance(said, bytes) else said
        for here in self.marked:
            members = [(meant_key(key), one) for key, one in here.items()]
            here.clear()
            here.update(members)

    def _members(self, at: Place, here: dict[str, Any]) -> Iterator[tuple[Place, Any, Any]]:
        is_marked = False
        for key, inside in here.items():
            if key in (REFERENCE, TEMPLATE):  # as the arguments themselves
                raise _malformed(at)
            if marks_of(key) == 1:
                fix = "Write the name of the property itself."
                raise ReferenceRefused(_shown((at, key)), "the name of a property is a reference", fix)
            is_marked = is_marked or meant_key(key) != key
            yield (at, key), here, inside
        if is_marked:
            self.marked.append(here)

    def _text(self, at: Place, holder: Any, text: str) -> None:
        """A text, which may be a reserved form as JSON: a model writes it where a schema wants text."""
        marks = marks_of(text)
        if not marks:
            return
        if marks > 1:
            self._put(at, holder, meant(text))
            return
        try:
            form = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            raise _malformed(at) from None
        if type(form) is not dict or not is_reserved(form):
            raise _malformed(at)
        self._form(at, holder, form)

    def _form(self, at: Place, holder: Any, form: dict[str, Any]) -> None:
        if REFERENCE in form:
            found = self._reference(at, form)
            self._use(at, found.tool, is_secret=found.is_secret)
            self._put(at, holder, found.said)
            return
        parts = form[TEMPLATE]
        if len(form) != 1 or type(parts) is not list:
            raise _malformed(at)
        joined: list[str | bytes] = []
        tools, is_secret = set(), False
        for part in parts:
            if type(part) is str:
                self._take(at, len(part))
                joined.append(part)
            elif type(part) is dict:
                found = self._reference(at, part)
                joined.append(found.said)
                tools.add(found.tool)
                is_secret = is_secret or found.is_secret
            else:
                raise _malformed(at)
        # What a template joins is text of others, whatever it is made of: it could build an address.
        self._use(at, ", ".join(sorted(tools)), is_secret=is_secret)
        self._put(at, holder, joined)

    def _put(self, at: Place, holder: Any, said: str | bytes | list[str | bytes]) -> None:
        if at is not None:
            self.changes.append((holder, at[1], said))

    def _use(self, at: Place, tool: str, *, is_secret: bool) -> None:
        place = pointer_at(_meant(at))
        if len(place) > _POINTER_CHARS:
            message = f"the names around a reference have more than {_POINTER_CHARS} characters"
            raise ReferenceRefused(_shown(at), message, "Use shorter names.")
        self.used.append(UsedReference(place, is_secret, tool))

    def _reference(self, at: Place, form: dict[str, Any]) -> Text:
        reference = form.get(REFERENCE)
        if type(reference) is not str or not form.keys() <= _BESIDE:
            raise _malformed(at)
        found = self._find(reference)
        if found is None:
            message = "the reference is not known in this session, or is known no more"
            fix = "Call the tool that gave it again, and use the reference that comes then."
            raise ReferenceRefused(_shown(at), message, fix)
        self._take(at, len(found.said))
        return found

    def _take(self, at: Place, chars: int) -> None:
        self._count += 1
        self._left -= chars
        if self._count > USED or self._left < 0:
            message = f"the references stand for more than {self._most} characters, or are more than {USED}"
            raise ReferenceRefused(_shown(at), message, "Use fewer or shorter texts in one call.")


def _malformed(at: Place) -> ReferenceRefused:
    message = "this is no reference as results show them, and no template"
    fix = (
        f'Write {{"{REFERENCE}": "…"}}, or {{"{TEMPLATE}": ["text", {{"{REFERENCE}": "…"}}]}}; '
        "for data with this key put one more $ before it."
    )
    return ReferenceRefused(_shown(at), message, fix)


def _shown(at: Place) -> str:
    return pointer_at(at)[:_POINTER_CHARS]


def _meant(at: Place) -> Place:
    """A place as it is once marks are taken off: where whoever asks for origins finds it."""
    if at is None:
        return None
    around, step = at
    return _meant(around), meant_key(step) if type(step) is str else step
