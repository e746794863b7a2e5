"""Rules that people make by saying "always": each says exactly one call, or it is not made."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.definitions.examples import made, with_properties
from toolkeep.approval.question import Rule
from toolkeep.calls import CheckedCall, PermittedCall, RegisteredTool, ToolCall
from toolkeep.definitions.capability import Capability
from toolkeep.limits import RULE_CHARS
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.reading import read_policies
from toolkeep.policy.rulebook import Rulebook
from toolkeep.policy.rules import RuleJudge
from toolkeep.policy.settings import Grant, PolicySource
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-4")


def registered(name: str, properties: dict[str, Any], **fields: Any) -> RegisteredTool:
    described = {key: {"description": f"The {key}.", **schema} for key, schema in properties.items()}
    required = fields.pop("required", [])
    return admit(made(name=name, parameters=with_properties(described, required=required), **fields))


PROPERTIES: dict[str, Any] = {
    "text": {"type": "string"},
    "count": {"type": "integer"},
    "rate": {"type": "number"},
    "flag": {"type": "boolean"},
    "to": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "zone": {"type": "integer", "minimum": 0, "maximum": 9}},
        "required": ["zone"],
    },
    "tags": {"type": "array", "items": {"type": "string"}},
    "free": {"type": "object", "additionalProperties": {"type": "integer"}},
    "either": {"type": ["string", "integer"]},
}
PAY = registered("pay", PROPERTIES)
STRICT = registered("strict", {"text": {"type": "string"}, "other": {"type": "string"}}, required=["text"])
SECRET = registered("secret", {"text": {"type": "string"}, "key": {"type": "string", "x-secret": True}})
SENSITIVE = registered("sensitive", {"text": {"type": "string"}}, sensitive=True)
SHELL = registered(
    "shell", {"command": {"type": "string", "x-touches": "process.spawn"}}, capabilities=["process.spawn:*"]
)
START = registered(
    "start",
    {"argv": {"type": "array", "items": {"type": "string"}, "x-touches": "process.spawn"}},
    capabilities=["process.spawn:*"],
)
PEEK = registered("peek", {"path": {"type": "string", "x-touches": "fs.read"}}, capabilities=["fs.read:*"])
ODD = registered(
    "odd",
    {'a"\\b\nc': {"type": "string"}, "__proto": {"type": "string"}},
    source={"kind": "mcp", "origin": "files"},
)
NONE = registered("none", {})
DEEP = registered(
    "deep",
    {
        "to": {
            "type": "object",
            "properties": {"tags": {"type": "array", "items": {"type": "string"}}},
        }
    },
)

CALLS: list[PermittedCall] = []
PROGRAMS: list[str] = []
"""What the agent may start beside."""


@pytest.fixture(autouse=True)
def _let_go() -> Iterator[None]:
    yield
    PROGRAMS.clear()
    while CALLS:
        for one in CALLS.pop().touched:
            one.close()


def permitted(tool: RegisteredTool, agent: str = "local", **arguments: Any) -> PermittedCall:
    """A call as it comes out of the door of policy."""
    held = ["fs.read:/", "net.read:example.org", *(f"process.spawn:{program}" for program in PROGRAMS)]
    grant = Grant(capabilities=tuple(map(Capability.read, held)))
    judge = Authorizer(
        Rulebook(), agents={agent: grant}, project="/", state_folder=None, tools=lambda: [tool]
    )
    request = ToolCall(id="1", tool=tool.name, arguments=None, agent=agent)
    call = judge.authorize(request, CheckedCall(registered=tool, arguments=arguments))
    assert isinstance(call, PermittedCall), call
    CALLS.append(call)
    return call


def rule_for(call: PermittedCall) -> Rule:
    text = RuleJudge().write(call, "rule-1")
    assert text
    return Rule(
        id="rule-1",
        text=text,
        agent=call.request.agent,
        tool=call.tool.name,
        definition_hash=call.tool.definition_hash,
        approver="anna",
        made_at=0,
        ends_at=1,
    )


def covers(made_for: PermittedCall, call: PermittedCall) -> bool:
    rule = rule_for(made_for)
    found = RuleJudge().covering(call, [rule])
    assert found in (None, rule)
    return found is not None


# --- what is said --------------------------------------------------------------------------------


def test_a_rule_names_agent_tool_and_every_argument() -> None:
    call = permitted(PAY, text='say "hi"', count=-3, rate=2.5, flag=True, to={"zone": 7})
    assert (
        RuleJudge().write(call, "rule-1")
        == r"""@id("rule-1")
