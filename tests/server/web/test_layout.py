"""How pages are laid out in a real browser: what is read stands there whole."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, expect

from tests.server.web.conftest import Reader, World

Read = Callable[..., Reader]

_AXIS_WIDTHS = "() => [...document.querySelectorAll('.u-axis')].map(axis => axis.clientWidth)"

_LONG_RUNS = """() => {
    const long = {times: [1, 2, 3], lines: [{label: "median", kind: "ok", values: [1, 123456, 1]}]};
    document.getElementById("latency-data").textContent = JSON.stringify(long);
    dispatchEvent(new Event("resize"));
}"""

_COLOURED = """() => [...document.querySelectorAll("canvas")].map(canvas => {
    const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const isColoured = at => Math.max(...data.slice(at, at + 3)) - Math.min(...data.slice(at, at + 3)) > 60;
    return data.some((_, at) => at % 4 === 0 && data[at + 3] > 200 && isColoured(at));
})"""


def overview(read: Read, world: World) -> Any:
    """The overview of a keep in which one call was made, its charts drawn."""
    world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer")
    page = read(viewport={"width": 1280, "height": 844}).page
    page.goto(f"{world.url}/ui/")
    page.wait_for_function("() => document.querySelectorAll('canvas').length === 2")
    return page


def test_a_short_page_does_not_stretch_the_head_of_a_narrow_one(read: Read, world: World) -> None:
    page = read(viewport={"width": 390, "height": 1600}).page
    page.goto(f"{world.url}/ui/audit")
    box = page.locator(".side").bounding_box()
    assert box is not None
    assert box["height"] < 80


def test_long_runs_have_room_beside_their_chart(read: Read, world: World) -> None:
    page = overview(read, world)
    is_wide = f"({_AXIS_WIDTHS})().some(width => width > 60 && width < 100)"
    # Again each second: the overview looks anew when its stream opens, and shows its own runs.
    page.wait_for_function(f"() => {is_wide} || ({_LONG_RUNS})()", polling=1000)


def test_a_chart_shows_the_only_call_there_was(read: Read, world: World) -> None:
    page = overview(read, world)
    page.wait_for_function(f"() => ({_COLOURED})().every(is => is)")


def test_calls_that_wait_can_be_told_apart_and_leave_room_for_the_chosen_one(
    read: Read, world: World
) -> None:
    for copies in range(1, 9):
        world.call_meanwhile("order", {"title": "D" * 400, "copies": copies}, agent="writer")
    page = read(viewport={"width": 390, "height": 844}).page
    page.goto(f"{world.url}/ui/approvals")
    cards = page.locator(".waiting-list a .what")
    expect(cards).to_have_count(8)
    texts = cards.all_inner_texts()
    beginnings = {f'{{"copies": {copies}, "title": "DDD' for copies in range(1, 9)}
    assert {text[: len(min(beginnings))] for text in texts} == beginnings
    assert all(text.endswith("…}") for text in texts)
    box = page.locator("#question").bounding_box()
    assert box is not None
    assert box["y"] < 844
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_name_in_the_log_is_not_broken_while_its_agent_could_go_below(read: Read, world: World) -> None:
    world.keep.call_sync("agent_hello_world", {"name": "Ada"}, agent="writer")
    page = read(viewport={"width": 1200, "height": 800}).page
    page.goto(f"{world.url}/ui/audit")
    name = page.get_by_role("link", name="agent_hello_world").bounding_box()
    agent = page.locator(".records .foreign", has_text="writer").bounding_box()
    assert name is not None
    assert agent is not None
    assert name["height"] < 1.5 * agent["height"]


def test_the_page_says_that_the_server_does_not_answer_and_looks_anew_when_it_does(
    read: Read, world: World
) -> None:
    reader = read()
    reader.context.route("**/ui/events", lambda route: route.abort())
    page = reader.go("/ui/approvals")
    lost = page.locator("#lost")
    expect(lost).to_contain_text("The server does not answer.")
    expect(page.locator("#stream")).to_have_text("Not connected")
    world.call_meanwhile("order", {"title": "Dune", "copies": 3}, agent="writer")
    reader.context.unroute("**/ui/events")
    expect(page.get_by_role("button", name="Approve once")).to_be_visible()
    expect(lost).to_be_hidden()
    expect(page.locator("#stream")).to_have_text("Live")


def test_the_status_line_and_the_theme_hold_on_every_page_in_the_viewers_locale(
    read: Read, world: World
) -> None:
    world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer")
    reader = read(color_scheme="light", locale="de-DE", timezone_id="Asia/Kolkata")
    page = reader.go("/ui/audit")
    status = page.get_by_role("contentinfo", name="Status")
    expect(status).to_contain_text("Log not verified since the server started")
    expect(status).to_contain_text("operator, by link: admin")
    page.get_by_role("button", name="Verify").first.click()
    expect(status).to_contain_text(re.compile(r"Log verified up to .*\d\d:\d\d:\d\d, \d+ records"))
    said = status.locator("time").get_attribute("datetime")
    shown = datetime.fromisoformat(str(said)).astimezone(ZoneInfo("Asia/Kolkata"))
    whole = f"{shown:%d.%m.%Y, %H:%M:%S}"
    expect(status.locator("time")).to_have_attribute("title", re.compile(re.escape(whole)))
    # A moment of today is shown without its date, one of another year with all of it.
    for now, text in ((shown, f"{shown:%H:%M:%S}"), (shown.replace(year=2100, day=1), whole)):
        page.clock.set_fixed_time(now)
        page.evaluate(
            """() => {
                today = new Date().toDateString();
                for (const one of document.querySelectorAll("time")) delete one.dataset.shown;
                showTimes(document);
            }"""
        )
        expect(status.locator("time")).to_have_text(text)
    page.clock.set_fixed_time(shown)
    switch = page.get_by_role("button", name="Theme")
    switch.click()
    switch.click()
    expect(switch).to_have_accessible_name("Theme: dark")
    reader.go("/ui/tools")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert page.evaluate("shortTime(1700000000)") == "03:43"  # a chart's tick: 22:13 in UTC
    reader.go("/ui/audit")
    page.get_by_text("More filters").click()
    before = page.get_by_label("Before")
    before.fill("2020-01-02T05:30")
    expect(page.get_by_text("No record fits")).to_be_visible()
    assert page.url.endswith("?until=2020-01-02T00%3A00%3A00Z")
    page.reload()
    expect(before).to_have_value("2020-01-02T05:30")


def test_the_page_says_that_it_gets_no_more_news(read: Read) -> None:
    reader = read()
    reader.context.route(
        "**/ui/events", lambda route: route.fulfill(status=200, content_type="text/html", body="sign in")
    )
    lost = reader.go("/ui/tools").locator("#lost")
    expect(lost).to_contain_text("You are signed out, or too many tabs are open.")
    expect(lost.get_by_role("link", name="Load it anew")).to_have_attribute("href", "")


@pytest.mark.parametrize("path", ["tab", "approvals/**"])
def test_an_answer_that_did_not_reach_the_server_is_said(read: Read, world: World, path: str) -> None:
    """Before its first change, a tab asks for its token."""
    world.call_meanwhile("order", {"title": "Dune", "copies": 3}, agent="writer")
    reader = read()
    page = reader.go("/ui/approvals")
    reader.context.route(f"**/ui/{path}", lambda route: route.abort())
    page.get_by_role("button", name="Approve once").click()
    expect(page.locator("#lost")).to_contain_text("it may not have heard you")
    expect(page).to_have_url(f"{world.url}/ui/approvals")
    assert len(world.keep.record.approvals.waiting()) == 1


def test_the_door_says_how_to_make_a_link_to_this_very_server(browser: Browser, world: World) -> None:
    page = browser.new_page()
    page.goto(f"{world.url}/ui/")
    expect(page.locator("#command")).to_have_text(f"toolkeep token link --address {world.url}")
    page.close()
