"""Every page in both themes and two widths, looked at by axe for barriers."""

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.web.conftest import Reader, World
from toolkeep.stores.replaced_files import Replaced

Read = Callable[..., Reader]

_RUN = """options => axe.run(document, {resultTypes: ["violations"], ...options}).then(found => found.violations.map(
    one => [one.id, one.nodes.map(node => node.html.slice(0, 160) + " " + node.failureSummary.slice(0, 300))]))"""


def barriers(page: Any, axe: str) -> Any:
    """What axe finds in the theme that is shown, and in the other one by the rule that depends on it."""
    page.evaluate(axe)
    found = page.evaluate(_RUN, {})
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    page.emulate_media(color_scheme="light" if is_dark else "dark")
    found += page.evaluate(_RUN, {"runOnly": ["color-contrast"]})
    page.emulate_media(color_scheme="dark" if is_dark else "light")
    return found


@pytest.fixture
def busy(world: World) -> World:
    """A keep in which something happened, and something waits."""
    keep = world.keep
    keep.create_definition({"name": "stored", "description": "Is stored.", "version": "1.0.0"})
    keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer")
    keep.call_sync("price", {"titel": "Dune", "copies": "2"}, agent="writer", session="desk")
    keep.call_sync("order", {"title": "Dune"}, agent="writer")
    file = Path(keep.project) / "notes.md"
    file.write_text("two\n")
    keep.record.replaced.put(
        Replaced(
            call="0" * 32,
            tool="write_file",
            agent="writer",
            session="desk",
            conversation="",
            path=str(file),
            at=time.time(),
            was_there=True,
            before=b"one\n",
            after_sha256=hashlib.sha256(b"two\n").hexdigest(),
        )
    )
    world.server.tokens.make("night shift", ["approve"], agent="ada")
    world.call_meanwhile("order", {"title": "Dune", "copies": 2}, agent="writer", session="desk")
    return world


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_no_page_has_a_barrier(read: Read, busy: World, axe: str, theme: str) -> None:
    width = 1280 if theme == "light" else 390
    reader = read(color_scheme=theme, viewport={"width": width, "height": 844}, bypass_csp=True)
    page = reader.page
    call = next(iter(busy.keep.record.log.read_back())).record["call"]
    page.goto(f"{busy.url}/ui/approvals")
    page.get_by_role("button", name="Approve once").wait_for()
    past = page.get_by_role("link", name="1 refused").get_attribute("href")
    assert past == "/ui/audit?agent=writer&tool=order&status=refused"
    paths = [
        "/ui/",
        "/ui/start",
        "/ui/approvals",
        "/ui/tools",
        "/ui/tools/price",
        "/ui/definitions/new",
        "/ui/definitions/stored",
    ]
    paths += [
        "/ui/audit",
        "/ui/sessions",
        "/ui/sessions/show?agent=writer&session=desk",
        f"/ui/calls/{call}",
        "/ui/policies",
        "/ui/policies/edit",
        "/ui/agents",
        "/ui/agents/show?agent=writer",
        "/ui/tokens",
        "/ui/sign-in",
        "/ui/tools/nothing",
    ]
    found = {}
    for path in paths:
        reader.go(path)
        if "definitions" in path or "policies" in path:
            page.locator(".cm-content").first.wait_for()
        found[path] = barriers(page, axe)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, (
            f"{path} is wider than the screen"
        )
    reader.go("/ui/agents?search=order&agent=writer#matrix")
    page.get_by_role("button", name="asks").click()
    page.get_by_role("dialog", name="writer and order: asks").wait_for()
    found["a cell of the matrix"] = barriers(page, axe)
    page.get_by_role("link", name="Explain with arguments").click()
    page.wait_for_url("**/ui/policies?agent=writer&tool=order")
    assert page.get_by_label("Tool", exact=True).input_value() == "order"
    reader.go("/ui/sessions/show?agent=writer&session=desk")
    assert page.locator(".timeline .chip", has_text="waits for approval").count() == 1
    page.get_by_role("button", name="Take back its writes").click()
    page.get_by_role("heading", name="What would be taken back").wait_for()
    found["what would be taken back"] = barriers(page, axe)
    reader.go("/ui/tools/price")
    page.get_by_label("copies").fill("many")
    page.get_by_role("button", name="Check only").click()
    page.locator(".field.has-error").first.wait_for()
    found["a field error"] = barriers(page, axe)
    assert {path: one for path, one in found.items() if one} == {}
