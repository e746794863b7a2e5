"""One sentence about a call: who, what and why; and what would change it.

Comes in: the records of a call, and what is kept of its refusal. Goes out: text for people. It decides
nothing, and believes the records.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from toolkeep.audit.kept_refusal import KeptProblem, KeptRefusal
from toolkeep.calls import DEFAULT_POLICY, Violation
from toolkeep.errors import NOT_BEGUN, TITLES, Code
from toolkeep.text.display import counted, echo_name, shorten

Outcome = Literal["ok", "refused", "failed", "unknown", "pending", "repeated", "under way"]
"""`refused`: it was not run; `failed`: it ran and gave no result; `unknown`: it may have had an effect."""


class CallVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a call."""

    outcome: Outcome
    sentence: str
    """Who called what, what came of it, and why."""
    why: str
    """The same without who and what, for a list that says them."""
    reason: str = ""
    """Why it was refused or failed, in few words, for a row that says the outcome too; else empty.

    The title of its error, if nothing more is known.
    """
    remedy: str = ""
    """What would change it, for the operator."""


_REMEDIES: Final = {
    Code.UNKNOWN_TOOL: "Call a tool that exists; the agent sees the others if it may.",
    Code.TOOL_DISABLED: "Enable the tool; then the same call passes this check.",
    Code.TOOL_QUARANTINED: "Review the tool, and accept it on its page or with `toolkeep accept`.",
    Code.AGENT_UNKNOWN: "Declare the agent under `agents` in the configuration.",
    Code.NOT_PERMITTED: "Change the grant of the agent or the policy; `toolkeep policy explain` says how.",
    Code.APPROVAL_NEEDED: "Answer the question while it waits; the agent has to call again.",
    Code.APPROVAL_DENIED: "Nothing, unless the agent calls again and someone approves it.",
    Code.RATE_LIMITED: "Call less often, or raise the rate limit in the configuration.",
    Code.QUEUE_FULL: "Call again when other calls have ended, or raise the limits in the configuration.",
    Code.CIRCUIT_OPEN: "Mend the tool: it failed several times in a row, and is tried again after a pause.",
    Code.ISOLATION_UNAVAILABLE: "Run `toolkeep doctor`: it says what this machine lacks.",
    Code.POLICIES_INVALID: "Run `toolkeep policy check`: it says what is wrong with the policies.",
    Code.KEY_CONFLICT: "Use a new idempotency key for other arguments.",
    Code.STORE_UNAVAILABLE: "Bring the shared database back; then the same call passes.",
    Code.NOT_RECORDED: "Run `toolkeep audit verify`, and look whether the disk is full.",
    Code.WORKER_UNAVAILABLE: "Start a worker that has the tool and its labels: `toolkeep fleet status`.",
    Code.TOUCHED_CHANGED: "Find out what changes the file while it is used, then call again.",
    Code.HOOK_REFUSED: "A hook of your program refused it: look there.",
    Code.REFERENCE_REFUSED: "Nothing: the agent has to call the tool again that gave the reference.",
    Code.REFUSED_REPEATEDLY: "Let the agent send another call: this one was refused many times.",
    Code.TIMED_OUT: "Raise the time limit of the tool, or let the agent ask for less.",
    Code.CANCELLED: "Nothing: the caller gave up.",
    Code.TOOL_FAILED: "Mend what the diagnosis names.",
    Code.OUTPUT_INVALID: "Mend the tool, or its output schema.",
    Code.OUTPUT_TOO_BIG: "Let the tool return less, or raise its output limit.",
    Code.OUTCOME_UNKNOWN: "Find out what it did before it is called again.",
    Code.OUTCOME_NOT_RECORDED: "Find out what it did before it is called again; the disk may be full.",
    Code.RESULT_WITHHELD: "A hook of your program withheld the result: look there.",
}
_REASON_CHARS: Final = 200
"""Characters of a reason: more than a row shows; the sentence has all of it."""
_INVALID: Final = frozenset(
    {
        Code.NOT_JSON,
        Code.REQUIRED_MISSING,
        Code.WRONG_TYPE,
        Code.CONSTRAINT,
        Code.ARGUMENTS_TOO_BIG,
        Code.WORK_EXCEEDED,
        Code.CHECK_FAILED,
    }
)
"""The arguments were not valid."""


