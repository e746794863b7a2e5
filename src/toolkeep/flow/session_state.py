"""The state of one session, which only falls (FLO-1), and where arguments come from (FLO-2).

In come what the user said, the results of calls, and the arguments of the next one; out go the origin of each
argument and the facts that policies read. A session is clean until text from outside was shown to the model;
while it is, the model's choices depend on the user, the operator and typed values alone. It does not look at
what a text says.
"""

import hashlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

import msgspec
import orjson

from toolkeep.definitions.vocabulary import Form, Role
from toolkeep.flow.flow_plan import Plan
from toolkeep.flow.found_values import find_contacts
from toolkeep.flow.known_values import KnownValues
from toolkeep.flow.result_reader import FORMS, Found, ResultReader
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import Place, escaped, pointer_at, steps_of
from toolkeep.json_values.reading import read_canonical
from toolkeep.limits import KIB

SAID_BYTES: Final = 12 * KIB
SYSTEM_BYTES: Final = 12 * KIB
OUTSIDE_BYTES: Final = 8 * KIB
WAITING_BYTES: Final = 20 * KIB
"""Room for what a session knows, and for results that it has not looked into yet; together below 64 KB."""
LOOKED_BYTES: Final = 12 * KIB
"""Of results that found no room, looked into at once."""
HOSTS: Final = 64
ENDORSED: Final = 256
EARLIER_CALLS: Final = 64
"""Results that are searched for the source of a value."""
ANY_HOST: Final = "*"
"""In `hosts`: more than a session remembers."""


class Origin(StrEnum):
    """Where a value comes from."""

    USER = "user"
    SYSTEM = "system"
    OUTSIDE = "outside"
    UNKNOWN = "unknown"


class ArgumentOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """Where an argument with authority comes from: the origins of all its parts, joined."""

    name: str
    role: Role
    origins: frozenset[Origin]
    is_trusted: bool
    untrusted: tuple[tuple[str, Any], ...] = ()
    """JSON Pointer and value of each part that nobody trusted named; the first few."""


class Earlier(msgspec.Struct, frozen=True, gc=False):
    """An earlier call of a session whose result the model was shown."""

    tool: str
    result_hash: bytes


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """What must survive the process: everything that only falls, and what people endorsed."""

    opened: bool = False
    secret: bool = False
    after: frozenset[str] = frozenset()
    wrote: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    endorsed: frozenset[str] = frozenset()
    begun: float = 0.0
    """When a person ended the session before it, in POSIX seconds; 0 if nobody did."""

    def joined(self, other: "Snapshot") -> "Snapshot":
        """Both, where each has fallen."""
        return Snapshot(
            opened=self.opened or other.opened,
            secret=self.secret or other.secret,
            after=self.after | other.after,
            wrote=self.wrote | other.wrote,
            hosts=self.hosts | other.hosts,
            endorsed=self.endorsed | other.endorsed,
            begun=max(self.begun, other.begun),
        )


CLEAN: Final = Snapshot()
FALLEN: Final = Snapshot(opened=True, secret=True)
"""What a session counts as whose state is not known."""


Own = frozenset[Any] | None
"""The strings, in lower case, and numbers in the arguments of a call; None for more than are compared."""


Referred = Sequence[str]
"""JSON Pointers of arguments."""


