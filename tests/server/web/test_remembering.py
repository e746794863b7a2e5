"""On the page, a person ticks which arguments must be equal and sees what will pass before the yes (POL-4)."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any

import pytest
from playwright.sync_api import Page, expect

from tests.server.web.conftest import Reader, World
from toolkeep import Content, Secret, Touches, tool
from toolkeep.events import ApprovalRequested

pytestmark = pytest.mark.spec("POL-4")


@tool(danger="medium", side_effects=["FsWrite"], capabilities=["fs.write"])
def file_report(
    path: Annotated[str, Touches("fs.write")],
    to: str,
    copies: int,
    key: Annotated[str, Secret()],
    body: Annotated[str, Content()],
) -> str:
    """File a report.

    Args:
        path: Where.
        to: For whom, by mail.
        copies: How many.
        key: The key of the archive.
        body: What it says.
    """
    return "filed"


CALL = {
    "path": "reports/a.txt",
    "to": "ada@example.org",
    "copies": 3,
    "key": "hunter2",
    "body": "x" * 300_000,
}
WHO: dict[str, Any] = {"agent": "clerk", "session": "monday"}


@pytest.fixture
def clerk(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path / "project")
    (tmp_path / "project" / "reports").mkdir()
    world.keep.register(file_report)
    world.keep.declare_agent("clerk", capabilities=["fs.write:./reports"])
    return world


def asked(reader: Reader) -> Page:
    is_asked = threading.Event()
    reader.world.keep.subscribe(
        lambda event: is_asked.set() if isinstance(event, ApprovalRequested) else None
    )
    reader.world.call_meanwhile("file_report", CALL, **WHO)
    assert is_asked.wait(PATIENCE_S)
    page = reader.go("/ui/approvals")
    expect(page.get_by_role("heading", name="clerk wants to call file_report")).to_be_visible()
    return page


def passes(world: World, **changes: Any) -> str:
    """How a call was approved that nobody answers."""
    with ThreadPoolExecutor(1) as threads:  # this one has the event loop of the browser
        done = threads.submit(world.keep.call_sync, "file_report", {**CALL, **changes}, **WHO)
        result = done.result(PATIENCE_S)
    return result.approval.way if result.approval else ""


PATIENCE_S = 30.0


def test_ticks_say_what_must_be_equal_and_the_text_follows_them(
    read: Callable[..., Reader], clerk: World, tmp_path: Path
) -> None:
    page = asked(read())
    # A body of 300,000 characters hides nothing.
    expect(page.get_by_label("Arguments", exact=True)).to_contain_text('"to": "ada@example.org"')
    page.get_by_text("For this session, or always").click()
    covers = page.get_by_label("Calls that pass unasked")
    folder = (tmp_path / "project" / "reports").resolve()
    expect(covers).to_have_text(
        "clerk calls file_report 1.0.0 with\n"
        f'  path equal to "{folder}/a.txt"\n'
        '  to equal to "ada@example.org"\n'
        "  copies equal to 3\n"
        '  key equal to "(secret, 7 characters)"\n'
        "  body anything"
    )
    ticks = {one: page.get_by_role("checkbox", name=one) for one in ("path", "to", "copies", "key", "body")}
    expect(ticks["key"]).to_be_disabled()
    assert [name for name, tick in ticks.items() if tick.is_checked()] == ["path", "to", "copies", "key"]
    ticks["path"].uncheck()
    page.get_by_label("If path need not be equal").select_option(label=f"in the folder {folder}")
    expect(covers).to_contain_text(f"path in the folder {folder}\n")
    ticks["copies"].uncheck()
    page.get_by_label("If copies need not be equal").select_option(label="at most")
    page.get_by_label("Maximum of copies").fill("2")
    expect(page.locator("#covers [role=alert]")).to_contain_text("does not cover 'copies' of this call")
    page.get_by_label("Maximum of copies").fill("5")
    expect(covers).to_contain_text("copies from 0 to 5\n")
    page.get_by_role("button", name="For this session").click()
    expect(page.locator("#question")).to_contain_text("Approved by operator:page")
    assert passes(clerk, path="reports/b.txt", copies=5, body="y") == "session"


def test_a_denied_call_says_by_whom_and_why(read: Callable[..., Reader], clerk: World) -> None:
    reader = read()
    page = asked(reader)
    question = clerk.keep.record.approvals.waiting()[0].question.id
    page.get_by_label("Reason for a no").fill("Not on a Monday.")
    page.get_by_role("button", name="Deny").click()
    expect(page.locator("#question")).to_contain_text("Denied by operator:page: Not on a Monday.")
    page = reader.go(f"/ui/approvals/{question}")
    expect(page.locator("#question")).to_contain_text("Denied by operator:page: Not on a Monday.")
