"""Policies are read with their places and names, and refused for whatever would make them not say what they mean."""

import subprocess
import sys
from typing import Any

import pytest

from tests.definitions.examples import made, made_elsewhere, with_properties
from toolkeep.calls import RegisteredTool
from toolkeep.policy.cedar_parser import BRACKETS, read_policies
from toolkeep.policy.cedar_validation import check_policies
from toolkeep.policy.policy_set import Policies, PoliciesRefused, PolicyProblem, Uid
from toolkeep.policy.policy_settings import PolicySource
from toolkeep.registry.admit import admit

pytestmark = pytest.mark.spec("POL-2")

PATH = with_properties(
    {
        "path": {"type": "string", "description": "A path.", "x-touches": "fs.read"},
        "lines": {"type": "integer", "minimum": 0, "maximum": 10, "description": "How many."},
        "key": {"type": "string", "description": "A key.", "x-secret": True},
    },
    required=["lines"],
)


def tool(name: str, parameters: dict[str, Any] = PATH, **fields: Any) -> RegisteredTool:
    return admit(made(name=name, parameters=parameters, **fields))


TOOLS = [
    tool("read_file", category="file_system"),
    tool("fetch", with_properties({"url": {"type": "string", "description": "A URL."}}), category="network"),
    tool(
        "read_many",
        with_properties({"path": {"type": "array", "items": {"type": "string"}, "description": "Paths."}}),
    ),
]
AGENTS = ["local", "écrivain"]


def read(text: str, **fields: Any) -> Policies:
    return read_policies([PolicySource(name="a.cedar", text=text, **fields)])


def refused(text: str, **fields: Any) -> list[PolicyProblem]:
    with pytest.raises(PoliciesRefused) as caught:
        read(text, **fields)
    return list(caught.value.problems)


def problems(text: str, tools: list[RegisteredTool] = TOOLS) -> list[str]:
    return [
        f"{problem.policy}: {problem.message}; {problem.fix}"
        for problem in check_policies(read(text), tools, AGENTS)
    ]


CALL = 'action == Action::"call"'


def test_what_a_policy_says_of_itself_is_read() -> None:
    text = """
// A comment; with a semicolon and a "quote
@id("b") @ask("Really?") @reason("It reads; files.")
permit (principal == Agent::"local", action in [Action::"call", Action::"see"], resource in Category::"file_system")
when { context has arguments.path && context.arguments.path like "/a;*" && ["x"].containsAll(context["hosts"]) }
unless { resource == Tool::"fetch" || principal is Agent };

  @id("a") forbid (principal, action, resource is Tool in Source::"mcp");
"""
    first, second = read(text).policies
    assert (first.id, first.effect, first.asks, first.reason) == ("a", "forbid", False, "")
    assert (first.source, first.line, first.column) == ("a.cedar", 8, 3)
    assert (second.id, second.effect, second.asks, second.reason) == ("b", "permit", True, "It reads; files.")
    assert (second.line, second.column) == (3, 1)
    assert second.context_reads == {("arguments", "path"), ("hosts",)}
    assert second.context_looks == {("arguments",), ("arguments", "path")}
    assert second.entities == {
        Uid("Agent", "local"),
        Uid("Action", "call"),
        Uid("Action", "see"),
        Uid("Category", "file_system"),
        Uid("Tool", "fetch"),
    }
    assert second.types == {"Agent"}
    assert first.entities == {Uid("Source", "mcp")}


@pytest.mark.parametrize(
    ("condition", "reads"),
    [
        ("context.arguments.a.b == 1", {("arguments", "a", "b")}),
        ('context["arguments"]["a b"] == 1', {("arguments", "a b")}),
        ("context.arguments == {a: 1}", {("arguments",)}),
        ("context == context", {()}),
        ("(if true then context else context).session == context.session", {(), ("session",)}),
        ("[context.arguments.a].contains(1)", {("arguments", "a")}),
        ('{"Var": "context", "has": context.hosts}["has"] == ["x"]', {("hosts",)}),
        ('"context" == "x" && resource.danger == 1', set()),
        ('decimal("1.0").lessThan(context.arguments.n)', {("arguments", "n")}),
        ("!(context.session like context.session) && -1 == 1", None),
    ],
)
def test_what_a_policy_reads_of_the_context_is_found(condition: str, reads: set[Any] | None) -> None:
    text = f'@id("a") permit(principal, {CALL}, resource) when {{ {condition} }};'
    if reads is None:
        assert "is not Cedar" in refused(text)[0].message
    else:
        assert read(text).policies[0].context_reads == reads


