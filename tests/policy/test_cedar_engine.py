"""Decisions: deny unless a policy permits and nothing went wrong; the same question is answered from memory."""

import json
import threading
from typing import Any

import cedarpy
import msgspec
import pytest

from tests.definitions.examples import made, made_elsewhere, with_properties
from toolkeep.calls import RegisteredTool
from toolkeep.policy import cedar_engine as engine_module
from toolkeep.policy.cedar_engine import AgentEntity, CallFacts, Engine, Finding, Verdict
from toolkeep.policy.cedar_parser import read_policies
from toolkeep.policy.cedar_values import VALUES
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-2")

PARAMETERS = with_properties(
    {
        "path": {"type": "string", "description": "A path.", "x-touches": "fs.read"},
        "amount": {"type": "integer", "description": "How much."},
        "rate": {"type": "number", "description": "How fast."},
        "note": {"type": "string", "description": "A note."},
        "flag": {"type": "boolean", "description": "Whether."},
        "tags": {"type": "array", "items": {"type": "integer"}, "description": "Tags."},
        "either": {"type": ["string", "integer"], "description": "Either."},
        "options": {
            "type": "object",
            "properties": {"depth": {"type": "integer"}, "name": {"type": "string"}},
            "description": "Options.",
        },
    }
)
TOOL = admit(made(name="transfer", parameters=PARAMETERS, side_effects=[]))
AGENT = AgentEntity(id="local")
ALL = '@id("all") permit(principal, action, resource);'
CALL = 'principal, action == Action::"call", resource'


def engine(*policies: str) -> Engine:
    return Engine(read_policies([PolicySource(name="a", text="\n".join(policies))]))


def ask(asked: Engine, tool: RegisteredTool = TOOL, agent: AgentEntity = AGENT, **arguments: Any) -> Verdict:
    """The verdict without the hash of the question, which has a test of its own."""
    verdict = asked.decide(agent, tool, CallFacts(arguments=arguments))
    return msgspec.structs.replace(verdict, request_hash="")


def test_nothing_is_allowed_without_a_policy() -> None:
    assert ask(engine()) == Verdict(is_allowed=False)
    assert engine().may_see(AGENT, TOOL) == Verdict(is_allowed=False)


def test_permits_that_hold_allow_and_are_named() -> None:
    asked = engine(
        ALL,
        f'@id("b") permit({CALL}) when {{ resource.danger == 0 }};',
        '@id("c") permit(principal, action, resource) when { resource.danger > 3 };',
    )
    assert ask(asked) == Verdict(is_allowed=True, policies=("all", "b"))


def test_a_forbid_wins_and_is_named() -> None:
    asked = engine(
        ALL,
        f'@id("no") forbid({CALL}) when {{ context.arguments has amount && context.arguments.amount > 5 }};',
    )
    assert ask(asked, amount=6) == Verdict(is_allowed=False, policies=("no",))
    assert ask(asked, amount=5) == Verdict(is_allowed=True, policies=("all",))


def test_any_deciding_policy_that_asks_makes_the_call_ask() -> None:
    asked = engine(
        ALL,
        f'@id("b") @ask permit({CALL}) when {{ context.arguments has amount && context.arguments.amount > 5 }};',
    )
    assert ask(asked, amount=6) == Verdict(is_allowed=True, policies=("all", "b"), asks=True)
    assert not ask(asked, amount=5).asks


def test_a_silent_policy_that_decides_spares_the_question_and_is_named() -> None:
    asked = engine(
        f'@id("ask") @ask permit({CALL});',
        f'@id("known") @silent permit({CALL}) when {{ context.arguments has amount && context.arguments.amount < 5 }};',
    )
    assert ask(asked, amount=4) == Verdict(is_allowed=True, policies=("ask", "known"), spared_by=("known",))
    assert ask(asked, amount=5) == Verdict(is_allowed=True, policies=("ask",), asks=True)
    assert ask(asked, amount=4).is_cached
    assert ask(asked, amount=4).spared_by == ("known",)


