"""*Notify me*: the browser tells of new calls while nobody looks at the page."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.server.web.conftest import Reader, World
from tests.server.web.test_hostile import ATTACK

pytestmark = pytest.mark.spec("WEB-2")

Read = Callable[..., Reader]

_WATCHED = """
    // An emulated page is never hidden, so the test says when it is.
    Object.defineProperty(Document.prototype, "hidden", {get: () => window.isHidden === true});
    window.notices = [];
    window.Notification = class extends Notification {
        constructor(title, options) {
            super(title, options);
            notices.push({title, options, notice: this});
        }
    };
    window.focus = () => (window.wasFocused = true);
"""


def inbox(read: Read, world: World, **options: Any) -> Page:
    """The approvals page with the calls that wait, and with its notices recorded."""
    reader = read(permissions=["notifications"], **options)
    reader.context.add_init_script(_WATCHED)
    page = reader.go("/ui/approvals")
    page.get_by_role("button", name="Notify me").click()
    expect(page.get_by_role("button", name="Notifying")).to_have_attribute("aria-pressed", "true")
    return page


def hide(page: Page, *, is_hidden: bool) -> None:
    page.evaluate(
        "now => {window.isHidden = now; document.dispatchEvent(new Event('visibilitychange'));}", is_hidden
    )


def order(world: World, copies: int, agent: str = "writer") -> None:
    world.call_meanwhile("order", {"title": "Dune", "copies": copies}, agent=agent)


def told(page: Page) -> Any:
    return page.evaluate("notices.map(({title, options}) => [title, options])")


def said(body: str) -> list[Any]:
    return ["toolkeep", {"body": body, "tag": "toolkeep"}]


def test_new_calls_are_told_while_the_page_is_hidden_and_only_then(read: Read, world: World) -> None:
    order(world, 1)
    page = inbox(read, world)
    expect(page).to_have_title("(1) Approvals · toolkeep")
    hide(page, is_hidden=True)
    order(world, 2)
    expect(page).to_have_title("(2) Approvals · toolkeep")
    assert told(page) == [said("2 calls wait for approval")]
    hide(page, is_hidden=False)
    order(world, 3)
    expect(page).to_have_title("(3) Approvals · toolkeep")
    assert len(told(page)) == 1
    page.get_by_role("button", name="Notifying").click()
    hide(page, is_hidden=True)
    order(world, 4)
    # Looked at again, it catches up, and tells of nothing that came before.
    hide(page, is_hidden=False)
    expect(page).to_have_title("(4) Approvals · toolkeep")
    assert len(told(page)) == 1


def test_a_click_shows_the_call_that_waits(read: Read, world: World) -> None:
    page = inbox(read, world)
    expect(page.get_by_text("Nothing waits")).to_be_visible()
    expect(page.locator("#waiting [data-number]")).to_have_attribute("data-number", "0")
    hide(page, is_hidden=True)
    order(world, 1)
    expect(page.get_by_role("button", name="Approve once")).to_be_visible()
    assert told(page) == [said("A call waits for approval")]
    # What was begun stays, and the tab comes forward.
    page.get_by_placeholder("Reason to deny").fill("not on a Mon")
    page.evaluate("notices[0].notice.dispatchEvent(new Event('click'))")
    assert page.evaluate("window.wasFocused")
    expect(page.get_by_placeholder("Reason to deny")).to_have_value("not on a Mon")
    hide(page, is_hidden=False)
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_text("Nothing else waits for you.")).to_be_visible()
    hide(page, is_hidden=True)
    order(world, 2)
    page.wait_for_function("() => notices.length === 2")
    page.evaluate("notices[1].notice.dispatchEvent(new Event('click'))")
    expect(page.get_by_role("button", name="Approve once")).to_be_visible()


def test_no_word_of_an_agent_leaves_the_page(read: Read, world: World) -> None:
    """The system shows a notice, and some systems read markup in it."""
    world.keep.declare_agent(ATTACK)
    page = inbox(read, world)
    expect(page.locator("#waiting [data-number]")).to_have_attribute("data-number", "0")
    hide(page, is_hidden=True)
    order(world, 1, agent=ATTACK)
    expect(page.get_by_role("button", name="Approve once")).to_be_visible()
    expect(page).to_have_title("(1) Approvals · toolkeep")
    assert told(page) == [said("A call waits for approval")]
    assert page.evaluate("window.ran") is None


def test_a_browser_that_forbids_notices_says_so(read: Read) -> None:
    page = read().go("/ui/approvals")
    page.get_by_role("button", name="Notify me").click()  # a browser without a screen denies it
    expect(page.get_by_role("button", name="The browser forbids notifications")).to_be_disabled()
