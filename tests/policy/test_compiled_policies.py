"""Compiled policies say what Cedar says, or nothing; and Cedar decides whatever acts."""

import json
from itertools import product
from typing import Any

import cedarpy
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.definitions.examples import made, with_properties
from toolkeep import Code, Keep
from toolkeep.events import CompiledPolicyDisputed, Event
from toolkeep.policy import cedar_engine as engine_module
from toolkeep.policy import compiled_check
from toolkeep.policy.cedar_engine import (
    DECIDED_AGAIN,
    MISSES_BEFORE_COMPILING,
    AgentEntity,
    CallFacts,
    Engine,
    Verdict,
    tool_entities,
)
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.compiled_policies import Bind
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-2")

PARAMETERS = with_properties(
    {
        "amount": {"type": "integer", "description": "How much."},
        "rate": {"type": "number", "description": "How fast."},
        "note": {"type": "string", "description": "A note."},
        "flag": {"type": "boolean", "description": "Whether."},
        "tags": {"type": "array", "items": {"type": "integer"}, "description": "Tags."},
        "options": {
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "name": {"type": "string"}},
            "description": "Options.",
        },
    }
)
READS = admit(made(name="find", parameters=PARAMETERS, side_effects=["None"]))
AGENT = AgentEntity(id="local", permissions=frozenset({"a", "b"}))
CALL = 'principal, action == Action::"call", resource'
ALL = f'@id("all") permit({CALL});'
LIMIT = f'@id("no") forbid({CALL}) when {{ context.arguments has amount && context.arguments.amount > 5 }};'


def engine(*policies: str, **more: Any) -> Engine:
    return Engine(read_policies([PolicySource(name="a", text="\n".join(policies))]), **more)


WHOLE = engine(f'@id("w") permit({CALL}) when {{ context == context }};')._slice(AGENT, READS)
"""Policies that read everything."""


# --- the oracle ----------------------------------------------------------------------------------

ARGUMENT = "context.arguments"
PRESENT = f"{ARGUMENT} has amount && {ARGUMENT} has note && {ARGUMENT} has rate && {ARGUMENT} has tags"
TABLE = [
    *(f"{ARGUMENT}.amount {sign} {number}" for sign in ("==", "!=", "<", "<=", ">", ">=") for number in (-1, 0, 5)),
    *(f'{ARGUMENT}.note {sign} "a"' for sign in ("==", "!=")),
    *(f'{ARGUMENT}.note like "{pattern}"' for pattern in ("", "*", "a", "a*", "*a", "a*a", "*a*b*", "\\*", "a**b", "ab*ba")),
    *(
        f'{ARGUMENT}.rate.{method}(decimal("{number}"))'
        for method in ("lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual")
        for number in ("0.5", "-0.50", "1.0")
    ),
    f'{ARGUMENT}.rate == decimal("0.5000")',
    f"{ARGUMENT}.tags.contains(1)",
    f"[1, 5, 5].contains({ARGUMENT}.amount)",
    f"{ARGUMENT}.tags == [5, 1]",
    f"{ARGUMENT}.tags.isEmpty()",
    *(f"{ARGUMENT}.tags.{method}([1, 5])" for method in ("containsAll", "containsAny")),
    *(f"[1, 5].{method}({ARGUMENT}.tags)" for method in ("containsAll", "containsAny")),
    f"if {ARGUMENT}.amount > 0 then {ARGUMENT}.tags.contains(5) else {ARGUMENT}.note == \"a\"",
    f'({ARGUMENT}.amount == 0 || {ARGUMENT}.note == "a") && !({ARGUMENT}.tags.contains(5))',
    f"{ARGUMENT} has options && {ARGUMENT}.options has depth && {ARGUMENT}.options.depth == 1",
    f"{ARGUMENT} has nothing && {ARGUMENT}.nothing == 1 || {ARGUMENT}.amount == 0",
    "context.state.opened && context.state.after.isEmpty()",
    'context.authority == "untrusted" && !context.endorsed && !context.flow.note.trusted',
    "principal.permissions.containsAll(resource.requires) && resource.effects.contains(\"None\")",
]  # fmt: skip


