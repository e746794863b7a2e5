"""References of typed views: what each stands for, and arguments that name them (FLO-6).

A reference belongs to one session of one agent, and is forgotten with it, when its room is needed, or when
the process ends. What nobody gave out, what belongs to another session and what was forgotten look the same:
one lookup among the session's own, which does not find it. Arguments are resolved before they are validated,
never twice, and nothing is copied before all sizes are added up: a short template could stand for gigabytes.
"""

import re
import secrets
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
from toolkeep.json_values.pointers import escaped
from toolkeep.limits import MIB

SESSION_CHARS: Final = 4 * MIB
ALL_CHARS: Final = 64 * MIB
"""Results that references of one session, and of all, are about; the oldest give way, never the newest."""
USED: Final = 200
"""References in the arguments of one call."""
_SHAPE: Final = re.compile(r"([A-Za-z0-9_-]{16})\.(0|[1-9][0-9]{0,3})")
_BESIDE: Final = frozenset({REFERENCE, "chars", "from"})
"""What a view writes into a reference; a model may copy all of it or only the first."""


class Text(NamedTuple):
    """What a reference stands for."""

    value: Any
    chars: int
    """Of the text, or of the JSON of another value."""
    tool: str
    """Whose result it is from."""
    is_secret: bool


class _Given(msgspec.Struct, frozen=True, gc=False):
    """What the references of one result stand for."""

    texts: list[Any]
    secrets: set[int]
    tool: str
    chars: int


class _OfSession:
    """The references of one session, by the token that they begin with."""

    __slots__ = ("by_token", "chars")

    def __init__(self) -> None:
        self.by_token: OrderedDict[str, _Given] = OrderedDict()
        self.chars = 0


class References:
    """The references that a keep has given out."""

    def __init__(self, *, session_chars: int = SESSION_CHARS, all_chars: int = ALL_CHARS) -> None:
        self._session_chars, self._all_chars = session_chars, all_chars
        self._lock = threading.Lock()
        self._sessions: OrderedDict[SessionState, _OfSession] = OrderedDict()
        self._chars = 0

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
            self._put(session, token, _Given(view.texts, view.secrets, plan.tool, len(body)))
        return view

    def _put(self, session: SessionState, token: str, given: _Given) -> None:
        with self._lock:
            held = self._sessions.setdefault(session, _OfSession())
            self._sessions.move_to_end(session)
            held.by_token[token] = given
            held.chars += given.chars
            self._chars += given.chars
            while held.chars > self._session_chars and len(held.by_token) > 1:
                _, oldest = held.by_token.popitem(last=False)
                held.chars -= oldest.chars
                self._chars -= oldest.chars
            while self._chars > self._all_chars and len(self._sessions) > 1:
                _, idle = self._sessions.popitem(last=False)
                self._chars -= idle.chars

    def find(self, session: SessionState, reference: str) -> Text | None:
        """What a reference stands for; None for anything that this session was not given, or that is gone."""
        shape = _SHAPE.fullmatch(reference)
        with self._lock:
            held = self._sessions.get(session)
            given = None if shape is None or held is None else held.by_token.get(shape[1])
        number = 0 if shape is None else int(shape[2])
        if given is None or number >= len(given.texts):
            return None
        value = given.texts[number]
        return Text(value, _chars(value), given.tool, number in given.secrets)


def _chars(value: Any) -> int:
    return len(value) if type(value) is str else len(_as_text(value))


def _as_text(value: Any) -> str:
    return value if type(value) is str else msgspec.json.encode(value).decode()


# --- arguments -----------------------------------------------------------------------------------


