"""The state of one session, which only falls (FLO-1), and where arguments come from (FLO-2).

In come what the user said, the results of calls, and the arguments of the next one; out go the origin of each
argument and the facts that policies read. A session is clean until text from outside was shown to the model;
while it is, the model's choices depend on the user, the operator and typed values alone. It does not look at
what a text says.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from toolkeep.definitions.result_labels import Label
from toolkeep.definitions.vocabulary import Form, Role
from toolkeep.flow.flow_plan import FORMS, Node, Plan
from toolkeep.flow.known_values import KnownValues
from toolkeep.json_values.canonical import canonical_bytes
from toolkeep.json_values.pointers import escaped
from toolkeep.limits import KIB

SAID_BYTES: Final = 12 * KIB
SYSTEM_BYTES: Final = 20 * KIB
OUTSIDE_BYTES: Final = 8 * KIB
WAITING_BYTES: Final = 12 * KIB
"""Room for what a session knows, and for results that it has not looked into yet; together below 64 KB."""
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


class Earlier(msgspec.Struct, frozen=True):
    """An earlier call of a session whose result the model was shown."""

    call: str
    tool: str
    result_hash: str


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


class SessionState:
    """What a keep knows of one conversation of an agent."""

    __slots__ = (
        "_lock", "_outside", "_put", "_said", "_system", "_waiting", "agent", "earlier", "id", "key",
        "parent", "state",
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
        self.earlier: list[Earlier] = []
        self._lock = threading.Lock()
        self._said: KnownValues | None = None
        self._system: KnownValues | None = None
        self._outside: KnownValues | None = None
        self._waiting: list[tuple[Plan, bytes, Own]] = []
        """Results of an opened session that were not looked into yet: most are never needed."""

    def said(self, text: str) -> None:
        """The user's own words: what they name, they may be acted on with. Never text that was pasted."""
        with self._lock:
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
        hosts: Iterable[str] = (),
    ) -> None:
        """Note what happened; the new state is stored before this returns."""
        with self._lock:
            held = self.state
            known = held.hosts.union(hosts)
            if len(known) > HOSTS:
                known = frozenset((*sorted(known)[: HOSTS - 1], ANY_HOST)) | held.hosts
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
        if state != held:
            self._put(self)

    def inherit(self, state: Snapshot) -> None:
        """Fall as far as another session, or as another process saw this one fall."""
        with self._lock:
            self.state = self.state.joined(state)

    def observe(self, plan: Plan, value: Any, body: bytes, arguments: Mapping[str, Any]) -> tuple[bool, bool]:
        """Take in a result that the model will be shown; whether it opens the session, and makes it secret.

        The caller notes both with `fall`, before the result goes out. `body` is the result as JSON. What it
        repeats of the call's own `arguments`, no service made.
        """
        own = _own_parts(arguments)
        labels = plan.labels
        if labels is None:
            if self.state.opened or _has_text(value, plan.words):
                return True, False
            labels = _NO_LABELS  # numbers alone
        with self._lock:
            if self.state.opened and not plan.shows_secrets and len(body) <= WAITING_BYTES:
                if sum(len(one) for _, one, _ in self._waiting) + len(body) > WAITING_BYTES:
                    self._look()
                self._waiting.append((plan, body, own))
                return True, False
            return self._observe(labels, value, plan.words, own)

    def _look(self) -> None:
        """Look into the results that wait."""
        waiting, self._waiting = self._waiting, []
        for plan, body, own in waiting:
            self._observe(plan.labels or _NO_LABELS, msgspec.json.decode(body), plan.words, own)

    def _observe(self, labels: Node, value: Any, words: frozenset[str], own: Own) -> tuple[bool, bool]:
        opens = is_secret = False
        waiting: list[tuple[Any, Node | None, Label | None]] = [(value, labels, None)]
        while waiting:
            here, node, label = waiting.pop()
            if node is not None and node.label is not None:
                label = node.label
            kind = type(here)
            if kind is dict:
                for key, inside in here.items():
                    below = None if node is None else node.below.get(key) or node.anywhere
                    # A key that nobody declared is a value like any other.
                    if key not in words and (node is None or key not in node.below):
                        opens |= self._leaf(key, label, own)
                        is_secret |= _is_secret(label) or (below is not None and _is_secret(below.label))
                    waiting.append((inside, below, label))
            elif kind is list:
                below = None if node is None else node.anywhere
                waiting.extend((inside, below, label) for inside in here)
            elif here is not None:
                is_secret |= _is_secret(label)
                if kind is not bool and (kind is not str or here not in words):
                    opens |= self._leaf(here, label, own)
        return opens, is_secret

    def _leaf(self, value: Any, label: Label | None, own: Own) -> bool:
        """Take in one value; whether it is text from outside."""
        if type(value) is bytes:
            return True
        is_text = type(value) is str
        if is_text and not value:
            return False
        if label is not None and (
            not is_text or label.form is Form.TEXT or FORMS[label.form].fullmatch(value)
        ):
            if label.is_system:
                self._system = self._system or KnownValues(SYSTEM_BYTES)
                if is_text and label.form is Form.TEXT:
                    self._system.add_text(_without(value, own))
                elif own is not None and (value.lower() if is_text else value) not in own:
                    self._system.add_value(value)
                return False
            if label.form is not Form.TEXT or not is_text:
                self._know_outside(value)
                return False
        elif not is_text:
            self._know_outside(value)
            return False
        return True

    def _know_outside(self, value: Any) -> None:
        self._outside = self._outside or KnownValues(OUTSIDE_BYTES)
        self._outside.add_value(value)

    def remember(self, call: Earlier) -> None:
        """Note a call whose result was shown, for the source of a value that is asked about."""
        self.earlier.append(call)
        if len(self.earlier) > EARLIER_CALLS:
            del self.earlier[0]

    # --- arguments -------------------------------------------------------------------------------

    def origins(self, plan: Plan, arguments: Mapping[str, Any]) -> list[ArgumentOrigin]:
        """Where each argument with authority comes from; one that names nothing is left out."""
        with self._lock:
            if self._waiting:
                self._look()
            named = [
                self._origin(plan, name, plan.role(name), value)
                for name, value in arguments.items()
                if plan.role(name).carries_authority
            ]
        return [origin for origin in named if origin.origins]

    def origin(self, plan: Plan, name: str, value: Any) -> ArgumentOrigin:
        """Where one argument comes from, whatever its role."""
        with self._lock:
            if self._waiting:
                self._look()
            return self._origin(plan, name, plan.role(name), value)

    def _origin(self, plan: Plan, name: str, role: Role, value: Any) -> ArgumentOrigin:
        found: set[Origin] = set()
        untrusted: list[tuple[str, Any]] = []
        choices = plan.choices.get(name, frozenset())
        for number, (pointer, part) in enumerate(_parts(value, f"/{escaped(name)}", plan.names)):
            if number >= _PARTS or len(untrusted) >= _SHOWN:
                found.add(Origin.UNKNOWN)
                break
            if part in choices or self.endorsement(plan.tool, name, part) in self.state.endorsed:
                found.add(Origin.SYSTEM if part in choices else Origin.USER)
                continue
            origin = self._of_part(role, part)
            found.add(origin)
            if origin not in _TRUSTED:
                untrusted.append((pointer, part))
        return ArgumentOrigin(
            name=name,
            role=role,
            origins=frozenset(found),
            is_trusted=found <= _TRUSTED,
            untrusted=tuple(untrusted),
        )

    def _of_part(self, role: Role, part: Any) -> Origin:
        if _knows(self._said, role, part):
            return Origin.USER
        is_outside = _knows(self._outside, role, part)
        # Credentials are the user's alone. A value that outsiders chose as well may be theirs.
        if role is not Role.CREDENTIAL and not is_outside and _knows(self._system, role, part):
            return Origin.OUTSIDE if self._outside is not None and self._outside.is_full else Origin.SYSTEM
        return Origin.OUTSIDE if is_outside else Origin.UNKNOWN

    @staticmethod
    def endorsement(tool: str, name: str, part: Any, *, secret: bool = False) -> str:
        """A value in its role, as what a person endorsed is remembered; apart where secrets may go there."""
        named = [tool, name, part, "secret"] if secret else [tool, name, part]
        return hashlib.sha256(canonical_bytes(named)).hexdigest()[:32]

    def is_endorsed(self, plan: Plan, arguments: Mapping[str, Any]) -> bool:
        """Whether a person endorsed where the call sends something: destinations, or all with authority.

        A yes from before the session was secret does not count once it is: nobody agreed to send that.
        """
        endorsed, secret = self.state.endorsed, self.state.secret
        if not endorsed:
            return False
        where = [name for name in arguments if name in plan.destinations]
        where = where or [name for name in arguments if plan.role(name).carries_authority]
        parts = [(name, part) for name in where for _, part in _parts(arguments[name], "", plan.names)]
        return bool(parts) and all(
            self.endorsement(plan.tool, name, part, secret=secret) in endorsed for name, part in parts
        )

    def endorse(self, plan: Plan, arguments: Mapping[str, Any], *, secret: bool = False) -> None:
        """A person said yes to a call: its values with authority are as if the user had named them there.

        `secret` says that the person was told that the session has read what only the user may know.
        """
        named = {
            self.endorsement(plan.tool, name, part, secret=also)
            for name, value in arguments.items()
            if plan.role(name).carries_authority
            for _, part in _parts(value, "", plan.names)
            for also in {False, secret}
        }
        with self._lock:
            if len(self.state.endorsed | named) <= ENDORSED:
                self.state = msgspec.structs.replace(self.state, endorsed=self.state.endorsed | named)
        self._put(self)


