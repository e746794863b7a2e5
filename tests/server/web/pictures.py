"""Takes pictures of every page of a busy keep, to look at and for the documentation.

python -m tests.server.web.pictures FOLDER [--width N …] [--theme light|dark …] [--only WORD]
python -m tests.server.web.pictures --docs

The keep has four agents and the calls of a morning: most succeeded, some were refused at each stage, some
wait for a person. One of its tools changed since it was accepted, and a worker elsewhere runs another.
"""

import argparse
import asyncio
import itertools
import os
import re
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests.fleet.nats_server import NatsServer, nats_server
from tests.fleet.running import made_worker, new_key, running
from tests.server.web.conftest import CHROMIUM, Reader, World, open_world
from tests.server.web.test_story import weather
from toolkeep import Keep, open_keep, tool
from toolkeep.fleet.identity import PrivateKey
from toolkeep.keep.open import open_state, server_key

DOCS = Path(__file__).parents[3] / "docs" / "pictures"
WIDTHS = {1440: 900, 1280: 800, 390: 844}
THEMES = ("light", "dark")
CONFIGURATION = """\
tier: enterprise
agents:
  support: {capabilities: ["fs.read:PROJECT", "fs.write:PROJECT"], permissions: [tool.filesystem.read, tool.filesystem.write]}
  research: {capabilities: ["fs.read:PROJECT"], permissions: [tool.filesystem.read]}
  nightly: {}
  writer: {}
flow: {budget: {calls: 500/hour, questions: 20/day}}
fleet:
  nats: {servers: NATS}
  runs_on: {list_directory: "", grep_search: gpu}
  workers:
    - {name: one, key: "ONE"}
    - {name: two, key: "TWO", labels: [gpu]}
"""
POLICIES = """\
@id("everybody-may-call")
permit (principal, action, resource);

@id("no-large-refunds")
forbid (principal, action == Action::"call", resource == Tool::"refund")
when { context.arguments has cents && context.arguments.cents > 100000 };

@id("research-pays-nobody")
forbid (principal == Agent::"research", action == Action::"call", resource == Tool::"refund");
"""
MAIL = "Hello,\n\nyour order 1042 was refunded today. The money arrives within three days.\n\nThe shop\n"


@tool(effects="none")
def order_status(order: int) -> str:
    """Tell the status of an order.

    Args:
        order: The number of the order.
    """
    if order > 5000:
        raise LookupError(f"there is no order {order}")
    return f"Order {order}: delivered, paid 24.00 EUR"


@tool(danger="high", side_effects=["Writes"])
def refund(order: int, cents: int) -> str:
    """Pay a customer back.

    Args:
        order: The number of the order.
        cents: The amount, in cents.
    """
    return f"Refunded {cents / 100:.2f} EUR for order {order}"


@tool(danger="medium", side_effects=["Writes"])
def send_mail(to: str, subject: str, body: str, copy_to: list[str] | None = None) -> str:
    """Send a mail to a customer.

    Args:
        to: The address.
        subject: One line.
        body: The text.
        copy_to: Who else gets it.
    """
    return f"sent to {to}, {len(copy_to or [])} copies, {len(subject) + len(body)} characters"


def make_calls(keep: Keep) -> None:
    """The calls of a morning."""
    for number in range(40):
        agent = ("support", "research", "nightly")[number % 3]
        keep.call_sync("order_status", {"order": 1000 + number}, agent=agent, session=f"morning-{agent}")
    refused: list[tuple[str, str, dict[str, Any]]] = [
        ("support", "order_status", {"order": "1042"}),
        ("support", "order_state", {"order": 1042}),
        ("nightly", "order_status", {"order": 9999}),
        ("research", "refund", {"order": 1042, "cents": 2400}),
        ("support", "refund", {"order": 1042, "cents": 2_400_000}),
        ("research", "read_file", {"path": "/etc/passwd"}),
        ("support", "send_mail", {"to": "ada@example.com", "subject": "Refund"}),
    ]
    for agent, name, arguments in refused:
        keep.call_sync(name, arguments, agent=agent, session=f"morning-{agent}")


def ask(world: World) -> None:
    """Calls that wait for a person."""
    world.call_meanwhile("refund", {"order": 1042, "cents": 2400}, agent="support", session="morning-support")
    mail = {"to": "ada@example.com", "subject": "Your refund", "body": MAIL}
    world.call_meanwhile("send_mail", mail, agent="support", session="morning-support")
    notes = {"path": f"{world.keep.project}/notes.md", "content": "# Notes\n\n- Order 1042 was refunded.\n"}
    world.call_meanwhile("write_file", notes, agent="support", session="morning-support")


def _prepare(nats: NatsServer, ready: PrivateKey, away: PrivateKey, project: Path) -> None:
    home = project.parent / "home" / ".agent"
    words = {"PROJECT": str(project), "NATS": nats.url, "ONE": ready.public.text, "TWO": away.public.text}
    configuration = re.sub("|".join(words), lambda found: words[found[0]], CONFIGURATION)
    (home / "config.yml").write_text(configuration + "policies: [policies.cedar]\n")
    (home / "policies.cedar").write_text(POLICIES)
    (project / "notes.md").write_text("# Notes\n\n- Call the customer of order 1042 back.\n")