def test_every_operator_says_what_it_says_in_cedar() -> None:
    """All policies permit, so that each that holds is named."""
    policies = [f'@id("p{n}") permit({CALL}) when {{ {PRESENT} && ({one}) }};' for n, one in enumerate(TABLE)]
    asked = engine(ALL, *policies)
    sliced = asked._slice(AGENT, READS)
    evaluate = asked._compile(AGENT, sliced)
    assert evaluate is not None
    held: set[str] = set()
    others = [(0.5, [], None), (-0.5, [1], {}), (1, [1, 5], {"depth": 1}), (0.5, [1, 5, 7], None)]
    notes = ["", "a", "ab", "aba", "abba", "*"]
    for amount, note, (rate, tags, options) in product([-1, 0, 5], notes, others):
        arguments = {"amount": amount, "note": note, "rate": rate, "tags": tags}
        if options is not None:
            arguments["options"] = options
        seen = engine_module._context_view(sliced.prepared, CallFacts(arguments=arguments))
        context = engine_module._context(seen)
        verdict = asked._held_verdict(sliced.prepared.call, evaluate, context)
        assert verdict == asked._by_cedar(sliced, context)
        assert verdict is not None
        held.update(verdict.policies)
    never = [one for n, one in enumerate(TABLE) if f"p{n}" not in held]
    assert never == [
        f"{ARGUMENT}.amount < -1",
        f"{ARGUMENT}.amount > 5",
        f'{ARGUMENT}.rate.lessThan(decimal("-0.50"))',
        f'{ARGUMENT}.rate.greaterThan(decimal("1.0"))',
    ]


LONGS = st.sampled_from(
    ["context.arguments.amount", "context.arguments.options.depth", "resource.danger", "0", "1", "5", "-1",
     "9223372036854775807", "-9223372036854775808"]
)  # fmt: skip
TEXTS = st.sampled_from(
    ["context.arguments.note", "context.arguments.options.name", "context.session", "resource.category",
     '""', '"a"', '"ab"', '"b"', '"1"', '"\\u{e9}"', '"*"']
)  # fmt: skip
DECIMALS = st.sampled_from(["context.arguments.rate", 'decimal("0.5")', 'decimal("-0.50")', 'decimal("1.0")'])
LONG_SETS = st.sampled_from(["context.arguments.tags", "[1]", "[1, 5, 1]"])
TEXT_SETS = st.sampled_from(
    ["context.hosts", "principal.permissions", "resource.effects", '["a"]', '["a", "b"]', '["None"]']
)
PATTERNS = st.text("*ab?\u00e9", max_size=5).map(lambda text: json.dumps(text, ensure_ascii=False))
NAMES = st.sampled_from(["amount", "rate", "note", "flag", "tags", "options"])


def joined(form: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda found: form.format(*found))


