"""What an agent can never call is not listed to it, and what it could call is."""

import itertools
from typing import Any

import pytest

from tests.definitions.examples import made, with_properties
from toolkeep import Code, Keep, Refusal
from toolkeep.calls import PermittedCall, ToolCall
from toolkeep.definitions.capability import Capability
from toolkeep.policy.callable_tools import could_allow
from toolkeep.policy.policy_settings import Grant

PATH = {"type": "string", "description": "Where.", "maxLength": 100}
READS = {**PATH, "x-touches": "fs.read"}
URL = {**PATH, "x-touches": "net.read"}
ONLY = {**PATH, "x-touches": {"kind": "net.read", "only": True}}
DATABASE = {**PATH, "x-touches": "db.read"}


def grant(*capabilities: str, permissions: tuple[str, ...] = ()) -> Grant:
    return Grant(capabilities=tuple(map(Capability.read, capabilities)), permissions=permissions)


def needs(*capabilities: str, **properties: Any) -> dict[str, Any]:
    parameters = with_properties(properties, additionalProperties=False)
    return {"capabilities": list(capabilities), "parameters": parameters}


TABLE = {
    "nothing is needed": (grant(), needs(), True),
    "a kind is lacking": (grant("fs.read:."), needs("fs.write"), False),
    "an empty scope grants nothing": (grant("fs.write"), needs("fs.write"), False),
    "a kind is held": (grant("fs.write:./docs"), needs("fs.write", path=PATH), True),
    "another folder may overlap": (grant("fs.write:./docs"), needs("fs.write:./out"), True),
    "a program is looked up at the call": (grant("process.spawn:ls"), needs("process.spawn:git"), True),
    "another host": (grant("net.read:a.example"), needs("net.read:b.example"), False),
    "a part of the hosts": (grant("net.read:a.example"), needs("net.read:*.example.org"), False),
    "a wildcard": (grant("net.read:*.example.org"), needs("net.read:a.example.org"), True),
    "a private host": (grant("net.read:a.corp=10.0.0.0/8"), needs("net.read:a.corp"), True),
    "private without a name": (grant("net.read:0.0.0.0/0"), needs("net.read:10.1.2.3"), False),
    "an argument may name less": (
        grant("net.read:a.example"),
        needs("net.read:*.example.org", url=URL),
        True,
    ),
    "an argument that may be left out": (grant(), needs("net.read", url=ONLY), True),
    "another database": (grant("db.read:books"), needs("db.read:people"), False),
    "an argument names the database": (grant("db.read:books"), needs("db.read:people", name=DATABASE), True),
}


@pytest.mark.parametrize(("held", "fields", "expected"), TABLE.values(), ids=TABLE)
def test_whether_a_grant_could_allow_a_call(held: Grant, fields: dict[str, Any], expected: bool) -> None:
    assert could_allow(held, made(**fields)) is expected


def test_a_permission_that_is_lacking_is_enough() -> None:
    definition = made(required_permissions=["tool.filesystem.write"])
    assert not could_allow(grant(permissions=("tool.filesystem.read",)), definition)
    assert could_allow(grant(permissions=("tool.filesystem.write",)), definition)


def test_what_is_left_out_is_refused_whatever_the_arguments() -> None:
    """Sound: no grant allows a call of what is not listed, over many grants, tools and arguments."""
    capabilities = ("fs.read:.", "net.read:a.example", "net.read:*.*", "db.read:books", "net.read:10.0.0.0/8")
    grants = [held for size in range(3) for held in itertools.combinations(capabilities, size)]
    tools = [
        needs(*required, **properties)
        for required in (
            ("fs.read",),
            ("fs.read:.", "net.read"),
            ("net.read:a.example",),
            ("db.read:books",),
            (),
        )
        for properties in ({}, {"path": READS}, {"url": URL}, {"url": ONLY, "name": DATABASE})
    ]
    arguments = [
        {},
        {"path": "."},
        {"url": "http://a.example/"},
        {"url": "http://10.0.0.1/"},
        {"name": "books"},
    ]
    left_out = permitted = 0
    with Keep() as keep:
        for number, fields in enumerate(tools):
            keep.register(made(**{**fields, "name": f"tool_{number}", "client_executed": True}))
        for number, held in enumerate(grants):
            keep.declare_agent(f"a{number}", capabilities=held)
        for number, index in itertools.product(range(len(grants)), range(len(tools))):
            agent, name = f"a{number}", f"tool_{index}"
            is_listed = name in {tool.name for tool in keep.offered_tools(agent=agent)}
            left_out += not is_listed
            for given in arguments:
                checked = keep.try_validate_arguments(name, given, agent=agent)
                if isinstance(checked, Refusal):
                    continue
                request = ToolCall(id="x", tool=name, arguments=None, agent=agent)
                outcome = keep.authorizer.authorize(request, checked)
                if isinstance(outcome, PermittedCall):
                    permitted += 1
                    assert is_listed, (grants[number], tools[index], given)
    assert left_out > 50
    assert permitted > 50