def verdict_of(records: Sequence[Mapping[str, Any]], kept: KeptRefusal | None = None) -> CallVerdict:
    """The verdict on a call, from its records in order."""
    first, last = records[0], _last(records)
    who = f"{echo_name(str(first.get('agent') or 'Somebody'))} called {echo_name(str(first.get('tool', '')))}"
    status = last.get("status")
    if status == "repeated":
        again = f" again under the same key, and got the result of call {str(last.get('repeats'))[:8]}"
        return _verdict("repeated", who, again)
    if status == "pending":
        return _verdict("pending", who, "; its client runs it, and has not submitted the result yet")
    if status == "ok":
        return _verdict("ok", who, f": {_passed(records, last)}")
    if status == "error":
        return _failed(who, records, last, kept)
    remedy = "If its process ended, find out what it did before it is called again."
    return _verdict("under way", who, ", and no outcome is recorded: it runs, or its process ended", remedy)


def _verdict(outcome: Outcome, who: str, rest: str, remedy: str = "", reason: str = "") -> CallVerdict:
    why = re.sub(r"^[,;:]? (and |but )?", "", rest)
    return CallVerdict(
        outcome=outcome,
        sentence=f"{who}{rest}.",
        why=f"{why[:1].upper()}{why[1:]}.",
        reason=shorten(" ".join(reason.split()), _REASON_CHARS),
        remedy=remedy,
    )