@pytest.mark.parametrize(
    ("head", "applies"),
    [
        ("principal, action, resource", True),
        ('principal, action == Action::"call", resource', True),
        ('principal, action in [Action::"see", Action::"call"], resource', True),
        ('principal, action == Action::"see", resource', False),
        ('principal, action, resource == Tool::"read_file"', True),
        ('principal, action, resource in Tool::"read_file"', True),
        ('principal, action, resource == Tool::"Read_file"', False),
        ('principal, action, resource in Category::"file_system"', True),
        ('principal, action, resource == Category::"file_system"', False),
        ('principal, action, resource in Category::"network"', False),
        ("principal, action, resource is Tool", True),
        ('principal, action, resource is Tool in Source::"hand"', True),
        ('principal, action, resource is Tool in Source::"mcp"', False),
        ("principal, action, resource is Agent", False),
        ('principal == Agent::"nobody", action, resource', True),
    ],
)
def test_the_policies_about_a_call_are_those_whose_heads_admit_it(head: str, applies: bool) -> None:
    applying = read(f'@id("a") permit({head});').applying("call", TOOLS[0].definition)
    assert bool(applying) is applies


REFUSED = [
    ("permit(principal, action, resource);", "has no id"),
    ("@id permit(principal, action, resource);", "has no id"),
    ('@id("") permit(principal, action, resource);', "has no id"),
    ('@id("a b") permit(principal, action, resource);', "has the id 'a b', which cannot be one"),
    ('@id("toolkeep.a") permit(principal, action, resource);', "has the id 'toolkeep.a'"),
    ('@id("a") permit(principal, action, resource)', "is not Cedar: unexpected end of input"),
    ('@id("a") permit(principal, action, resource) when { 1 + };', "is not Cedar: unexpected token `}`"),
    ('@id("a") permit(principal == ?principal, action, resource);', "is a template"),
    ('@id("a") @aks permit(principal, action, resource);', "is annotated @aks"),
    ('@id("a") @ASK permit(principal, action, resource);', "is annotated @ASK"),
    ('@id("a") @silent forbid(principal, action, resource);', "forbids, so @silent has no effect"),
    ('@id("a") @ask @silent permit(principal, action, resource);', "is annotated @ask and @silent"),
    ('@id("a") @silent("high") permit(principal, action, resource);', "gives @silent a value"),
    ('@id("a") @silnt permit(principal, action, resource);', "is annotated @silnt"),
    ('@id("a") permit(principal, action, resource) when { "x };', "is not Cedar"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_a_policy_that_cannot_be_used_is_refused_with_its_line(text: str, message: str) -> None:
    (problem,) = refused('@id("fine") permit(principal, action, resource);\n\n ' + text)
    assert problem.message.startswith(message)
    at = text.index("}") if "token `}`" in message else 0
    assert (problem.source, problem.line, problem.column) == ("a.cedar", 3, 2 + at)
    assert problem.fix


def test_all_that_is_wrong_is_told_at_once() -> None:
    assert len(refused("permit(principal, action, resource); nonsense; @id permit(principal);")) == 3


def test_an_id_belongs_to_one_policy_over_all_sources() -> None:
    one = PolicySource(name="one", text='\n@id("a") permit(principal, action, resource);')
    two = PolicySource(name="two", text='@id("a") forbid(principal, action, resource);')
    with pytest.raises(PoliciesRefused) as caught:
        read_policies([one, two])
    (problem,) = caught.value.problems
    assert str(problem) == (
        "two:1:1: policy 'a' has the id of another policy, at one:2; give it an id of its own"
    )


def test_our_own_sources_may_bear_our_ids() -> None:
    assert (
        read('@id("toolkeep.a") permit(principal, action, resource);', is_ours=True).policies[0].id
        == "toolkeep.a"
    )


def test_the_hash_is_of_what_policies_mean_and_not_of_how_they_are_laid_out() -> None:
    one = read('@id("a") permit(principal, action, resource); @id("b") forbid(principal, action, resource);')
    two = read('// x\n@id("b")\nforbid(principal,action,resource);@id("a")permit(principal,action,resource);')
    other = read(
        '@id("a") @ask permit(principal, action, resource); @id("b") forbid(principal, action, resource);'
    )
    assert one.hash == two.hash
    assert one.hash != other.hash


DEEP = [
    '@id("a") permit(principal, action, resource) when { ' + "(" * 20_000 + "true" + ")" * 20_000 + " };",
    '@id("a") permit(principal, action, resource) when { // x\r'
    + "[" * 20_000
    + "1"
    + "]" * 20_000
    + " == 1 };",
    '@id("a") permit(principal, action, resource) when { ' + " || ".join(["true"] * 5_000) + " };",
    '@id("a") permit(principal, action, resource) when { ' + " || ".join(["true"] * 300) + " };",
    '@id("a") permit(principal, action, resource) when { '
    + "if true then " * 500
    + "true"
    + " else true" * 500
    + " };",
]


@pytest.mark.parametrize("text", DEEP, ids=["parentheses", "brackets", "long chain", "chain", "ifs"])
def test_policies_nested_too_deep_are_refused_before_cedar_sees_them(text: str) -> None:
    """In a process of its own: without the limit Cedar's parser ends the process."""
    program = (
        "import sys; from toolkeep.policy.cedar_parser import *\n"
        "try: read_policies([PolicySource(name='a', text=sys.stdin.read())])\n"
        "except PoliciesRefused as error: print(len(error.problems))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1\n")


def test_brackets_up_to_the_limit_are_read() -> None:
    text = "(" * (BRACKETS - 1) + "true" + ")" * (BRACKETS - 1)
    assert read(f'@id("a") permit(principal, action, resource) when {{ {text} }};').policies


SOUND = [
    "permit(principal, action, resource);",
    f'permit(principal == Agent::"écrivain", {CALL}, resource == Tool::"read_file") when {{ context.arguments.lines < 5 }};',
    f'forbid(principal, {CALL}, resource == Tool::"read_file") when {{ context.arguments has path && context.arguments.path like "/etc*" }};',
    f'forbid(principal, {CALL}, resource) when {{ context.arguments has url && context.arguments.url like "*x" }};',
    f'forbid(principal, {CALL}, resource in Category::"database") when {{ context.arguments has query }};',
    f"permit(principal, {CALL}, resource) when {{ principal.permissions.containsAll(resource.requires) }};",
    f'forbid(principal, {CALL}, resource in Source::"mcp") unless {{ ["a.example"].containsAll(context.hosts) }};',
    'permit(principal, action == Action::"see", resource) when { resource.danger < 2 };',
]


@pytest.mark.parametrize("policy", SOUND)
def test_a_sound_policy_has_no_problem(policy: str) -> None:
    assert problems(f'@id("a") {policy}') == []


WRONG = [
    (
        'permit(principal, action, resource == Tool::"read_fiel");',
        "names Tool::\"read_fiel\", which does not exist; did you mean 'read_file'?",
    ),
    (
        'permit(principal, action, resource == Tool::"re\u0430d_file");',
        "names Tool::\"re\u0430d_file\", which does not exist; did you mean 'read_file'?",
    ),
    (
        'forbid(principal == Agent::"e\u0301crivain", action, resource);',
        "names Agent::\"e\u0301crivain\", which does not exist; did you mean 'écrivain'?",
    ),
    (
        'forbid(principal, action, resource) when { principal == Agent::"Local" };',
        "names Agent::\"Local\", which does not exist; did you mean 'local'?",
    ),
    (
        'forbid(principal, action == Action::"cal", resource);',
        "names Action::\"cal\", which does not exist; did you mean 'call'?",
    ),
    (
        'forbid(principal, action, resource in Category::"filesystem");',
        "names Category::\"filesystem\", which does not exist; did you mean 'file_system'?",
    ),
    (
        "forbid(principal is Agnet, action, resource);",
        "names the entity type 'Agnet', which does not exist; did you mean 'Agent'?",
    ),
    (
        "forbid(principal, action, resource) when { resource.dangr > 1 };",
        "reads resource.dangr, which does not exist; did you mean 'danger'?",
    ),
    (
        f'forbid(principal, {CALL}, resource) when {{ context has host && context.host == ["a"] }};',
        "reads context.host, which does not exist; did you mean 'hosts'?",
    ),
    (
        f'forbid(principal, {CALL}, resource == Tool::"read_file") when {{ context.arguments has pth && context.arguments.pth == "a" }};',
        "reads the argument 'pth', which is not an argument of 'read_file'; did you mean 'path'?",
    ),
    (
        f"forbid(principal, {CALL}, resource) when {{ context.arguments has urll }};",
        "reads the argument 'urll', which is not an argument of any tool that it is about; did you mean 'url'?",
    ),
    (
        f'forbid(principal, {CALL}, resource == Tool::"read_file") when {{ context.arguments has key }};',
        "reads the argument 'key' of 'read_file', which policies cannot see; read another: it is secret, or of a type that Cedar lacks",
    ),
    (
        f'forbid(principal, {CALL}, resource == Tool::"fetch") when {{ context.arguments.url == "a" }};',
        "is wrong for tool 'fetch': unable to guarantee safety of access to optional attribute `arguments.url` in context for Action::\"call\"; ask for it first: context.arguments has NAME && …",
    ),
    (
        f'forbid(principal, {CALL}, resource) when {{ context.arguments has path && context.arguments.path == "a" }};',
        "is wrong for tool 'read_many': the types String and Set<String> are not compatible; make the types agree",
    ),
    (
        'forbid(principal, action, resource) when { context.hosts.contains("x") };',
        'is wrong: attribute `hosts` in context for Action::"see" not found; write action == Action::"call" in its head: seeing a tool has no context',
    ),
    (
        'forbid(principal, action, resource) when { resource.danger == "high" };',
        "is wrong: the types Long and String are not compatible; make the types agree",
    ),
    (
        'forbid(principal, action, resource == Category::"network");',
        "is wrong: unable to find an applicable action given the policy scope constraints; in a head the principal is an Agent and the resource a Tool",
    ),
]
NEVER = "can never hold, whatever is called; compare its conditions with its head and with the types of what it reads"
IMPOSSIBLE = [
    "forbid(principal, action, resource) when { false };",
    "forbid(principal, action, resource) unless { true };",
    "forbid(principal, action, resource) when { resource.danger > 1 } when { 1 == 2 };",
    'forbid(principal, action, resource) when { resource in Agent::"local" };',
    "forbid(principal, action, resource) when { principal is Tool };",
    f'forbid(principal, {CALL}, resource == Tool::"fetch") when {{ !(context has arguments) }};',
]


@pytest.mark.parametrize(("policy", "problem"), [*WRONG, *((policy, NEVER) for policy in IMPOSSIBLE)])
def test_a_policy_that_cannot_mean_what_it_says_is_told(policy: str, problem: str) -> None:
    assert problems(f'@id("fine") permit(principal, action, resource);\n@id("a") {policy}') == [
        f"a: {problem}"
    ]


def test_a_policy_that_holds_for_one_tool_may_be_impossible_for_others() -> None:
    policy = f'@id("a") forbid(principal, {CALL}, resource) when {{ context.arguments has lines }};'
    assert problems(policy) == []
    assert problems(policy, TOOLS[:1]) == []
    assert len(problems(policy, TOOLS[1:])) == 1


def test_the_origin_of_tools_from_elsewhere_can_be_named() -> None:
    tools = [admit(made_elsewhere(parameters=PATH))]
    policy = '@id("a") forbid(principal, action, resource in Source::"mcp:files");'
    assert problems(policy, tools) == []
    assert len(problems(policy, TOOLS)) == 1


def test_what_is_left_out_of_the_bindings_is_there_for_code_that_imports_it() -> None:
    code = (
        "import sys; from toolkeep.policy.cedar_bindings import cedarpy; print('cedarpy.pst' in sys.modules);"
        "tree = cedarpy.policies_to_pst('permit(principal, action, resource);');"
        "import cedarpy.pst; print(isinstance(tree, cedarpy.pst.PolicySet))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.split() == ["False", "True"]


@pytest.mark.parametrize(
    ("conditions", "guard"),
    [
        ("when { resource.egress && resource.danger > 1 && context.endorsed && true }", 2),
        ("when { resource.egress } unless { resource.is_built_in } when { context.endorsed }", 2),
        ("unless { resource.egress && context.endorsed } when { resource.egress }", 0),
        ("when { context.endorsed && resource.egress }", 0),
        ("when { resource.egress || context.endorsed }", 0),
        ("when { resource.egress && (true && context.endorsed) && resource.is_built_in }", 1),
        ('when { {"a": [if true then 1 else context.arguments.n]}.a.isEmpty() }', 0),
        ("", 0),
    ],
)
def test_the_guard_of_a_policy_ends_at_the_context(conditions: str, guard: int) -> None:
    text = f'@id("a") @ask forbid (principal, action == Action::"call", resource) {conditions};'
    (policy,) = read_policies([PolicySource(name="p", text=text)]).policies
    found = policy.guard or {"effect": "permit", "conditions": []}
    assert (found["effect"], len(found["conditions"])) == ("permit", guard)
