"""*End it* at a rule: the next such call asks a person again."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.server.web.conftest import Reader, World

pytestmark = pytest.mark.spec("POL-4", "WEB-2")

Read = Callable[..., Reader]
CALL = {"title": "Dune", "copies": 3}


def with_rule(read: Read, world: World) -> Page:
    """The approvals page after somebody said *Always*."""
    world.call_meanwhile("order", CALL, agent="writer")
    page = read().go("/ui/approvals")
    page.get_by_text("Always", exact=True).first.click()
    page.get_by_role("button", name="Always").click()
    expect(page.locator("#rules")).to_contain_text("order called by writer")
    return page


def called(world: World) -> Any:
    with ThreadPoolExecutor(1) as threads:  # this one has the event loop of the browser
        return threads.submit(world.keep.call_sync, "order", CALL, agent="writer").result(30)


def test_an_ended_rule_is_gone_and_the_next_call_asks(read: Read, world: World) -> None:
    page = with_rule(read, world)
    assert called(world).approval.way == "rule"
    end = page.get_by_role("button", name="End it for order")
    # Asked first; a no changes nothing and gives the focus back.
    end.click()
    sure = page.get_by_role("dialog", name="End this rule?")
    sure.get_by_role("button", name="Not now").click()
    expect(end).to_be_focused()
    assert called(world).approval.way == "rule"
    end.click()
    sure.get_by_role("button", name="Yes").click()
    message = page.locator("#rules .message")
    expect(message).to_contain_text("The rule is over.")
    expect(message).to_be_focused()
    expect(page.locator("#rules")).to_contain_text("No rule holds.")
    assert world.keep.record.approvals.rules() == []
    world.call_meanwhile("order", CALL, agent="writer")
    expect(page.locator("#waiting [data-number]")).to_have_attribute("data-number", "1")


def test_a_rule_that_somebody_else_ended_is_no_error_of_the_page(read: Read, world: World) -> None:
    page = with_rule(read, world)
    (rule,) = world.keep.record.approvals.rules()
    world.keep.record.approvals.revoke(rule.id)
    page.get_by_role("button", name="End it for order").click()
    page.get_by_role("dialog", name="End this rule?").get_by_role("button", name="Yes").click()
    expect(page.locator("#messages")).to_contain_text("there is no such rule")


def test_who_may_not_approve_sees_no_rule_and_ends_none(read: Read, world: World) -> None:
    page = with_rule(read, world)
    (rule,) = world.keep.record.approvals.rules()
    page.context.clear_cookies()
    viewer = world.server.tokens.make("viewer", ["tools:read", "audit:read", "policies:read"], agent="ada")
    page.goto(f"{world.url}/ui/sign-in")
    page.get_by_label("Or sign in with a token").fill(viewer.text)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/")
    expect(page.get_by_role("link", name="Approvals")).to_have_count(0)
    page.goto(f"{world.url}/ui/approvals")
    expect(page.get_by_text("order called by writer")).to_have_count(0)
    expect(page.get_by_role("button", name="End it")).to_have_count(0)
    page.goto(f"{world.url}/ui/tools")
    answer = page.evaluate(
        "id => change(`/ui/rules/${id}:revoke`, {method: 'POST', headers: {}}).then(found => found.status)",
        rule.id,
    )
    assert answer == 403
    assert world.keep.record.approvals.rules() == [rule]
