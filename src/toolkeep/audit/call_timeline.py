"""Calls of a session as steps of a timeline: outcome, answers, sizes, and the state that each decision read.

Comes in: the records of a call in order, what is kept of its refusal, and the sizes of its bodies. Goes out:
data for people. It decides nothing, and believes the records.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from toolkeep.audit.call_verdict import Outcome, verdict_of
from toolkeep.audit.kept_refusal import KeptRefusal
from toolkeep.errors import Code


class TimelineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a person to a call."""

    verdict: Literal["approved", "denied", "unanswered"]
    approver: str
    way: str
    """Where it was given: `page`, `terminal`, `http`, …; `session` or `rule` for an earlier answer."""
    waited_ms: int | None
    """How long the question waited; null for an earlier answer."""


class SessionFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What the decision about a call knew of its session (FLO-7)."""

    opened: bool
    """Whether the model had been shown text from outside."""
    secret: bool
    """Whether it had been shown secrets."""
    origins: dict[str, list[str]]
    """Where each argument with authority came from; only of calls that act."""
    measures: dict[str, str]
    owner: str
    """The key of the state."""


Change = Literal["opened", "secret", "clean"]

CHANGE_WORDS: Final[dict[Change, str]] = {
    "opened": "From here on, the model has been shown text from outside.",
    "secret": "From here on, the model has been shown secrets.",
    "clean": "The state is clean again: a person ended the session, or its host began it anew.",
}
"""What each means, for a person."""


class TimelineCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a session."""

    call: str
    time: str
    """When it was asked for."""
    tool: str
    agent: str
    outcome: Outcome
    why: str
    """What came of it and why, in one sentence."""
    codes: list[str]
    policies: list[str]
    """The policies that decided."""
    answer: TimelineAnswer | None
    took_us: int
    sent_bytes: int | None
    """Size of the arguments; null if they are not kept."""
    shown_bytes: int | None
    """Size of the result, which the model was shown; null if there is none, or it is not kept."""
    facts: SessionFacts | None
    """Null if nothing watches sessions, or the call ended before its decision."""
    changes: list[Change]
    """What the session had become since the call before."""
    server: str = ""


def timeline_call(
    records: Sequence[Mapping[str, Any]],
    kept: KeptRefusal | None,
    sizes: Mapping[str, int],
    *,
    before: SessionFacts | None = None,
    server: str = "",
) -> TimelineCall:
    """One call, from its records in order; `before` is what the decision before it knew."""
    first, decision = records[0], _newest(records, "PolicyDecision")
    verdict = verdict_of(records, kept)
    facts = _facts(decision.get("flow"))
    result = next((str(one["result_hash"]) for one in records if one.get("result_hash")), "")
    asked_at = next((str(one["asked_at"]) for one in records if one.get("asked_at")), "")
    took = next((one["stage_us"] for one in reversed(records) if one.get("stage_us")), ())
    return TimelineCall(
        call=str(first.get("call", "")),
        time=asked_at or str(first.get("time", "")),
        tool=str(first.get("tool", "")),
        agent=str(first.get("agent", "")),
        outcome=verdict.outcome,
        why=verdict.why,
        codes=[str(code) for one in records for code in one.get("codes") or ()],
        policies=[str(one) for one in decision.get("policies") or ()],
        answer=answer_of(records),
        took_us=sum(took) or int(_newest(records, "ToolCompleted").get("execute_us") or 0),
        sent_bytes=sizes.get(str(first.get("argument_hash"))) if first.get("has_arguments") else None,
        shown_bytes=sizes.get(result) if verdict.outcome in ("ok", "repeated") else None,
        facts=facts,
        changes=changes_between(before, facts),
        server=server,
    )


def answer_of(records: Sequence[Mapping[str, Any]]) -> TimelineAnswer | None:
    """What a person said about a call; None if nobody was asked."""
    said = _newest(records, "Approval")
    if not said:
        return None
    verdict: Literal["approved", "denied", "unanswered"] = "approved"
    if said.get("codes"):
        is_denied = said.get("approver") and Code.APPROVAL_DENIED.value in said["codes"]
        verdict = "denied" if is_denied else "unanswered"
    waited = said.get("waited_ms")
    return TimelineAnswer(
        verdict=verdict,
        approver=str(said.get("approver", "")),
        way=str(said.get("way", "")),
        waited_ms=None if waited is None else int(waited),
    )


def changes_between(before: SessionFacts | None, now: SessionFacts | None) -> list[Change]:
    """How a state changed; one that is clean again was ended, or begun anew."""
    if now is None:
        return []
    opened, secret = (before.opened, before.secret) if before is not None else (False, False)
    if (opened and not now.opened) or (secret and not now.secret):
        return ["clean"]
    changes: list[tuple[Change, bool]] = [
        ("opened", now.opened and not opened),
        ("secret", now.secret and not secret),
    ]
    return [change for change, is_so in changes if is_so]


def body_hashes(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The hashes of the arguments and the result of a call, if they may be kept."""
    found = [str(records[0]["argument_hash"])] if records[0].get("has_arguments") else []
    return found + [str(one["result_hash"]) for one in records if one.get("result_hash")]


def _facts(said: Any) -> SessionFacts | None:
    if not isinstance(said, Mapping):
        return None
    return SessionFacts(
        opened=bool(said.get("opened")),
        secret=bool(said.get("secret")),
        origins={str(name): list(map(str, one)) for name, one in (said.get("origins") or {}).items()},
        measures={str(name): str(value) for name, value in (said.get("measures") or {}).items()},
        owner=str(said.get("session", "")),
    )


def _newest(records: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    return next((one for one in reversed(records) if one.get("type") == kind), {})