def test_a_silent_policy_beside_none_that_asks_spares_nothing() -> None:
    asked = engine(ALL, f'@id("known") @silent permit({CALL});')
    assert ask(asked) == Verdict(is_allowed=True, policies=("all", "known"))


def test_a_silent_policy_that_cannot_be_evaluated_denies() -> None:
    asked = engine(
        f'@id("ask") @ask permit({CALL});',
        f'@id("known") @silent permit({CALL}) when {{ context.arguments has amount && context.arguments.amount + 1 > 0 }};',
    )
    verdict = ask(asked, amount=2**63 - 1)
    assert (verdict.is_allowed, verdict.spared_by) == (False, ())
    assert "`known`" in verdict.errors[0]


def test_seeing_is_another_action_than_calling() -> None:
    asked = engine(
        '@id("see") permit(principal, action == Action::"see", resource) when { resource.danger < 2 };'
    )
    assert asked.may_see(AGENT, TOOL) == Verdict(is_allowed=True, policies=("see",))
    assert asked.may_see(AGENT, TOOL).is_cached
    assert not ask(asked).is_allowed


def test_a_forbid_that_reads_what_is_absent_denies() -> None:
    """Cedar by itself skips the forbid and allows the call."""
    forbid = f'@id("no") forbid({CALL}) when {{ context.arguments.note == "bad" }};'
    request = {
        "principal": 'Agent::"local"',
        "action": 'Action::"call"',
        "resource": 'Tool::"transfer"',
        "context": {"arguments": {}},
    }
    alone = cedarpy.is_authorized(request, ALL + forbid, [])
    assert (alone.allowed, len(alone.diagnostics.errors)) == (True, 1)
    asked = engine(ALL, forbid)
    verdict = ask(asked)
    assert (verdict.is_allowed, verdict.policies) == (False, ())
    assert "`no`" in verdict.errors[0]
    assert not ask(asked).is_cached


def test_an_evaluation_error_denies() -> None:
    asked = engine(
        ALL,
        f'@id("big") forbid({CALL}) when {{ context.arguments has amount && context.arguments.amount + 1 < 0 }};',
    )
    assert ask(asked, amount=1).is_allowed
    verdict = ask(asked, amount=2**63 - 1)
    assert not verdict.is_allowed
    assert "`big`" in verdict.errors[0]


def test_the_errors_of_a_sensitive_tool_hold_no_values() -> None:
    asked = engine(
        ALL,
        f'@id("big") forbid({CALL}) when {{ context.arguments has amount && context.arguments.amount + 1 < 0 }};',
    )
    tool = admit(made(name="transfer", parameters=PARAMETERS, sensitive=True))
    assert str(2**63 - 1) in ask(asked, amount=2**63 - 1).errors[0]
    assert ask(asked, tool, amount=2**63 - 1) == Verdict(is_allowed=False, errors=("Cedar could not decide",))


UNHELD = [
    ("amount", 2**63, "context.arguments has amount && context.arguments.amount > 5"),
    ("rate", 0.1 + 0.2, 'context.arguments has rate && context.arguments.rate.greaterThan(decimal("5.0"))'),
    ("tags", [1, 2**63], "context.arguments has tags && context.arguments.tags.contains(7)"),
    ("note", "\ud800", 'context.arguments has note && context.arguments.note == "bad"'),
    ("either", "bad", "context.arguments has either"),
    ("path", "/etc/passwd", 'context.arguments has path && context.arguments.path like "/etc/*"'),
    ("options", {"depth": 2**63}, "context.arguments has options && context.arguments.options has depth"),
    ("options", {"more": 1}, 'context.arguments has options && context.arguments.options == {name: "x"}'),
    ("either", "bad", 'context.arguments == {note: "x"}'),
]