permit (principal == Agent::"local", action == Action::"call", resource == Tool::"pay")
when {
  context.arguments has "count" &&
  context.arguments["count"] == (-3) &&
  context.arguments has "flag" &&
  context.arguments["flag"] == true &&
  context.arguments has "rate" &&
  context.arguments["rate"] == decimal("2.5") &&
  !(context.arguments has "tags") &&
  context.arguments has "text" &&
  context.arguments["text"] == "say \"hi\"" &&
  context.arguments has "to" &&
  !(context.arguments["to"] has "city") &&
  context.arguments["to"]["zone"] == 7
};"""
    )


def test_a_rule_for_a_tool_without_arguments_has_no_condition() -> None:
    head = 'permit (principal == Agent::"local", action == Action::"call", resource == Tool::"none")'
    assert RuleJudge().write(permitted(NONE), "rule-1") == f'@id("rule-1")\n{head};'
    assert covers(permitted(NONE), permitted(NONE))


UNSAYABLE: dict[str, tuple[RegisteredTool, dict[str, Any]]] = {
    "a set": (PAY, {"tags": ["a"]}),
    "an empty set": (PAY, {"tags": []}),
    "a set in a record": (DEEP, {"to": {"tags": ["a"]}}),
    "an integer that Cedar cannot hold": (PAY, {"count": 2**63}),
    "a number that Cedar cannot hold": (PAY, {"rate": 0.1 + 0.2}),
    "text that Cedar cannot hold": (PAY, {"text": "\ud800"}),
    "a free object": (PAY, {"free": {"x": 1}}),
    "one of two types": (PAY, {"either": "x"}),
    "more than the schema names": (PAY, {"more": "x"}),
    "more than a record names": (PAY, {"to": {"zone": 1, "more": 2}}),
    "a secret": (SECRET, {"key": "hunter2"}),
    "a secret that is left out": (SECRET, {"text": "x"}),
    "a sensitive tool": (SENSITIVE, {"text": "x"}),
    "a name that Cedar keeps for itself": (ODD, {"__proto": "x"}),
    "more text than a person reads": (PAY, {"text": "x" * RULE_CHARS, "to": {"zone": 1, "city": "x"}}),
}


@pytest.mark.parametrize(("tool", "arguments"), UNSAYABLE.values(), ids=UNSAYABLE)
def test_what_cannot_be_said_in_full_gets_no_rule_and_is_covered_by_none(
    tool: RegisteredTool, arguments: dict[str, Any]
) -> None:
    call = permitted(tool, **arguments)
    assert RuleJudge().write(call, "rule-1") == ""
    anything = f'@id("rule-1") permit (principal, action, resource == Tool::"{tool.name}");'
    wide = Rule(
        id="rule-1",
        text=anything,
        agent="local",
        tool=tool.name,
        definition_hash=tool.definition_hash,
        approver="anna",
        made_at=0,
        ends_at=1,
    )
    assert RuleJudge().covering(call, [wide]) is None


# --- covering is exact ---------------------------------------------------------------------------

BASE: dict[str, Any] = {"text": "a", "count": 1, "rate": 1.5, "flag": True, "to": {"zone": 1, "city": "Rome"}}

DIFFERENT: dict[str, dict[str, Any]] = {
    "other text": {**BASE, "text": "b"},
    "text in capitals": {**BASE, "text": "A"},
    "text with a space": {**BASE, "text": "a "},
    "no text": {**BASE, "text": ""},
    "a pattern": {**BASE, "text": "*"},
    "another integer": {**BASE, "count": -1},
    "another number": {**BASE, "rate": 1.5001},
    "false": {**BASE, "flag": False},
    "one less": {key: value for key, value in BASE.items() if key != "flag"},
    "a record with less": {**BASE, "to": {"zone": 1}},
    "another record": {**BASE, "to": {"zone": 2, "city": "Rome"}},
    "no record": {key: value for key, value in BASE.items() if key != "to"},
    "a set more": {**BASE, "tags": []},
    "nothing": {},
}


def test_a_rule_covers_the_call_that_it_was_made_for() -> None:
    assert covers(permitted(PAY, **BASE), permitted(PAY, **BASE))
    assert covers(permitted(PAY), permitted(PAY))
    assert covers(permitted(PAY, rate=2), permitted(PAY, rate=2.0))


def test_a_rule_may_be_as_long_as_what_a_person_reads() -> None:
    call = permitted(PAY, text="x" * RULE_CHARS)
    assert covers(call, call)


@pytest.mark.parametrize("arguments", DIFFERENT.values(), ids=DIFFERENT)
def test_a_rule_covers_no_other_call(arguments: dict[str, Any]) -> None:
    assert not covers(permitted(PAY, **BASE), permitted(PAY, **arguments))


def test_one_argument_more_is_another_call() -> None:
    assert not covers(permitted(STRICT, text="a"), permitted(STRICT, text="a", other="b"))
    assert not covers(permitted(STRICT, text="a", other="b"), permitted(STRICT, text="a"))


LOOKALIKES = [
    ("café", "cafe\u0301"),
    ("p\u0430y", "pay"),
    ("\ufb01", "fi"),
    ("a\u200b", "a"),
    ("\u212a", "K"),
]


@pytest.mark.parametrize(("one", "other"), LOOKALIKES)
def test_text_that_looks_the_same_is_another(one: str, other: str) -> None:
    assert not covers(permitted(PAY, text=one), permitted(PAY, text=other))
    assert not covers(permitted(PAY, agent=one), permitted(PAY, agent=other))


def test_a_rule_is_for_one_agent_one_tool_and_one_definition() -> None:
    rule = rule_for(permitted(PAY, text="a"))
    judge = RuleJudge()
    assert judge.covering(permitted(PAY, text="a"), [rule]) is rule
    assert judge.covering(permitted(PAY, agent="other", text="a"), [rule]) is None
    newer = registered("pay", PROPERTIES, version="1.0.1")
    assert judge.covering(permitted(newer, text="a"), [rule]) is None
    assert judge.covering(permitted(STRICT, text="a"), [rule]) is None


def test_a_path_is_covered_by_where_it_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    (tmp_path / "link").symlink_to("a")
    monkeypatch.chdir(tmp_path)
    rule = rule_for(permitted(PEEK, path="link"))
    assert f'"{tmp_path.resolve()}/a"' in rule.text
    judge = RuleJudge()
    assert judge.covering(permitted(PEEK, path="./a"), [rule]) is rule
    (tmp_path / "link").unlink()
    (tmp_path / "link").symlink_to("b")
    assert judge.covering(permitted(PEEK, path="link"), [rule]) is None


def test_a_rule_for_a_command_covers_that_command_line_and_no_other() -> None:
    PROGRAMS.append("sh")
    call = permitted(SHELL, command="sh -c 'echo hello'")
    assert covers(call, permitted(SHELL, command="sh -c 'echo hello'"))
    assert not covers(call, permitted(SHELL, command="sh -c 'rm -rf /'"))
    assert not covers(call, permitted(SHELL, command="sh"))
    words = permitted(START, argv=["sh", "-c", "echo hello"])
    assert covers(words, permitted(START, argv=["sh", "-c", "echo hello"]))
    assert not covers(words, permitted(START, argv=["sh", "-c", "echo", "hello"]))


def test_a_rule_for_a_command_covers_no_other_program_under_the_same_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("here", "there"):
        program = tmp_path.resolve() / name / "build"
        program.parent.mkdir()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        PROGRAMS.append(str(program))
    monkeypatch.chdir(tmp_path / "here")
    call = permitted(SHELL, command="./build all")
    assert covers(call, permitted(SHELL, command="./build all"))
    monkeypatch.chdir(tmp_path / "there")
    assert not covers(call, permitted(SHELL, command="./build all"))


def test_the_first_rule_that_covers_is_found_among_many() -> None:
    rules = [rule_for(permitted(PAY, count=n)) for n in range(3)]
    assert RuleJudge().covering(permitted(PAY, count=2), rules) is rules[2]
    assert RuleJudge().covering(permitted(PAY, count=3), rules) is None
    assert RuleJudge().covering(permitted(PAY, count=2), []) is None


def test_a_rule_that_nobody_could_have_written_covers_nothing() -> None:
    call = permitted(PAY, text="a")
    rule = rule_for(call)
    for text in ("nonsense", "", rule.text.replace("permit", "forbid"), rule.text.replace("@id", "@other")):
        broken = Rule(
            id="rule-1",
            text=text,
            agent="local",
            tool="pay",
            definition_hash=rule.definition_hash,
            approver="anna",
            made_at=0,
            ends_at=1,
        )
        assert RuleJudge().covering(call, [broken]) is None


def test_more_rules_than_are_remembered_are_covered_as_well() -> None:
    judge = RuleJudge()
    call = permitted(NONE)
    rule = rule_for(call)
    many = [
        Rule(
            id=f"rule-{n}",
            text=f'@id("rule-{n}") permit (principal == Agent::"nobody", action, resource);',
            agent="nobody",
            tool="none",
            definition_hash=rule.definition_hash,
            approver="anna",
            made_at=0,
            ends_at=1,
        )
        for n in range(2, 1_010)
    ]
    assert judge.covering(call, [*many, rule]) is rule
    assert judge.covering(call, [rule, *many]) is rule
    assert len(judge._engines) <= 1_000


FETCH = registered("fetch", {"url": {"type": "string", "x-touches": "net.read"}}, capabilities=["net.read:*"])


def test_there_is_no_rule_for_a_url() -> None:
    """What policies see of a URL is its host; one for a path would cover every other of that host."""
    assert RuleJudge().write(permitted(FETCH, url="https://example.org/safe"), "rule-1") == ""


NULLABLE = registered("nullable", {"limit": {"type": ["integer", "null"]}})


def test_null_is_another_call_than_nothing() -> None:
    nothing, null = permitted(NULLABLE), permitted(NULLABLE, limit=None)
    assert covers(nothing, permitted(NULLABLE))
    assert not covers(nothing, null)
    assert RuleJudge().write(null, "rule-1") == ""  # Cedar has no word for it


class Contested(RuleJudge):
    """Another thread always comes in between, and makes room for its own."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, {})