class SessionState:
    """What a keep knows of one conversation of an agent."""

    __slots__ = (
        "_lock", "_outside", "_put", "_said", "_system", "_waiting", "_waiting_bytes", "agent", "changes",
        "earlier", "id", "is_unstored", "key", "parent", "state",
    )  # fmt: skip

    def __init__(
        self,
        agent: str,
        id: str,  # noqa: A002 -- its name
        *,
        key: str,
        state: Snapshot = CLEAN,
        put: "Callable[[SessionState], None]" = lambda _: None,
    ) -> None:
        """`put` stores the state after each fall."""
        self._put = put
        self.agent = agent
        self.id = id
        self.key = key
        """What the state belongs to: for a remote caller not the id that it gave."""
        self.parent: SessionState | None = None
        """The session that it works for."""
        self.state = state
        self.is_unstored = False
        """Whether the state could not be stored: the next result stores it, or is not shown."""
        self.changes = 0
        """Raised with each change of the state or of what is known: without one, origins stay as they are."""
        self.earlier: deque[Earlier] = deque(maxlen=EARLIER_CALLS)
        """Calls whose results were shown, for the source of a value that is asked about."""
        self._lock = threading.Lock()
        self._said: KnownValues | None = None
        self._system: KnownValues | None = None
        self._outside: KnownValues | None = None
        self._waiting: list[tuple[ResultReader, bytes, Own, int]] = []
        """Results that were not looked into yet: most are never needed."""
        self._waiting_bytes = 0

    def said(self, text: str) -> None:
        """The user's own words: what they name, they may be acted on with. Never text that was pasted."""
        with self._lock:
            self.changes += 1
            self._said = self._said or KnownValues(SAID_BYTES)
            self._said.add_text(text)

    def pasted(self, text: str) -> None:
        """Text of others that the user put into the conversation, such as a mail or a file."""
        if text:
            self.fall(opened=True)

    # --- results ---------------------------------------------------------------------------------

    def fall(
        self,
        *,
        opened: bool = False,
        secret: bool = False,
        after: str = "",
        wrote: str = "",
        hosts: Collection[str] = (),
    ) -> None:
        """Note what happened; the new state is stored before this returns."""
        held = self.state
        if (
            opened <= held.opened
            and secret <= held.secret
            and (not after or after in held.after)
            and (not wrote or wrote in held.wrote)
            and (not hosts or held.hosts.issuperset(hosts))
            and not self.is_unstored
        ):
            return  # as for most calls
        with self._lock:
            self.changes += 1
            held = self.state
            known = held.hosts.union(hosts)
            if len(known) > HOSTS:
                known = held.hosts | {ANY_HOST}
            state = Snapshot(
                opened=held.opened or opened,
                secret=held.secret or secret,
                after=held.after | {after} if after else held.after,
                wrote=held.wrote | {wrote} if wrote else held.wrote,
                hosts=known,
                endorsed=held.endorsed,
                begun=held.begun,
            )
            self.state = state
        if state != held or self.is_unstored:
            self._put(self)

    def inherit(self, state: Snapshot) -> None:
        """Fall as far as another session, or as another process saw this one fall."""
        with self._lock:
            joined = self.state.joined(state)
            if joined != self.state:
                self.changes += 1
                self.state = joined

    def observe(self, plan: Plan, value: Any, body: bytes, arguments: Mapping[str, Any]) -> tuple[bool, bool]:
        """Take in a result that the model will be shown; whether it opens the session, and makes it secret.

        The caller notes both with `fall`, before the result goes out. `body` is the result as JSON, which is
        looked into once the origin of a value is asked for. What it repeats of the call's own `arguments`,
        no service made.
        """
        held, reader = self.state, plan.reader
        if held.opened and not reader.has_labels:
            return True, False
        if (value is None or type(value) is bool) and not reader.shows_secrets:
            return False, False  # as of many acts
        if type(value) is not bytes:  # which are no JSON
            if held.opened and (held.secret or not reader.shows_secrets):
                self._keep(reader, body, _own_parts(arguments))
                return True, False
            if reader.shows_values_alone(body):
                self._keep(reader, body, _own_parts(arguments))
                return False, False
        found = reader.read(value)
        with self._lock:
            self.changes += 1
            self._know(found, _own_parts(arguments))
        return found.opens, found.is_secret

    def take_in(
        self,
        reader: ResultReader,
        value: Any,
        body: bytes,
        arguments: Mapping[str, Any],
        *,
        repeats_texts: bool,
    ) -> None:
        """Take in the values of a result that the model is shown a typed view of.

        `repeats_texts`: arguments were references. A part of their text, or what was made of it, is not the
        service's own word, so nothing of the result is.
        """
        is_known = type(value) is bytes or (not reader.has_labels and self.state.opened)
        if not (is_known or value is None or type(value) is bool):
            self._keep(reader, body, None if repeats_texts else _own_parts(arguments))

    def _keep(self, reader: ResultReader, body: bytes, own: Own) -> None:
        """Keep a result until it is needed, or until no more find room."""
        # Once outside values found no room, no value is trusted for having come from a service.
        if self._outside is not None and self._outside.is_full:
            return
        size = len(body)
        if own:
            size += sum([len(part) for part in own if type(part) is str])
        result = (reader, body, own, size)
        with self._lock:
            if result in self._waiting:
                return
            self.changes += 1
            self._waiting.append(result)
            self._waiting_bytes += size
            if self._waiting_bytes > WAITING_BYTES:
                self._look(LOOKED_BYTES)

    def _look(self, most: int = sys.maxsize) -> None:
        """Look into the results that wait, the oldest first, until so many bytes are done."""
        while self._waiting and most > 0:
            reader, body, own, size = self._waiting.pop(0)
            self._waiting_bytes -= size
            most -= size
            self._know(reader.read(read_canonical(body)), own)

    def _know(self, found: Found, own: Own) -> None:
        if found.outside:
            self._outside = self._outside or KnownValues(OUTSIDE_BYTES)
            self._outside.add_values(found.outside)
        if own is None or not (found.system or found.texts):
            return
        self._system = self._system or KnownValues(SYSTEM_BYTES)
        self._system.add_values(
            [one for one in found.system if (one.lower() if type(one) is str else one) not in own]
            if own
            else found.system
        )
        for text in found.texts:
            self._system.add_text(_without(text, own))

    # --- arguments -------------------------------------------------------------------------------

    def origins(
        self, plan: Plan, arguments: Mapping[str, Any], referred: Referred = ()
    ) -> list[ArgumentOrigin]:
        """Where each argument with authority comes from; one that names nothing is left out.

        `referred` are the JSON Pointers where references stood.
        """
        with self._lock:
            named = [
                self._origin(plan, name, value, referred)
                for name, value in arguments.items()
                if name not in plan.free
            ]
            if referred:
                named += self._contents(plan, arguments, referred)
        return [origin for origin in named if origin.origins]

    def _contents(
        self, plan: Plan, arguments: Mapping[str, Any], referred: Referred
    ) -> Iterator[ArgumentOrigin]:
        """Arguments without authority in which a text that the model did not see leads its reader somewhere.

        A link of an attacker would go out in a mail of the user. Where views are plain, such a call asks
        because the session is opened.
        """
        for name in arguments.keys() & plan.free:
            # One more than is looked at counts as unknown: behind many known ones could stand any other.
            found = [
                (at, contact)
                for number, (at, contact) in enumerate(_contacts(name, arguments[name], referred))
                if number >= _CONTACTS or self._of_part(plan, name, _RECORD, contact) not in _TRUSTED
            ]
            if found:
                yield ArgumentOrigin(
                    name=name,
                    role=plan.role(name),
                    origins=frozenset({_OUTSIDE}),
                    is_trusted=False,
                    untrusted=tuple(found[:_SHOWN]),
                )

    def origin(self, plan: Plan, name: str, value: Any, referred: Referred = ()) -> ArgumentOrigin:
        """Where one argument comes from, whatever its role."""
        with self._lock:
            return self._origin(plan, name, value, referred)

    def _origin(self, plan: Plan, name: str, value: Any, referred: Referred) -> ArgumentOrigin:
        found: set[Origin] = set()
        untrusted: list[tuple[str, Any]] = []
        role, names = plan.role(name), plan.names
        marks = _marks(name, referred)
        for number, (place, part, is_referred) in enumerate(_parts(value, names, marks=marks)):
            if number >= _PARTS or len(untrusted) >= _SHOWN:
                found.add(_UNKNOWN)
                break
            origin = self._of_part(plan, name, role, part, is_referred=is_referred)
            found.add(origin)
            if origin not in _TRUSTED:
                untrusted.append((f"/{escaped(name)}{pointer_at(place)}", part))
        return ArgumentOrigin(
            name=name,
            role=role,
            origins=frozenset(found),
            is_trusted=found <= _TRUSTED,
            untrusted=tuple(untrusted),
        )

    def _of_part(self, plan: Plan, name: str, role: Role, part: Any, *, is_referred: bool = False) -> Origin:
        endorsed = self.state.endorsed
        if is_referred:
            # Whatever it stands for, even what the user named elsewhere: the model did not see what it chose.
            is_endorsed = endorsed and self.endorsement(plan.tool, name, part) in endorsed
            return _USER if is_endorsed else _OUTSIDE
        if name in plan.choices and part in plan.choices[name]:
            return _SYSTEM
        # Words first, which are found sooner than a hash is made.
        if _knows(self._said, role, part) or (
            endorsed and self.endorsement(plan.tool, name, part) in endorsed
        ):
            return _USER
        if self._waiting:
            self._look()
        is_outside = _knows(self._outside, role, part)
        # Credentials are the user's alone. A value that outsiders chose as well may be theirs.
        if role is not _CREDENTIAL and not is_outside and _knows(self._system, role, part):
            return _OUTSIDE if self._outside is not None and self._outside.is_full else _SYSTEM
        return _OUTSIDE if is_outside else _UNKNOWN

    @staticmethod
    def endorsement(tool: str, name: str, part: Any, *, secret: bool = False) -> str:
        """A value in its role, as what a person endorsed is remembered; apart where secrets may go there."""
        named = [tool, name, part, "secret"] if secret else [tool, name, part]
        body = orjson.dumps(named) if type(part) is str else canonical_bytes(named)
        # With SHA-256, which is OpenSSL's and in the middle of a call in no cache, this takes twice as long.
        return hashlib.blake2b(body, digest_size=16).hexdigest()

    def is_endorsed(self, plan: Plan, arguments: Mapping[str, Any], *, secret: bool) -> bool:
        """Whether a person endorsed where the call sends something: destinations, or all with authority.

        `secret`: session or call hold secrets. A yes from before does not count: nobody agreed to send that.
        """
        endorsed = self.state.endorsed
        if not endorsed:
            return False
        where = [name for name in arguments if name in plan.destinations]
        where = where or [name for name in arguments if name not in plan.free]
        parts = [(name, part) for name in where for _, part, _ in _parts(arguments[name], plan.names)]
        return bool(parts) and all(
            self.endorsement(plan.tool, name, part, secret=secret) in endorsed for name, part in parts
        )

    def endorse(
        self,
        plan: Plan,
        arguments: Mapping[str, Any],
        *,
        secret: bool = False,
        referred: Referred = (),
    ) -> None:
        """A person said yes to a call: its values with authority are as if the user had named them there.

        `secret` says that the person was told that the session has read what only the user may know.
        `referred` are the JSON Pointers where references stood.
        """
        named = {
            self.endorsement(plan.tool, name, part, secret=also)
            for name, value in arguments.items()
            for part in (
                [contact for _, contact in _contacts(name, value, referred)]
                if name in plan.free
                else [part for _, part, _ in _parts(value, plan.names)]
            )
            for also in {False, secret}
        }
        with self._lock:
            endorsed = self.state.endorsed | named
            if endorsed == self.state.endorsed or len(endorsed) > ENDORSED:
                return
            self.changes += 1
            self.state = msgspec.structs.replace(self.state, endorsed=endorsed)
        self._put(self)


