"""A person's way through the page, in a real browser."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.server.web.conftest import Reader, World, open_world
from toolkeep.audit.receipt import verify_receipt
from toolkeep.storage.log.file_records import FileRecord

Read = Callable[..., Reader]


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def tab_to(page: Page, label: str, *, key: str = "Tab") -> None:
    """Press a key until what has the focus is called so."""
    for _ in range(80):
        page.keyboard.press(key)
        name = page.evaluate(
            """() => { const e = document.activeElement;
            return e.getAttribute('aria-label') || (e.labels && e.labels[0] && e.labels[0].textContent) || e.textContent }"""
        )
        if str(name).strip().startswith(label):
            return
    raise AssertionError(f"{key} never comes to {label}")


@pytest.mark.spec("WEB-2")
def test_a_definition_is_created_tried_mended_approved_and_proved(read: Read) -> None:
    reader = read()
    page = reader.go("/ui/tools")

    # Created by keyboard alone, checked while it is typed.
    tab_to(page, "New definition")
    press(page, "Enter")
    page.wait_for_url("**/ui/definitions/new")
    tab_to(page, "Tool name")
    page.keyboard.type("Send Parcel")
    expect(page.locator("#error-name")).to_contain_text("lower-case")
    press(page, "Control+a")
    page.keyboard.type("send_parcel")
    expect(page.locator("#error-name")).to_be_empty()
    tab_to(page, "Description")
    page.keyboard.type("Send a parcel to a customer.")
    tab_to(page, "Name")
    page.keyboard.type("weight")
    tab_to(page, "Type")
    page.keyboard.type("integer")
    tab_to(page, "Description")
    page.keyboard.type("In grams.")
    tab_to(page, "Required")
    press(page, "Space")
    tab_to(page, "Add a parameter", key="Shift+Tab")
    press(page, "Enter")
    expect(page.locator("#announce")).to_contain_text("there are 2 now")
    page.keyboard.type("scratch")
    tab_to(page, "Remove")
    press(page, "Enter")
    expect(page.locator("#announce")).to_contain_text("scratch removed; 1 left")
    tab_to(page, "Output schema")
    page.keyboard.type('{"type": "string"}')
    tab_to(page, "Requires confirmation")
    press(page, "Space")
    tab_to(page, "The client executes it")
    press(page, "Space")
    expect(page.locator("#verdict")).to_contain_text("It can be kept")
    tab_to(page, "Create")
    press(page, "Enter")
    page.wait_for_url("**/ui/tools/send_parcel")

    # Listed, found and tried: a field error, then its repair.
    reader.go("/ui/tools")
    page.get_by_label("Search tools").fill("parcel customer")
    expect(page.locator("#tools .tr:not(.th)")).to_have_count(1)
    page.get_by_role("link", name="send_parcel").click()
    page.get_by_label("weight").fill("2kg")
    page.get_by_role("button", name="Call").click()
    expect(page.locator(".field.has-error")).to_contain_text("'weight' must be an integer, got string")
    page.get_by_role("tab", name="JSON", exact=True).click()
    page.locator("#as-json .cm-content").click()
    press(page, "Control+a")
    page.keyboard.type('{"weihgt": 250}')
    page.locator("#as-json").get_by_role("button", name="Check only").click()
    expect(page.get_by_role("button", name="Take the repair")).to_be_focused()
    press(page, "Enter")
    expect(page.locator("#as-json .message")).to_contain_text("Repaired")
    page.locator("#as-json").get_by_role("button", name="Call").click()

    # It waits for a person, who sees exactly this call.
    page.get_by_role("link", name="Look at it in the inbox").click()
    expect(page.get_by_label("Arguments")).to_have_text('{\n  "weight": 250\n}')
    page.get_by_role("button", name="Approve once").click()
    expect(page.locator("#question")).to_contain_text("Approved")
    expect(page.locator("#question .message")).to_be_focused()
    page.get_by_role("link", name="Its records").click()
    expect(page.locator(".stages-of-call").get_by_text("Approved by operator:page")).to_be_visible()

    # In the timeline, with a receipt that counts offline.
    reader.go("/ui/audit")
    page.locator(".records .tr a", has_text="send_parcel").first.click()
    page.get_by_role("button", name="Verify the receipt").click()
    expect(page.locator("#receipt")).to_contain_text("The receipt proves it")
    with page.expect_download() as download:
        page.get_by_role("link", name="Receipt").click()
    record = reader.world.keep.record
    assert isinstance(record, FileRecord)
    receipt = json.loads(Path(download.value.path()).read_text())
    proved = verify_receipt(receipt, record.log.public_key()).record
    assert (proved["tool"], proved["status"]) == ("send_parcel", "pending")
    (answer,) = [one.record for one in record.log.read() if one.record["type"] == "Approval"]
    assert (answer["approver"], answer["way"]) == ("operator:page", "page")
    reader.go("/ui/audit")
    page.get_by_role("button", name="Verify the log").click()
    expect(page.locator("#verified")).to_contain_text("The log is intact")

    assert {url.split("/ui")[0] for url in reader.asked} == {reader.world.url}
    # A check that is overtaken by the next one is given up, and htmx says so.
    assert [said for said in reader.said if "AbortError" not in said] == []


@pytest.mark.spec("POL-4")
def test_two_browsers_approve_a_call_once(read: Read, world: World) -> None:
    asker, first, second = read(), read(), read()
    page = asker.go("/ui/tools/order")
    for reader in (first, second):
        reader.go("/ui/approvals")
        expect(reader.page.get_by_text("Nothing waits")).to_be_visible()
    page.get_by_label("title").fill("Dune")
    page.get_by_label("copies").fill("3")
    page.get_by_role("button", name="Call").click()
    # It appears by itself in both; the page of the second is kept from hearing of the answer.
    for reader in (first, second):
        expect(reader.page.get_by_role("button", name="Approve once")).to_be_visible()
    second.context.route("**/standing*", lambda route: route.abort())
    first.page.get_by_role("button", name="Approve once").click()
    expect(first.page.locator("#question")).to_contain_text("Approved by operator:page")
    second.page.get_by_role("button", name="Approve once").click()
    expect(second.page.locator("#question [role=alert]")).to_contain_text(
        re.compile("(approved|used) already")
    )
    expect(page.locator("#outcome")).to_contain_text("It went well")
    answers = [entry for entry in world.keep.record.log.read_back() if entry.record["type"] == "Approval"]
    assert len(answers) == 1


@pytest.mark.spec("POL-6", "WEB-2")
def test_the_core_tier_sees_locks_that_name_the_tier(tmp_path: Path, browser: Browser) -> None:
    with open_world(tmp_path / "core", tier="core") as world:
        context = browser.new_context()
        page = Reader(context, world).sign_in().go("/ui/tools")
        page.get_by_role("button", name="New definition").focus()
        press(page, "Enter")
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("A custom definition needs the tier writer pro")
        expect(dialog).to_contain_text("tier: writer_pro")
        press(page, "Escape")
        expect(dialog).not_to_be_visible()
        page.locator(".is-locked", has_text="run_command").get_by_role("button").click()
        expect(dialog).to_contain_text("The built-in tool run_command needs the tier teams")
        page.goto(f"{world.url}/ui/definitions/new")
        expect(page.get_by_role("button", name="Create")).to_be_disabled()
        context.close()
