"""The inbox as a place of work: the next question after an answer, keys, several at once, and what became of them."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.server.web.conftest import Reader, World, open_world
from tests.server.web.test_barriers import barriers
from toolkeep import Content, Option, tool

pytestmark = pytest.mark.spec("POL-4", "WEB-2")

BODY = "Dear Ada,\n\n  the minutes are attached.\n"


@tool(danger="medium", effects="writes")
def send_mail(to: str, body: Annotated[str, Content()]) -> str:
    """Send a mail, which cannot be taken back."""
    return f"queued for {to}"


@tool(danger="high", effects="writes")
def shut_down(host: str) -> str:
    """Shut a machine down."""
    return host


@tool
def invite(to: str, quick: bool = False, style: Annotated[str, Option()] = "a") -> str:
    """Invite somebody."""
    return to


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as made:
        made.keep.register(send_mail, shut_down, invite)
        yield made


def ask(world: World, name: str, **arguments: Any) -> None:
    world.call_meanwhile(name, arguments, agent="writer")


def settled(page: Page) -> None:
    """No key answers a question that has just appeared."""
    page.wait_for_function("performance.now() - shownAt > WAIT_MS")


def test_questions_are_answered_by_keys_one_after_the_other(
    read: Callable[..., Reader], world: World, axe: str
) -> None:
    ask(world, "send_mail", to="ada@example.org", body=BODY)
    reader = read(bypass_csp=True, viewport={"width": 390, "height": 844})
    page = reader.go("/ui/approvals")
    expect(page.get_by_role("heading", name="writer wants to call send_mail")).to_be_visible()
    ask(world, "order", title="Dune", copies=1)
    expect(page.locator(".waiting-item")).to_have_count(2)
    ask(world, "shut_down", host="db1")
    # The most dangerous is the first; what is chosen stays.
    expect(page.locator(".waiting-list strong")).to_have_text(["shut_down", "send_mail", "order"])
    expect(page).to_have_title(re.compile(r"^\(3\) "))
    expect(page.locator(".because")).to_have_text("Asked because the tool's danger is medium.")
    expect(page.get_by_text("Send a mail, which cannot be taken back.")).to_be_visible()
    expect(page.get_by_text("None: this is the first.")).to_be_visible()
    assert page.get_by_label("Argument body").inner_text() == BODY
    assert page.get_by_label("Arguments", exact=True).inner_text() == '{\n  "to": "ada@example.org"\n}'
    # Within reach on a phone, without scrolling.
    button = page.get_by_role("button", name="Approve once").bounding_box()
    assert button is not None
    assert button["y"] + button["height"] < 844

    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    settled(page)
    # News of the answered question that come late do not take the place of the next one.
    late: list[Route] = []
    reader.context.route("**/standing*", lambda route: late.append(route))  # noqa: PLW0108 -- playwright refuses methods of C
    page.evaluate("htmx.trigger(document.body, 'approvals')")
    page.keyboard.press("a")
    expect(page.locator(".answered")).to_contain_text("Approved by operator:page")
    with page.expect_response("**/standing*"):
        late[0].continue_()
    reader.context.unroute_all(behavior="ignoreErrors")
    expect(page.locator(".answered")).to_be_focused()
    expect(page.get_by_role("heading", name="writer wants to call order")).to_be_visible()
    expect(page.get_by_label("Result of send_mail")).to_have_text("queued for ada@example.org")
    # The result took the place of the message, not of the focus.
    expect(page.locator(".answered")).to_be_focused()
    assert barriers(page, axe) == []

    page.keyboard.press("d")
    page.keyboard.type("Not on a Monday.")
    page.keyboard.press("Enter")
    expect(page.locator(".answered")).to_contain_text("Denied by operator:page: Not on a Monday.")
    expect(page.get_by_role("heading", name="writer wants to call shut_down")).to_be_visible()
    # One key does not approve what is dangerous.
    settled(page)
    page.keyboard.press("a")
    expect(page.get_by_role("button", name="Approve once")).to_be_focused()
    assert len(world.keep.record.approvals.waiting()) == 1
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing else waits for you.")).to_be_visible()
    expect(page.locator("#answers li .tool-name")).to_have_text(["shut_down", "order", "send_mail"])
    expect(page.locator("#answers .chip")).to_have_text(["approved", "denied", "approved"])
    outcomes = [
        re.compile("it succeeded"),
        re.compile("operator:page: Not on a Monday."),
        re.compile("it succeeded"),
    ]
    expect(page.locator("#answers li")).to_have_text(outcomes)
    assert [said for said in reader.said if "AbortError" not in said] == []


def test_several_are_denied_at_once_and_a_rule_is_shown_when_it_is_made(
    read: Callable[..., Reader], world: World
) -> None:
    for copies in (1, 2, 3):
        ask(world, "order", title="Dune", copies=copies)
    ask(world, "shut_down", host="db1")
    page = read().go("/ui/approvals")
    expect(page.locator(".waiting-item")).to_have_count(4)
    picks = page.locator("#picks [name=picked]")
    for number in (0, 1, 2):
        picks.nth(number).check()
    page.get_by_role("button", name="Look at the selected").click()
    expect(page.get_by_role("heading", name="3 selected calls")).to_be_visible()
    expect(page.locator("#question [name=ticked]")).to_have_count(2)  # not the one of high danger
    page.get_by_label("Why the selected calls are denied").fill("too many")
    page.get_by_role("button", name="Deny the selected").click()
    expect(page.locator(".answered")).to_have_count(3)
    expect(page.locator(".answered").first).to_contain_text("too many")
    expect(page.locator("#rules")).to_contain_text("No rule holds")
    page.get_by_text("Always", exact=True).first.click()
    page.get_by_role("button", name="Always").click()
    expect(page.locator("#rules")).to_contain_text("order called by writer")


def waiting(world: World) -> list[str]:
    return [one.question.tool for one in world.keep.record.approvals.waiting()]


def test_what_has_no_box_to_tick_waits_on_unless_all_are_denied(
    read: Callable[..., Reader], world: World
) -> None:
    for copies in (1, 2):
        ask(world, "order", title="Dune", copies=copies)
    ask(world, "shut_down", host="db1")
    page = read().go("/ui/approvals")
    expect(page.locator(".waiting-item")).to_have_count(3)
    for pick in page.locator("#picks [name=picked]").all():
        pick.check()
    page.get_by_role("button", name="Look at the selected").click()
    expect(page.get_by_role("button", name="Approve 0, deny 2; 1 waits", exact=True)).to_be_visible()
    page.get_by_label("2 of 3: approve order").check()
    page.get_by_role("button", name="Approve 1, deny 1; 1 waits", exact=True).click()
    expect(page.locator(".answered")).to_have_count(2)
    assert waiting(world) == ["shut_down"]
    expect(page.get_by_role("heading", name="writer wants to call shut_down")).to_be_visible()
    page.get_by_role("button", name="Look at the selected").click()
    expect(page.get_by_role("heading", name="1 selected call")).to_be_visible()
    page.get_by_role("button", name="Deny all").click()
    expect(page.locator(".answered")).to_contain_text("Denied by operator:page")
    assert waiting(world) == []


def test_several_are_selected_by_keys_and_stay_so(read: Callable[..., Reader], world: World) -> None:
    for copies in (1, 2, 3):
        ask(world, "order", title="Dune", copies=copies)
    page = read().go("/ui/approvals")
    expect(page.locator(".waiting-item")).to_have_count(3)
    chosen = page.locator("#picks [name=picked]:checked")
    for number in (1, 2):
        page.wait_for_load_state()  # keys pressed earlier are not heard yet
        page.keyboard.press("x")
        expect(chosen).to_have_count(number)
        page.keyboard.press("j")
        expect(page.locator(".waiting-item").nth(number).locator("a")).to_have_attribute(
            "aria-current", "true"
        )
    ask(world, "shut_down", host="db1")
    expect(page.locator(".waiting-item")).to_have_count(4)
    expect(chosen).to_have_count(2)
    page.get_by_role("button", name="Deny the selected").click()
    expect(page.locator(".answered")).to_have_count(2)
    expect(page.locator(".waiting-item")).to_have_count(2)
    expect(chosen).to_have_count(0)
    assert sorted(waiting(world)) == ["order", "shut_down"]


def test_what_a_call_touches_comes_first_and_is_called_whole_only_if_it_is(
    read: Callable[..., Reader], world: World
) -> None:
    ask(world, "invite", style="b", quick=True, to="ada@example.org")
    while not waiting(world):  # the older one is the first
        time.sleep(0.01)
    ask(world, "send_mail", to="ada@example.org", body=BODY)
    page = read(viewport={"width": 390, "height": 844}).go("/ui/approvals")
    beginning = '{"to": "ada@example.org", "quick": true, "style": "b"}'
    expect(page.locator(".what").first).to_have_text(beginning)
    expect(page.locator(".for-what code")).to_have_text(re.compile(r'^\{ "to": "ada@example.org",'))
    expect(page.get_by_role("heading", name="The call, whole")).to_be_visible()
    expect(page.locator(".because")).to_have_text(
        "Asked because the tool declares no side effects, so its danger is medium. "
        'The author of the tool can declare them: @tool(effects="none") (or reads; writes with a danger)'
    )
    expect(page.locator("#question .danger-medium")).to_have_count(1)  # not said twice
    page.locator(".waiting-list a").nth(1).click()
    expect(page.get_by_role("heading", name="The call", exact=True)).to_be_visible()
