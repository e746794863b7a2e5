"""The call page: what denied a call, its buttons in a real browser, and the way back to the filtered log."""

import html
import re
from collections.abc import Callable
from typing import Annotated, Any

import pytest
from playwright.sync_api import expect

from tests.server.web.conftest import Reader, World
from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep, Secret, Touches, open_keep, tool

pytestmark = pytest.mark.spec("WEB-2", "POL-5")

POLICIES = """
@id("all") permit (principal, action, resource);
@id("no-large-sums") forbid (principal, action == Action::"call", resource == Tool::"add")
when { context.arguments has a && context.arguments.a > 100 };
"""


def test_a_denied_call_shows_the_policy_and_the_argument_that_it_read(keep: Keep) -> None:
    all_permitted, _, forbid = POLICIES.partition('\n@id("no')
    keep.use_policies(all_permitted)
    keep.put_policies("sums", f'@id("no{forbid}')
    made = keep.call_sync("add", {"a": 4711}, agent="operator", session="desk")

    async def act(visitor: Visitor) -> tuple[str, list[Any], str]:
        page = (await visitor.get(f"/ui/calls/{made.call_id}")).body.decode()
        path = f"/v1/audit/calls/{made.call_id}"
        auditor = visitor.operator.as_agent("ada", "audit:read")
        said = [(await one.get(path)).data["denied_by"][0] for one in (visitor.operator, auditor)]
        keep.drop_policies("sums")
        changed = (await visitor.get(f"/ui/calls/{made.call_id}")).body.decode()
        return html.unescape(page), said, html.unescape(changed)

    page, (whole, of_auditor), changed = visit(keep, act)
    denied = page[page.index("What denied it") : page.index("What the model was told")]
    assert "/ui/policies#policy-no-large-sums" in denied
    assert denied.count("<strong>4711</strong>") == 1
    assert [re.sub("<[^>]*>", "", one) for one in re.findall("<li>(.*?)</li>", denied)] == [
        "True: whencontext.arguments has a",
        "True: whencontext.arguments.a > 100a4711",
    ]
    assert "</a> forbids <code>a</code> above 100; this call has 4711. Call with other" in page
    assert 'href="/ui/policies/edit?name=sums"' in denied
    assert whole["is_unchanged"]
    assert "context.arguments.a > 100" in whole["text"]
    assert whole["place"] == "sums:1:1"
    assert of_auditor == {
        **whole,
        "text": "",
        "place": "",
        "stored_in": "",
    }  # policies are not for everyone who reads the log
    assert "which is no longer in force" in changed
    for link in (
        "/ui/sessions/show?agent=operator&session=desk",
        "/ui/tools/add",
        "/ui/agents/show?agent=operator",
    ):
        assert link in page


@tool(capabilities=["fs.read"], side_effects=["FsRead"])
async def peek(path: Annotated[str, Touches("fs.read")]) -> str:
    """Look at a file."""
    return path


@tool(capabilities=["fs.read"], side_effects=["FsRead"])
async def unlock(path: Annotated[str, Touches("fs.read")], key: Annotated[str, Secret()]) -> str:
    """Look at a file that is encrypted."""
    return path + key


LINE = 'capabilities: ["fs.read:/etc/passwd"]'


