"""What takes longer than a moment is seen and said to be under way, until it ends."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.server.web.conftest import Reader, World

pytestmark = pytest.mark.spec("WEB-2")

Read = Callable[..., Reader]

_BAR = """() => {
    const bar = getComputedStyle(document.body, "::before");
    return bar.content === "none" ? null : {opacity: bar.opacity, height: bar.height};
}"""


def held(reader: Reader, pattern: str) -> list[Route]:
    """Requests that wait until the test lets them go."""
    routes: list[Route] = []
    reader.context.route(pattern, lambda route: routes.append(route))  # noqa: PLW0108 -- playwright refuses methods of C
    return routes


def is_shown(page: Page) -> Any:
    """The bar, once it is there."""
    page.wait_for_function(f"() => Number(({_BAR})()?.opacity) > 0")
    return page.evaluate(_BAR)


def is_gone(page: Page) -> None:
    page.wait_for_function(f"() => ({_BAR})() === null")


def test_a_slow_list_has_a_bar_until_it_is_there(read: Read, world: World) -> None:
    reader = read(viewport={"width": 1280, "height": 844})
    page = reader.go("/ui/tools")
    expect(page.locator("#stream")).to_have_text("Live")
    is_gone(page)
    slow = held(reader, "**/ui/tools?*")
    page.get_by_label("Search tools").fill("order")
    assert is_shown(page)["height"] == "3px"
    expect(page.locator("#announce")).to_have_text("Working")
    slow[0].continue_()
    expect(page.locator("#tools .tool-name")).to_have_text(["order"])
    is_gone(page)
    expect(page.locator("#announce")).to_have_text("Done")


@pytest.mark.parametrize("ends", ["refused", "broken", "lost"])
def test_the_bar_of_a_slow_action_ends_with_its_error(read: Read, world: World, ends: str) -> None:
    reader = read()
    page = reader.go("/ui/tools/order")
    expect(page.locator("#stream")).to_have_text("Live")
    slow = held(reader, "**/ui/tools/order:try")
    page.get_by_label("title").fill("Dune")
    page.get_by_role("button", name="Check only").click()
    is_shown(page)
    expect(page.locator("#announce")).to_have_text("Working")
    if ends == "refused":
        slow[0].continue_()
        expect(page.locator(".field.has-error")).to_be_visible()
    else:
        slow[0].fulfill(status=502, body="<h1>Bad Gateway</h1>") if ends == "broken" else slow[0].abort()
        expect(page.locator("#lost")).to_contain_text("it may not have heard you")
    is_gone(page)
    expect(page.locator("#announce")).to_have_text("Done")
    # What was typed is still there.
    expect(page.get_by_label("title")).to_have_value("Dune")


def test_what_nobody_began_is_not_said(read: Read, world: World) -> None:
    """News that come slowly would otherwise interrupt a screen reader again and again."""
    reader = read()
    page = reader.go("/ui/approvals")
    expect(page.locator("#stream")).to_have_text("Live")
    held(reader, "**/ui/approvals/count")
    page.clock.install()
    page.evaluate("htmx.trigger(document.body, 'approvals')")
    expect(page.locator("#waiting")).to_have_class("badge htmx-request")
    page.clock.run_for(5_000)
    expect(page.locator("#announce")).to_have_text("")
    reader.context.unroute_all()  # lets go what waits, and what the page asks for by itself
    page.clock.resume()  # by which the browser is asked whether it is gone
    is_gone(page)