def test_a_rule_that_another_thread_makes_forgotten_covers_all_the_same() -> None:
    call = permitted(PAY, text="a")
    rule = rule_for(call)
    assert Contested().covering(call, [rule]) is rule


# --- text survives Cedar -------------------------------------------------------------------------

TEXTS = [
    '"', "\\", '\\"', "\n", "\r\n", "\t", "\0", "\x1f", "\x7f", "\u2028", "\u200b", "\ufeff", "\u00ad",
    "😀", "\U0010ffff", "\ue000", "*", "\\*", "//", ";", '"; permit (principal, action, resource); //',
    "\\u{41}", "' or '", "}", '" || true || "', "ä̈", " ", "",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_odd_text_is_one_literal_in_a_rule(text: str) -> None:
    call = permitted(PAY, text=text)
    rule = rule_for(call)
    assert len(read_policies([PolicySource(name="rule", text=rule.text)]).policies) == 1
    assert covers(call, permitted(PAY, text=text))
    assert not covers(call, permitted(PAY, text=f"{text}x"))
    assert not covers(call, permitted(PAY, text="anything"))


@pytest.mark.parametrize("name", TEXTS)
def test_an_odd_agent_is_one_literal_too(name: str) -> None:
    assert covers(permitted(NONE, agent=name), permitted(NONE, agent=name))
    assert not covers(permitted(NONE, agent=name), permitted(NONE, agent=f"{name}x"))


def test_an_odd_name_of_an_argument_is_one_literal_too() -> None:
    name = 'a"\\b\nc'
    assert covers(permitted(ODD, **{name: "x"}), permitted(ODD, **{name: "x"}))
    assert not covers(permitted(ODD, **{name: "x"}), permitted(ODD, **{name: "y"}))
    assert not covers(permitted(ODD, **{name: "x"}), permitted(ODD))


ARGUMENTS = st.fixed_dictionaries(
    {},
    optional={
        "text": st.text(max_size=6),
        "count": st.integers(-(2**63), 2**63 - 1),
        "rate": st.integers(-(10**9), 10**9).map(lambda n: n / 10_000) | st.integers(-(10**9), 10**9),
        "flag": st.booleans(),
        "to": st.fixed_dictionaries({"zone": st.integers(0, 9)}, optional={"city": st.text(max_size=3)}),
    },
)


@given(ARGUMENTS, ARGUMENTS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_rule_covers_a_call_if_and_only_if_the_arguments_are_equal(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first = permitted(PAY, **one)
    assert covers(first, permitted(PAY, **one))
    assert covers(first, permitted(PAY, **other)) == (one == other)
