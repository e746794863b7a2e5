"""What may be declared as measures and budgets (FLO-4)."""

from typing import Any

import pytest

from toolkeep.flow.flow_settings import read_flow
from toolkeep.flow.measures import AMOUNT, MOST, PLACES, read_number, to_decimal

pytestmark = pytest.mark.spec("FLO-4")


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        ({"measures": {"a.b": {"count": "x", "over": "day"}}}, "a name has letters"),
        ({"measures": {"calls": {"count": "x", "over": "day"}}}, "built-in"),
        ({"measures": {"a": {"count": "x", "sum": "x/y", "over": "day"}}}, "with count or sum"),
        ({"measures": {"a": {"count": "x", "of": "y", "over": "day"}}}, "with count or sum"),
        ({"measures": {"a": {"over": "day"}}}, "with count or sum"),
        ({"measures": {"a": {"count": "x/y", "over": "day"}}}, "count takes a tool"),
        ({"measures": {"a": {"sum": "x", "over": "day"}}}, "sum takes TOOL/PARAMETER"),
        ({"measures": {"a": {"sum": "calls", "over": "day"}}}, "sum takes"),
        ({"measures": {"a": {"count": "run_seconds", "over": "day"}}}, "sum takes"),
        ({"measures": {"a": {"sum": "run_seconds/x", "over": "day"}}}, "sum takes"),
        ({"measures": {"a": {"count": 'x"); permit (', "over": "day"}}}, "count takes a tool"),
        ({"measures": {"a": {"count": "x"}}}, "None is no window"),
        ({"measures": {"a": {"count": "x", "over": "32d"}}}, "'32d' is no window"),
        ({"measures": {"a": {"count": "x", "over": "0h"}}}, "'0h' is no window"),
        ({"measures": []}, "must be an object"),
        ({"measures": {f"a{n}": {"count": "x", "over": "day"} for n in range(51)}}, "more than 50"),
        ({"budget": {"spend": "5/day"}}, "there is no measure 'spend'"),
        ({"budget": {"calls": "5"}}, "write it as 200/hour"),
        ({"budget": {"calls": "-5/day"}}, "is no budget"),
        ({"budget": {"calls": "1.23456/day"}}, "is no budget"),
        ({"budget": {"calls": True}}, "is no budget"),
        ({"budget": {"calls": "5/fortnight"}}, "'fortnight' is no window"),
    ],
)
def test_what_is_wrong_is_said(flow: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match="flow") as refused:
        read_flow(flow)
    assert said in str(refused.value)


def test_numbers_are_exact_or_none() -> None:
    assert [read_number(one) for one in (0, 7, 19.99, 0.0001, 120.5)] == [0, 70_000, 199_900, 1, 1_205_000]
    wrong = (-1, -0.0, 0.00001, 0.1 + 0.2, 1e16, 10**16, True, "5", None, [5])
    assert [read_number(one) for one in wrong] == [None] * len(wrong)
    assert to_decimal(1) == "0.0001"
    assert to_decimal(MOST + 5) == "922337203685477.5807"
    assert AMOUNT * 1000 <= MOST < AMOUNT * 1001
    assert PLACES == 10**4


def test_another_file_can_only_tighten() -> None:
    sums = {"spend": {"sum": "pay/amount", "over": "24h"}}
    users = read_flow({"policy": "standard", "measures": sums, "budget": {"spend": 500, "calls": "10/hour"}})
    projects = read_flow({"measures": sums, "budget": {"spend": "900/day", "calls": "5/hour"}})
    more = read_flow({"budget": {"calls": "99/minute"}})
    joined = more.beside(projects.beside(users))
    assert joined.policy == "standard"
    limits = {budget.measure.name: budget.limit // PLACES for budget in joined.measures.budgets}
    assert limits == {"budget.spend.86400": 500, "budget.calls.3600": 5, "budget.calls.60": 99}
    identifiers = [line for line in joined.measures.policies().splitlines() if line.startswith("@id")]
    assert identifiers == [
        '@id("toolkeep.budget.spend")',
        '@id("toolkeep.budget.calls")',
        '@id("toolkeep.budget.calls.2")',
    ]
    other = read_flow({"measures": {"spend": {"count": "pay", "over": "24h"}}})
    with pytest.raises(ValueError, match=r"flow\.measures\.spend is declared otherwise elsewhere"):
        other.beside(users)