_USER, _SYSTEM, _OUTSIDE, _UNKNOWN = Origin.USER, Origin.SYSTEM, Origin.OUTSIDE, Origin.UNKNOWN
_CREDENTIAL, _TIME, _AMOUNT, _RECORD = Role.CREDENTIAL, Role.TIME, Role.AMOUNT, Role.RECORD
"""To look up a member in its class takes 0.2 µs."""
_TRUSTED: Final = frozenset({_USER, _SYSTEM})
_SHOWN: Final = 8
_PARTS: Final = 1_000
"""Parts of one argument that are looked up; one with more, or with more untrusted ones than are shown, is of
unknown origin."""


def _contacts(name: str, value: Any, referred: Referred) -> Iterator[tuple[str, str]]:
    """Links, addresses and accounts in what references stood for in one argument, each once."""
    marks = _marks(name, referred)
    known: set[str] = set()
    for place, part, is_referred in _parts(value, _NOTHING, marks=marks) if marks else ():
        if not is_referred or type(part) is not str:
            continue
        for contact in find_contacts(part):
            if contact not in known:
                known.add(contact)
                yield f"/{escaped(name)}{pointer_at(place)}", contact
            if len(known) > _CONTACTS:
                return


_CONTACTS: Final = 100
"""Of one argument that are looked at."""


