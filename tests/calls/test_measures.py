"""Measures and budgets over whole calls: what policies see, and that calls at once pass no limit (FLO-4)."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from toolkeep import Code, Keep, Question, ToolResult, open_keep, tool
from toolkeep.keep.open import AgentKeywords

pytestmark = pytest.mark.spec("FLO-4", "FLO-5")

SPEND = {"spend": {"sum": "pay_invoice/amount", "over": "24h"}}
AGENTS: dict[str, AgentKeywords] = {"assistant": {}, "helper": {}}
ALL = '@id("all") permit (principal, action == Action::"call", resource);'


@tool(effects="writes", danger="safe")
def pay_invoice(amount: float | None = None, note: str = "") -> str:
    """Pay an invoice."""
    return "paid"


@tool(effects="writes", danger="high")
def transfer(amount: float) -> str:
    """Transfer money."""
    return "done"


@tool(effects="writes", danger="safe")
def send_message(to: str) -> str:
    """Send a message."""
    return "sent"


@tool(effects="reads", danger="safe")
def look() -> str:
    """Look."""
    return "12345678"


def opened(folder: Path, flow: dict[str, Any] | None, **more: Any) -> Keep:
    keep = open_keep(project=folder, built_in=False, flow=flow, agents=AGENTS, **more)
    keep.register(pay_invoice, transfer, send_message, look)
    return keep


def call(keep: Keep, name: str, agent: str = "assistant", session: str = "s", **arguments: Any) -> str:
    return said(keep.call_sync(name, arguments, agent=agent, session=session, forwarded=True))


def said(result: ToolResult) -> str:
    return result.status if result.error is None else result.error.errors[0].message


def test_calls_at_once_in_threads_and_keeps_cannot_pass_a_budget(tmp_path: Path) -> None:
    arrived, go_on = threading.Semaphore(0), threading.Event()

    @tool(name="pay_invoice", effects="writes", danger="safe")
    def slow_payment(amount: int) -> str:
        """Pay an invoice once all calls have been decided."""
        arrived.release()
        go_on.wait(30)
        return "paid"

    def pay(keep: Keep) -> str:
        outcome = call(keep, "pay_invoice", amount=100)
        if outcome != "ok":
            arrived.release()
        return outcome

    flow = {"measures": SPEND, "budget": {"spend": "500/day"}}
    with (
        open_keep(project=tmp_path, built_in=False, flow=flow, agents=AGENTS) as one,
        open_keep(project=tmp_path, built_in=False, flow=flow, agents=AGENTS) as other,
        ThreadPoolExecutor(8) as threads,
    ):
        one.register(slow_payment)
        other.register(slow_payment)
        paying = [threads.submit(pay, keep) for keep in (one, other) * 4]
        for _ in paying:
            assert arrived.acquire(timeout=30)
        go_on.set()
        outcomes = sorted(each.result() for each in paying)
    forbidden = (
        "Policy 'toolkeep.budget.spend' forbids it: "
        "this call would exceed the budget of 500 for spend in 1 day"
    )
    assert outcomes == [forbidden] * 3 + ["ok"] * 5


def test_a_sum_outlives_the_keep_and_belongs_to_the_agent(tmp_path: Path) -> None:
    flow = {"measures": SPEND, "budget": {"spend": 500}}
    with opened(tmp_path, flow) as keep:
        assert call(keep, "pay_invoice", amount=450.5) == "ok"
    with opened(tmp_path, flow) as keep:
        assert "exceed the budget" in call(keep, "pay_invoice", amount=49.5001, session="another")
        assert call(keep, "pay_invoice", amount=49.5) == "ok"
        assert call(keep, "pay_invoice", agent="helper", amount=500) == "ok"
        assert call(keep, "send_message", to="x") == "ok"


def test_a_call_whose_process_died_counts(tmp_path: Path) -> None:
    flow = {"measures": SPEND, "budget": {"spend": 500}}
    script = f"""
import os
from toolkeep import open_keep, tool

@tool(effects="writes", danger="safe")
def pay_invoice(amount: float) -> str:
    "Pay."
    os._exit(7)