def test_a_call_without_a_grant_shows_the_line_to_add_to_who_may_have_it_explained(keep: Keep) -> None:
    keep.register(peek, unlock)
    keep.declare_agent("writer", capabilities=["fs.read:./docs"])
    made = keep.call_sync("peek", {"path": "/etc/passwd"}, agent="writer")
    hidden = keep.call_sync("unlock", {"path": "/etc/passwd", "key": "hunter2"}, agent="writer")

    async def act(visitor: Visitor) -> list[str]:
        async def seen(call: str) -> str:
            page = html.unescape((await visitor.get(f"/ui/calls/{call}")).body.decode())
            return page[page.index('aria-label="What came of it"') : page.index('<div id="undo"')]

        found = [await seen(made.call_id), await seen(hidden.call_id)]
        for scopes in (["audit:read", "policies:read"], ["audit:read"]):
            await visitor.sign_in(token=visitor.operator.tokens.make("a", scopes, agent="ada").text)
            found.append(await seen(made.call_id))
        own = visitor.operator.tokens.make("w", ["audit:read", "policies:read"], agent="writer").text
        await visitor.sign_in(token=own)
        found.append(await seen(made.call_id))
        keep.declare_agent("writer", capabilities=["fs.read:/etc"])
        await visitor.sign_in(token=own)
        return [*found, await seen(made.call_id)]

    admin, secret, *others, own, granted = visit(keep, act)
    assert f">{LINE}<" in admin
    assert 'Add this to <code>agents: "writer"</code> in <code>.agent/config.yml</code>, then run' in admin
    assert '<dd class="foreign">fs.read /etc/passwd</dd>' in admin
    assert '<dt>Holds</dt><dd class="foreign">fs.read:./docs</dd>' in admin
    assert [LINE in page for page in (secret, *others, own, granted)] == [False] * 5
    assert "As the rules are now, the same call would be permitted." in granted


@pytest.mark.parametrize(
    ("scopes", "agent", "holds", "said"),
    [
        (
            ["admin"],
            "ada",
            "./docs",
            (" bad", "The arguments are valid. writer may still not make the call: "),
        ),
        (["admin"], "ada", "/etc", (" good", "The arguments are valid, and writer may make the call.")),
        (["call", "policies:read"], "ada", "./docs", ("", "The arguments are valid.")),
        (
            ["call", "policies:read"],
            "writer",
            "./docs",
            (" bad", "The arguments are valid. writer may still not "),
        ),
        (["call"], "writer", "./docs", ("", "The arguments are valid.")),
    ],
)
def test_trying_a_refused_call_again_says_whether_its_agent_may_make_it(
    keep: Keep, scopes: list[str], agent: str, holds: str, said: tuple[str, str]
) -> None:
    keep.register(peek)
    keep.declare_agent("ada", capabilities=["fs.read:/"])
    keep.declare_agent("writer", capabilities=[f"fs.read:{holds}"])

    async def act(visitor: Visitor) -> str:
        await visitor.sign_in(token=visitor.operator.tokens.make("a token", scopes, agent=agent).text)
        await visitor.open_tab()
        sent = {"mode": "json", "text": '{"path": "/etc/passwd"}', "act": "check", "original": "writer"}
        return html.unescape((await visitor.post("/ui/tools/peek:try", sent)).body.decode())

    page = visit(keep, act)
    (message,) = re.findall(r'<div class="message([^"]*)".*?<strong>([^<]*)', page)
    assert (message[0], message[1][: len(said[1])]) == said
    assert ("Whether writer may make the call was not checked." in page) == (not said[0])
    assert f"Call as {agent}</button>" in page
    assert page.count('name="original" value="writer"') == 2  # for whoever corrects it, and checks again


def test_trying_again_does_not_promise_what_the_session_may_deny() -> None:
    with open_keep(built_in=False, flow={"policy": "standard"}, agents={"writer": {}}) as keep:
        keep.register(peek)
        keep.declare_agent("writer", capabilities=["fs.read:/etc"])

        async def act(visitor: Visitor) -> list[str]:
            sent = {"mode": "json", "text": '{"path": "/etc/passwd"}', "act": "check"}
            asked = [
                await visitor.post("/ui/tools/peek:try", {**sent, **of})
                for of in ({"original": "writer"}, {})
            ]
            return [html.unescape(one.body.decode()) for one in asked]

        again, own = visit(keep, act)
    assert "outside its session writer may make the call" in again
    assert 'class="message good"' not in again
    assert "outside its session" not in own


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize(
    ("scopes", "denied", "disabled"),
    [
        (
            ["admin"],
            "Change the grant of the agent or the policy; <code>toolkeep policy explain</code> says how.",
            "Enable the tool; then the same call passes this check.",
        ),
        (["call", "tools:read"], "ask the operator", "ask the operator"),
    ],
)
def test_an_admin_is_told_what_to_do_and_not_to_ask_the_operator(
    keep: Keep, scopes: list[str], denied: str, disabled: str
) -> None:
    keep.use_policies(POLICIES)

    async def act(visitor: Visitor) -> list[str]:
        token = visitor.operator.tokens.make("a token", scopes, agent="ada").text
        await visitor.sign_in(token=token)
        await visitor.open_tab()
        sent = {"mode": "json", "text": '{"a": 4711}', "act": "call"}
        answers = [await visitor.post("/ui/tools/add:try", sent)]
        keep.disable("add")
        answers.append(await visitor.post("/ui/tools/add:try", sent))
        return [one.body.decode() for one in answers]

    by_policy, off = visit(keep, act)
    assert (denied in by_policy, disabled in off) == (True, True)
    assert [("ask the operator" in page) for page in (by_policy, off)] == ["ask" in denied] * 2


