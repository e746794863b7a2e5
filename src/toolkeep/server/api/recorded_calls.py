"""Calls and records of the audit log as lists show them, and the filters that choose among them."""

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from toolkeep.audit.call_verdict import verdict_of
from toolkeep.audit.entry import Entry
from toolkeep.audit.kept_refusal import KeptRefusal, ReadBody, read_kept
from toolkeep.errors import NOT_BEGUN, TITLES, Code, StoreUnavailable

_ENDS: Final = ("ToolCompleted", "AnsweredLate")
"""The kinds of records that end a call that was run."""
UNSUCCESSFUL: Final = "unsuccessful"
"""The status that finds calls without a result, which have a reason."""
UNSUCCESSFUL_OUTCOMES: Final = ("refused", "error", "unknown")
STATUSES: Final = {UNSUCCESSFUL: UNSUCCESSFUL_OUTCOMES, "error": ("error", "unknown")}
"""The statuses that find calls of more than one outcome; figures count an unknown outcome as failed."""
RUN_TIME: Final = r"[0-9]{1,9}(\.[0-9]{1,3})?"
"""Milliseconds as a filter has them: many tools run for less than one."""


class RecordSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A record in a list."""

    index: int
    time: str
    type: str
    call: str
    tool: str
    agent: str
    status: str
    decision: str = ""
    """What policy said: `allow` or `deny`, where the record tells it."""
    codes: list[str]
    server: str = ""
    """The server whose log it is in, where servers share a database."""
    origin: str = ""
    """The name of that log."""
    session: str = ""
    conversation: str = ""
    """As the caller named them, where the record tells it."""
    took_us: int = 0
    """How long the call took, where the record tells it."""
    ran_us: int = 0
    """How long its tool ran, where the record tells it."""
    policies: list[str] = []
    """The policies that decided it, asked, or would have in shadow, where the record tells them."""

    @property
    def newest(self) -> "RecordSummary":
        """Itself, as that of a call."""
        return self


class RecordFilters(msgspec.Struct, frozen=True, kw_only=True):
    """Which records are wanted."""

    agent: str | None = None
    tool: str | None = None
    type: str | None = None
    status: str | None = None

    def fits(self, summary: RecordSummary) -> bool:
        """Whether a record matches."""
        return (
            self.agent in (None, summary.agent)
            and self.tool in (None, summary.tool)
            and self.type in (None, summary.type)
            # A denied call ends with its decision record, whose status is `error`.
            and self.status in (None, summary.status, summary.decision)
        )


class CallFilters(RecordFilters, frozen=True, kw_only=True):
    """Which calls are wanted."""

    session: str | None = None
    conversation: str | None = None
    code: str | None = None
    """An error code."""
    text: str | None = None
    """Part of a name, an id, the title of an error, or a reason that is told."""
    hours: str | None = None
    """Only calls of the last hours."""
    since: str | None = None
    until: str | None = None
    """Only calls that began from this time on, or before it; ISO 8601 with a zone."""
    slower_ms: str | None = None
    """Only calls that took longer."""
    ran_ms: str | None = None
    """Only calls whose tool ran longer, without what the call waited; thousandths count."""
    policy: str | None = None
    """The id of a policy that decided, asked, or would have in shadow."""

    def fits_call(self, call: "CallSummary") -> bool:
        """Whether a call matches, by its outcome and all of its records."""
        return (
            self.agent in (None, call.newest.agent)
            and self.tool in (None, call.newest.tool)
            and self.type in (None, *call.types)
            and self.status in (None, *call.statuses)
            and self.session in (None, call.session)
            and self.conversation in (None, call.conversation)
            and self.code in (None, *call.codes)
            and (self.slower_ms is None or call.took_us > int(self.slower_ms) * 1000)
            and (self.ran_ms is None or call.ran_us > microseconds(self.ran_ms))
            and self.policy in (None, *call.policies)
            and (self.text is None or self.text.casefold() in call.words)
            and (self.until is None or call.began_ms < milliseconds(self.until))
        )

    def begin_ms(self) -> int:
        """Before this time no call is wanted; 0 for any."""
        hours = 0 if self.hours is None else round((time.time() - int(self.hours) * 3600) * 1000)
        return max(hours, milliseconds(self.since or ""))


class CallSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a list: all of its records, the newest first; or one record of the log about itself."""

    records: list[RecordSummary]
    reason: str = ""
    """Why it was refused or failed, in few words; the title of its error, if no more is known or told."""
    is_told: bool = False
    """Whether the reason is from what is kept of its refusal, which may quote its arguments and its tool."""

    @property
    def newest(self) -> RecordSummary:
        """Its newest record."""
        return self.records[0]

    @property
    def began_ms(self) -> int:
        """When it began."""
        return milliseconds(self.records[-1].time)

    @property
    def types(self) -> set[str]:
        """The types of its records."""
        return {one.type for one in self.records}

    @property
    def session(self) -> str:
        """The session that its caller named."""
        return next((one.session for one in self.records if one.session), "")

    @property
    def conversation(self) -> str:
        """The conversation that its caller named."""
        return next((one.conversation for one in self.records if one.conversation), "")

    @property
    def codes(self) -> list[str]:
        """Why it failed."""
        return [code for one in self.records for code in one.codes]

    @property
    def took_us(self) -> int:
        """How long it took."""
        return max(one.took_us for one in self.records)

    @property
    def ran_us(self) -> int:
        """How long its tool ran."""
        return max(one.ran_us for one in self.records)

    @property
    def policies(self) -> set[str]:
        """The policies that decided it, asked, or would have in shadow."""
        return {policy for one in self.records for policy in one.policies}

    @property
    def words(self) -> str:
        """What a search for text looks at."""
        said = (self.newest.call, self.newest.tool, self.newest.agent, self.session, self.conversation)
        return "\n".join((*said, *self.codes, *map(title_of, self.codes), self.reason)).casefold()

    @property
    def statuses(self) -> set[str]:
        """The statuses that find it: its outcome, those that it is one of, and what policy said."""
        found = {self.outcome, *(one.decision for one in self.records)}
        return found | {status for status, outcomes in STATUSES.items() if self.outcome in outcomes}

    @property
    def outcome(self) -> str:
        """Its outcome; `under way` if it has none yet, empty for a record of the log about itself."""
        told = (one for one in self.records if one.status or one.type != "AnsweredLate")
        last = next(told, self.newest)
        if last.status in ("ok", "error", "pending", "repeated"):
            return outcome_of(last.type, last.status, last.codes)
        return "under way" if last.call else ""


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """A call in a list."""

    call: str
    time: str
    tool: str
    agent: str
    session: str
    conversation: str
    outcome: str
    reason: str
    """Why it was refused or failed, in few words; without `audit:read` only as far as its records tell."""
    codes: list[str]
    took_us: int
    server: str = ""

    @classmethod
    def of(cls, call: CallSummary) -> "CallView":
        """What a list tells of a call."""
        return cls(
            call=call.newest.call,
            time=call.records[-1].time,
            tool=call.newest.tool,
            agent=call.newest.agent,
            session=call.session,
            conversation=call.conversation,
            outcome=call.outcome,
            reason=call.reason,
            codes=call.codes,
            took_us=call.took_us,
            server=call.newest.server,
        )


