"""The keep of `toolkeep demo`: its folder, tools, agent and calls."""

import contextlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolkeep.authoring.tool_decorator import tool
from toolkeep.calls import ToolResult
from toolkeep.keep.keep import Keep
from toolkeep.keep.open import open_keep
from toolkeep.server.api.call_routes import defer_to_inbox

AGENT: Final = "assistant"
NOTES: Final = "# Notes\n\n- Call the customer of order 1042 back.\n"
_WAIT_S: Final = 86_400.0
"""How long a call waits for its answer on the page: longer than anybody looks at a demo."""

Tell = Callable[[str], None]


class DemoFolder(NamedTuple):
    """Where a demo keep lives."""

    project: Path
    state: Path
    environment: Mapping[str, str]
    """The variables of this process before the demo began."""


@contextlib.contextmanager
def demo_folder() -> Iterator[DemoFolder]:
    """A temporary folder with project, state and home; this process uses them until the block ends.

    The user's own configuration and state are neither read nor changed.
    """
    before = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="toolkeep-demo-", ignore_cleanup_errors=True) as made:
        root = Path(os.path.realpath(made))
        place = DemoFolder(root / "project", root / "state", before)
        for folder in (place.project, place.state, root / "home"):
            folder.mkdir(mode=0o700)
        (place.project / "notes.md").write_text(NOTES, encoding="utf-8")
        os.environ.update(TOOLKEEP_HOME=str(place.state), HOME=str(root / "home"))
        try:
            with contextlib.chdir(place.project):
                yield place
        finally:
            os.environ.clear()
            os.environ.update(before)


@tool(effects="none")
def order_status(order: int) -> str:
    """Tell the status of an order.

    Args:
        order: The number of the order.
    """
    return f"Order {order}: delivered, paid 24.00 EUR"


@tool(danger="high", side_effects=["Writes"])
def refund(order: int, cents: int) -> str:
    """Pay a customer back.

    Args:
        order: The number of the order.
        cents: The amount, in cents.
    """
    return f"Refunded {cents / 100:.2f} EUR for order {order}"


def open_demo_keep(project: Path) -> Keep:
    """A keep with the example tools and one agent, which may use the project's folder and nothing else."""
    keep = open_keep(project=project, approver=defer_to_inbox, approval_wait_s=_WAIT_S, follow_store=False)
    keep.register(order_status)
    keep.register(refund)
    keep.declare_agent(
        AGENT,
        capabilities=("fs.read:.", "fs.write:."),
        permissions=("tool.filesystem.read", "tool.filesystem.write"),
    )
    return keep


def make_calls(keep: Keep, tell: Tell, *, is_confined: bool) -> None:
    """Make the calls of the example agent: one runs, one is refused, the others wait on the page.

    `is_confined` says whether built-in tools can run on this machine.
    """
    _tell_outcome(tell, "order_status", _made(keep, "order_status", {"order": 1042}))
    _tell_outcome(tell, "read_file", _made(keep, "read_file", {"path": "/etc/passwd"}))
    _ask(keep, tell, "refund", {"order": 1042, "cents": 2400})
    if is_confined:
        changed = f"{NOTES}- Order 1042 was refunded.\n"
        _ask(keep, tell, "write_file", {"path": "notes.md", "content": changed})


def _made(keep: Keep, name: str, arguments: Mapping[str, Any]) -> ToolResult:
    return keep.call_sync(name, dict(arguments), agent=AGENT)


def _ask(keep: Keep, tell: Tell, name: str, arguments: Mapping[str, Any]) -> None:
    """Make a call in a thread of its own, where it waits for a person."""

    def wait() -> None:
        with contextlib.suppress(Exception):  # the demo ends: the call is cancelled
            _tell_outcome(tell, name, _made(keep, name, arguments))

    threading.Thread(target=wait, name=f"demo-{name}", daemon=True).start()
    tell(f"{name}: waits for your approval on the page")


def _tell_outcome(tell: Tell, name: str, result: ToolResult) -> None:
    said = result.text if result.status == "ok" else result.text.partition("\n- ")[2]
    tell(f"{name}: {'ran' if result.status == 'ok' else 'refused'}: {said.splitlines()[0] if said else ''}")
