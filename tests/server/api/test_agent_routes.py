"""What agents hold and may do, over HTTP."""

from typing import Annotated, Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep, Touches, tool
from toolkeep.definitions.capability import Capability
from toolkeep.keep.agent_access import access_of, capability_words

POLICIES = """
@id("all") permit (principal, action == Action::"call", resource);
@id("no-orders") @reason("bob only looks")
forbid (principal == Agent::"bob", action == Action::"call", resource == Tool::"order");
@id("many") @ask
forbid (principal == Agent::"ada", action == Action::"call", resource == Tool::"price")
when { context.arguments has copies && context.arguments.copies > 3 };
@id("unseen") forbid (principal == Agent::"eve", action == Action::"see", resource == Tool::"price");
"""


@tool(side_effects=["None"])
def price(copies: int) -> int:
    """Tell what copies cost.

    Args:
        copies: How many.
    """
    return copies


@tool(danger="medium", side_effects=["None"])
def order(copies: int) -> int:
    """Order copies.

    Args:
        copies: How many.
    """
    return copies


@pytest.fixture
def shop(keep: Keep) -> Keep:
    keep.register(price, order)
    keep.declare_agent("ada", capabilities=["fs.read:."], permissions=["tool.filesystem.read"])
    keep.declare_agent("bob")
    keep.declare_agent("eve")
    keep.use_policies(POLICIES)
    return keep


@pytest.mark.spec("POL-5")
def test_the_matrix_says_what_each_agent_may_do_with_each_tool_and_why(shop: Keep) -> None:
    cells = {
        (agent, name): access_of(shop, agent, found)
        for agent in ("ada", "bob", "eve", "nobody")
        for name in ("price", "order")
        if (found := shop.try_get(name)) is not None
    }
    causes = {cell: one.cause for cell, one in cells.items() if one.cause}
    assert causes == {
        ("bob", "order"): "policy",
        ("eve", "price"): "policy",
        ("nobody", "price"): "agent",
        ("nobody", "order"): "agent",
    }
    verdicts = {cell: (one.verdict, one.why, one.depends_on) for cell, one in cells.items()}
    assert verdicts == {
        ("ada", "price"): ("ask", "policy 'many' requires approval", ("many",)),
        ("ada", "order"): ("ask", "its danger is medium", ()),
        ("bob", "price"): ("allow", "what it needs is granted, and nobody is asked", ()),
        ("bob", "order"): ("deny", "policy 'no-orders' forbids it: bob only looks", ()),
        ("eve", "price"): ("deny", "policy 'unseen' hides the tool from the agent", ()),
        ("eve", "order"): ("ask", "its danger is medium", ()),
        ("nobody", "price"): ("deny", "everything is withdrawn from the agent, or it is not declared", ()),
        ("nobody", "order"): ("deny", "everything is withdrawn from the agent, or it is not declared", ()),
    }
    shop.disable("price")
    found = shop.try_get("price")
    assert found is not None
    off = access_of(shop, "bob", found)
    assert (off.why, off.cause) == ("the tool is disabled", "disabled")
    assert access_of(shop, "bob", found, "no policy").why == "no call is permitted: no policy"


@tool(capabilities=["fs.read", "fs.write"], side_effects=["FsRead", "FsWrite"], danger="low")
def peek(
    path: Annotated[str, Touches("fs.read")], log: Annotated[str, Touches("fs.write", only=True)] = ""
) -> str:
    """Look at a file, and write a log of it if one is named."""
    return path + log


@pytest.mark.spec("POL-5")
def test_a_decision_inside_a_grant_names_its_scope_and_a_denial_its_cause_and_the_line_to_add(
    keep: Keep,
) -> None:
    keep.register(peek)
    found = keep.try_get("peek")
    assert found is not None
    reads = "it may read files in ./docs"
    held = {
        ("fs.read:./docs", "fs.write:/"): (
            f"nobody is asked; {reads}; other paths are denied",
            ("fs.read:./docs",),
        ),
        ("fs.read:/", "fs.write:/"): ("what it needs is granted, and nobody is asked", ()),
        ("fs.read:./docs", "fs.read:/srv", "fs.write:/"): (
            f"nobody is asked; {reads} and read files in /srv; other paths are denied",
            ("fs.read:./docs", "fs.read:/srv"),
        ),
        (f"fs.read:{keep.project}/docs", "fs.write:/"): (
            f"nobody is asked; {reads}; other paths are denied",
            (f"fs.read:{keep.project}/docs",),
        ),
        ("fs.read:/",): ("nobody is asked; calls that need fs.write are denied", ("no fs.write",)),
    }
    for capabilities, expected in held.items():
        keep.declare_agent("ada", capabilities=capabilities)
        told = access_of(keep, "ada", found)
        assert (told.verdict, told.why, told.limited_to) == ("allow", *expected)
    keep.declare_agent("ada", capabilities=["fs.write:/"])
    line = 'agents: "ada": add to capabilities: ["fs.read:."]'
    lacks = access_of(keep, "ada", found)
    assert (lacks.verdict, lacks.cause, lacks.line) == ("deny", "grant", line)
    keep.declare_agent("ada", capabilities=["fs.read:."])
    keep.withdraw("ada", "fs.read")
    taken = access_of(keep, "ada", found)
    assert (taken.verdict, taken.cause, taken.line) == ("deny", "withdrawn", "")


def test_agents_are_told_with_their_week_and_others_only_to_an_admin(shop: Keep) -> None:
    async def act(client: Client) -> Any:
        await shop.call("price", {"copies": 1}, agent="ada")
        await shop.call("price", {"copies": "x"}, agent="ada")
        bob = client.as_agent("bob", "policies:read")
        every = (await client.get("/v1/agents")).data
        own = (await bob.get("/v1/agents")).data
        rows = (await client.get("/v1/access?search=order&limit=1")).data
        bobs = (await bob.get("/v1/access?search=order")).data["items"][0]["agents"]
        other = (await bob.get("/v1/access?agent=ada")).status
        return every, own, rows, bobs, other

    every, own, rows, bobs, other = talk(shop, act)
    (ada,) = (one for one in every if one["agent"] == "ada")
    assert (ada["holds"], ada["calls"], ada["refused"]) == (["read files in the project folder"], 2, 1)
    assert ada["last_call_at"] is not None
    assert ada["tokens"] == 0
    assert [one["agent"] for one in own] == ["bob"]
    assert rows["items"][0]["tool"] == "order"
    assert {"ada", "bob", "local"} <= rows["items"][0]["agents"].keys()
    assert (list(bobs), other) == (["bob"], 404)


@pytest.mark.parametrize(
    ("granted", "words"),
    [
        ("fs.read:.", "read files in the project folder"),
        ("fs.read:/shop", "read files in the project folder"),
        ("fs.read:/shop/", "read files in the project folder"),
        ("fs.write:/shop/a/b", "write files in ./a/b"),
        ("fs.write:a/b", "write files in ./a/b"),
        ("fs.read:/shopping", "read files in /shopping"),
        ("fs.read:/", "read files in /"),
        ("fs.read:./link/../../x", "read files in ./link/../../x"),
        ("net.read:./", "fetch from ./"),
        ("fs.read", "read files in anything"),
        ("fs.read:*", "read files in *"),
    ],
)
def test_a_path_inside_the_project_is_told_relative_to_it_however_it_was_granted(
    granted: str, words: str
) -> None:
    assert capability_words(Capability.read(granted), "/shop") == words
