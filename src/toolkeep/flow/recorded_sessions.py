"""Rebuilds sessions from an audit log: a fold over its records and the bodies beside it (FLO-7).

In come the records of a log, in order; out goes each recorded decision as a `Step`, with its session as it
was then. State, origins, endorsements and measures are those of a running keep: the fold feeds a `Flow`.

A log does not hold everything. The user's words are not in it: a value counts as named by the user only where
the log says so. A result that was not stored has opened its session, and one of a tool that is gone or
changed has made it secret, unless the next decision of that session says otherwise.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from toolkeep.calls import FlowRecord, RegisteredTool, UsedReference
from toolkeep.errors import NOT_BEGUN
from toolkeep.flow.flow_settings import FlowSettings
from toolkeep.flow.measures import AMOUNT, PLACES
from toolkeep.flow.meter import Caller, Reserved
from toolkeep.flow.session_state import Earlier, Origin, SessionState
from toolkeep.flow.session_store import MemorySessionStates
from toolkeep.flow.tracker import REMOTE, Flow
from toolkeep.json_values.reading import read_canonical

ToolOf = Callable[["RecordedDecision"], RegisteredTool | None]
"""Looks up the tool of a recorded call; None if it is gone or changed."""
BodyOf = Callable[[str], bytes | None]
"""Looks up a body by its hash; None if it is not stored."""

_TRUSTED = {Origin.USER.value, Origin.SYSTEM.value}


class RecordedDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded call with its policy decision."""

    call: str
    time: str
    agent: str
    tool: str
    version: str
    definition_hash: str
    conversation: str = ""
    session: str = ""
    is_allowed: bool
    asked_by: tuple[str, ...] = ()
    """Ids of the forbids that a person's approval lifted."""
    policies: tuple[str, ...] = ()
    touches: tuple[str, ...] = ()
    argument_hash: str = ""
    """Empty if the arguments were not retained."""
    flow: FlowRecord | None = None
    """The session's state and the origins of arguments; None if nothing watched them."""
    references: tuple[UsedReference, ...] = ()
    """What stood in the arguments as a reference."""