Marks = Mapping[str, "Marks"] | bool
"""Where references stood at or below a place: True for the place as a whole, False for nowhere."""


def _marks(name: str, referred: Referred) -> Marks:
    """Where references stood in one argument."""
    found: dict[str, Any] = {}
    for steps in map(steps_of, referred):
        if steps == [name]:
            return True
        if steps[0] == name:
            here = found
            for step in steps[1:-1]:
                here = here.setdefault(step, {})
            here[steps[-1]] = True
    return found or False


def _marks_below(marks: Marks, step: str | int) -> Marks:
    return marks if isinstance(marks, bool) else marks.get(str(step), False)


_OWN_PARTS: Final = 64
_NOTHING: Final[frozenset[Any]] = frozenset()


def _own_parts(arguments: Mapping[str, Any]) -> Own:
    """What a result may repeat of its call.

    Without this, a model could have any service that repeats its input name a value.
    """
    if not arguments:
        return _NOTHING
    found = set()
    for _, part, _ in _parts(dict(arguments), frozenset(arguments)):
        found.add(part.lower() if type(part) is str else part)
        if len(found) > _OWN_PARTS:
            return None
    return frozenset(found)


def _without(text: str, own: frozenset[Any]) -> str:
    """A text of a service, with a letter in place of what it repeats, so that no other word is left over."""
    text = text.lower()
    for part in own:
        text = text.replace(part if type(part) is str else str(part), "\u00ff")
    return text