ALL = '@id("all") permit (principal, action == Action::"call", resource);'
FORBID = '@id("no") forbid (principal, action == Action::"call", resource)'
POLICIES = {
    "none": ("", True),
    "a permit": (ALL, True),
    "no permit": ('@id("x") permit (principal == Agent::"eve", action == Action::"call", resource);', False),
    "a forbid": (
        ALL + '@id("no") forbid (principal == Agent::"ada", action == Action::"call", resource);',
        False,
    ),
    "a forbid of another": (
        ALL + '@id("no") forbid (principal == Agent::"eve", action == Action::"call", resource);',
        True,
    ),
    "by what the tool is": (
        ALL + '@id("no") forbid (principal, action == Action::"call", resource) when {resource.danger < 3};',
        False,
    ),
    "a forbid by the arguments": (
        ALL
        + '@id("no") forbid (principal, action == Action::"call", resource) when {context.session == ""};',
        True,
    ),
    "a forbid by a required argument": (
        ALL + FORBID + ' when {context.arguments.path like "*draft*"};',
        True,
    ),
    "a forbid unless a required argument": (
        ALL + FORBID + ' unless {context.arguments.path like "*draft*"};',
        True,
    ),
    "no permit, and a forbid by a required argument": (
        FORBID + ' when {context.arguments.path like "*draft*"};',
        False,
    ),
    "a permit by the arguments": (
        '@id("x") permit (principal, action == Action::"call", resource) when {context.session == "s"};',
        True,
    ),
}


@pytest.mark.parametrize(("policies", "expected"), POLICIES.values(), ids=POLICIES)
def test_what_policies_forbid_whatever_the_arguments_is_not_listed(policies: str, expected: bool) -> None:
    with Keep() as keep:
        parameters = with_properties({"path": PATH}, additionalProperties=False, required=["path"])
        keep.register(made(name="look", client_executed=True, parameters=parameters))
        for agent in ("ada", "eve"):
            keep.declare_agent(agent)
        if policies:
            keep.use_policies(policies)
        assert [tool.name for tool in keep.offered_tools(agent="ada")] == (["look"] if expected else [])


@pytest.mark.spec("POL-1")
def test_a_call_of_what_is_not_listed_still_says_what_is_missing() -> None:
    with Keep() as keep:
        keep.register(made(name="look", capabilities=["net.read"], client_executed=True))
        assert [one["name"] for one in keep.tools_for("mcp")] == []
        result = keep.call_sync("look", {})
        assert (result.code, "The agent has no grant for net.read" in result.text) == (
            Code.NOT_PERMITTED,
            True,
        )
        keep.declare_agent("local", capabilities=["net.read:a.example"])
        assert [one["name"] for one in keep.tools_for("mcp")] == ["look"]


def test_a_list_follows_the_grant_that_is_held_now() -> None:
    with Keep() as keep:
        keep.register(made(name="look", capabilities=["net.read"], client_executed=True))
        listed = []
        for held in (["net.read:a.example"], [], ["net.read:a.example"]):
            keep.declare_agent("ada", capabilities=held)
            listed.append(len(keep.offered_tools(agent="ada")))
    assert listed == [1, 0, 1]
