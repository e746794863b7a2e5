"""Policies in shadow: what they would have decided is recorded, and nothing else changes (FLO-8)."""

from typing import Annotated, Any

import pytest

from toolkeep import Amount, Destination, Keep, Question, tool
from toolkeep.cli.policy_put import in_shadow
from toolkeep.events import Event, ShadowPolicyFailed
from toolkeep.flow.flow_settings import read_flow
from toolkeep.policy.policy_set import PoliciesRefused
from toolkeep.policy.policy_settings import Grant, PolicySettings, sources_of
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("FLO-8")

ALL = '@id("all") permit (principal, action == Action::"call", resource);'
NO_SEND = """
@id("no-send") @shadow @reason("nobody sends")
forbid (principal, action == Action::"call", resource == Tool::"send");
"""


@tool(effects="writes", danger="low")
def send(to: Annotated[str, Destination()]) -> bool:
    """Send."""
    return True


@tool(effects="writes", danger="low")
def pay(amount: Annotated[float | None, Amount()] = None) -> bool:
    """Pay."""
    return True


class Opened:
    """A keep with policies, which tells what it alarms about."""

    def __init__(self, *texts: str, flow: Any = None) -> None:
        self.asked: list[str] = []
        self.alarms: list[ShadowPolicyFailed] = []
        settings = PolicySettings(agents={"ada": Grant()}, flow=None if flow is None else read_flow(flow))
        self.keep = Keep(policy=settings, approver=self._ask)
        self.keep.register(send, pay)
        self.keep.subscribe(self._hear)
        if texts:
            self.keep.use_policies(*texts)

    async def _ask(self, question: Question) -> bool:
        self.asked.append(question.tool)
        return True

    def _hear(self, event: Event) -> None:
        if isinstance(event, ShadowPolicyFailed):
            self.alarms.append(event)

    def call(self, name: str, **arguments: Any) -> Any:
        return self.keep.call_sync(name, arguments, agent="ada")

    def recorded(self) -> list[Any]:
        record = self.keep.record
        assert isinstance(record, MemoryRecord)
        return [
            one.record.get("shadow") for one in record.log.entries if one.record["type"] == "PolicyDecision"
        ]


def send_to(opened: Opened) -> Any:
    return opened.call("send", to="bob@example.org")


def test_what_it_would_have_denied_is_recorded_and_made() -> None:
    opened = Opened(ALL, NO_SEND)
    result = send_to(opened)
    assert (result.ok, result.decision.decision, result.decision.policies) == (True, "allow", ("all",))
    assert result.decision.to_dict()["shadow"] == {"decision": "deny", "policies": ["no-send"]}
    assert "shadow" not in opened.call("pay", amount=1).decision.to_dict()
    assert opened.recorded() == [{"decision": "deny", "policies": ["no-send"]}, None]


def test_it_never_permits_asks_or_spares() -> None:
    permits = """
    @id("nothing") permit (principal, action == Action::"call", resource == Tool::"pay");
    @id("more") @shadow permit (principal, action == Action::"call", resource == Tool::"send");
    @id("spare") @silent @shadow permit (principal, action == Action::"call", resource == Tool::"pay");
    @id("ask") @ask permit (principal, action == Action::"call", resource == Tool::"pay");
    """
    opened = Opened(permits)
    denied = send_to(opened)
    assert (denied.ok, denied.decision.policies) == (False, ())
    assert denied.decision.shadow.decision == "allow"
    assert opened.call("pay", amount=1).decision.shadow.decision == "allow"
    assert opened.asked == ["pay"]
    asks = '@id("asks") @ask @shadow forbid (principal, action == Action::"call", resource == Tool::"send");'
    opened = Opened(ALL, asks)
    assert send_to(opened).decision.shadow.decision == "ask"
    assert opened.asked == []


def test_policies_in_shadow_alone_are_as_good_as_none() -> None:
    opened = Opened(NO_SEND)
    result = send_to(opened)
    assert (result.ok, result.decision.policies) == (True, ("toolkeep.call",))
    assert result.decision.shadow.decision == "deny"
    assert Opened(NO_SEND, "").call("pay", amount=1).ok is False  # an empty text permits nothing, as ever


def test_it_changes_neither_the_hash_of_the_set_nor_what_a_model_sees() -> None:
    hides = '@id("hides") @shadow forbid (principal, action == Action::"see", resource);'
    plain, shadowed = Opened(ALL), Opened(ALL, NO_SEND, hides)
    assert (
        plain.keep.authorizer.active_policies.engine.policies.hash
        == shadowed.keep.authorizer.active_policies.engine.policies.hash
    )
    assert [one.name for one in shadowed.keep.tools(agent="ada")] == [
        one.name for one in plain.keep.tools(agent="ada")
    ]


WRONG_NAME = '@id("w") @shadow forbid (principal, action == Action::"call", resource == Tool::"nobody");'
FAILS = """
@id("w") @shadow forbid (principal, action == Action::"call", resource == Tool::"send")
when { 9223372036854775807 + resource.danger > 0 };
"""


@pytest.mark.parametrize("wrong", [WRONG_NAME, FAILS])
def test_a_broken_one_alarms_once_and_refuses_nothing(wrong: str) -> None:
    opened = Opened(ALL, wrong)
    results = [send_to(opened) for _ in range(3)]
    assert [(one.ok, one.decision.shadow) for one in results] == [(True, results[0].decision.shadow)] * 3
    assert "shadow" not in results[0].decision.to_dict()
    assert [alarm.policies for alarm in opened.alarms] == [("w",)]


def test_a_broken_one_of_the_configuration_refuses_nothing_either() -> None:
    heard: list[Event] = []
    settings = PolicySettings(agents={"ada": Grant()}, sources=sources_of([ALL, WRONG_NAME]))
    keep = Keep(policy=settings)
    keep.subscribe(heard.append)
    keep.register(send, pay)
    assert keep.call_sync("pay", {"amount": 1}, agent="ada").ok
    assert [one for one in heard if isinstance(one, ShadowPolicyFailed)]


def test_a_measure_that_only_shadow_reads_refuses_no_call() -> None:
    reads = """
    @id("much") @shadow forbid (principal, action == Action::"call", resource == Tool::"pay")
    when { context.measures.paid.greaterThan(decimal("10.0")) };
    """
    flow = {"measures": {"paid": {"sum": "pay/amount", "over": "session"}}}
    opened = Opened(ALL, reads, flow=flow)
    assert opened.call("pay", amount=8).decision.to_dict().get("shadow") is None
    assert opened.call("pay").ok  # without an amount, a policy in force would refuse it
    assert opened.call("pay", amount=8).decision.shadow.policies == ("much",)


def test_shadow_takes_no_value() -> None:
    opened = Opened(ALL)
    with pytest.raises(PoliciesRefused, match="gives @shadow a value"):
        opened.keep.use_policies('@id("x") @shadow("soon") permit (principal, action, resource);')


def test_every_policy_of_a_text_is_put_in_shadow() -> None:
    text = f'// one\n{ALL} @id("b")\npermit (principal, action == Action::"call", resource);{NO_SEND}'
    shadowed = in_shadow(text)
    assert shadowed.count("@shadow") == 3
    assert shadowed.replace("@shadow ", "").replace("@shadow", "") == text.replace("@shadow ", "")
    opened = Opened(shadowed)
    assert opened.keep.authorizer.active_policies.shadow is not None


def test_without_shadow_nothing_is_worked_out() -> None:
    assert Opened(ALL).keep.authorizer.active_policies.shadow is None