ATOMS = st.one_of(
    joined("context.arguments has {0}", NAMES),
    joined("(context.arguments has options && context.arguments.options has {0})", st.sampled_from(["depth", "name"])),
    st.sampled_from(["context.arguments.options has depth", "context.arguments.flag", "true", "false"]),
    joined("{0} {1} {2}", LONGS, st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), LONGS),
    joined("{0} {1} {2}", TEXTS, st.sampled_from(["==", "!="]), TEXTS),
    joined("{0} like {1}", TEXTS, PATTERNS),
    joined("{0}.{1}({2})", DECIMALS, st.sampled_from(["lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual"]), DECIMALS),
    joined("{0} == {1}", DECIMALS, DECIMALS),
    joined("{0}.contains({1})", LONG_SETS, LONGS),
    joined("{0}.contains({1})", TEXT_SETS, TEXTS),
    joined("{0}.{1}({2})", TEXT_SETS, st.sampled_from(["containsAll", "containsAny"]), TEXT_SETS),
    joined("{0} == {1}", TEXT_SETS, TEXT_SETS),
    joined("{0}.isEmpty()", LONG_SETS),
)  # fmt: skip
CONDITIONS = st.recursive(
    ATOMS,
    lambda inside: st.one_of(
        joined("!({0})", inside),
        joined("({0} && {1})", inside, inside),
        joined("({0} || {1})", inside, inside),
        joined("(if {0} then {1} else {2})", inside, inside, inside),
    ),
    max_leaves=4,
)
SCOPES = st.sampled_from(
    [
        "principal, action, resource",
        'principal == Agent::"local", action == Action::"call", resource',
        'principal == Agent::"other", action, resource',
        'principal is Agent, action in [Action::"call"], resource in Category::"general"',
        'principal, action == Action::"call", resource == Tool::"find"',
        'principal, action == Action::"see", resource == Tool::"find"',
        "principal, action, resource is Tool",
    ]
)
BODIES = st.one_of(
    st.just(""),
    joined("when {{ {0} }}", CONDITIONS),
    joined("unless {{ {0} }}", CONDITIONS),
    joined("when {{ {0} }} unless {{ {1} }}", CONDITIONS, CONDITIONS),
    joined("when {{ {0} && {1} && {2} }}", CONDITIONS, CONDITIONS, CONDITIONS),
)
HEADS = st.sampled_from(["permit", "permit", "forbid", "@ask permit", "@silent permit", "@ask forbid"])
POLICIES = st.lists(joined("{0} ({1}) {2};", HEADS, SCOPES, BODIES), min_size=1, max_size=5)
ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "amount": st.sampled_from([0, 1, 5, 6, -1, 2**63 - 1, -(2**63)]),
        "rate": st.sampled_from([0.5, -0.5, 1, 1.0, 99999999999999.5]),
        "note": st.text("*ab1\u00e9", max_size=3),
        "flag": st.booleans(),
        "tags": st.lists(st.sampled_from([1, 5, 7]), max_size=3),
        "options": st.fixed_dictionaries(
            {}, optional={"depth": st.sampled_from([0, 1, 5]), "name": st.sampled_from(["", "a", "ab"])}
        ),
    },
)
FACTS = st.builds(
    CallFacts,
    arguments=ARGUMENTS,
    hosts=st.frozensets(st.sampled_from(["a", "b", "c"])),
    session=st.sampled_from(["", "a"]),
)


@settings(deadline=None, max_examples=40)
@given(policies=POLICIES, calls=st.lists(FACTS, min_size=2, max_size=4))
def test_slices_and_compiled_policies_decide_like_cedar_by_the_whole_set(
    policies: list[str], calls: list[CallFacts]
) -> None:
    told: list[Event] = []
    text = "\n".join(f'@id("p{number}") {policy}' for number, policy in enumerate(policies))
    asked = engine(text, tell=told.append)
    sliced = asked._slice(AGENT, READS)
    evaluate = asked._compile(AGENT, sliced)
    assert told == []
    assert evaluate is not None
    for facts in calls:
        verdict = msgspec.structs.replace(asked.decide(AGENT, READS, facts), request_hash="", is_cached=False)
        expected = by_cedar_alone(asked, facts)
        assert bool(verdict.errors) is (expected is None)
        if expected is not None:
            assert verdict == expected
        context = engine_module._context(engine_module._context_view(sliced.prepared, facts))
        # None exactly where Cedar reports an error.
        assert asked._held_verdict(sliced.prepared.call, evaluate, context) == expected


def by_cedar_alone(asked: Engine, facts: CallFacts) -> Verdict | None:
    """What Cedar says of all policies with all facts, without a schema; None if one cannot be evaluated."""
    context = engine_module._context(engine_module._context_view(WHOLE.prepared, facts))
    agent = {"uid": {"type": "Agent", "id": "local"}, "attrs": {"permissions": ["a", "b"]}, "parents": []}
    request = {
        "principal": 'Agent::"local"',
        "action": 'Action::"call"',
        "resource": 'Tool::"find"',
        "context": context,
    }
    text = "\n".join(policy.evaluated for policy in asked.policies.policies)
    answer = cedarpy.is_authorized(request, text, [agent, *tool_entities(READS)])
    if answer.diagnostics.errors:
        return None
    named = answer.diagnostics.id_annotations_by_reason
    return asked._verdict(sorted(named.values()), is_permitted=answer.allowed)


