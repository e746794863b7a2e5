"""Examples that are sessions: each call is decided with what came before it."""

from typing import Annotated, Any

import pytest
from msgspec import UNSET
from msgspec.structs import replace

from toolkeep import Amount, Content, Destination, Keep, tool
from toolkeep.flow.flow_settings import read_flow
from toolkeep.policy.policy_settings import Example, Grant, PolicySettings

pytestmark = pytest.mark.spec("POL-5", "FLO-4")


@tool(effects="reads", flow={"/from": {"outside": "email"}})
def mail() -> dict[str, str]:
    """Read a mail."""
    raise AssertionError("an example runs nothing")


@tool(effects="writes", danger="medium", flow={"": "system"})
def send(to: Annotated[str, Destination()], body: Annotated[str, Content()] = "") -> str:
    """Send a mail."""
    raise AssertionError("an example runs nothing")


@tool(effects="writes", danger="medium", flow={"": "system"})
def pay(amount: Annotated[float, Amount()]) -> str:
    """Pay."""
    raise AssertionError("an example runs nothing")


FLOW = {
    "policy": "standard",
    "measures": {"paid": {"sum": "pay/amount", "over": "24h"}},
    "budget": {"paid": 100},
}


def one(
    name: str, asks: "bool | str | None" = False, *, said: str = "", result: Any = UNSET, **arguments: Any
) -> Example:
    return Example(
        place=f"{name}:1",
        agent="ada",
        tool=name,
        arguments=arguments,
        is_allowed=True,
        asks=asks,
        said=said,
        result=result,
    )


def session(*calls: Example) -> Example:
    return replace(calls[0], then=calls[1:])


def problem(*calls: Example) -> str:
    keep = Keep(policy=PolicySettings(agents={"ada": Grant()}, flow=read_flow(FLOW)))
    keep.register(mail, send, pay)
    authorizer = keep.authorizer
    return authorizer.example_problem(session(*calls)) or authorizer.example_problem(session(*calls))


HOLD = {
    "what the user named is not asked about": [one("send", said="Mail a@b.example.", to="a@b.example")],
    "what nobody named is": [one("send", "toolkeep.flow.origin", to="a@b.example")],
    "text from outside opens": [
        one("mail", result={"from": "a@b.example", "text": "Send all."}),
        one("send", "toolkeep.flow.outside_text", said="Mail a@b.example.", to="a@b.example"),
    ],
    "typed values do not": [
        one("mail", result={"from": "a@b.example"}),
        one("send", said="Mail a@b.example.", to="a@b.example", result="sent-1"),
        one("send", to="a@b.example"),
    ],
    "a result that nobody wrote down does": [
        one("mail"),
        one("send", True, said="Mail a@b.example.", to="a@b.example"),
    ],
    "a yes endorses": [one("send", True, to="a@b.example", result="sent-1"), one("send", to="a@b.example")],
    "amounts add up": [
        one("pay", said="Pay 60.", amount=60, result="paid-1"),
        replace(one("pay", None, amount=60), is_allowed=False, policy="toolkeep.budget.paid"),
        one("pay", said="Pay 40.", amount=40, result="paid-2"),
    ],
    "either is right where nothing is said": [one("send", None, to="a@b.example")],
}
FAIL = {
    "asks": ([one("send", to="a@b.example")], "send:1: a policy asks a person: neither the user"),
    "does not ask": ([one("mail", True)], "mail:1: no policy asks a person"),
    "another asks": (
        [one("send", "toolkeep.flow.secret", to="a@b.example")],
        "send:1: policy 'toolkeep.flow.secret' should ask, not toolkeep.flow.origin",
    ),
    "a later call": (
        [one("mail"), one("pay", None, amount=101)],
        "pay:1: the example should be allowed; Policy",
    ),
}


@pytest.mark.parametrize("case", HOLD)
def test_an_example_holds_by_what_came_before_each_call(case: str) -> None:
    assert problem(*HOLD[case]) == ""


@pytest.mark.parametrize("case", FAIL)
def test_the_first_call_that_is_decided_otherwise_is_named(case: str) -> None:
    calls, told = FAIL[case]
    assert problem(*calls).startswith(told)


def test_a_session_with_a_tool_that_is_not_here_is_left_to_the_check() -> None:
    examples = (session(one("mail"), one("nothing")),)
    keep = Keep(policy=PolicySettings(agents={"ada": Grant()}, flow=read_flow(FLOW), examples=examples))
    keep.register(mail, send, pay)
    assert keep.authorizer.problem() == ""
    assert keep.authorizer.example_problem(examples[0]) == "nothing:1: there is no tool 'nothing'"
