"""Policies on the page: edited, tried and put in force by a person who signed in lately."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.server.web.conftest import Reader, World
from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep
from toolkeep.server.web.policies_page import highlighted

Read = Callable[..., Reader]

WRONG = """@id("cheap")
permit (principal, action == Action::"call", resource == Tool::"prices");
"""
EXAMPLE = "- {agent: writer, tool: order, arguments: {title: Dune, copies: 1}, deny: true}"


def test_an_old_sign_in_puts_nothing_in_force(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    text = '@id("all") permit (principal, action, resource);'
    form = {"name": "all", "text": text, "examples": "", "typed_name": "all"}

    async def act(visitor: Visitor) -> list[int]:
        monkeypatch.setattr("toolkeep.server.api.admin_change.FRESH_SIGN_IN_SECONDS", -1.0)
        old = (await visitor.post("/ui/policies:put", form)).status
        held = len(keep.stored_policies)
        monkeypatch.setattr("toolkeep.server.api.admin_change.FRESH_SIGN_IN_SECONDS", 300.0)
        return [old, held, (await visitor.post("/ui/policies:put", form)).status, len(keep.stored_policies)]

    assert visit(keep, act) == [403, 0, 200, 1]


def test_a_policy_is_highlighted_and_escaped() -> None:
    shown = highlighted('permit (x) when { "<b>" like "*" }; // <i>\u202e')
    assert '<span class="cedar-string">&#34;&lt;b&gt;&#34;</span>' in shown
    assert shown.endswith('<span class="cedar-comment">// &lt;i&gt;\\u202e</span>')


@pytest.mark.spec("WEB-2")
def test_policies_are_edited_tried_and_put_in_force(read: Read, world: World) -> None:
    for _ in range(2):
        world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer")
    world.keep.call_sync("agent_hello_world", {"name": "Ada"}, agent="writer")
    reader = read()
    page = reader.go("/ui/policies")
    page.get_by_role("link", name="New policies").click()
    expect(page.get_by_text("These will be the first policies here.")).to_be_visible()
    page.get_by_label("Name", exact=True).fill("cheap")
    text = page.get_by_role("textbox", name="Cedar policies")
    text.fill(WRONG)
    page.get_by_role("button", name="Line 2, column 64").click()
    expect(text).to_be_focused()
    text.fill(WRONG.replace("prices", "price"))
    assert "permit" in page.evaluate("[...CSS.highlights.get('cedar-key')].map(String)")
    page.get_by_label("Examples, as YAML").fill(EXAMPLE)
    tried = page.locator("#tried")
    expect(tried).to_contain_text("No problems.")
    expect(tried).to_contain_text("writer calls order: denied")
    page.get_by_role("button", name="Replay recorded calls").click()
    replayed = page.locator("#replayed")
    expect(replayed).to_contain_text("1 call of 3 would be decided otherwise.")
    expect(replayed.get_by_role("row", name="agent_hello_world")).to_contain_text("deny")
    page.get_by_label("to confirm").fill("cheep")
    page.get_by_role("button", name="Put in force").click()
    expect(page.locator("#messages")).to_contain_text("the typed name is not the one that is shown")
    page.get_by_label("to confirm").fill("cheap")
    page.get_by_role("button", name="Put in force").click()
    page.wait_for_url("**/ui/policies")
    card = page.get_by_role("region", name="cheap", exact=True)
    expect(card).to_contain_text("Put in force by operator:page")
    expect(card.locator(".cedar-key").first).to_have_text("permit")
    expect(card).to_contain_text("0 hits this week")
    assert not world.keep.call_sync("agent_hello_world", {"name": "Ada"}, agent="writer").ok
    card.get_by_role("link", name="Edit").click()
    expect(page.get_by_text("These will be the first policies here.")).to_have_count(0)
    page.get_by_label("to confirm").fill("cheap")
    page.get_by_role("button", name="Take out of force").click()
    page.wait_for_url("**/ui/policies")
    expect(page.get_by_role("region", name="cheap", exact=True)).to_have_count(0)
    assert world.keep.call_sync("agent_hello_world", {"name": "Ada"}, agent="writer").ok
    assert [one for one in reader.said if "403" not in one] == []  # the wrong name