class Step:
    """A recorded decision, and its session at that moment; None if nothing is folded."""

    __slots__ = ("_arguments", "_body", "call", "hosts", "is_asked", "reserved", "secret", "session", "tool")

    def __init__(
        self, call: RecordedDecision, tool: RegisteredTool | None, session: SessionState | None, body: BodyOf
    ) -> None:
        self.call = call
        self.tool = tool
        self.session = session
        self.secret = session is not None and session.state.secret
        self.hosts = [_host(touch) for touch in call.touches if touch.startswith("net.")]
        self.reserved: Reserved | None = None
        self.is_asked = False
        """Set it if a person would be asked by now: a call that was made counts as approved."""
        self._body = body
        self._arguments: Mapping[str, Any] | None = None

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The arguments of the call; None if they are not stored."""
        if self._arguments is None and self.call.argument_hash:
            found = _decoded(self._body(self.call.argument_hash))
            self._arguments = found if isinstance(found, dict) else None
        return self._arguments


def recorded_decisions(records: Iterable[Mapping[str, Any]]) -> Iterator[RecordedDecision]:
    """The calls in a log that have a policy decision, in order, without their sessions."""
    fold = RecordedSessions(None, tool=lambda _: None, body=lambda _: None)
    return (step.call for step in fold.walk(records))


class RecordedSessions:
    """Walks a log once, and rebuilds its sessions on the way."""

    def __init__(
        self,
        settings: FlowSettings | None,
        *,
        tool: ToolOf,
        body: BodyOf,
        counted: Collection[str] = (),
        is_as_recorded: bool = True,
    ) -> None:
        """Without settings nothing is folded. `counted` are the names of the measures that policies read.

        `is_as_recorded`: a session is opened or secret where the log says so. Otherwise only its results
        decide, by the labels of the tools that `tool` gives.
        """
        self._now = 0.0
        self.flow = (
            None if settings is None else Flow(settings, MemorySessionStates(), clock=lambda: self._now)
        )
        """For an authorizer that decides the calls again."""
        self.unwatched: set[str] = set()
        """Keys of sessions of which the log does not say what the user named: nothing watched them."""
        self._measures = {} if settings is None else settings.measures.by_name
        self._tool = tool
        self._body = body
        self._counted = counted
        self._is_as_recorded = is_as_recorded
        self._invoked: dict[str, Mapping[str, Any]] = {}
        self._open: dict[str, Step] = {}
        """Calls whose outcome is not known yet."""
        self._shown: dict[str, tuple[Step, str]] = {}
        """Calls that ended with a result, which a call with the same idempotency key shows again."""
        self._questioned: set[str] = set()
        """Calls during which an upstream server asked something."""
        self._keys: dict[tuple[str, str, str], str] = {}
        """Keys of sessions by agent, session and conversation, as last recorded."""
        self._fell: dict[str, str] = {}
        """When the last result of a session was shown; empty if it is not known what that did."""

    def walk(self, records: Iterable[Mapping[str, Any]]) -> Iterator[Step]:
        """Give each decision with its session; the fold goes on once the next one is wanted."""
        for record in records:
            kind, call = record.get("type"), record.get("call", "")
            if kind == "ToolInvoked":
                self._invoked[call] = record
                if record.get("repeats"):
                    self._repeated(record)
            elif kind == "PolicyDecision" and (invoked := self._invoked.pop(call, None)) is not None:
                step = self._step(_recorded(invoked, record))
                yield step
                self._decided(step, is_over="status" in record)
            elif self.flow is None:
                continue
            elif kind == "Approval" and call in self._open:
                self._answered(self._open[call], record)
            elif kind == "ServerAsked":
                self._questioned.add(call)
            elif kind == "ToolCompleted" and call in self._open:
                self._completed(self._open[call], record)

    def session(self, agent: str, name: str) -> SessionState | None:
        """The session that an agent's calls of this name read, after the walk; None if there is none."""
        for known in reversed(self._keys):
            if self.flow is not None and known[0] == agent and name == (known[1] or known[2]):
                return self._named(self.flow, *known)
        return None

    # --- before a decision -----------------------------------------------------------------------

    def _step(self, call: RecordedDecision) -> Step:
        tool = self._tool(call)
        if self.flow is None:
            return Step(call, tool, None, self._body)
        self._now = datetime.fromisoformat(call.time).timestamp()
        session = self._session(self.flow, call)
        step = Step(call, tool, session, self._body)
        if call.flow is None:
            self.unwatched.add(session.key)
        else:
            self._take_as_said(self.flow, session, step, call.flow)
        return step

    def _session(self, flow: Flow, call: RecordedDecision) -> SessionState:
        """The session of a call, with the state that the log says it had."""
        known = (call.agent, call.session, call.conversation)
        self._keys[known] = self._keys.get(known, "") if call.flow is None else call.flow.session
        session = self._named(flow, call.agent, call.session, call.conversation)
        if call.flow is None or not self._is_as_recorded:
            return session
        opened, secret = call.flow.opened, call.flow.secret
        fell, held = self._fell.get(session.key, ""), session.state
        is_cleaner = (held.opened and not opened) or (held.secret and not secret)
        if is_cleaner and fell and call.time > fell:  # begun anew: nobody recorded when
            name, caller = _owner(session.key, call.agent)
            flow.forget(call.agent, name, caller=caller)
            session = flow.session_of(call.agent, name or session.id, caller=caller)
        session.state = replace(session.state, opened=opened, secret=secret)
        return session

    def _named(self, flow: Flow, agent: str, session: str, conversation: str) -> SessionState:
        """The session that a call names; whose state it reads, only a decision of that name tells."""
        name, caller = _owner(self._keys.get((agent, session, conversation), ""), agent)
        return flow.session_of(agent, name or session or conversation, caller=caller)

    @staticmethod
    def _take_as_said(flow: Flow, session: SessionState, step: Step, recorded: FlowRecord) -> None:
        """Let the user have said what the log calls trusted and no result brought."""
        if step.tool is None or step.arguments is None:
            return
        plan = flow.plan(step.tool)
        for name, origins in recorded.origins.items():
            if name not in step.arguments or not _TRUSTED.issuperset(origins):
                continue
            before: tuple[Any, ...] = ()
            # A few at a time, until all are known or the session has no room for more.
            while (rest := session.origin(plan, name, step.arguments[name]).untrusted) and rest != before:
                for _, part in rest:
                    session.said(str(part))
                before = rest

    # --- after it --------------------------------------------------------------------------------

    def _decided(self, step: Step, *, is_over: bool) -> None:
        """Count a call that may run from its decision on, as the keep did."""
        if self.flow is None or step.session is None:
            return
        caller = Caller(step.call.agent, step.session.key)
        amounts = dict(step.arguments or {})
        for measure in (self._measures[name] for name in self._counted):
            if measure.parameter and step.arguments is None:
                amounts[measure.parameter] = AMOUNT // PLACES  # not known, so the most that it can be
        try:
            step.reserved = self.flow.meter.reserve(
                step.call.call, caller, step.call.tool, amounts, counted=self._counted, read=()
            )
        except ValueError:  # without an amount it was not made, if the measure was in force
            return
        if is_over:
            self.flow.meter.release(step.reserved)
        else:
            self._open[step.call.call] = step

    def _answered(self, step: Step, record: Mapping[str, Any]) -> None:
        if self.flow is None or step.reserved is None:
            return
        if "asked_at" in record:
            self.flow.meter.add(step.reserved, questions=1)
        if "status" in record:  # nobody agreed
            del self._open[step.call.call]
            self.flow.meter.release(step.reserved)
        elif "asked_at" in record and step.call.asked_by:
            self._endorse(self.flow, step)

    @staticmethod
    def _endorse(flow: Flow, step: Step) -> None:
        if step.session is not None and step.tool is not None and step.arguments is not None:
            referred = [one.pointer for one in step.call.references]
            plan = flow.plan(step.tool)
            step.session.endorse(plan, step.arguments, secret=step.secret, referred=referred)

    def _completed(self, step: Step, record: Mapping[str, Any]) -> None:
        if self.flow is None or step.session is None or step.reserved is None:
            return
        if record.get("status") != "pending":
            del self._open[step.call.call]
        elif step.tool is not None and step.tool.runner is None:  # handed out; nothing was shown yet
            return
        if not NOT_BEGUN.isdisjoint(record.get("codes", ())):
            self.flow.meter.release(step.reserved)
            return
        if step.is_asked and not step.call.asked_by:
            self._endorse(self.flow, step)
        digest = record.get("result_hash", "")
        body = self._body(digest) if digest else None
        ran_s = record.get("execute_us", 0) / 1e6
        self.flow.meter.add(step.reserved, result_bytes=len(body or b""), run_seconds=ran_s)
        self._shown[step.call.call] = (step, digest)
        self._observe(self.flow, step.session, step, digest, record["time"])

    def _repeated(self, record: Mapping[str, Any]) -> None:
        """The result of an earlier call was shown once more, in this session."""
        if self.flow is None:
            return
        session = self._named(self.flow, record["agent"], record["session"], record["conversation"])
        step, digest = self._shown.get(record["repeats"], (None, ""))
        if step is None:
            self._fell[session.key] = ""
            session.fall(opened=True, secret=True)
        else:
            self._observe(self.flow, session, step, digest, record["time"])

    def _observe(self, flow: Flow, session: SessionState, step: Step, digest: str, time: str) -> None:
        """Let a session take in a result, or what is known of it."""
        tool = step.tool
        body = self._body(digest) if digest else None
        value = _decoded(body)
        self._fell[session.key] = time
        if tool is None:
            self._fell[session.key] = ""
            name = step.call.tool
            session.fall(opened=True, secret=True, after=name, wrote=name, hosts=step.hosts)
        elif body is None or value is UNSET or step.arguments is None:
            self._fell[session.key] = ""
            flow.open(session, tool, step.hosts, step.call.references)
        else:
            is_typed = flow.references is not None
            is_cut = len(body) > tool.definition.constraints.output_bytes
            if (is_cut and not is_typed) or step.call.call in self._questioned:
                flow.open(session, tool)
            flow.observe(
                session,
                tool,
                value,
                body,
                Earlier(tool.name, bytes.fromhex(digest)),
                arguments=step.arguments,
                hosts=step.hosts,
                references=step.call.references,
                is_typed=is_typed,
            )


