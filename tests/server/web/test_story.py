"""A person's way through the page, in a real browser."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.mcp_server.environments import python_of
from tests.server.web.conftest import Reader, World, open_world
from toolkeep import ToolDefinition, tool
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
    expect(page.locator("#verdict")).to_contain_text("Valid.")
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
    expect(page.locator("#outcome")).to_contain_text("It succeeded")
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


# --- the first hour ------------------------------------------------------------------------------

ROOT = Path(__file__).parents[3]
POLICY = """\
@id("everybody-may-call")
permit (principal, action, resource);

@id("mail-to-customers-only")
forbid (principal, action == Action::"call", resource == Tool::"send_mail")
unless { context.arguments has to && context.arguments.to like "*@example.com" };
"""


@tool(effects="none")
def order_status(order: int) -> str:
    """Tell the status of an order.

    Args:
        order: The number of the order.
    """
    return f"Order {order}: delivered"


@tool(danger="medium", side_effects=["None"])
def send_mail(to: str, body: str) -> str:
    """Send a mail.

    Args:
        to: The address.
        body: The text.
    """
    return f"sent to {to}"


def weather(description: str) -> ToolDefinition:
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    return ToolDefinition.from_elsewhere(
        {"name": "weather", "description": description, "inputSchema": schema}, origin="met"
    )


class Client:
    """A real MCP client in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def say(self, name: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"name": name, "arguments": arguments}) + "\n")
        self._process.stdin.flush()

    def hear(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def call(self, name: str, **arguments: Any) -> Any:
        self.say(name, **arguments)
        return self.hear()


@contextmanager
def connected(file: Path) -> Iterator[Client]:
    program = ROOT / "tests" / "mcp_server" / "clients" / "configured.py"
    words: Sequence[str] = [str(python_of("mcp")), str(program), str(file)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Client(process)
        finally:
            process.kill()


class Person:
    """Counts what a person does, and how long each step takes."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.steps: list[tuple[str, int, int, float]] = []
        self._clicks = self._keys = 0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        self._clicks = self._keys = 0
        began = time.perf_counter()
        yield
        self.steps.append((name, self._clicks, self._keys, time.perf_counter() - began))

    def click(self, what: Locator) -> None:
        what.click()
        self._clicks += 1

    def choose(self, label: str, option: str) -> None:
        self.page.get_by_label(label, exact=True).select_option(option)
        self._clicks += 2

    def go(self, name: str) -> None:
        """By the navigation."""
        self.click(self.page.get_by_role("navigation", name="Main").get_by_role("link", name=name))

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self._keys += 1

    def fill(self, label: str, text: str) -> None:
        """Into a field that a click went to."""
        self.page.get_by_role("textbox", name=label, exact=True).fill(text)
        self._clicks += 1

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name))


def documented(path: Path) -> dict[str, tuple[int, int]]:
    """Clicks and keys of each step, as the documentation has them."""
    rows = re.findall(r"^\| (.+?) \| (\d+) \| (\d+) \| [\d.]+ s \|$", path.read_text(), re.MULTILINE)
    return {name: (int(clicks), int(keys)) for name, clicks, keys in rows}


@pytest.mark.spec("WEB-2", "POL-4", "POL-5")
def test_the_first_hour_of_a_keep(tmp_path: Path, browser: Browser) -> None:
    with open_world(tmp_path, tools=()) as world:
        context = browser.new_context(
            reduced_motion="reduce",
            viewport={"width": 1280, "height": 800},
            permissions=["clipboard-write"],
        )
        reader = Reader(context, world).sign_in()
        person = Person(reader.page)
        live_through(person, world, tmp_path)
        assert [said for said in reader.said if "AbortError" not in said] == []
        context.close()
    for name, clicks, keys, seconds in person.steps:
        print(f"| {name} | {clicks} | {keys} | {seconds:.1f} s |")
    made = {name: (clicks, keys) for name, clicks, keys, _ in person.steps}
    assert made == documented(ROOT / "docs" / "page.md")


def live_through(person: Person, world: World, folder: Path) -> None:
    page, keep = person.page, world.keep
    steps = page.locator(".first-steps li")
    expect(page.locator(".first-steps .done")).to_have_count(0)
    keep.register(order_status, send_mail, weather("Tell the weather."))

    with person.step("Connect a client"):
        person.choose("Client", "cursor")
        person.button("Make a token")
        copy = page.get_by_role("button", name="Copy the configuration of Cursor")
        expect(copy).to_be_focused()
        person.click(copy)
        expect(page.locator("#announce")).to_have_text("Copied")
        file = folder / "mcp.json"
        file.write_text(page.get_by_label("Configuration of Cursor").inner_text())
    with connected(file) as client:
        assert {"order_status", "send_mail", "weather"} <= set(client.hear())

        with person.step("First call"):
            assert client.call("order_status", order=1042)["text"] == "Order 1042: delivered"
            expect(page.get_by_role("link", name="The first call that succeeded")).to_be_visible()
            assert [one.get_attribute("class") for one in steps.all()] == ["done", "done", "done", ""]

        with person.step("A refused call, understood and mended"):
            assert client.call("order_status", ordr=1042)["is_error"]
            person.click(page.locator(".figure", has_text="Refused").get_by_role("link"))
            person.click(page.get_by_role("link", name="order_status"))
            expect(page.locator(".verdict")).to_contain_text("'ordr'")
            person.button("Try again")
            expect(page.get_by_role("button", name="Take the repair")).to_be_focused()
            person.press("Enter")
            person.click(page.locator("#as-json").get_by_role("button", name="Call"))
            expect(page.locator("#outcome")).to_be_in_viewport()
            expect(page.locator("#outcome")).to_contain_text("It succeeded")

        with person.step("Approve by keyboard"):
            client.say("send_mail", to="ada@example.com", body="It was sent.")
            person.go("Approvals")
            expect(page.get_by_role("heading", name="mcp-local wants to call send_mail")).to_be_visible()
            # No key answers a question that has just appeared.
            page.evaluate("new Promise(go => setTimeout(go, shownAt + WAIT_MS - performance.now() + 1))")
            person.press("a")
            assert client.hear()["text"] == "sent to ada@example.com"
            expect(page.locator(".answered")).to_be_in_viewport()

        with person.step("Always, one argument left free"):
            client.say("send_mail", to="bob@example.org", body="It was sent.")
            expect(page.locator(".waiting-item")).to_have_count(1)
            expect(page.locator(".waiting-item")).to_contain_text("bob@example.org")
            person.press("j")
            person.click(page.locator(".remember > summary"))
            person.click(page.get_by_role("checkbox", name="body"))
            expect(page.locator("#covers")).to_contain_text("bob@example.org")
            person.button("Always")
            assert client.hear()["text"] == "sent to bob@example.org"

        with person.step("The rule is in force"):
            assert client.call("send_mail", to="bob@example.org", body="Another text.")["text"]
            expect(page.locator("#rules")).to_contain_text("send_mail")

        with person.step("Review and accept a changed tool"):
            keep.register(weather("Tell the weather, and the forecast."))
            person.go("Overview")
            person.click(page.locator(".message.warn").get_by_role("link", name="weather"))
            expect(page.get_by_label("Difference of description")).to_contain_text("+Tell the weather, and")
            person.fill("Type weather to confirm", "weather")
            person.button("Accept this definition")
            expect(page.get_by_text("In quarantine")).to_have_count(0)
            assert keep.get("weather").is_enabled

        with person.step("Write policies, replay, put in force"):
            person.go("Policies")
            person.click(page.get_by_role("link", name="New policies"))
            person.fill("Name", "mail")
            person.click(page.locator("#policy-form .cm-content"))
            page.keyboard.press("Control+a")
            page.keyboard.insert_text(POLICY)
            person.button("Replay recorded calls")
            expect(page.locator("#replayed")).to_contain_text("would be decided otherwise")
            person.fill("Type its name to confirm", "mail")
            person.button("Put in force")
            page.wait_for_url("**/ui/policies")
            assert client.call("send_mail", to="bob@example.org", body="Again.")["is_error"]

        with person.step("Export the log"):
            person.go("Audit")
            link = page.get_by_role("link", name="JSONL")
            address = world.url + str(link.get_attribute("href"))
            with page.expect_download() as download:
                person.click(link)
            assert download.value.suggested_filename == "calls.jsonl"
            calls = [json.loads(line) for line in page.context.request.get(address).text().splitlines()]
            assert [one["tool"] for one in calls].count("send_mail") == 4
