"""The page of an agent in a real browser: withdraw what it holds, and restore it."""

from collections.abc import Callable
from typing import Annotated

import pytest
from playwright.sync_api import Locator, expect

from tests.server.web.conftest import Reader, World
from tests.server.web.test_barriers import barriers
from toolkeep import Touches, tool

Read = Callable[..., Reader]
IS_ON_TOP = """one => {
  const { x, y, width, height } = one.getBoundingClientRect();
  return one.contains(document.elementFromPoint(x + width / 2, y + height / 2));
}"""
"""Whether nothing covers the middle of an element that is in view."""


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
    expect(page.locator("#tools .folded summary")).to_contain_text("withdrawn")
    page.locator("#tools .folded summary").click()
    page.locator("#tools").get_by_role("button", name="price").click()
    expect(page.get_by_role("dialog")).to_contain_text("writer and price: denied")
    page.get_by_role("button", name="Close").click()
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


@tool(capabilities=["fs.read"], side_effects=["FsRead"])
async def peek(path: Annotated[str, Touches("fs.read")]) -> str:
    """Look at a file."""
    return path


@pytest.mark.spec("WEB-2", "POL-5")
def test_a_cell_names_the_scope_or_the_cause_and_its_dialog_the_line_to_add(read: Read, world: World) -> None:
    world.keep.register(peek)
    world.keep.declare_agent("ada", capabilities=["fs.read:."])
    page = read().go("/ui/agents")

    def cell(agent: str) -> Locator:
        return page.locator("#access tr", has_text="peek").locator(f"[data-agent={agent}] button")

    expect(cell("ada")).to_have_text("allowed in ./")
    expect(cell("writer")).to_have_text("denied no grant")
    page.wait_for_load_state()
    cell("writer").focus()
    expect(page.locator("#pointed")).to_contain_text("writer, peek: denied. The agent lacks fs.read.")
    cell("ada").click()
    inside = "Nobody is asked; it may read files in the project folder; other paths are denied."
    expect(page.locator("#why-text")).to_have_text(inside)
    expect(page.locator("#why-grants")).to_have_text("Granted: fs.read:.")
    expect(page.locator("#pointed")).to_contain_text(inside)
    expect(page.locator("#why-add")).to_be_hidden()
    page.get_by_role("button", name="Close").click()
    cell("writer").click()
    expect(page.locator("#why-line")).to_have_text('agents: "writer": add to capabilities: ["fs.read:."]')
    page.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }")
    page.get_by_role("button", name="Copy the line to add").click()
    page.wait_for_function("window.copied?.startsWith('agents:')")
    expect(page.get_by_role("dialog")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 1440])
@pytest.mark.spec("WEB-2")
def test_the_head_of_the_matrix_and_the_reason_stay_in_view(read: Read, width: int) -> None:
    page = read(viewport={"width": width, "height": 400}).go("/ui/agents")
    box, cells = page.locator(".matrix-scroll"), page.locator(".matrix .cell")
    assert box.evaluate("one => one.scrollHeight <= one.clientHeight && one.scrollWidth <= one.clientWidth")
    reason, head = page.locator("#pointed"), page.locator(".matrix thead th").last
    for cell in (cells.last, cells.first):
        cell.focus()
        expect(reason).to_contain_text(
            f"{cell.get_attribute('data-tool')}: {cell.get_attribute('data-why')}."
        )
        for one in (cell, reason, head):
            expect(one).to_be_in_viewport(ratio=0.9)
            assert one.evaluate(IS_ON_TOP)


@pytest.mark.spec("WEB-2")
def test_the_matrix_shows_one_agent_at_a_time_on_a_phone(read: Read) -> None:
    page = read(viewport={"width": 390, "height": 844}).go("/ui/agents")
    shown = page.locator("#access td[data-agent]:visible")
    rows = page.locator("#access tbody tr th[scope=row]").count()
    assert {one.get_attribute("data-agent") for one in shown.all()} == {"ada"}
    assert shown.count() == rows
    expect(page.get_by_text("Of ada: choose another agent above.")).to_be_visible()
    page.get_by_label("Agent", exact=True).select_option("writer")
    expect(page.locator("#access td[data-agent=writer]:visible")).to_have_count(rows)
