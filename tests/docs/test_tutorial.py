"""The tutorial, done as it is written: its commands typed on a terminal, its calls made by a real MCP client, the call
that waits approved in a browser.

    sh            is typed; questions are answered with `y`. `sh denied` must fail, `sh serve` runs until the
                  end, `sh state` is typed with the state folder of this run; `pip install` is done already
    yaml FILE     is written
    json call     is called by the client; `json approve` while a person approves it on the page
    text result   is what the client got
    text          is a part of what the last command printed
"""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.docs.markdown import ROOT, Block, blocks_of
from tests.mcp_server.environments import python_of
from tests.server.web.conftest import PATIENCE_MS, browser  # noqa: F401 -- a fixture

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
CLIENT = Path(__file__).with_name("mcp_client.py")
ACTIVE = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
"""The variables of somebody in whose environment toolkeep is installed."""


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, command: str, folder: Path) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            ["bash", "-ec", command],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=folder,
            env={**ACTIVE, "COLUMNS": "200", "NO_COLOR": "1"},
            start_new_session=True,
        )
        os.close(slave)
        os.write(self._master, b"y\n")

    def lines(self) -> Iterator[str]:
        """What it prints, until it ends."""
        with os.fdopen(os.dup(self._master), "rb", buffering=0) as screen:
            rest = b""
            while True:
                try:
                    rest += screen.read(65536)
                except OSError:  # the terminal closed
                    break
                *whole, rest = rest.split(b"\n")
                if rest.endswith(b"[reason]: "):  # a request for approval discards what was typed before it
                    os.write(self._master, b"y\n")
                yield from (line.decode().rstrip("\r") for line in whole)
        yield rest.decode()

    def close(self) -> int:
        self.process.terminate()
        status = self.process.wait(30)
        os.close(self._master)
        return status


class Reader:
    """Somebody who follows the tutorial."""

    def __init__(self, folder: Path, a_browser: Browser, stack: ExitStack) -> None:
        self.folder = folder
        self._browser = a_browser
        self._stack = stack
        self._link = ""
        self.printed = ""
        self.screen = ""
        self.result = ""

    def follow(self, block: Block) -> None:
        match block.language, block.name:
            case "sh", "serve":
                self._serve(block.text)
            case "sh", "denied":
                self._type(f"! {block.text}")
            case "sh", "state":
                [folder] = re.findall(r"^(/.+): intact$", self.printed, re.MULTILINE)
                self._type(block.text.replace("~/.local/state/toolkeep/HASH", folder))
                assert not Path(folder).exists()
            case "sh", _ if "pip install" not in block.text:
                self._type(block.text)
            case "yaml", file:
                path = self.folder / file
                path.parent.mkdir(exist_ok=True)
                path.write_text(block.text)
            case "json", "call":
                with self._called(block.text):
                    pass
            case "json", "approve":
                with self._called(block.text):
                    self._approve()
            case "text", "result":
                assert self.result.strip() == block.text.strip(), f"line {block.line}"
            case "text", _:
                assert block.text.strip() in self.printed, f"line {block.line}"

    def _type(self, command: str) -> None:
        terminal = Terminal(f"{command}\necho in $PWD", self.folder)
        lines = [line for line in terminal.lines() if line]
        terminal.close()
        # What was typed ahead may be echoed after it.
        (last,) = (line for line in lines if line.startswith("in /"))
        lines.remove(last)
        self.printed = "\n".join(lines)
        self.screen += self.printed
        self.folder = Path(last.removeprefix("in "))

    def _serve(self, command: str) -> None:
        # The port of the page may be taken on this machine.
        terminal = Terminal(f"exec {command.strip()} --port 0", self.folder)
        self._stack.callback(terminal.close)
        links = (re.search(r"http://\S+/ui/sign-in#\S+", line) for line in terminal.lines())
        self._link = next(link[0] for link in links if link)

    @contextmanager
    def _called(self, call: str) -> Iterator[None]:
        words = [str(python_of("mcp")), "-W", "ignore", str(CLIENT), call]
        with subprocess.Popen(
            words, cwd=self.folder, env=ACTIVE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as client:
            try:
                yield
                self.result, error = client.communicate(timeout=120)
            finally:
                client.kill()
        assert client.returncode == 0, error

    def _approve(self) -> None:
        with self._browser.new_context() as context:
            context.set_default_timeout(PATIENCE_MS)
            page = context.new_page()
            page.goto(self._link)
            page.get_by_role("link", name="Approvals").first.click()
            page.get_by_role("button", name="Approve once").click()
            expect(page.locator("#question")).to_contain_text("Approved by operator:page")


@pytest.mark.spec("DOC-2")
def test_the_tutorial_works_as_it_is_written(tmp_path: Path, browser: Browser) -> None:  # noqa: F811 -- the fixture
    with ExitStack() as stack:
        reader = Reader(tmp_path, browser, stack)
        for block in blocks_of(PAGE):
            reader.follow(block)
    assert (reader.folder / "shelves" / "a.txt").read_text() == "Dune\nEmma\n"
    for shown in (": intact\n", "Dune", "10 bytes, 2 lines, replaced", "has no grant for fs.write"):
        assert shown in reader.screen
    assert sorted(path.name for path in reader.folder.iterdir()) == ["shelves"]


def test_the_tutorial_has_six_steps() -> None:
    assert len(re.findall(r"^## \d\. ", PAGE, re.MULTILINE)) == 6