class ReferenceRefused(Exception):
    """Arguments name a reference that cannot be resolved; `path` is its JSON Pointer."""

    def __init__(self, path: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.path, self.message, self.fix = path, message, fix


class Resolved(NamedTuple):
    """Arguments with texts in place of references."""

    arguments: dict[str, Any]
    used: tuple[UsedReference, ...]


def resolve(
    arguments: dict[str, Any], find: Callable[[str], Text | None], *, most_chars: int
) -> Resolved | None:
    """Resolve the references in arguments; None if nothing has to change.

    Raises `ReferenceRefused`. `most_chars` bounds everything that they stand for, together.
    """
    reading = _Reading(find, most_chars)
    reading.look(arguments)
    if not reading.changes:
        return None
    return Resolved(_rebuilt(arguments, "", reading.changes), tuple(reading.used))


class _Template(NamedTuple):
    """The parts of a template, which are joined once all sizes are known."""

    parts: list[Any]


class _Reading:
    """Finds what is to be changed in arguments, and adds up what they would hold."""

    def __init__(self, find: Callable[[str], Text | None], most_chars: int) -> None:
        self._find = find
        self._left, self._most = most_chars, most_chars
        self._count = 0
        self.changes: dict[str, Any] = {}
        """What stands at a JSON Pointer instead; of an object with marked keys, itself."""
        self.used: list[UsedReference] = []

    def look(self, arguments: dict[str, Any]) -> None:
        """Look through all arguments."""
        waiting: list[tuple[str, Any]] = [("", arguments)]
        while waiting:
            at, here = waiting.pop()
            kind = type(here)
            if kind is str:
                self._text(at, here)
            elif kind is list:
                waiting.extend((f"{at}/{number}", one) for number, one in enumerate(here))
            elif kind is dict:
                if at and is_reserved(here):
                    self._form(at, here)
                else:
                    waiting.extend(self._members(at, here))

    def _members(self, at: str, here: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, inside in here.items():
            if key in (REFERENCE, TEMPLATE):  # as the arguments themselves
                raise _malformed(at)
            if marks_of(key) == 1:
                fix = "Write the name of the property itself."
                raise ReferenceRefused(f"{at}/{escaped(key)}", "the name of a property is a reference", fix)
            if meant_key(key) != key:
                self.changes[at] = here
            yield f"{at}/{escaped(key)}", inside

    def _text(self, at: str, text: str) -> None:
        """A text, which may be a reserved form as JSON: a model writes it where a schema wants text."""
        marks = marks_of(text)
        if not marks:
            return
        if marks > 1:
            self.changes[at] = meant(text)
            return
        try:
            form = msgspec.json.decode(text)
        except (ValueError, RecursionError):
            raise _malformed(at) from None
        if type(form) is not dict or not is_reserved(form):
            raise _malformed(at)
        self._form(at, form)

    def _form(self, at: str, form: dict[str, Any]) -> None:
        if REFERENCE in form:
            found = self._reference(at, form)
            self.changes[at] = found.value
            self.used.append(UsedReference(at, found.is_secret, found.tool))
            return
        parts = form[TEMPLATE]
        if len(form) != 1 or type(parts) is not list:
            raise _malformed(at)
        joined: list[Any] = []
        tools, is_secret = set(), False
        for part in parts:
            if type(part) is str:
                self._take(at, len(part))
                joined.append(part)
            elif type(part) is dict:
                found = self._reference(at, part)
                joined.append(found.value)
                tools.add(found.tool)
                is_secret = is_secret or found.is_secret
            else:
                raise _malformed(at)
        self.changes[at] = _Template(joined)
        # What a template joins is text of others, whatever it is made of: it could build an address.
        self.used.append(UsedReference(at, is_secret, ", ".join(sorted(tools))))

    def _reference(self, at: str, form: dict[str, Any]) -> Text:
        reference = form.get(REFERENCE)
        if type(reference) is not str or not form.keys() <= _BESIDE:
            raise _malformed(at)
        found = self._find(reference)
        if found is None:
            message = "the reference is not known in this session, or is known no more"
            fix = "Call the tool that gave it again, and use the reference that comes then."
            raise ReferenceRefused(at, message, fix)
        self._take(at, found.chars)
        return found

    def _take(self, at: str, chars: int) -> None:
        self._count += 1
        self._left -= chars
        if self._count > USED or self._left < 0:
            message = f"the references stand for more than {self._most} characters, or are more than {USED}"
            raise ReferenceRefused(at, message, "Use fewer or shorter texts in one call.")


def _malformed(at: str) -> ReferenceRefused:
    message = "this is no reference as results show them, and no template"
    fix = (
        f'Write {{"{REFERENCE}": "…"}}, or {{"{TEMPLATE}": ["text", {{"{REFERENCE}": "…"}}]}}; '
        "for data with this key put one more $ before it."
    )
    return ReferenceRefused(at, message, fix)


def _rebuilt(here: Any, at: str, changes: dict[str, Any]) -> Any:
    """The arguments with everything changed, as new objects."""
    if at in changes and changes[at] is not here:
        changed = changes[at]
        return "".join(map(_as_text, changed.parts)) if type(changed) is _Template else changed
    if type(here) is dict:
        return {meant_key(key): _rebuilt(one, f"{at}/{escaped(key)}", changes) for key, one in here.items()}
    if type(here) is list:
        return [_rebuilt(one, f"{at}/{number}", changes) for number, one in enumerate(here)]
    return here
