"""A keep that is served with its page, and a real browser to look at it."""

import asyncio
import contextlib
import os
import threading
import urllib.request
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.mcp_server.environments import node_with_packages
from tests.server.running import Running, running
from toolkeep import Keep, open_keep, tool
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = 45_000
"""A busy machine takes long for what takes milliseconds elsewhere."""
expect.set_options(timeout=PATIENCE_MS)


@tool(side_effects=["None"])
def price(title: str, copies: int, used: bool = False) -> dict[str, int]:
    """Tell what copies of a book cost, in cents.

    Args:
        title: The title.
        copies: How many.
        used: Whether they may be used ones.
    """
    return {"cents": copies * (400 if used else 1200)}


@tool(danger="medium", side_effects=["None"])
def order(title: str, copies: int) -> str:
    """Order copies of a book.

    Args:
        title: The title.
        copies: How many.
    """
    return f"{copies} of {title}"


class World:
    """A served keep with its page."""

    def __init__(self, keep: Keep, server: Running, codes: MemorySignInCodes) -> None:
        self.keep = keep
        self.server = server
        self.url = server.url
        self._codes = codes
        self._is_over = threading.Event()
        self._waiting: list[threading.Thread] = []

    def call_meanwhile(self, name: str, arguments: dict[str, Any], **more: Any) -> None:
        """Make a call that waits for a person, as long as there is this world."""
        self.meanwhile(self.keep.call(name, arguments, **more))

    def meanwhile(self, calls: Coroutine[Any, Any, Any]) -> None:
        """Make calls that wait for a person."""
        thread = threading.Thread(target=asyncio.run, args=(self._while_there(calls),))
        thread.start()
        self._waiting.append(thread)

    async def _while_there(self, call: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(call)
        await asyncio.to_thread(self._is_over.wait)
        task.cancel()
        await asyncio.wait({task})

    def end(self) -> None:
        """Nobody waits any longer."""
        self._is_over.set()
        for thread in self._waiting:
            thread.join()

    def link(self) -> str:
        """A link that signs in."""
        return f"{self.url}/ui/sign-in#{self._codes.make()}"

    def session(self) -> Any:
        """What a browser stores once it is signed in; `Reader.sign_in` goes through the door itself."""
        body = urlencode({"code": self._codes.make()}).encode()
        sent = urllib.request.Request(f"{self.url}/ui/sign-in", body, {"Origin": self.url})  # noqa: S310 -- its own
        with urllib.request.urlopen(sent) as answer:  # noqa: S310 -- its own
            name, _, value = answer.headers["Set-Cookie"].partition(";")[0].partition("=")
            key = answer.read().decode()
        cookie = {"name": name, "value": value, "domain": "127.0.0.1", "path": "/ui", "expires": -1}
        cookie |= {"httpOnly": True, "secure": False, "sameSite": "Strict"}
        held = {"origin": self.url, "localStorage": [{"name": "toolkeep.key", "value": key}]}
        return {"cookies": [cookie], "origins": [held]}


@contextlib.contextmanager
def open_world(
    folder: Path,
    tier: str = "enterprise",
    prepare: Callable[[Path], None] = lambda _: None,
    tools: Sequence[Any] = (price, order),
    **options: Any,
) -> Iterator[World]:
    """Serve a keep of its own, with its state in a folder; `prepare` may write into its project first."""
    home = folder / "home" / ".agent"
    home.mkdir(parents=True)
    (home / "config.yml").write_text(f"tier: {tier}\nagents:\n  writer: {{}}\n  ada: {{}}\n")
    project = folder / "project"
    project.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home.parent))
        patch.setenv("TOOLKEEP_HOME", str(folder / "state"))
        prepare(project)
        keep = open_keep(project=project, approver=defer_to_inbox, **{"approval_wait_s": 600, **options})
        with keep:
            keep.register(*tools)
            codes = MemorySignInCodes()
            with running(keep, codes=codes) as server:
                world = World(keep, server, codes)
                try:
                    yield world
                finally:
                    world.end()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_world(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")  # no longer: as long as it is open, its thread has an event loop that runs
def browser() -> Iterator[Browser]:
    """Debian's chromium; a skip where it is not installed, a failure in CI."""
    if not CHROMIUM.exists():
        if os.environ.get("CI"):
            pytest.fail("chromium is not installed: apt-get install chromium")
        pytest.skip("chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        # A browser that root starts cannot put itself into a sandbox.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


class Reader:
    """A person at a browser, signed in; whatever the page asks of the network and says is remembered."""

    def __init__(self, context: BrowserContext, world: World) -> None:
        self.context = context
        self.world = world
        self.asked: list[str] = []
        self.said: list[str] = []
        context.on("request", lambda request: self.asked.append(request.url))
        context.on("console", lambda message: self.said.append(message.text))
        context.on("weberror", lambda error: self.said.append(str(error.error)))
        context.set_default_timeout(PATIENCE_MS)
        self.page: Page = context.new_page()

    def sign_in(self) -> "Reader":
        self.page.goto(
            f"{self.world.url}/ui/tools"
        )  # to the door first: there a link is opened in the same tab
        self.page.goto(self.world.link())
        self.page.wait_for_url("**/ui/")
        return self

    def go(self, path: str) -> Page:
        self.page.goto(self.world.url + path)
        return self.page


@pytest.fixture
def read(browser: Browser, world: World) -> Iterator[Callable[..., Reader]]:
    """Opens a browser of its own, signed in."""
    contexts: list[BrowserContext] = []

    def make(at: World = world, **options: Any) -> Reader:
        stored = at.session()
        contexts.append(browser.new_context(reduced_motion="reduce", storage_state=stored, **options))
        return Reader(contexts[-1], at)

    yield make
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The text of axe-core."""
    _, packages = node_with_packages(Path(__file__).parent / "node", "node-page")
    return (packages / "axe-core" / "axe.min.js").read_text()