@pytest.mark.parametrize(("name", "value", "condition"), UNHELD)
def test_what_a_policy_reads_and_cedar_cannot_hold_denies(name: str, value: Any, condition: str) -> None:
    """It is left out of the record, so that a forbid which asks for it first would be passed by."""
    asked = engine(ALL, f'@id("no") forbid({CALL}) when {{ {condition} }};')
    verdict = ask(asked, **{name: value})
    assert not verdict.is_allowed
    assert f"/{name}" in verdict.errors[0]
    assert str(value) not in verdict.errors[0]
    assert ask(asked, flag=True).is_allowed


def test_what_no_policy_reads_need_not_be_held() -> None:
    asked = engine(
        ALL,
        f'@id("no") forbid({CALL}) when {{ context.arguments has options && context.arguments.options has name }};',
    )
    assert ask(asked, amount=2**63, either="x", options={"depth": 2**63}).is_allowed
    assert not ask(asked, options={"name": "\ud800"}).is_allowed


def test_policies_see_the_canonical_form_of_what_is_touched() -> None:
    asked = engine(
        ALL,
        f'@id("no") forbid({CALL}) when {{ context.arguments has path && context.arguments.path like "/etc/*" }};',
    )
    facts = CallFacts(arguments={"path": "../etc/passwd"}, canonical={"/path": "/etc/passwd"})
    assert asked.decide(AGENT, TOOL, facts).policies == ("no",)


ATTRIBUTES = [
    "resource.danger == 3",
    'resource.category == "network" && resource in Category::"network"',
    'resource.source == "mcp" && resource in Source::"mcp" && resource in Source::"mcp:files"',
    'resource.effects == ["NetRead"]',
    'resource.requires == ["tool.network.fetch"]',
    'resource.capabilities == ["net.read:a.example"]',
    "resource.isolation == 2",
    "!resource.is_built_in",
    'resource.version == "1.2.3"',
    'resource == Tool::"fetch"',
    "principal.permissions.containsAll(resource.requires)",
    'principal.capabilities == ["net.read:a.example"]',
    'context.roots == ["/r"] && context.hosts == ["h"] && context.programs == ["p"] && context.databases == ["d"]',
    'context.session == "s" && context.conversation == "c"',
]


@pytest.mark.parametrize("condition", ATTRIBUTES)
def test_policies_can_read_everything_that_is_known(condition: str) -> None:
    tool = admit(
        made_elsewhere(
            name="fetch",
            danger="high",
            category="network",
            side_effects=["NetRead"],
            required_permissions=["tool.network.fetch"],
            capabilities=["net.read:a.example"],
            constraints={"required_isolation": "strict"},
            version="1.2.3",
        )
    )
    agent = AgentEntity(
        id="local",
        permissions=frozenset({"tool.network.fetch", "x"}),
        capabilities=frozenset({"net.read:a.example"}),
    )
    facts = CallFacts(
        arguments={},
        roots=frozenset({"/r"}),
        hosts=frozenset({"h"}),
        programs=frozenset({"p"}),
        databases=frozenset({"d"}),
        session="s",
        conversation="c",
    )
    assert engine(f'@id("a") permit({CALL}) when {{ {condition} }};').decide(agent, tool, facts).is_allowed


MAIL = f'@id("ours") permit({CALL}) when {{ ["example.com"].containsAll(context.mail_domains) }};'
NOT_EVIL = f'@id("no") forbid({CALL}) when {{ context.mail_domains.contains("evil.test") }};'
WEB = f'@id("ours") permit({CALL}) when {{ ["example.com"].containsAll(context.url_hosts) }};'


def test_every_recipient_at_our_domain_is_one_comparison() -> None:
    asked = engine(MAIL)
    assert ask(asked, note="ann@example.com, Bob <bob@EXAMPLE.com>").is_allowed
    assert ask(asked, note="nobody").is_allowed
    assert not ask(asked, note="ann@example.com, bob@evil.test").is_allowed
    assert not ask(asked, note="ann@example.com", options={"name": "bob@evil.test"}).is_allowed


