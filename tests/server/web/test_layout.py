"""How pages are laid out in a real browser: what is read stands there whole."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Browser, expect

from tests.server.api.test_drift_routes import told
from tests.server.web.conftest import Reader, World
from toolkeep.server.api.statistics import Statistics

Read = Callable[..., Reader]

_AXIS_WIDTHS = "() => [...document.querySelectorAll('.u-axis')].map(axis => axis.clientWidth)"

_MANY_CALLS = """() => {
    const many = {times: [1, 2, 3], lines: [{label: "succeeded", kind: "ok", values: [1, 1234567, 1]}]};
    document.getElementById("calls-data").textContent = JSON.stringify(many);
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


def test_many_calls_have_room_beside_their_chart(read: Read, world: World) -> None:
    page = overview(read, world)
    is_wide = f"({_AXIS_WIDTHS})().some(width => width > 60 && width < 100)"
    # Again each second: the overview looks anew when its stream opens, and shows its own calls.
    page.wait_for_function(f"() => {is_wide} || ({_MANY_CALLS})()", polling=1000)


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


@pytest.mark.spec("WEB-2")
def test_filters_of_each_list_are_in_the_address_and_back_undoes_them(read: Read, world: World) -> None:
    world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer", session="desk")
    reader = read()
    for path, field, value, shown in (
        ("/ui/tools", "State", "disabled", ".table .tool-name"),
        ("/ui/sessions", "Agent", "ada", ".sessions-table"),
        ("/ui/agents", "Agent", "ada", "[data-agent=writer]"),
    ):
        page = reader.go(path)
        expect(page.locator(shown).first).to_be_visible()
        page.get_by_label(field, exact=True).select_option(value)
        expect(page.locator(shown)).to_have_count(0)
        assert page.url == f"{world.url}{path}?{field.lower()}={value}"
        page.reload()
        expect(page.get_by_label(field, exact=True)).to_have_value(value)
        expect(page.locator(shown)).to_have_count(0)
        page.go_back()
        expect(page.locator(shown).first).to_be_visible()
        expect(page.get_by_label(field, exact=True)).to_have_value("")
    for path, shown in (("/ui/tools", ".table .tool-name"), ("/ui/agents", ".matrix tbody tr")):
        page = reader.go(path)
        page.get_by_label("Search tools").press_sequentially("price")
        expect(page.locator(shown)).to_have_count(1)
        page.go_back()  # one step for the five letters
        expect(page.locator(shown).nth(1)).to_be_visible()


@pytest.mark.spec("WEB-2")
def test_an_outcome_has_the_focus_and_is_seen_without_scrolling_on_a_phone(read: Read, world: World) -> None:
    with ThreadPoolExecutor(1) as threads:  # this one has the event loop of the browser
        threads.submit(told, world.keep, "ada", "2026-11-01T10:00:00.000+00:00", "a.example").result()
    reader = read(viewport={"width": 390, "height": 844})
    page = reader.go("/ui/policies/edit")

    def seen(text: str) -> None:
        shown = page.locator("[tabindex='-1'].message", has_text=text)
        expect(shown).to_be_focused()
        expect(shown).to_be_in_viewport()

    page.get_by_label("Name", exact=True).fill("cheap")
    page.get_by_label("to confirm").fill("cheep")
    page.get_by_role("button", name="Put in force").click()
    seen("the typed name is not the one that is shown")
    # Of what nobody clicked it takes no focus.
    answer: Any = {"headers": {"hx-retarget": "#messages"}, "content_type": "text/html", "status": 422}
    body = '<p tabindex="-1" data-focus>Not while you type.</p>'
    reader.context.route("**/policies:check", lambda route: route.fulfill(**answer, body=body))
    name = page.get_by_label("Name", exact=True)
    name.press_sequentially("er")
    expect(page.locator("#messages")).to_have_text("Not while you type.")
    expect(name).to_be_focused()

    reader.go("/ui/policies")
    page.get_by_label("Tool", exact=True).fill("price")
    page.get_by_role("button", name="Explain").click()
    seen("this call of price")

    reader.go("/ui/tokens")
    page.get_by_label("Name", exact=True).fill("night shift")
    page.get_by_text("audit:read", exact=True).click()
    page.get_by_role("button", name="Make the token").click()
    seen("Copy the token now")
    for button, text in (("Rotate night shift", "Copy the token now"), ("Revoke night shift", "is revoked")):
        page.get_by_role("button", name=button).first.click()
        page.get_by_role("button", name="Yes").click()
        seen(text)

    reader.go("/ui/agents")
    page.get_by_role("button", name="Seen").click()
    seen("What ada did is marked as seen.")


@pytest.mark.spec("WEB-2")
def test_counts_follow_while_older_calls_are_counted(
    read: Read, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = read()
    note = "Older calls are still being counted."
    for path, shown, before, after in (
        ("/ui/agents", "[data-label=Calls]", "0", "1"),
        ("/ui/policies", ".policy .hits", "1 hit", "2 hits"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(Statistics, "is_counting", property(lambda _: True))
            page = reader.go(path)
            page.locator("details:not(.may)").evaluate_all("all => all.forEach(one => (one.open = true))")
            expect(page.get_by_text(note)).to_be_visible()
            expect(page.locator(shown, has_text=before).first).to_be_visible()
            world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer")
        expect(page.locator(shown, has_text=after)).to_be_visible()
        expect(page.get_by_text(note)).to_have_count(0)
        assert page.locator("#content details").evaluate_all("all => all.every(one => one.open)")


@pytest.mark.spec("WEB-2")
def test_a_chart_says_time_and_values_of_a_point_and_leads_to_its_calls(read: Read, world: World) -> None:
    world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer")
    reader = read(viewport={"width": 1280, "height": 844})
    reader.context.route("**/ui/events", lambda _: None)  # no news: it is drawn once
    page = reader.go("/ui/")
    chart, said = page.locator("#calls-chart"), page.locator("#calls-chart .chart-at")
    chart.locator(".u-over").click(position={"x": 5, "y": 20})
    page.wait_for_url("**/ui/audit?since=*&until=*")
    expect(page.get_by_text("No record fits")).to_be_visible()
    reader.go("/ui/")
    chart.locator(".u-over").hover(position={"x": 5, "y": 20})
    expect(said).to_contain_text("succeeded 0 · refused 0 · failed 0")
    chart.focus()
    page.keyboard.press("ArrowRight")
    for _ in range(200):  # to the interval of the call
        if "succeeded 1" in said.inner_text():
            break
        page.keyboard.press("ArrowRight")
    expect(page.locator("#announce")).to_contain_text("succeeded 1 · refused 0")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/audit?since=*&until=*")
    expect(page.locator(".records a.tool-name")).to_have_text(["price"])


@pytest.mark.spec("WEB-2")
def test_the_figures_of_a_chart_are_a_table_whose_numbers_lead_to_their_calls(
    read: Read, world: World
) -> None:
    world.keep.call_sync("price", {"title": "Dune", "copies": 2}, agent="writer")
    reader = read(viewport={"width": 1280, "height": 844})
    page = reader.go("/ui/")
    page.get_by_text("The figures as a table").click()
    row = page.get_by_role("table", name="Calls by time").locator("tbody tr")
    expect(row.locator("td").nth(1)).to_have_text("1")
    world.keep.call_sync("price", {"title": 7}, agent="writer")  # it stays open, and follows
    expect(row.locator("td").nth(2)).to_have_text("1")
    row.locator("td").nth(2).get_by_role("link").click()
    page.wait_for_url("**/ui/audit?since=*&until=*&status=refused")
    expect(page.locator(".records .chip")).to_have_text(["refused"])
