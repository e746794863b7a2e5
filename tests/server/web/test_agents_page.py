"""The page of an agent in a real browser: withdraw what it holds, and restore it."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.server.web.conftest import Reader, World
from tests.server.web.test_barriers import barriers

Read = Callable[..., Reader]


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_person_withdraws_what_an_agent_holds_and_restores_it(
    read: Read, world: World, axe: str, theme: str
) -> None:
    keep, width = world.keep, 1440 if theme == "light" else 390
    keep.declare_agent("writer", capabilities=["fs.read:.", "fs.write:./out"])
    reader = read(color_scheme=theme, viewport={"width": width, "height": 900}, bypass_csp=True)
    page = reader.go("/ui/agents")
    page.get_by_role("link", name="writer", exact=True).first.click()
    page.get_by_role("heading", name="What it holds").wait_for()
    found = {"the agent": barriers(page, axe)}

    page.get_by_role("button", name="Withdraw fs.write:./out").click()
    page.get_by_role("heading", name="Withdraw fs.write:./out").wait_for()
    expect(page.locator(".diff .removed")).to_have_text("-fs.write:./out")
    page.get_by_role("link", name="Leave it").click()
    expect(page.locator("#grant-title")).to_have_count(0)

    page.get_by_role("button", name="Withdraw everything").click()
    expect(page.locator("#grant-title")).to_contain_text("3 tools would change")
    expect(page.locator(".bulk-lines li", has_text="price")).to_contain_text("denied")
    found["a preview"] = barriers(page, axe)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    confirm = page.locator("#agent form", has=page.get_by_label("Type writer to confirm"))
    page.get_by_label("Type writer to confirm").fill("ada")
    confirm.get_by_role("button", name="Withdraw").click()
    expect(page.locator("#agent [role=alert]")).to_contain_text("the typed name is not the one that is shown")
    assert keep.withdrawn == {}
    page.get_by_label("Type writer to confirm").fill("writer")
    confirm.get_by_role("button", name="Withdraw").click()
    expect(page.locator("#grant-title")).to_have_text("Withdrawn: everything")
    expect(page.locator("#access td[data-agent=writer]").first).to_have_text("denied")
    assert keep.withdrawn == {"writer": {""}}
    found["withdrawn"] = barriers(page, axe)

    page.get_by_role("button", name="Restore everything").click()
    page.get_by_label("Type writer to confirm").fill("writer")
    page.locator("#agent form", has=page.get_by_label("Type writer to confirm")).get_by_role(
        "button", name="Restore"
    ).click()
    expect(page.locator("#grant-title")).to_have_text("Restored: everything")
    assert keep.call_sync("price", {"title": "Dune", "copies": 1}, agent="writer").ok
    assert {what: one for what, one in found.items() if one} == {}
