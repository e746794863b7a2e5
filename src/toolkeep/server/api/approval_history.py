"""What became of earlier calls and questions: counts by agent and tool, last calls of sessions, and answers.

The log is read back once, up to a limit, then followed. Arguments are not in it.
"""

import threading
from collections import OrderedDict, deque
from itertools import islice, takewhile
from typing import Any, Final, NamedTuple

import msgspec

from toolkeep.errors import Code
from toolkeep.keep.keep import Keep
from toolkeep.server.api.recorded_calls import milliseconds

_RECORDS: Final = 20_000
"""Records that are read back at first: about five thousand calls, in a second."""
_CALLS: Final = 10_000
"""Calls whose tool is remembered until their last record."""
_ANSWERS: Final = 200
"""Answers that are remembered; the log holds the rest."""
_SESSION_CALLS: Final = 5
"""Last calls of a session before a question that are shown beside it; its page shows the rest."""
_SESSION_HELD: Final = 25
"""Last calls of a session that are remembered: while a question waits, others may end."""
_SESSIONS: Final = 2_000
_PAIRS: Final = 20_000
"""Pairs of agent and tool that are counted, since both names may come from callers."""


class PastCalls(msgspec.Struct, frozen=True, kw_only=True):
    """How earlier calls of a tool by one agent went."""

    ok: int = 0
    failed: int = 0
    refused: int = 0
    denied: int = 0
    """Of the refused ones, those that a person denied."""
    last_at: str = ""