def outcome_of(kind: str, status: str, codes: Sequence[str]) -> str:
    """What the status of a call's last record means, as `call_verdict` tells it.

    `refused` if the call was not run, `error` if it ran and failed.
    """
    code = next(iter(codes), "")
    if status == "error" and code == Code.OUTCOME_UNKNOWN:
        return "unknown"
    return "refused" if status == "error" and (kind not in _ENDS or code in NOT_BEGUN) else status


def named(entries: Iterable[Entry]) -> Iterator[tuple[str, tuple[str, str]]]:
    """The calls that entries name, each with its agent and tool."""
    for entry in entries:
        said = entry.record
        if said.get("agent") and said.get("call"):
            yield str(said["call"]), (str(said["agent"]), str(said.get("tool", "")))


def title_of(code: str) -> str:
    """The title of an error code; empty for one that this version does not know."""
    try:
        return TITLES[Code(code)]
    except ValueError:
        return ""


def milliseconds(time_text: str) -> int:
    """An ISO 8601 time since 1970; 0 if it is none."""
    try:
        return round(datetime.fromisoformat(time_text).timestamp() * 1000)
    except ValueError:
        return 0


def microseconds(milliseconds_text: str) -> int:
    """A duration in milliseconds, as text with at most three decimals."""
    return round(float(milliseconds_text) * 1000)


def hits_of(said: Mapping[str, Any]) -> list[str]:
    """The policies that a record counts for: they decided, asked, or would have in shadow."""
    if said.get("type") != "PolicyDecision":
        return []
    shadow = (said.get("shadow") or {}).get("policies", ())
    return sorted({*(said.get("policies") or ()), *(said.get("asked_by") or ()), *shadow})


def summary_of(entry: Entry, owners: dict[str, tuple[str, str]]) -> RecordSummary:
    """What a list tells of a record; `owners` are agent and tool of calls."""
    said = entry.record
    call = str(said.get("call", ""))
    agent, tool = owners.get(call, ("", ""))
    decision = said.get("decision") or ""
    decision = str(decision.get("decision", "")) if isinstance(decision, dict) else str(decision)
    status = str(said.get("status") or decision or said.get("outcome") or _approved(said))
    is_idle = said.get("type") == "AnsweredLate" and not said.get("is_settled")
    return RecordSummary(
        index=entry.index,
        time=str(said.get("time", "")),
        type=str(said.get("type") or said.get("event") or ""),
        call=call,
        tool=tool,
        agent=agent,
        status="" if is_idle else status,  # its call ended otherwise, or its outcome stays unknown
        decision=decision,
        codes=[str(code) for code in said.get("codes", ())],
        session=str(said.get("session", "")) if said.get("type") == "ToolInvoked" else "",
        conversation=str(said.get("conversation", "")),
        took_us=sum(said.get("stage_us") or ()) or int(said.get("execute_us") or 0),
        ran_us=int(said.get("execute_us") or 0),
        policies=hits_of(said),
    )


def call_of(
    entries: Sequence[Entry], owners: dict[str, tuple[str, str]], bodies: ReadBody | None = None
) -> CallSummary:
    """A call, from all of its entries, the newest first; with `bodies`, it tells why it gave no result."""
    call = CallSummary(records=[summary_of(entry, owners) for entry in entries])
    title = next((title_of(code) or code for code in call.codes), "")
    if call.outcome not in UNSUCCESSFUL_OUTCOMES:
        return msgspec.structs.replace(call, reason="" if call.newest.call else title)
    said = [entry.record for entry in reversed(entries)]
    kept: KeptRefusal | None = None
    if bodies is not None:
        with contextlib.suppress(StoreUnavailable):  # of another server: the list is shown without it
            kept = read_kept(said, bodies)
    reason = verdict_of(said, kept).reason or title
    return msgspec.structs.replace(call, reason=reason, is_told=kept is not None)


def _approved(said: dict[str, Any]) -> str:
    return "approved" if said.get("type") == "Approval" else ""  # a refused one has the status of its call