def test_a_call_is_explained_tried_again_and_copied_and_back_leads_to_the_filtered_log(
    read: Callable[..., Reader], world: World
) -> None:
    world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer", session="desk")
    world.keep.call_sync("price", {"title": "Dune", "copies": "two"}, agent="writer", session="desk")
    page = read().go("/ui/audit")
    rows = page.locator(".records a.tool-name")
    expect(rows).to_have_count(2)
    page.get_by_label("Outcome").select_option("refused")
    expect(rows).to_have_count(1)
    page.get_by_label("Agent, its exact name").press_sequentially("ada")
    expect(rows).to_have_count(0)
    page.go_back()  # one step for the three letters
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Outcome")).to_have_value("refused")
    expect(page.get_by_label("Agent, its exact name")).to_have_value("")

    rows.first.click()
    expect(page.get_by_role("heading", name="What happened")).to_be_visible()
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#explained")).to_contain_text("writer may not make this call of price")
    expect(page.get_by_role("heading", name="The decision as the rules are now")).to_be_focused()
    page.get_by_role("button", name="Try again as operator").click()
    expect(page.locator("#try")).to_contain_text("must be an integer")
    expect(page.get_by_role("heading", name="Try again as operator")).to_be_focused()
    expect(page.get_by_role("button", name="Call as operator")).to_be_visible()
    page.get_by_role("button", name="Close Try again as operator").click()
    expect(page.locator("#again-card")).to_be_hidden()
    expect(page.get_by_role("button", name="Try again as operator", exact=True)).to_be_focused()
    expect(page.locator("#explained-card")).to_be_visible()
    # The page's own permissions policy lets nothing read the clipboard.
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    for label, begin in (("Copy as curl", "curl "), ("Copy as Python", "import os")):
        page.get_by_role("button", name=label).click()
        expect(page.get_by_role("button", name="Copied")).to_have_count(1)
        assert str(page.evaluate("window.copied")).startswith(begin)
        expect(page.get_by_role("button", name=label)).to_be_visible()
    page.get_by_role("link", name="session desk").click()
    expect(page.locator(".timeline h3")).to_have_count(2)
    page.go_back()
    page.go_back()
    expect(page.get_by_label("Outcome")).to_have_value("refused")
    page.go_back()
    expect(rows).to_have_count(2)
    # A view is a name for the filters in the address.
    page.get_by_label("Outcome").select_option("refused")
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Save view").click()
    page.get_by_label("Name of these filters").fill("Refused <b>today</b>")
    page.get_by_label("Name of these filters").press("Enter")
    page.get_by_role("navigation", name="Main").get_by_role("link", name="Audit").click()
    expect(rows).to_have_count(2)
    page.get_by_role("link", name="Refused <b>today</b>").click()
    expect(rows).to_have_count(1)
    expect(page.get_by_label("Outcome")).to_have_value("refused")
    page.get_by_role("button", name="Forget the view").click()
    expect(page.locator("#views li")).to_have_count(0)