def test_every_url_at_our_host_is_one_comparison() -> None:
    asked = engine(WEB)
    assert ask(asked, note="https://example.com/x").is_allowed
    assert not ask(asked, note="https://evil.test/x").is_allowed
    assert not ask(asked, note="https://example.com:8443/x").is_allowed


@pytest.mark.parametrize("policies", [(MAIL,), (ALL, NOT_EVIL), (ALL, NOT_EVIL, MAIL)])
def test_an_address_that_cannot_be_read_denies_whatever_a_policy_compares_it_with(
    policies: tuple[str, ...],
) -> None:
    """Left out of the set it would be inside every list of what is allowed, and in none of what is not."""
    asked = engine(*policies)
    verdict = ask(asked, note="ann@example.com .evil.test")
    told = (
        "policies read context.mail_domains, and there is a mail address that programs may read differently"
    )
    assert verdict == Verdict(is_allowed=False, errors=(f"{told} in /note",))
    assert not ask(asked, note="ann@example.com .evil.test").is_cached
    assert ask(asked, note="ann@example.com").is_allowed


def test_an_address_that_no_policy_asks_for_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Any] = []

    def look(arguments: Any) -> frozenset[str]:
        looked.append(arguments)
        return frozenset({"evil.test"})

    for name in engine_module._DERIVED:
        monkeypatch.setitem(engine_module._DERIVED, name, look)
    facts = CallFacts(arguments={"note": "ann@example.com .evil.test http:x"})
    without = engine(ALL, f'@id("no") forbid({CALL}) when {{ context.hosts.contains("a.test") }};')
    assert without.decide(AGENT, TOOL, facts).is_allowed
    assert without.each(AGENT, TOOL, facts)
    assert looked == []
    assert not engine(MAIL).decide(AGENT, TOOL, facts).is_allowed
    assert len(looked) == 1


def test_other_addresses_are_another_question() -> None:
    asked = engine(MAIL)
    first = asked.decide(AGENT, TOOL, CallFacts(arguments={"note": "ann@example.com"}))
    same = asked.decide(AGENT, TOOL, CallFacts(arguments={"note": "bob@example.com"}))
    other = asked.decide(AGENT, TOOL, CallFacts(arguments={"note": "ann@evil.test"}))
    assert (first.is_allowed, same.is_cached, other.is_allowed) == (True, True, False)
    assert first.request_hash == same.request_hash != other.request_hash


def test_each_policy_is_told_by_itself_what_it_cannot_read() -> None:
    facts = CallFacts(arguments={"note": "ann@example.com .evil.test"})
    findings = engine(ALL, MAIL).each(AGENT, TOOL, facts)
    assert [(one.policy, one.is_satisfied, bool(one.error)) for one in findings] == [
        ("all", True, False),
        ("ours", False, True),
    ]


def test_undeclared_effects_are_unknown() -> None:
    undeclared = admit(made(name="transfer", parameters=PARAMETERS))
    asked = engine(f'@id("a") permit({CALL}) when {{ resource.effects == ["Unknown"] }};')
    assert ask(asked, undeclared).is_allowed


# --- memory ------------------------------------------------------------------------------------


def test_the_same_question_is_answered_from_memory() -> None:
    asked = engine(ALL)
    assert not ask(asked).is_cached
    assert ask(asked) == Verdict(is_allowed=True, policies=("all",), is_cached=True)


def test_what_no_policy_reads_does_not_make_another_question() -> None:
    asked = engine(
        ALL,
        f'@id("no") forbid({CALL}) when {{ context.arguments has note && context.arguments.note == "bad" }};',
    )
    ask(asked, note="x", amount=1)
    facts = CallFacts(arguments={"note": "x", "amount": 2}, session="other", hosts=frozenset({"h"}))
    assert asked.decide(AGENT, TOOL, facts).is_cached