keep = open_keep(project={str(tmp_path)!r}, built_in=False, flow={json.dumps(flow)}, agents={{"assistant": {{}}}})
keep.register(pay_invoice)
keep.call_sync("pay_invoice", {{"amount": 400}}, agent="assistant")
"""
    died = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60, check=False)
    assert died.returncode == 7, died.stderr
    with opened(tmp_path, flow) as keep:
        assert "exceed the budget" in call(keep, "pay_invoice", amount=101)
        assert call(keep, "pay_invoice", amount=100) == "ok"


def test_a_call_that_is_refused_or_does_not_run_gives_its_amount_back(tmp_path: Path) -> None:
    flow = {"measures": {"moved": {"sum": "transfer/amount", "over": "24h"}}, "budget": {"moved": 500}}
    answers: list[bool] = []
    policies = [
        ALL,
        (
            '@id("odd") forbid (principal, action == Action::"call", resource == Tool::"transfer") '
            "when { context.arguments has amount && "
            'context.arguments.amount.lessThan(decimal("1.0")) };'
        ),
    ]
    with opened(tmp_path, flow, policies=policies, approver=lambda _: answers.pop(0)) as keep:
        for _ in range(2):
            assert call(keep, "transfer", amount=0.5) == "Policy 'odd' forbids it"
            answers[:] = [False]
            assert call(keep, "transfer", amount=500) != "ok"
        answers[:] = [True]
        assert call(keep, "transfer", amount=500) == "ok"  # decided twice, counted once
        assert "exceed the budget" in call(keep, "transfer", amount=1)  # nobody is asked
        assert not answers


def test_an_approval_does_not_lift_a_budget_that_was_used_up_meanwhile(tmp_path: Path) -> None:
    flow = {"budget": {"result_bytes": "10/hour"}}

    def approver(_: Question) -> bool:
        with opened(tmp_path, flow) as other:
            return call(other, "look") == "ok"

    with opened(tmp_path, flow, approver=approver) as keep:
        assert call(keep, "transfer", amount=1).endswith("budget of 10 for result_bytes in 1 hour is used up")


def test_policies_read_measures_with_this_call_counted_in(tmp_path: Path) -> None:
    flow = {
        "measures": {
            "paid_today": {"sum": "pay_invoice/amount", "over": "24h"},
            "mails": {"count": "send_message", "over": "session"},
            "unread": {"count": "look", "over": "7d"},
        }
    }
    policies = [
        ALL,
        (
            '@id("limit") forbid (principal, action == Action::"call", resource == Tool::"pay_invoice") '
            'when { context.measures.paid_today.greaterThan(decimal("500.0")) };'
        ),
        (
            '@id("after") forbid (principal, action == Action::"call", resource == Tool::"look") '
            'when { context.measures.mails.greaterThan(decimal("1.0")) };'
        ),
    ]
    with opened(tmp_path, flow, policies=policies) as keep:
        assert call(keep, "pay_invoice", amount=400) == "ok"
        assert call(keep, "pay_invoice", amount=101) == "Policy 'limit' forbids it"
        assert call(keep, "pay_invoice", amount=100) == "ok"
        for outcome in ("ok", "Policy 'after' forbids it"):
            assert call(keep, "send_message", to="x") == "ok"
            assert call(keep, "look") == outcome
        assert call(keep, "look", session="another") == "ok"
        result = keep.call_sync("pay_invoice", {"amount": 0.25}, agent="assistant", session="s")
        (decision,) = (
            one for one in keep.record.records_of(result.call_id) if one["type"] == "PolicyDecision"
        )
        assert decision["flow"]["measures"] == {"paid_today": "500.2500"}
        with pytest.raises(Exception, match=r"reads context\.measures\.paid, which does not exist"):
            keep.use_policies(ALL, policies[1].replace("paid_today", "paid"))
        keep.use_policies(ALL)  # what nothing reads is not counted, and needs no amount
        assert call(keep, "pay_invoice") == "ok"


@pytest.mark.parametrize("amount", [None, -1, 0.00001, 1e15])
def test_a_call_without_a_sound_amount_is_refused_in_words(tmp_path: Path, amount: float | None) -> None:
    with opened(tmp_path, {"measures": SPEND, "budget": {"spend": 500}}) as keep:
        result = keep.call_sync("pay_invoice", {"amount": amount}, agent="assistant", forwarded=True)
    assert result.code is Code.NOT_PERMITTED
    assert said(result).startswith("This call cannot be measured: 'amount' must be a number from 0")


@pytest.mark.parametrize(
    ("measure", "wrong"),
    [
        (
            {"count": "pay_invoices", "over": "day"},
            "there is no tool 'pay_invoices'; did you mean 'pay_invoice'",
        ),
        (
            {"sum": "pay_invoice/amounts", "over": "day"},
            "'amounts' is no number that tool 'pay_invoice' takes",
        ),
        ({"sum": "pay_invoice/note", "over": "day"}, "'note' is no number"),
    ],
)
def test_a_measure_of_something_unknown_denies_every_call(
    tmp_path: Path, measure: dict[str, str], wrong: str
) -> None:
    with opened(tmp_path, {"measures": {"spend": measure}}) as keep:
        assert call(keep, "look").startswith(f"No call is permitted: flow.measures.spend: {wrong}")


@pytest.mark.parametrize(
    ("budget", "first"),
    [
        ({"questions": "1/day"}, "transfer"),
        ({"result_bytes": "10/session"}, "look"),  # "12345678" is ten bytes
        ({"run_seconds": "0.0001/hour"}, "look"),
    ],
)
def test_what_a_call_takes_is_used_up_for_the_next(
    tmp_path: Path, budget: dict[str, str], first: str
) -> None:
    arguments: dict[str, Any] = {"amount": 1} if first == "transfer" else {}
    with opened(tmp_path, {"budget": budget}, approver=lambda _: False) as keep:
        assert "is used up" not in call(keep, first, **arguments)
        assert call(keep, "look").endswith("is used up")
        assert call(keep, "look", agent="helper", session="t") == "ok"