def _last(records: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The record that tells the outcome; what a worker says later tells it only if it was unknown."""
    telling = (one for one in reversed(records) if one.get("type") != "AnsweredLate" or one.get("is_settled"))
    return next((one for one in telling if one.get("status")), {})


def _newest(records: Sequence[Mapping[str, Any]], kind: str) -> Mapping[str, Any]:
    return next((one for one in reversed(records) if one.get("type") == kind), {})


def _passed(records: Sequence[Mapping[str, Any]], last: Mapping[str, Any]) -> str:
    """Why a call was allowed, who approved it and how long it ran."""
    decision = _newest(records, "PolicyDecision")
    policies = [f"'{one}'" for one in decision.get("policies") or () if one != DEFAULT_POLICY]
    parts = [f"allowed by {_listed('policy', 'policies', policies)}" if policies else "allowed by its grant"]
    if approval := _newest(records, "Approval"):
        earlier = {"rule": " by a rule", "session": " for the session"}.get(str(approval.get("way")), "")
        parts.append(f"approved{earlier} by {echo_name(str(approval.get('approver')))}")
    if last.get("is_cached"):
        parts.append("answered from the cache")
    else:
        parts.append(f"done in {duration_text(int(last.get('execute_us') or 0))}")
    return ", ".join(parts)


def _failed(
    who: str, records: Sequence[Mapping[str, Any]], last: Mapping[str, Any], kept: KeptRefusal | None
) -> CallVerdict:
    codes = [Code(one) for one in last.get("codes") or () if one in set(Code)]
    code = codes[0] if codes else None
    # Of a model that was refused many times in a row, the first problem says only that.
    if code is Code.REFUSED_REPEATEDLY and len(codes) > 1:
        code = codes[1]
    problem = _problem(kept, code)
    why = problem.message if problem is not None else TITLES[code] if code else "no reason is recorded"
    why = _lowered(why)
    if code is Code.TOOL_FAILED and kept is not None and (end := kept.diagnosis.rstrip().rpartition("\n")[2]):
        why = end.strip().removesuffix(".")  # of a traceback, the error
    outcome: Outcome = "refused"
    if code is Code.OUTCOME_UNKNOWN:
        outcome = "unknown"
    elif last.get("type") in ("ToolCompleted", "AnsweredLate"):
        outcome = "refused" if code in NOT_BEGUN else "failed"
    cause = _cause(code, outcome, records, last, problem, why)
    remedy = _permission(records, kept) if code is Code.NOT_PERMITTED else ""
    reason = _reason(code, records, last, kept, why)
    return _verdict(outcome, who, cause, remedy or _remedy(code, problem, kept), reason)


def _reason(
    code: Code | None,
    records: Sequence[Mapping[str, Any]],
    last: Mapping[str, Any],
    kept: KeptRefusal | None,
    why: str,
) -> str:
    """Why a call gave no result, without what its row says: tool, agent and outcome."""
    if code in _INVALID:
        return f"{why}{_others(last)}"
    if code is Code.UNKNOWN_TOOL:
        return TITLES[code]
    if code is Code.APPROVAL_DENIED:
        return _denied(records, why)
    if code is Code.APPROVAL_NEEDED:
        waited_us = int(_newest(records, "Approval").get("waited_ms") or 0) * 1000
        return "nobody approved it" + (f" in {duration_text(waited_us)}" if waited_us >= _SECOND else "")
    if code is Code.NOT_PERMITTED and kept is not None and kept.ungranted:
        return f"no grant for {kept.ungranted}"
    if code is Code.NOT_PERMITTED and kept is None and (denying := _denying(records)):
        return f"{_listed('policy', 'policies', denying)} {'forbids' if len(denying) == 1 else 'forbid'} it"
    return why.removeprefix(f"tool '{echo_name(str(records[0].get('tool', '')))}' ")


def _others(last: Mapping[str, Any]) -> str:
    others = len(last.get("codes") or ()) - 1
    return f" (and {counted(others, 'more problem')})" if others > 0 else ""


def _denied(records: Sequence[Mapping[str, Any]], why: str) -> str:
    """Who denied a call, and the reason that they gave."""
    person = _newest(records, "Approval").get("approver")
    _, quote, reason = why.partition(': "')
    said = (
        f": {quote and reason.removesuffix(chr(34))}"
        if quote
        else ", who gave no reason"
        if person
        else ", without a reason"
    )
    return f"denied by {echo_name(str(person)) if person else 'its client'}{said}"


def _denying(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """The policies that denied a call, in quotes."""
    return [f"'{one}'" for one in _newest(records, "PolicyDecision").get("policies") or ()]


def _cause(
    code: Code | None,
    outcome: Outcome,
    records: Sequence[Mapping[str, Any]],
    last: Mapping[str, Any],
    problem: KeptProblem | None,
    why: str,
) -> str:
    """The rest of the sentence about a call without a result."""
    if code in _INVALID:
        place = f" at {problem.path}" if problem is not None and problem.path else ""
        return f", but its arguments are not valid{place}: {why}{_others(last)}"
    if code is Code.APPROVAL_DENIED:
        return f", and it was {_denied(records, why)}"
    if code is Code.APPROVAL_NEEDED:
        return ", and nobody approved it" + (f": {why}" if problem is not None else "")
    if code is Code.NOT_PERMITTED:
        named = _denying(records)
        if any(one in why for one in named):  # the message names it
            return f", and {why}"
        by = f" by {_listed('policy', 'policies', named)}" if named else ""
        return f", and it was denied{by}: {why}"
    if outcome == "unknown":
        return f", and its outcome is unknown: {why}"
    if outcome == "failed":
        return f"; it ran, and failed: {why}"
    return f", and it was refused: {why}"


def _permission(records: Sequence[Mapping[str, Any]], kept: KeptRefusal | None) -> str:
    """What would permit a call that lacks a grant, or that one's own policies deny; else empty."""
    if kept is not None and kept.ungranted:
        return "If the agent is to have it, grant it: `toolkeep policy explain` prints the line to add."
    denied = _newest(records, "PolicyDecision").get("policies") or ()
    named = [f"'{one}'" for one in denied if not one.startswith("toolkeep.")]
    return f"Change {_listed('policy', 'policies', named)}, or call with other arguments." if named else ""


def _remedy(code: Code | None, problem: KeptProblem | None, kept: KeptRefusal | None) -> str:
    said = [line for line in (kept.diagnosis if kept else "").split("\n") if line.startswith("Remedy: ")]
    if said:
        return said[0].removeprefix("Remedy: ")
    suggested = problem.suggestion if problem is not None else ""
    if code in _INVALID or (code is Code.UNKNOWN_TOOL and "Did you mean" in suggested):
        expected = f"Send {problem.expected}." if problem is not None and problem.expected else ""
        return suggested or expected or "Send arguments that fit the schema of the tool."
    return _REMEDIES.get(code, suggested) if code is not None else suggested


def remedy_for(problem: Violation) -> str:
    """The suggestion of a problem, to the operator: what to do where it sends a model to the operator."""
    said = problem.suggestion
    return _REMEDIES.get(problem.code, said) if "the operator" in said else said


def _problem(kept: KeptRefusal | None, code: Code | None) -> KeptProblem | None:
    problems = kept.problems if kept is not None else []
    return next((one for one in problems if one.code == code), problems[0] if problems else None)


def _listed(one: str, many: str, names: Sequence[str]) -> str:
    return f"{one if len(names) == 1 else many} {', '.join(names)}"


def _lowered(text: str) -> str:
    """A message inside a sentence: names and acronyms keep their first letter."""
    text = text.strip().removesuffix(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


_MILLISECOND: Final = 1_000
_SECOND: Final = 1_000_000


def duration_text(us: int) -> str:
    """A duration in microseconds for people: `340 µs`, `12 ms`, `1.5 s`."""
    if us < _MILLISECOND:
        return f"{us} µs"
    if us < _SECOND:
        return f"{us / _MILLISECOND:.3g} ms"
    seconds = us / _SECOND
    return f"{seconds:.3g} s" if seconds < 100 else f"{seconds / 60:.0f} min"