@contextmanager
def working(nats: NatsServer, key: PrivateKey, project: Path) -> Iterator[None]:
    """A worker of the keep of a project, with the built-in tools."""
    state = open_state(project)
    if state is None:
        raise RuntimeError("there is no place for the key of the server")
    started, over = threading.Event(), threading.Event()

    async def work() -> None:
        with open_keep(project=project) as keep:
            async with running(made_worker(nats, key, [server_key(state)], keep=keep)):
                started.set()
                await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=asyncio.run, args=(work(),))
    thread.start()
    try:
        started.wait()
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def busy_world(folder: Path) -> Iterator[World]:
    """A served keep with all that."""
    ready, away = new_key(), new_key()
    with (
        nats_server() as nats,
        open_world(folder, prepare=partial(_prepare, nats, ready, away), approval_wait_s=3600) as world,
        working(nats, ready, Path(world.keep.project)),
    ):
        world.keep.register(order_status, refund, send_mail, weather("Tell the weather."))
        make_calls(world.keep)
        world.keep.register(weather("Tell the weather of a city, and the forecast of the next three days."))
        ask(world)
        yield world


def places(page: Page, world: World) -> dict[str, str]:
    """Every page by a name for its picture: those of the navigation, and one of each kind behind them."""
    page.goto(f"{world.url}/ui/approvals")
    page.wait_for_selector("a[href*='/ui/approvals/']")
    found = {
        "sign-in": "/ui/sign-in",
        "not-found": "/ui/nowhere",
        "start": "/ui/start",
        "tool": "/ui/tools/send_mail",
        "changed-tool": "/ui/tools/weather",
        "new-definition": "/ui/definitions/new",
        "agent": "/ui/agents/show?agent=support",
        "sessions": "/ui/sessions",
        "new-policies": "/ui/policies/edit",
    }
    found["approval"] = _first(page, "a[href*='/ui/approvals/']")
    for link in page.locator("nav a").all():
        path = link.get_attribute("href") or ""
        if path.count("/") == 2:
            found[path.removeprefix("/ui/") or "overview"] = path
    page.goto(f"{world.url}/ui/audit")
    for number, path in enumerate(_all(page, "a[href*='/ui/calls/']")[:8]):
        found[f"call-{number}"] = path
    for path in _all(page, "a[href*='/ui/sessions/']")[:1]:
        found["session"] = path
    return found


def _all(page: Page, selector: str) -> list[str]:
    found = [link.get_attribute("href") or "" for link in page.locator(selector).all()]
    return list(dict.fromkeys(found))


def _first(page: Page, selector: str) -> str:
    return _all(page, selector)[0]


def take(reader: Reader, path: str, file: Path, *, whole: bool = True) -> None:
    """One picture, once the page is still."""
    page = reader.go(path)
    page.wait_for_load_state("load")
    page.wait_for_timeout(700)
    page.screenshot(path=file, full_page=whole)


def look(browser: Browser, world: World, options: argparse.Namespace) -> None:
    """Every page in every width and theme."""
    folder = Path(options.folder)
    folder.mkdir(parents=True, exist_ok=True)
    first = Reader(browser.new_context(), world).sign_in()
    found = places(first.page, world)
    for width, theme in itertools.product(options.width, options.theme):
        viewport = ViewportSize(width=width, height=WIDTHS.get(width, 900))
        context = browser.new_context(reduced_motion="reduce", viewport=viewport, color_scheme=theme)
        reader = Reader(context, world).sign_in()
        for name, path in found.items():
            if re.search(options.only, name):
                take(reader, path, folder / f"{name}-{width}-{theme}.png")
        context.close()


ILLUSTRATED = (
    "overview", "start", "approval", "tools", "tool", "changed-tool", "new-definition", "agents", "agent", "audit",
    "call", "sessions", "session", "policies", "new-policies", "workers", "tokens",
)  # fmt: skip
"""The pages that the documentation shows."""


def illustrate(browser: Browser, world: World) -> None:
    """The pictures of the documentation."""
    viewport = ViewportSize(width=1280, height=760)
    context = browser.new_context(reduced_motion="reduce", viewport=viewport, color_scheme="light")
    reader = Reader(context, world).sign_in()
    page, found = reader.page, places(reader.page, world)
    page.goto(f"{world.url}/ui/audit?tool=refund&agent=research")
    found["call"] = _first(page, "a[href*='/ui/calls/']")
    page.goto(f"{world.url}/ui/approvals")
    found["approval"] = _first(page, ".waiting-list a:has-text('write_file')")
    for name in ILLUSTRATED:
        take(reader, found[name], DOCS / f"{name}.png", whole=False)
    stranger = Reader(browser.new_context(viewport=viewport, color_scheme="light"), world)
    take(stranger, found["sign-in"], DOCS / "sign-in.png", whole=False)
    reader.go("/ui/tools/order_status")
    page.get_by_role("tab", name="JSON", exact=True).click()
    page.get_by_role("textbox", name="Arguments as JSON").fill('{"ordr": 1042}')
    page.locator("#as-json").get_by_role("button", name="Check only").click()
    page.get_by_role("button", name="Take the repair").wait_for()
    page.screenshot(path=DOCS / "repair.png")


def main() -> None:
    """Take them."""
    parser = argparse.ArgumentParser(description="Take pictures of every page.")
    parser.add_argument("folder", nargs="?", default="pictures")
    parser.add_argument("--docs", action="store_true", help="only those of the documentation, in their place")
    parser.add_argument("--width", type=int, nargs="+", default=list(WIDTHS))
    parser.add_argument("--theme", nargs="+", default=THEMES, choices=THEMES)
    parser.add_argument("--only", default="", help="pages whose name this pattern finds")
    options = parser.parse_args()
    arguments = ["--no-sandbox"] if os.getuid() == 0 else []
    with (
        tempfile.TemporaryDirectory(prefix="toolkeep-pictures-") as folder,
        busy_world(Path(folder)) as world,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        if options.docs:
            illustrate(browser, world)
        else:
            look(browser, world, options)
        browser.close()


if __name__ == "__main__":
    main()
