"""The list of calls as a place of work: what waits, rows that open, and filters that say what they do."""

import re
import threading
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.server.web.conftest import Reader, World

pytestmark = pytest.mark.spec("WEB-2")

Read = Callable[..., Reader]


def price(world: World, copies: object = 2, agent: str = "writer") -> None:
    world.keep.call_sync("price", {"title": "Dune", "copies": copies}, agent=agent, session="desk")


def test_calls_that_wait_stand_above_the_list_that_they_would_be_in(read: Read, world: World) -> None:
    price(world)
    world.call_meanwhile("order", {"title": "Dune", "copies": 1}, agent="writer", session="desk")
    reader = read()
    page = reader.page
    note = page.locator("#audit-waiting")
    for query in (
        "",
        "?status=pending",
        "?status=under+way&agent=writer",
        "?tool=order&session=desk&hours=1",
    ):
        reader.go(f"/ui/audit{query}")
        expect(note).to_have_text("1 call waits for a person")
    others = (
        "status=ok",
        "agent=ada",
        "tool=price",
        "session=other",
        "text=order",
        "until=2020-01-01T00:00:00Z",
    )
    for query in others:
        reader.go(f"/ui/audit?{query}")
        expect(note).to_be_empty()
    reader.go("/ui/audit?tool=order")
    empty = page.locator("#records .empty").bounding_box()
    world.call_meanwhile("order", {"title": "Dune", "copies": 2}, agent="ada")
    expect(note).to_contain_text("2 calls wait")
    assert page.locator("#records .empty").bounding_box() == empty
    page.get_by_label("Agent, its exact name").fill("ada")
    expect(note).to_contain_text("1 call waits")
    note.get_by_role("link").click()
    expect(page.get_by_role("heading", name="ada wants to call order")).to_be_visible()


def test_who_may_not_answer_is_not_told_what_waits(read: Read, world: World) -> None:
    world.call_meanwhile("order", {"title": "Dune", "copies": 1}, agent="writer")
    page = read().page
    page.context.clear_cookies()
    page.goto(f"{world.url}/ui/sign-in")
    viewer = world.server.tokens.make("viewer", ["audit:read"], agent="ada")
    page.get_by_label("Or sign in with a token").fill(viewer.text)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/ui/")
    page.goto(f"{world.url}/ui/audit")
    expect(page.get_by_role("heading", name="Audit")).to_be_visible()
    expect(page.get_by_text("waits for a person")).to_have_count(0)
    assert page.evaluate("fetch('/ui/audit/waiting').then(found => found.status)") == 403


def test_a_click_anywhere_in_a_row_opens_its_call(read: Read, world: World) -> None:
    price(world)
    reader = read()
    page = reader.go("/ui/audit")
    row = page.locator(".records .tr:not(.th)")
    box = row.bounding_box()
    assert box is not None
    for part in (0.02, 0.3, 0.5, 0.7, 0.98):
        page.mouse.click(box["x"] + box["width"] * part, box["y"] + box["height"] - 3)
        page.wait_for_url("**/ui/calls/*")
        page.go_back()
        expect(row).to_have_count(1)
    page.get_by_role("link", name="session desk").click()
    page.wait_for_url("**/ui/sessions/show*")
    page.go_back()
    page.get_by_role("link", name="price").focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    assert row.evaluate("row => getComputedStyle(row).outlineStyle") == "solid"


def test_an_exact_name_counts_once_it_is_known_or_entered(read: Read, world: World) -> None:
    price(world)
    reader = read()
    page = reader.go("/ui/audit")
    rows, tool = page.locator(".records a.tool-name"), page.get_by_label("Tool, its exact name")
    expect(rows).to_have_count(1)
    reader.asked.clear()
    tool.press_sequentially("pric")
    assert page.url.endswith("/ui/audit")
    tool.press_sequentially("e")
    page.wait_for_url("**/ui/audit?tool=price")
    expect(page.get_by_text("1 call, newest first.")).to_be_visible()
    asked = [one for one in reader.asked if "/ui/audit?" in one]
    assert [one.split("?")[1].startswith("text=&tool=price&") for one in asked] == [True]
    tool.fill("pric")
    tool.press("Enter")
    page.wait_for_url("**/ui/audit?tool=pric")
    expect(page.get_by_text("No record fits")).to_be_visible()
    page.get_by_role("link", name="Clear filters").click()
    expect(rows).to_have_count(1)
    expect(page.get_by_role("link", name="Clear filters")).to_have_count(0)
    tool.fill("pric")
    tool.press("Tab")
    page.wait_for_url("**/ui/audit?tool=pric")


def test_a_chosen_filter_keeps_its_name_and_reasons_that_occurred_are_first(read: Read, world: World) -> None:
    price(world, "two")
    reader = read()
    page = reader.go("/ui/audit")  # which begins the index
    for thread in threading.enumerate():
        if thread.name == "toolkeep-index":
            thread.join()
    reader.go("/ui/audit")
    reason = page.get_by_label("Reason")
    groups = reason.locator("optgroup")
    assert [one.get_attribute("label") for one in groups.all()] == [
        "Occurred",
        "Other failures",
        "Other reasons",
    ]
    expect(groups.first.locator("option")).to_have_text(["wrong type"])
    before = page.locator(".records").bounding_box()
    save = page.get_by_role("button", name="Save view")
    expect(save).to_be_disabled()
    page.get_by_label("Outcome").select_option("refused")
    expect(save).to_be_enabled()
    expect(page.locator(".named", has=page.get_by_label("Outcome"))).to_have_text(re.compile("^Outcome:"))
    assert page.locator(".records").bounding_box() == before