def _knows(known: KnownValues | None, role: Role, part: Any) -> bool:
    if known is None:
        return False
    if type(part) is not str:
        return known.has_number(part)
    # Only a date: of a longer text, what stands beside the day could be anything.
    if role is _TIME and FORMS[Form.DATE].fullmatch(part) and known.has_dates(part):
        return True
    if role is _AMOUNT and _is_number(part) and known.has_number(part):
        return True
    return known.has_text(part)


def _is_number(text: str) -> bool:
    return FORMS[Form.NUMBER].fullmatch(text) is not None


def _parts(value: Any, names: frozenset[str], *, marks: Marks = False) -> Iterable[tuple[Place, Any, bool]]:
    """Every string and number in an argument, and every key that is not in `names`.

    Each with its place, and whether a reference stood there. Truth values and null name nothing.
    """
    if type(value) is str:
        return ((None, value, marks is True),) if value else ()
    return _parts_inside(value, names, marks)


def _parts_inside(value: Any, names: frozenset[str], marks: Marks) -> Iterator[tuple[Place, Any, bool]]:
    waiting: list[tuple[Place, Any, Marks]] = [(None, value, marks)]
    while waiting:
        at, here, marks = waiting.pop()
        kind = type(here)
        if kind is list:
            waiting.extend(
                ((at, number), inside, _marks_below(marks, number)) for number, inside in enumerate(here)
            )
        elif kind is dict:
            for key, inside in here.items():
                place, below = (at, key), _marks_below(marks, key)
                waiting.append((place, inside, below))
                if key not in names:
                    waiting.append((place, key, below))
        elif here is not None and kind is not bool and here != "":
            yield at, here, marks is True