@pytest.mark.parametrize(
    "condition",
    [
        "context.arguments has amount && context.arguments.amount + 1 > 5",
        "context.arguments has amount && -context.arguments.amount > 5",
        'context.arguments has flag || resource in Category::"general"',
        "context.arguments has flag || resource is Tool",
        'context.arguments has flag || principal == Agent::"local"',
        'context.arguments has options && context.arguments.options == {"name": "a"}',
        "context.arguments has amount && [context.arguments.amount].contains(1)",
        'context.arguments has note && ip("10.0.0.1") == ip("10.0.0.1")',
        "context.arguments has amount && context.arguments.amount == true",
        "context.arguments has amount && "
        + "(" * 40
        + "context.arguments.amount > 5"
        + ")" * 40
        + " && true" * 90,
    ],
)
def test_what_the_compiler_does_not_understand_is_left_to_cedar(condition: str) -> None:
    told: list[Event] = []
    asked = engine(ALL, f'@id("other") forbid({CALL}) when {{ {condition} }};', tell=told.append)
    understood = condition.startswith("context.arguments has amount && (((")
    assert (asked._compile(AGENT, asked._slice(AGENT, READS)) is not None) is understood
    assert told == []


def test_budgets_are_compiled() -> None:
    limit = f'@id("limit") forbid({CALL}) when {{ context.measures["spend"].greaterThan(decimal("5.0")) }};'
    asked = engine(ALL, limit, measures=("spend",))
    evaluate = asked._compile(AGENT, asked._slice(AGENT, READS))
    assert evaluate is not None
    spent = [{"__extn": {"fn": "decimal", "arg": amount}} for amount in ("5.0000", "5.0001")]
    assert [evaluate({"measures": {"spend": one}}) for one in spent] == [[0], [0, 1]]


def test_policies_of_very_many_forms_are_left_to_cedar(monkeypatch: pytest.MonkeyPatch) -> None:
    """To check them all would take too long; `LIMIT` with another number has the same form."""
    monkeypatch.setattr(engine_module, "FORMS", 2)
    asked = engine(ALL, LIMIT, LIMIT.replace('"no"', '"more"').replace("5", "50"))
    assert asked._compile(AGENT, asked._slice(AGENT, READS)) is not None
    asked = engine(ALL, LIMIT, LIMIT.replace('"no"', '"more"').replace(">", "<="))
    assert asked._compile(AGENT, asked._slice(AGENT, READS)) is None


# --- which calls are decided how -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "is_compiled"),
    [
        ({"side_effects": ["None"]}, True),
        ({"side_effects": ["FsRead"], "capabilities": ["fs.read"]}, True),
        ({"side_effects": ["Writes"], "danger": "low"}, False),
        ({"side_effects": ["FsWrite"], "capabilities": ["fs.write"], "danger": "low"}, False),
        ({"side_effects": ["NetRead"], "capabilities": ["net.read"]}, False),
        ({}, False),
    ],
)
def test_calls_that_may_act_are_all_decided_by_cedar(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, Any], is_compiled: bool
) -> None:
    asked = engine(ALL, LIMIT, draw=lambda: DECIDED_AGAIN)
    tool = admit(made(name="find", parameters=PARAMETERS, **more))
    numbers = range(-60, 0)
    for number in numbers[:MISSES_BEFORE_COMPILING]:
        assert asked.decide(AGENT, tool, CallFacts(arguments={"amount": number})).is_allowed
    count = watched(monkeypatch)
    for number in numbers[MISSES_BEFORE_COMPILING:]:
        assert asked.decide(AGENT, tool, CallFacts(arguments={"amount": number})).is_allowed
    assert len(count) == (0 if is_compiled else 60 - MISSES_BEFORE_COMPILING)


def watched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The requests that Cedar gets from now on."""
    found: list[Any] = []
    is_authorized = cedarpy.is_authorized

    def watch(request: Any, *rest: Any) -> Any:
        found.append(request)
        return is_authorized(request, *rest)

    monkeypatch.setattr(cedarpy, "is_authorized", watch)
    return found


def test_a_call_whose_evaluation_fails_is_decided_by_cedar() -> None:
    asked = compiled(engine(ALL, f'@id("no") forbid({CALL}) when {{ context.arguments.amount > 5 }};'))
    verdict = asked.decide(AGENT, READS, CallFacts(arguments={}))
    assert (verdict.is_allowed, verdict.policies) == (False, ())
    assert "`no`" in verdict.errors[0]
    assert asked.decide(AGENT, READS, CallFacts(arguments={"amount": 6})).policies == ("no",)


def compiled(asked: Engine) -> Engine:
    """The engine once the policies about `READS` are compiled."""
    for number in range(MISSES_BEFORE_COMPILING):
        asked.decide(AGENT, READS, CallFacts(arguments={"amount": -1 - number}))
    assert asked._slice(AGENT, READS).evaluate is not None
    return asked


# --- contradictions ------------------------------------------------------------------------------


def test_compiled_policies_that_contradict_cedar_when_they_are_checked_are_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of the two checks finds it: the policies alone, and all of them together."""

    def never(*_: object) -> Bind:
        return lambda *_: lambda _: []

    for module in (engine_module, compiled_check):
        told: list[Event] = []
        asked = engine(ALL, LIMIT, tell=told.append)
        with monkeypatch.context() as patched:
            patched.setattr(module, "compile_policies", never)
            for number in range(MISSES_BEFORE_COMPILING + 3):
                assert asked.decide(AGENT, READS, CallFacts(arguments={"amount": -number})).is_allowed
        assert asked._slice(AGENT, READS).evaluate is None
        (alarm,) = told
        assert isinstance(alarm, CompiledPolicyDisputed)
        assert (alarm.tool_name, alarm.agent) == ("find", "local")
        assert "all" in alarm.policies


