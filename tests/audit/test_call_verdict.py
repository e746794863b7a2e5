"""One sentence for every outcome: who, what, why; and what would change it."""

import asyncio
from typing import Any

import pytest

from toolkeep import Answer, Keep, Question, ToolFailed, open_keep, tool
from toolkeep.audit.call_verdict import CallVerdict, duration_text, verdict_of
from toolkeep.audit.kept_refusal import KeptProblem, KeptRefusal, parse_kept
from toolkeep.calls import ToolResult

pytestmark = pytest.mark.spec("AUD-1", "WEB-2")


@tool(side_effects=["None"])
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    if a < 0:
        raise ValueError("below zero")
    if a == 0:
        raise ToolFailed("nothing to add")
    return a + b


@tool(danger="medium", side_effects=["None"])
async def send(to: str) -> None:
    """Send a letter."""


@tool(side_effects=["FsRead"], capabilities=["fs.read:/srv"])
async def look() -> None:
    """Look around."""


async def approver(question: Question) -> Answer | None:
    said: dict[str, Answer | None] = {
        "ada": Answer(verdict="approve", approver="ada", way="http"),
        "bob": Answer(verdict="deny", approver="ada", way="http", reason="not to Bob."),
        "eve": Answer(verdict="deny", approver="ada", way="http"),
    }
    return said.get(question.argument_data["to"])


def verdict(keep: Keep, made: ToolResult) -> CallVerdict:
    records = keep.record.records_of(made.call_id)
    digest = records[-1].get("diagnosis_hash")
    return verdict_of(records, parse_kept(keep.record.bodies.get(digest)) if digest else None)


POLICIES = """
@id("all") permit (principal, action, resource);
@id("no-nines") @reason("nine is reserved")
forbid (principal, action == Action::"call", resource == Tool::"add") when { context.arguments has b && context.arguments.b == 9 };
"""


@pytest.mark.parametrize(
    ("name", "arguments", "outcome", "sentence", "reason", "remedy"),
    [
        ("add", {"a": 1}, "ok", "operator called add: allowed by policy 'all', done in ", "", ""),
        (
            "send",
            {"to": "ada"},
            "ok",
            "operator called send: allowed by policy 'all', approved by ada, done in ",
            "",
            "",
        ),
        (
            "add",
            {"a": "x", "c": 1},
            "refused",
            "operator called add, but its arguments are not valid at /a: 'a' must be an integer",
            "'a' must be an integer, got string (and 1 more problem)",
            "Send an integer.",
        ),
        (
            "ad",
            {},
            "refused",
            "operator called ad, and it was refused: unknown tool 'ad'.",
            "unknown tool",
            "Did you mean 'add'?",
        ),
        (
            "add",
            {"a": 1, "b": 9},
            "refused",
            "operator called add, and policy 'no-nines' forbids it: nine is reserved.",
            "policy 'no-nines' forbids it: nine is reserved",
            "Change policy 'no-nines', or call with other arguments.",
        ),
        (
            "look",
            {},
            "refused",
            "operator called look, and it was denied: the agent has no grant for fs.read of '/srv'.",
            "no grant for fs.read of '/srv'",
            "If the agent is to have it, grant it: `toolkeep policy explain`",
        ),
        (
            "send",
            {"to": "bob"},
            "refused",
            "operator called send, and it was denied by ada: not to Bob.",
            "denied by ada: not to Bob",
            "Nothing, unless",
        ),
        (
            "send",
            {"to": "eve"},
            "refused",
            "operator called send, and it was denied by ada, who gave no reason.",
            "denied by ada, who gave no reason",
            "Nothing,",
        ),
        (
            "send",
            {"to": "x"},
            "refused",
            "operator called send, and nobody approved it",
            "nobody approved it",
            "Answer the question",
        ),
        (
            "add",
            {"a": 0},
            "failed",
            "operator called add; it ran, and failed: nothing to add.",
            "nothing to add",
            "Mend what",
        ),
        (
            "add",
            {"a": -1},
            "failed",
            "operator called add; it ran, and failed: ValueError: below zero.",
            "ValueError: below zero",
            "Mend what",
        ),
    ],
)
def test_a_call_is_summed_up_in_one_sentence(
    name: str, arguments: dict[str, Any], outcome: str, sentence: str, reason: str, remedy: str
) -> None:
    with open_keep(built_in=False, approver=approver) as keep:
        keep.register(add, send, look)
        keep.use_policies(POLICIES)
        said = verdict(keep, asyncio.run(keep.call(name, arguments, agent="operator")))
    assert said.outcome == outcome
    assert said.sentence.startswith(sentence)
    assert said.reason == reason
    assert said.remedy.startswith(remedy)


INVOKED = {"type": "ToolInvoked", "agent": "a", "tool": "t", "call": "c"}


@pytest.mark.parametrize(
    ("last", "kept", "outcome", "sentence", "reason"),
    [
        ({}, None, "under way", "a called t, and no outcome is recorded: it runs, or its process ended.", ""),
        (
            {"type": "ToolInvoked", "status": "repeated", "repeats": "0123456789"},
            None,
            "repeated",
            "a called t again under the same key, and got the result of call 01234567.",
            "",
        ),
        (
            {"type": "ToolCompleted", "status": "pending"},
            None,
            "pending",
            "a called t; its client runs it, and has not submitted the result yet.",
            "",
        ),
        (
            {"type": "ToolCompleted", "status": "error", "codes": ["ACODE-TSR-032"]},
            None,
            "failed",
            "a called t; it ran, and failed: timeout.",
            "timeout",
        ),
        (
            {"type": "ToolCompleted", "status": "error", "codes": ["ACODE-TSR-040"]},
            None,
            "unknown",
            "a called t, and its outcome is unknown: outcome unknown.",
            "outcome unknown",
        ),
        (
            {"type": "ToolCompleted", "status": "error", "codes": ["ACODE-TSR-031"]},
            None,
            "refused",
            "a called t, and it was refused: circuit breaker open.",
            "circuit breaker open",
        ),
        (
            {"type": "ToolInvoked", "status": "error", "codes": ["ACODE-TSR-013", "ACODE-TSR-004"]},
            KeptRefusal(problems=[KeptProblem(path="/x", code="ACODE-TSR-004", message="'x' is wrong")]),
            "refused",
            "a called t, but its arguments are not valid at /x: 'x' is wrong (and 1 more problem).",
            "'x' is wrong (and 1 more problem)",
        ),
        (
            {
                "type": "PolicyDecision",
                "decision": "deny",
                "policies": ["x", "y"],
                "status": "error",
                "codes": ["ACODE-TSR-027"],
            },
            None,
            "refused",
            "a called t, and it was denied by policies 'x', 'y': not permitted.",
            "policies 'x', 'y' forbid it",
        ),
        (
            {"type": "ToolInvoked", "status": "error", "codes": ["of a later version"]},
            None,
            "refused",
            "a called t, and it was refused: no reason is recorded.",
            "no reason is recorded",
        ),
    ],
)
def test_a_record_alone_gives_a_sentence_too(
    last: dict[str, Any], kept: KeptRefusal | None, outcome: str, sentence: str, reason: str
) -> None:
    said = verdict_of([INVOKED, last] if last else [INVOKED], kept)
    assert (said.outcome, said.sentence, said.reason) == (outcome, sentence, reason)


def test_durations_are_short() -> None:
    assert [duration_text(one) for one in (7, 3_456, 812_000, 1_500_000, 7_200_000_000)] == [
        "7 µs", "3.46 ms", "812 ms", "1.5 s", "120 min",
    ]  # fmt: skip