_NO_LABELS: Final = Node()
_TRUSTED: Final = frozenset({Origin.USER, Origin.SYSTEM})
_SHOWN: Final = 8
_PARTS: Final = 1_000
"""Parts of one argument that are looked up; one with more, or with more untrusted ones than are shown, is of
unknown origin."""


_OWN_PARTS: Final = 64


def _own_parts(arguments: Mapping[str, Any]) -> Own:
    """What a result may repeat of its call.

    Without this, a model could have any service that repeats its input name a value.
    """
    found = set()
    for _, part in _parts(dict(arguments), "", frozenset(arguments)):
        found.add(part.lower() if type(part) is str else part)
        if len(found) > _OWN_PARTS:
            return None
    return frozenset(found)


def _without(text: str, own: Own) -> str:
    """A text of a service, with a letter in place of what it repeats, so that no other word is left over."""
    if own is None:
        return ""
    text = text.lower()
    for part in own:
        text = text.replace(part if type(part) is str else str(part), "\u00ff")
    return text


def _is_secret(label: Label | None) -> bool:
    return label is not None and label.is_secret


def _knows(known: KnownValues | None, role: Role, part: Any) -> bool:
    if known is None:
        return False
    if type(part) is not str:
        return known.has_number(part)
    # Only a date: of a longer text, what stands beside the day could be anything.
    if role is Role.TIME and FORMS[Form.DATE].fullmatch(part) and known.has_dates(part):
        return True
    if role is Role.AMOUNT and _is_number(part) and known.has_number(part):
        return True
    return known.has_text(part)


def _is_number(text: str) -> bool:
    return FORMS[Form.NUMBER].fullmatch(text) is not None


def _parts(value: Any, pointer: str, names: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Every string and number in an argument with its place, and every key that is not in `names`.

    Truth values and null name nothing.
    """
    waiting = [(pointer, value)]
    while waiting:
        at, here = waiting.pop()
        kind = type(here)
        if kind is list:
            waiting.extend((f"{at}/{number}", inside) for number, inside in enumerate(here))
        elif kind is dict:
            for key, inside in here.items():
                place = f"{at}/{escaped(key)}"
                waiting += [(place, inside)] if key in names else [(place, inside), (place, key)]
        elif here is not None and kind is not bool and here != "":
            yield at, here


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
            if any(key not in words for key in here):
                return True
            waiting.extend(here.values())
        elif kind is list:
            waiting.extend(here)
        elif kind is bytes:
            return True
    return False