class SessionCall(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier call of the same session: no values of it, since they may be nobody else's to know."""

    call_id: str
    tool: str
    at: str
    outcome: str
    """`ok`, `pending`, `failed` or `refused`."""
    codes: list[str]
    opened: bool
    """Whether the model had been shown text from outside before it."""
    secret: bool
    result_hash: str
    shown_bytes: int | None = None
    """Size of the result, which the model was shown."""


class _Owner(NamedTuple):
    """Whose a call is."""

    agent: str
    tool: str
    session: str
    conversation: str

    @property
    def named(self) -> tuple[str, str, str]:
        return self.agent, self.session, "" if self.session else self.conversation


class AnswerView(msgspec.Struct, frozen=True, kw_only=True):
    """A question that was answered, or waited in vain."""

    id: str
    """Of the question."""
    call_id: str
    agent: str
    tool: str
    verdict: str
    """`approved`, `denied`, or `unanswered`."""
    approver: str
    way: str
    at: str
    waited_ms: int
    status: str = ""
    """How the call went: `ok`, `error` or `pending`; empty while it runs, and if it was not made."""
    reason: str = ""
    """Why it was denied, as long as the question is kept."""


class ApprovalHistory:
    """The history of one keep."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = -1
        self._owners: OrderedDict[str, _Owner] = OrderedDict()
        self._decisions: OrderedDict[str, dict[str, Any]] = OrderedDict()
        """What the decision about a call knew of its session."""
        self._sessions: OrderedDict[tuple[str, str, str], deque[SessionCall]] = OrderedDict()
        self._past: OrderedDict[tuple[str, str], PastCalls] = OrderedDict()
        self._answers: deque[AnswerView] = deque(maxlen=_ANSWERS)

    def past(self, keep: Keep, agent: str, tool: str) -> PastCalls:
        """How the agent's earlier calls of the tool went."""
        with self._lock:
            self._follow(keep)
            return self._past.get((agent, tool), PastCalls())

    def of_session(
        self, keep: Keep, agent: str, session: str, conversation: str, *, before: float
    ) -> list[SessionCall]:
        """The last calls of a session, or of a conversation without one, that ended before a time (POSIX
        seconds); the oldest first.
        """
        if not (session or conversation):
            return []
        with self._lock:
            self._follow(keep)
            held = self._sessions.get(_Owner(agent, "", session, conversation).named, ())
            found = [one for one in held if milliseconds(one.at) <= before * 1000][-_SESSION_CALLS:]
        sizes = keep.record.bodies.sizes([one.result_hash for one in found if one.result_hash])
        return [msgspec.structs.replace(one, shown_bytes=sizes.get(one.result_hash)) for one in found]

    def answers(self, keep: Keep, limit: int) -> list[AnswerView]:
        """The last answers, newest first."""
        with self._lock:
            self._follow(keep)
            return list(islice(reversed(self._answers), limit))

    def _follow(self, keep: Keep) -> None:
        back = islice(keep.record.log.read_back(), _RECORDS)
        held = list(takewhile(lambda entry: entry.index > self._last, back))
        for entry in reversed(held):
            self._take(entry.record)
        if held:
            self._last = held[0].index

    def _take(self, said: dict[str, Any]) -> None:
        call, kind = str(said.get("call", "")), said.get("type")
        if kind == "ToolInvoked":
            asked = _Owner(said["agent"], said["tool"], said["session"], said["conversation"])
            _bounded(self._owners, call, asked, _CALLS)
        owner = self._owners.get(call)
        if owner is None:
            return
        if said.get("flow"):
            _bounded(self._decisions, call, said["flow"], _CALLS)
        if kind == "Approval" and "waited_ms" in said:
            self._answers.append(_answer(owner, said))
        if said.get("status"):
            self._end(owner, call, said)

    def _end(self, owner: _Owner, call: str, said: dict[str, Any]) -> None:
        del self._owners[call]
        self._note(owner, call, said)
        pair = (owner.agent, owner.tool)
        before = self._past.get(pair, PastCalls())
        key = "refused"  # by validation, policy or a person: the tool did not run
        if said["type"] == "ToolCompleted":
            key = "failed" if said["status"] == "error" else "ok"
            self._settle(call, said["status"])
        is_denied = said["type"] == "Approval" and _verdict(said) == "denied"
        count = {key: getattr(before, key) + 1, "denied": before.denied + is_denied, "last_at": said["time"]}
        _bounded(self._past, pair, msgspec.structs.replace(before, **count), _PAIRS)

    def _note(self, owner: _Owner, call: str, said: dict[str, Any]) -> None:
        """Remember the call as one of its session."""
        state = self._decisions.pop(call, {})
        if not (owner.session or owner.conversation):
            return
        outcome = str(said["status"])
        if outcome == "error":
            outcome = "failed" if said["type"] == "ToolCompleted" else "refused"
        one = SessionCall(
            call_id=call,
            tool=owner.tool,
            at=str(said["time"]),
            outcome=outcome,
            codes=[str(code) for code in said.get("codes") or ()],
            opened=bool(state.get("opened")),
            secret=bool(state.get("secret")),
            result_hash=str(said.get("result_hash", "")) if outcome == "ok" else "",
        )
        held = self._sessions.get(owner.named, deque(maxlen=_SESSION_HELD))
        held.append(one)
        _bounded(self._sessions, owner.named, held, _SESSIONS)

    def _settle(self, call: str, status: str) -> None:
        for place, one in enumerate(self._answers):
            if one.call_id == call:
                self._answers[place] = msgspec.structs.replace(one, status=status)


def _bounded(held: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    held[key] = value
    held.move_to_end(key)
    if len(held) > most:
        held.popitem(last=False)


def _verdict(said: dict[str, Any]) -> str:
    if not said.get("codes"):
        return "approved"
    is_denied = said["approver"] and Code.APPROVAL_DENIED.value in said["codes"]
    return "denied" if is_denied else "unanswered"


def _answer(owner: _Owner, said: dict[str, Any]) -> AnswerView:
    return AnswerView(
        id=said["id"],
        call_id=said["call"],
        agent=owner.agent,
        tool=owner.tool,
        verdict=_verdict(said),
        approver=said["approver"],
        way=said["way"],
        at=said["time"],
        waited_ms=said["waited_ms"],
    )