READ_ALL = f'@id("r") permit({CALL}) when {{ context.arguments == context.arguments }};'
READ_RATE = f'@id("r") permit({CALL}) when {{ context.arguments has rate }};'
READ_OPTIONS = (
    f'@id("r") permit({CALL}) when {{ context.arguments has options && context.arguments.options has name }};'
)
DIFFERENT = [
    (READ_ALL, {"flag": True}, {"amount": 1}),
    (READ_ALL, {"amount": 1}, {"rate": 1}),
    (READ_ALL, {"note": "1"}, {"amount": 1}),
    (READ_ALL, {"note": "\u00e9"}, {"note": "e\u0301"}),
    (READ_ALL, {"note": "a"}, {"note": "A"}),
    (READ_ALL, {"note": '{"__extn":{"fn":"decimal","arg":"1.0"}}'}, {"rate": 1}),
    (READ_ALL, {"tags": [1]}, {"tags": [1, 1, 2]}),
    (READ_ALL, {"note": "a" * 100_000}, {"note": "a" * 99_999 + "b"}),
    (READ_RATE, {"rate": 1}, {"rate": 1.5}),
    (READ_RATE, {"rate": 0}, {}),
    (READ_OPTIONS, {"options": {}}, {}),
    (READ_OPTIONS, {"options": {"name": ""}}, {"options": {}}),
]


@pytest.mark.parametrize(("policy", "first", "second"), DIFFERENT)
def test_different_arguments_are_different_questions(
    policy: str, first: dict[str, Any], second: dict[str, Any]
) -> None:
    asked = engine(policy)
    assert not ask(asked, **first).is_cached
    assert not ask(asked, **second).is_cached
    assert ask(asked, **first).is_cached
    assert ask(asked, **second).is_cached


@pytest.mark.parametrize("value", [True, 1.0])
def test_values_of_another_type_never_pass_for_an_integer(value: Any) -> None:
    asked = engine(
        f'@id("one") permit({CALL}) when {{ context.arguments has amount && context.arguments.amount == 1 }};'
    )
    assert ask(asked, amount=1).is_allowed
    assert not ask(asked, amount=value).is_allowed


MANY = list(range(VALUES))
ONE = (
    f'@id("one") permit({CALL}) when {{ context.arguments has tags && context.arguments.tags.contains(1) }};'
)


def test_an_argument_of_very_many_values_cannot_be_read() -> None:
    asked = engine(ONE)
    assert ask(asked, tags=MANY[1:]).is_allowed
    errors = ("policies read /tags, which Cedar cannot hold",)
    assert ask(asked, tags=MANY) == Verdict(is_allowed=False, errors=errors)


def test_arguments_of_very_many_values_together_cannot_be_read() -> None:
    """Two hundred arguments that each are just small enough took Cedar many seconds."""
    reads = (
        f'@id("two") permit({CALL}) when {{ context.arguments has tags && context.arguments has amount }};'
    )
    asked = engine(reads)
    assert ask(asked, tags=MANY[2:], amount=1).is_allowed
    errors = ("policies read /amount, /tags, which Cedar cannot hold",)
    assert ask(asked, tags=MANY[1:], amount=1) == Verdict(is_allowed=False, errors=errors)
    assert ask(asked, tags=MANY[2:], amount=1, note="nobody reads it").is_allowed