def _recorded(invoked: Mapping[str, Any], decision: Mapping[str, Any]) -> RecordedDecision:
    return RecordedDecision(
        call=invoked["call"],
        time=invoked["time"],
        agent=invoked["agent"],
        tool=invoked["tool"],
        version=invoked["version"],
        definition_hash=invoked["definition_hash"],
        conversation=invoked.get("conversation", ""),
        session=invoked.get("session", ""),
        is_allowed=decision["decision"] == "allow",
        asked_by=tuple(decision.get("asked_by", ())),
        policies=tuple(decision.get("policies", ())),
        touches=tuple(decision.get("touches", ())),
        argument_hash=invoked["argument_hash"] if invoked.get("has_arguments") else "",
        flow=msgspec.convert(decision["flow"], FlowRecord) if "flow" in decision else None,
        references=msgspec.convert(invoked.get("references", ()), tuple[UsedReference, ...]),
    )


def _owner(key: str, agent: str) -> tuple[str, str]:
    """What a state belongs to: the name of a session of the host's own program, or a remote caller."""
    kind, _, owner = key.removeprefix(f"{agent}\n").partition("\n")
    return ("", owner) if kind == REMOTE else (owner, "")


def _host(touch: str) -> str:
    return touch.partition(":")[2].partition(" (private: ")[0]


def _decoded(body: bytes | None) -> Any:
    """The data of a body; UNSET if it is not stored, or not JSON."""
    try:
        return UNSET if body is None else read_canonical(body)
    except ValueError:
        return UNSET