def test_a_contradiction_that_a_sample_finds_denies_the_call_and_alarms(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[Event] = []
    keep = Keep()
    keep.register(made(name="find", parameters=PARAMETERS, side_effects=["None"], client_executed=True))
    keep.use_policies(ALL, LIMIT)
    keep.subscribe(told.append)
    draws = [DECIDED_AGAIN] * 2
    asked = keep.authorizer.active_policies.engine
    asked._draw = lambda: draws.pop() if draws else 0.0
    for number in range(MISSES_BEFORE_COMPILING):
        keep.call_sync("find", {"amount": -number})
    (sliced,) = asked._slices._newer.values()
    assert sliced.evaluate is not None
    sliced.evaluate = lambda _: [0]  # a defect: the forbid is overlooked
    assert [keep.call_sync("find", {"amount": amount}).status for amount in (7, 8)] == ["pending"] * 2
    result = keep.call_sync("find", {"amount": 9})
    assert result.decision is not None
    assert (result.code, result.decision.decision) == (Code.NOT_PERMITTED, "deny")
    assert "compiled policies and Cedar decide differently" in result.text
    alarms = [event for event in told if isinstance(event, CompiledPolicyDisputed)]
    assert [(one.tool_name, one.agent, one.policies) for one in alarms] == [("find", "local", ("all", "no"))]
    assert "a compiled policy contradicts Cedar" in caplog.messages
    # From then on Cedar decides, and what was remembered is forgotten.
    for amount in (7, 9):
        result = keep.call_sync("find", {"amount": amount})
        assert result.decision is not None
        assert (result.decision.decision, result.decision.policies) == ("deny", ("no",))
    keep.close()


def test_cedar_gets_only_what_can_hold_for_the_agent_and_the_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = engine(
        ALL,
        '@id("never") permit(principal is Tool, action, resource) when { context.session == "" };',
        '@id("others") forbid(principal == Agent::"other", action, resource) when { context.session == "" };',
        f'@id("danger") forbid({CALL}) when {{ resource.danger > 2 && context.session == "" }};',
        f'@id("permission") forbid({CALL}) unless {{ principal.permissions.contains("a") }};',
        LIMIT,
    )
    count = watched(monkeypatch)
    facts = CallFacts(arguments={"amount": 1, "note": "x"}, session="s")
    assert asked.decide(AGENT, READS, facts).is_allowed
    assert [json.loads(one["context"]) for one in count] == [{}, {"arguments": {"amount": 1}}]
    found = asked._slice(AGENT, READS).prepared.call.policies
    assert [policy.id for policy in found] == ["all", "no"]
    other = msgspec.structs.replace(AGENT, id="other", permissions=frozenset())
    found = asked._slice(other, READS).prepared.call.policies
    assert [policy.id for policy in found] == ["all", "no", "others", "permission"]


def test_a_guard_that_cannot_be_evaluated_is_told_at_the_call() -> None:
    broken = f'@id("broken") forbid({CALL}) when {{ resource.danger + 9223372036854775807 > 0 && context.session == "" }};'
    tool = admit(made(name="find", danger="high", side_effects=["None"]))
    verdict = engine(ALL, broken).decide(AGENT, tool, CallFacts(arguments={}))
    assert not verdict.is_allowed
    assert "`broken`" in verdict.errors[0]