def test_cedar_is_given_nothing_that_no_policy_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of a megabyte took Cedar many seconds, whatever its policies read."""
    given: list[str] = []

    def watched(request: dict[str, Any], *rest: Any) -> Any:
        given.append(request["context"])
        return cedarpy_is_authorized(request, *rest)

    cedarpy_is_authorized = cedarpy.is_authorized
    monkeypatch.setattr(cedarpy, "is_authorized", watched)
    asked = engine(f'@id("five") permit({CALL}) when {{ context.arguments has amount }};')
    assert ask(asked, amount=5, tags=MANY, note="a").is_allowed
    assert [json.loads(context)["arguments"] for context in given] == [{"amount": 5}]
    asked = engine(f'@id("five") permit({CALL}) when {{ context.arguments == {{"amount": 5}} }};')
    assert not ask(asked, amount=5, note="a").is_allowed


def test_agents_that_differ_in_name_or_holdings_are_asked_about_apart() -> None:
    asked = engine(
        '@id("p") permit(principal, action, resource) when { principal.permissions.contains("x") };'
    )
    holding = AgentEntity(id="\u00e9", permissions=frozenset({"x"}))
    assert ask(asked, agent=holding).is_allowed
    assert asked.may_see(holding, TOOL).is_allowed
    assert not ask(asked, agent=AgentEntity(id="\u00e9")).is_allowed
    assert not asked.may_see(AgentEntity(id="\u00e9"), TOOL).is_allowed
    assert not ask(asked, agent=AgentEntity(id="e\u0301", permissions=frozenset({"x"}))).is_cached
    assert not ask(asked, agent=AgentEntity(id="\u00e9", capabilities=frozenset({"x"}))).is_allowed


def test_tools_that_look_alike_are_asked_about_apart() -> None:
    asked = engine('@id("p") permit(principal, action, resource == Tool::"transfer");')
    alike = admit(made_elsewhere(name="Transfer", parameters=PARAMETERS))
    assert ask(asked).is_allowed
    assert not ask(asked, alike).is_allowed
    assert asked.may_see(AGENT, TOOL).is_allowed
    assert not asked.may_see(AGENT, alike).is_allowed


def test_a_tool_that_changed_is_asked_about_again() -> None:
    asked = engine('@id("p") permit(principal, action, resource) when { resource.danger == 0 };')
    changed = admit(TOOL.definition.replace(danger=None, version="1.0.1"))
    assert ask(asked).is_allowed
    assert not ask(asked, changed).is_cached
    assert not asked.may_see(AGENT, changed).is_cached
    built_in = msgspec.structs.replace(TOOL, is_built_in=True)
    assert not ask(asked, built_in).is_cached


@pytest.mark.parametrize("length", [1, 100_000])
def test_the_hash_of_a_question_is_of_all_that_policies_read(length: int) -> None:
    asked = engine(READ_ALL)

    def hash_of(note: str, agent: AgentEntity = AGENT) -> str:
        return asked.decide(agent, TOOL, CallFacts(arguments={"note": note})).request_hash

    first = hash_of("a" * length)
    assert len(first) == 64
    assert hash_of("a" * length) == first
    assert hash_of("b" * length) != first
    assert hash_of("a" * length, AgentEntity(id="other")) != first


@pytest.mark.parametrize("name", ["session", "conversation"])
def test_what_policies_read_beside_the_arguments_is_asked_about_apart(name: str) -> None:
    asked = engine(ALL, f'@id("no") forbid({CALL}) when {{ context.{name} == "closed" }};')
    verdicts = [
        asked.decide(AGENT, TOOL, CallFacts(arguments={}, **{name: value}))  # type: ignore[arg-type]  # texts
        for value in ("open", "closed", "open")
    ]
    assert [(one.is_allowed, one.is_cached) for one in verdicts] == [
        (True, False), (False, False), (True, True),
    ]  # fmt: skip


def test_a_long_question_is_remembered_by_its_hash() -> None:
    asked = engine(READ_ALL)
    ask(asked, note="a" * 100_000)
    ((_, written),) = asked._caches(AGENT)[0]._newer
    assert len(written) == 33


def test_memory_is_bounded_and_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "CACHED_DECISIONS", 2)
    monkeypatch.setattr(engine_module, "CACHED_AGENTS", 2)
    asked = engine(READ_ALL)
    for amount in (1, 2, 1, 3):
        ask(asked, amount=amount)
    assert ask(asked, amount=1).is_cached
    assert not ask(asked, amount=2).is_cached
    for name in ("a", "b"):
        ask(asked, agent=AgentEntity(id=name))
    assert not ask(asked, amount=1).is_cached


# --- failure -----------------------------------------------------------------------------------


class PanicException(BaseException):
    """How a panic in Rust arrives in Python."""


@pytest.mark.parametrize("error", [ValueError("x"), MemoryError(), PanicException("x")])
def test_whatever_breaks_inside_cedar_denies(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def broken(*_: object) -> None:
        raise error

    asked = engine(ALL)
    monkeypatch.setattr(cedarpy, "is_authorized", broken)
    for verdict in (ask(asked), asked.may_see(AGENT, TOOL)):
        assert not verdict.is_allowed
        assert verdict.errors == (f"the policy could not be asked: {type(error).__name__}",)


def test_an_interrupt_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cedarpy, "is_authorized", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ask(engine(ALL))


def test_names_that_cedar_cannot_hold_deny() -> None:
    assert not ask(engine(ALL), agent=AgentEntity(id="\ud800")).is_allowed
    facts = CallFacts(arguments={}, hosts=frozenset({"\ud800"}))
    reads = '@id("all") permit(principal, action == Action::"call", resource) when { !context.hosts.contains("x") };'
    assert not engine(reads).decide(AGENT, TOOL, facts).is_allowed


def test_a_record_that_does_not_fit_its_schema_denies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_context", lambda *_: {"arguments": {"amount": "x"}})
    verdict = ask(engine(ALL))
    assert not verdict.is_allowed
    assert verdict.errors


def test_threads_may_ask_at_once() -> None:
    asked = engine(
        ALL,
        f'@id("no") forbid({CALL}) when {{ context.arguments has amount && context.arguments.amount > 5 }};',
    )
    wrong: list[int] = []

    def run() -> None:
        wrong.extend(n for n in range(100) if ask(asked, amount=n % 10).is_allowed is (n % 10 > 5))

    threads = [threading.Thread(target=run) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_each_policy_says_what_it_says_alone() -> None:
    asked = engine(
        ALL,
        f'@id("no") forbid({CALL}) when {{ context.arguments has amount && context.arguments.amount > 5 }};',
        f'@id("broken") forbid({CALL}) when {{ context.arguments.note == "x" }};',
        '@id("other") permit(principal, action, resource == Tool::"other");',
    )
    everything, broken, no = asked.each(AGENT, TOOL, CallFacts(arguments={"amount": 6}))
    assert everything == Finding(policy="all", effect="permit", is_satisfied=True)
    assert msgspec.structs.replace(no, conditions=()) == Finding(
        policy="no", effect="forbid", is_satisfied=True
    )
    assert [(one.text, one.holds) for one in no.conditions] == [
        ("context.arguments has amount", True),
        ("context.arguments.amount > 5", True),
    ]
    assert (broken.policy, broken.is_satisfied, "`broken`" in broken.error) == ("broken", False, True)


@pytest.mark.parametrize("broken", ["is_authorized", "Schema"])
@pytest.mark.parametrize("error", [ValueError("x"), PanicException("x")])
def test_whatever_breaks_inside_cedar_is_told_of_each_policy(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, broken: str
) -> None:
    class Broken:
        def __init__(self, *_: object) -> None:
            raise error

        from_json_str = __init__

    asked = engine(ALL, '@id("other") permit(principal, action, resource == Tool::"other");')
    monkeypatch.setattr(cedarpy, broken, Broken)
    told = f"the policy could not be asked: {type(error).__name__}"
    finding = Finding(policy="all", effect="permit", is_satisfied=False, error=told)
    assert asked.each(AGENT, TOOL, CallFacts(arguments={})) == [finding]


def test_a_policy_that_reads_what_cedar_cannot_hold_says_so_alone() -> None:
    asked = engine(ALL, f'@id("no") forbid({CALL}) when {{ !(context.arguments has amount) }};')
    facts = CallFacts(arguments={"amount": 2**63})
    assert [finding.error for finding in asked.each(AGENT, TOOL, facts)] == [
        "",
        "policies read /amount, which Cedar cannot hold",
    ]
    assert not asked.decide(AGENT, TOOL, facts).is_allowed
