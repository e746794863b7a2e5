"""The sessions of one keep: whose state a call reads, and what its result does to that state (FLO-1).

In the host's own program a session is what the program says it is. The state of a remote caller belongs to
the caller: a session id that it sends only names a conversation, so no new id, connection or token washes it.
Every fall is stored before the result goes out. Whatever fails in here makes the session count as having seen
everything.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from toolkeep.calls import CheckedCall, RegisteredTool, ToolCall, UsedReference
from toolkeep.flow.facts import FlowFacts
from toolkeep.flow.flow_plan import Plan, make_plan
from toolkeep.flow.flow_settings import FlowSettings
from toolkeep.flow.meter import Meter
from toolkeep.flow.reader_answer import reader_of_answer
from toolkeep.flow.result_reader import ResultReader
from toolkeep.flow.session_references import References
from toolkeep.flow.session_state import CLEAN, FALLEN, Earlier, SessionState, Snapshot
from toolkeep.flow.session_store import SessionStates
from toolkeep.json_values.pointers import steps_of

SESSIONS: Final = 20_000
"""Sessions in memory, with the values that they know; of others only the state is known."""
_PLANS: Final = 10_000
REMOTE: Final = "remote"
"""In a key: the state belongs to a remote caller, not to a session that it names."""
_OWN: Final = "own"


def _reader_of(plan: Plan, arguments: Mapping[str, Any], references: Sequence[UsedReference]) -> ResultReader:
    """The reader of a result, which may be of the schema in the arguments."""
    if not plan.answers_schema:
        return plan.reader
    # Words of a text that is referred to would be shown as words that the model chose.
    is_written = all(steps_of(one.pointer)[0] != "schema" for one in references)
    return reader_of_answer(arguments.get("schema") if is_written else None)


class _Held:
    """A session in memory."""

    __slots__ = ("generation", "seen", "session", "stored")

    def __init__(self, session: SessionState, generation: Hashable) -> None:
        self.session = session
        self.generation = generation
        """Of the store, when its state was read last."""
        self.seen = self.stored = 0.0


def _key(agent: str, name: str, caller: str) -> str:
    return f"{agent}\n{REMOTE if caller else _OWN}\n{caller or name}"


class Flow:
    """Sessions by key, and plans by definition."""

    def __init__(
        self,
        settings: FlowSettings,
        states: SessionStates,
        *,
        is_late: bool = False,
        is_dry: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`is_late`: calls were made before, so a session that nobody began here has seen everything.

        `is_dry`: calls are only explained.
        """
        self._unknown = FALLEN if is_late else CLEAN
        self.settings = settings
        self._states = states
        self.is_remote = states.is_remote
        """Whether to use a session waits for a server elsewhere, which no event loop may do."""
        self._clock = clock
        self._lock = threading.Lock()
        self._sessions: OrderedDict[str, _Held] = OrderedDict()
        self._plans: dict[str, Plan] = {}
        self.meter = Meter(settings.measures, states, clock, is_dry=is_dry)
        self.references = References() if settings.has_typed_views else None
        """What references stand for; None where views are plain."""

    # --- sessions --------------------------------------------------------------------------------

    async def go_on(self, agent: str, name: str, *, caller: str = "") -> SessionState | None:
        """The session of a call, in an event loop, if a server elsewhere has only to be asked for its row."""
        key, now, idle_s = _key(agent, name, caller), self._clock(), self.settings.idle_s
        held = self._sessions.get(key)
        if held is None or (caller and min(held.seen, held.stored) < now - idle_s / 10):
            return None
        stored = await self._states.get_soon(key, now - idle_s if caller else 0.0)
        return self.session_of(agent, name, caller=caller, read=(stored,))

    def session_of(
        self,
        agent: str,
        name: str,
        *,
        caller: str = "",
        unknown: Snapshot | None = None,
        read: tuple[Snapshot | None] | None = None,
    ) -> SessionState:
        """The session of a call; `caller` is what a remote caller's state belongs to.

        `unknown` is the state of one that there is none of yet, `read` that of the store, if it was read by
        now: then nothing waits.
        """
        key = _key(agent, name, caller)
        now, idle_s = self._clock(), self.settings.idle_s
        since, is_over = now - idle_s if caller else 0.0, False
        # Before the lock, for which other calls would wait as long as for the answer.
        stored = read[0] if read else self._states.get(key, since) if self.is_remote else None
        with self._lock:
            generation = self._states.generation
            held = self._sessions.get(key)
            if held is None or (caller and held.seen < now - idle_s):
                state = stored if self.is_remote else self._states.get(key, since)
                is_over = state is None and bool(caller)
                state = state or unknown or self._unknown
                session = SessionState(agent, name, key=key, state=state, put=self._store)
                held = self._sessions[key] = _Held(session, generation)
                while len(self._sessions) > SESSIONS:
                    self._sessions.popitem(last=False)
            elif held.generation != generation:
                state = (stored if self.is_remote else self._states.get(key)) or CLEAN
                if state.begun > held.session.state.begun:  # a person ended the session
                    session = SessionState(agent, name, key=key, state=state, put=self._store)
                    held = self._sessions[key] = _Held(session, generation)
                else:
                    held.session.inherit(state)  # what fell in another process has fallen here
                held.generation = generation
            self._sessions.move_to_end(key)
            held.seen = now
            # A stored state ages: it must not look idle after a restart while its caller was not.
            is_stale = caller and not read and held.stored < now - idle_s / 10
            held.stored = now if is_stale else held.stored
        if is_over and not read:
            self._states.forget(key, since)  # the session before
        if is_stale and held.session.state is not CLEAN:
            self._store(held.session)
        return held.session

    def look_up(self, agent: str, name: str, *, caller: str = "") -> SessionState:
        """The session that a call would read, for a call that nobody makes: nothing is stored or kept."""
        key = _key(agent, name, caller)
        since = self._clock() - self.settings.idle_s if caller else 0.0
        stored = self._states.get(key, since)
        with self._lock:
            held = self._sessions.get(key)
        is_ended = stored is not None and held is not None and stored.begun > held.session.state.begun
        if held is None or is_ended or (caller and held.seen < since):
            return SessionState(agent, name, key=key, state=stored or self._unknown)
        held.session.inherit(stored or CLEAN)  # what fell in another process
        return held.session

    def stored(self, key: str) -> Snapshot:
        """The state that is stored under a key."""
        return self._states.get(key) or CLEAN

    def dry(self) -> "Flow":
        """The same states and measures, for calls that nobody makes."""
        return Flow(self.settings, self._states, is_dry=True, clock=self._clock)

    def begin(
        self, agent: str, name: str, *, parent: SessionState | None = None, caller: str = ""
    ) -> SessionState:
        """A session that the host's own program begins or goes on with; a parent's state is inherited."""
        session = self.session_of(agent, name, caller=caller, unknown=CLEAN)
        if parent is not None:
            session.parent = parent
            self._inherit(session)
        return session

    def resume(self, session: SessionState) -> None:
        """Go on with a session that the host holds: what fell in another process has fallen here."""
        stored = self._states.get(session.key) if self.is_remote else None
        with self._lock:
            generation, held = self._states.generation, self._sessions.get(session.key)
            if held is None or held.session is not session or held.generation != generation:
                session.inherit((stored if self.is_remote else self._states.get(session.key)) or CLEAN)
                self._sessions[session.key] = _Held(session, generation)

    def _inherit(self, session: SessionState) -> None:
        """Fall as far as the parent has fallen by now; what people endorsed for it stays with it."""
        parent, held = session.parent, session.state
        if parent is not None:
            self._inherit(parent)
            session.inherit(replace(parent.state, endorsed=frozenset()))
            if session.state != held:
                self._store(session)

    def forget(self, agent: str, name: str, *, caller: str = "") -> None:
        """Forget a state: only a person, or a host that is trusted with sessions, may ask for it."""
        key = _key(agent, name, caller)
        if self.is_remote:
            self._states.drop(key)
        with self._lock:
            self._sessions.pop(key, None)
            if not self.is_remote:
                self._states.drop(key)

    def _store(self, session: SessionState) -> None:
        state = session.state
        try:
            self._states.put(session.key, state, self._clock())
        except BaseException:
            session.is_unstored = True
            raise
        if session.state is state:
            session.is_unstored = False

    # --- calls -----------------------------------------------------------------------------------

    def plan(self, tool: RegisteredTool) -> Plan:
        """What flow knows of a tool."""
        key = tool.definition_hash or tool.definition.hash
        plan = self._plans.get(key)
        if plan is None:
            plan = make_plan(tool)
            with self._lock:
                if len(self._plans) >= _PLANS:
                    self._plans.clear()
                self._plans[key] = plan
        return plan

    def is_settled(
        self,
        session: SessionState,
        tool: RegisteredTool,
        hosts: Collection[str],
        references: Sequence[UsedReference] = (),
    ) -> bool:
        """Whether no result of a call can change the state of its session."""
        state, reader = session.state, self.plan(tool).reader
        return (
            state.opened
            and (state.secret or not (reader.shows_secrets or any(one.secret for one in references)))
            and tool.name in state.after
            and (not tool.may_write or tool.name in state.wrote)
            and state.hosts.issuperset(hosts)
            and not session.is_unstored
        )

    def facts(self, request: ToolCall, checked: CheckedCall, before: FlowFacts | None = None) -> FlowFacts:
        """What policies may read about a call; `before` are the facts of an earlier decision about it."""
        session = request.flow
        if session is not None and session.parent is not None:
            self._inherit(session)
        plan = self.plan(checked.registered)
        return FlowFacts(plan, session, checked.arguments, before, request.references)

    def observe(
        self,
        session: SessionState,
        tool: RegisteredTool,
        value: Any,
        body: bytes,
        earlier: Earlier,
        *,
        arguments: Mapping[str, Any],
        hosts: Collection[str],
        references: Sequence[UsedReference] = (),
        is_typed: bool = False,
    ) -> Any:
        """Take in the whole result of a call that ran, before it goes out; returns what the model is shown.

        `references` stood in the arguments; `is_typed`: the model is shown a typed view.
        """
        plan, view = self.plan(tool), value
        if self.references is None or not is_typed or plan.shows_text:
            opens, is_secret = session.observe(plan, value, body, arguments)
        else:
            reader = _reader_of(plan, arguments, references)
            # A tool that was given a text without the model having seen it may repeat it.
            made = self.references.view(
                session, plan, value, body, repeats_texts=bool(references), reader=reader
            )
            session.take_in(reader, value, body, arguments, repeats_texts=bool(references))
            view, opens, is_secret = made.value, made.opens, made.is_secret
        session.earlier.append(earlier)
        # What was done with a secret is no secret to the tool any more: what comes back later may hold it.
        is_secret = is_secret or any(one.secret for one in references)
        wrote = tool.name if tool.may_write else ""
        session.fall(opened=opens, secret=is_secret, after=tool.name, wrote=wrote, hosts=hosts)
        return view

    def open(
        self,
        session: SessionState,
        tool: RegisteredTool | None,
        hosts: Collection[str] | None = None,
        references: Sequence[UsedReference] = (),
    ) -> None:
        """Note that text was shown which no label describes: an error, progress, a piece of a result.

        It may hold what the labels call secret, and what references in the arguments stand for. `hosts` are
        given once the call has run.
        """
        secret = tool is not None and self.plan(tool).reader.shows_secrets
        secret = secret or any(one.secret for one in references)
        if tool is None or hosts is None:
            session.fall(opened=True, secret=secret)
        else:
            wrote = tool.name if tool.may_write else ""
            session.fall(opened=True, secret=secret, after=tool.name, wrote=wrote, hosts=hosts)

    def endorse(self, facts: FlowFacts) -> None:
        """A person approved a call that flow asked about."""
        if facts.session is not None:
            facts.session.endorse(
                facts.plan, facts.arguments, secret=facts.state.secret, referred=facts.referred
            )

    def lose(self, session: SessionState) -> None:
        """Something failed: the session counts as having seen everything."""
        session.inherit(FALLEN)
        self._store(session)
