"""A thousand calls at once, of every kind and every ending, leave nothing behind."""

import asyncio
import gc
import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.calls.claims import open_claims
from toolkeep import Code, Keep, ToolContext, tool
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.limits import CallLimits
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.storage.log.verify_folder import verify

pytestmark = pytest.mark.spec("EXE-7")

CALLS = 1000
LIMITS = CallLimits(agent_concurrency=200, tool_concurrency=20, queue=2000, failures_in_a_row=10_000)
NARROW = CallLimits(agent_concurrency=8, tool_concurrency=4, queue=10, failures_in_a_row=3)


def tools(may_end: threading.Event) -> list[Any]:
    @tool(side_effects=["None"])
    async def add(a: int, b: int = 1) -> int:
        """Add two numbers."""
        await asyncio.sleep(0)
        return a + b

    @tool
    def add_in_thread(a: int) -> int:
        """Add one, in a thread."""
        return a + 1

    @tool
    async def fail() -> None:
        """Fail, politely."""
        raise ToolFailed("told to")

    @tool
    async def break_down() -> None:
        """Fail, impolitely."""
        raise RuntimeError("hidden")

    @tool(side_effects=["None"])
    async def hang(context: ToolContext) -> None:
        """Run until it is cancelled."""
        await asyncio.Event().wait()

    @tool(side_effects=["None"])
    def hang_in_thread() -> None:
        """Run until the test lets it end, whatever the caller does."""
        may_end.wait()

    return [add, add_in_thread, fail, break_down, hang, hang_in_thread]


KINDS: dict[str, tuple[dict[str, Any], Code | None]] = {
    "async": ({"name": "add", "arguments": {"a": 1}}, None),
    "sync": ({"name": "add_in_thread", "arguments": {"a": 1}}, None),
    "keyed": ({"name": "add", "arguments": {"a": 1}, "idempotency_key": "key"}, None),
    "failed": ({"name": "fail", "arguments": {}}, Code.TOOL_FAILED),
    "keyed and failed": ({"name": "fail", "arguments": {}, "idempotency_key": "key"}, Code.TOOL_FAILED),
    "broken": ({"name": "break_down", "arguments": {}}, Code.TOOL_FAILED),
    "timed out": ({"name": "hang", "arguments": {}, "timeout_s": 0.001}, Code.TIMED_OUT),
    "unknown": ({"name": "no_such_tool", "arguments": {}}, Code.UNKNOWN_TOOL),
    "invalid": ({"name": "add", "arguments": {"a": "1"}}, None),
    "stranger": ({"name": "add", "arguments": {"a": 1}, "agent": "stranger"}, Code.AGENT_UNKNOWN),
    "asks": ({"name": "add", "arguments": {"a": 1}, "confirm": True}, Code.APPROVAL_NEEDED),
    "cancelled": ({"name": "hang", "arguments": {}, "idempotency_key": "key"}, None),
    "cancelled in a thread": ({"name": "add_in_thread", "arguments": {"a": 1}}, None),
    "cancelled midway": ({"name": "add", "arguments": {"a": 1}, "idempotency_key": "key"}, None),
    "cancelled midway while writing": (
        {"name": "add_in_thread", "arguments": {"a": 1}, "idempotency_key": "key"},
        None,
    ),
    "cancelled at once": ({"name": "add", "arguments": {"a": 1}, "idempotency_key": "key"}, None),
}
"""What is called, and the code that must come of it where there is no doubt."""


async def one(keep: Keep, kind: str, number: int) -> str:
    """How one call ended: `ok`, a code, or `cancelled`."""
    sent, _ = KINDS[kind]
    if "idempotency_key" in sent:
        sent = {**sent, "idempotency_key": f"key-{number}"}
    call = asyncio.create_task(keep.call(**sent))
    if kind.startswith("cancelled"):
        for _ in range(0 if kind.endswith("once") else number % 50):
            await asyncio.sleep(0)
        call.cancel()
    try:
        result = await call
    except asyncio.CancelledError:
        return "cancelled"
    return result.code.value if result.code else "ok"


def files() -> list[str]:
    """What this process has open, the folder of the list itself left out."""
    gc.collect()  # what other tests left behind does not count
    return sorted(str(path.readlink()) for path in list(Path("/proc/self/fd").iterdir()) if path.is_symlink())


def join_tools() -> None:
    for thread in threading.enumerate():
        if thread.name == "toolkeep-tool":
            thread.join()


async def load(keep: Keep, kinds: list[str]) -> tuple[list[str], int]:
    """How each call ended, and how many tasks are left after the last of them."""
    async with asyncio.timeout(60):  # a slot that is not given back would keep the others waiting for ever
        endings = await asyncio.gather(*(one(keep, kind, number) for number, kind in enumerate(kinds)))
    return endings, len(asyncio.all_tasks()) - 1


@pytest.mark.parametrize("limits", [LIMITS, NARROW], ids=["wide limits", "narrow limits"])
def test_a_thousand_calls_of_every_kind_leave_nothing_behind(tmp_path: Path, limits: CallLimits) -> None:
    folder, may_end = tmp_path / "state", threading.Event()
    random.seed(7)
    kinds = [kind for kind in KINDS for _ in range(CALLS // len(KINDS) + 1)][:CALLS]
    random.shuffle(kinds)
    threads, open_files = set(threading.enumerate()), files()
    keep = Keep(call_limits=limits, record=lambda: FileRecord(folder))
    keep.register(*tools(may_end))

    endings, tasks_left = asyncio.run(load(keep, kinds))

    keep.close()
    join_tools()
    assert (tasks_left, keep._pipeline.admission.running) == (0, 0)
    assert set(threading.enumerate()) <= threads
    assert files() == open_files
    assert open_claims(folder) == 0
    assert verify(folder).findings == ()
    if limits is LIMITS:
        seen = {
            kind: Counter(ending for of, ending in zip(kinds, endings, strict=True) if of == kind)
            for kind in KINDS
        }
        for kind, (_, code) in KINDS.items():
            if kind.startswith("cancelled"):
                assert set(seen[kind]) <= {"cancelled", "ok"}
            elif kind != "invalid":
                assert set(seen[kind]) == {code.value if code else "ok"}
        assert seen["cancelled"].keys() == {"cancelled"}
    else:
        assert Code.QUEUE_FULL.value in endings


def test_threads_that_cannot_be_stopped_hold_their_slots_until_they_end(tmp_path: Path) -> None:
    may_end = threading.Event()
    threads, open_files = set(threading.enumerate()), files()
    keep = Keep(call_limits=LIMITS, record=lambda: FileRecord(tmp_path / "state"))
    keep.register(*tools(may_end))

    async def scenario() -> list[Code | None]:
        calls = [keep.call("hang_in_thread", {}, timeout_s=0.01) for _ in range(20)]
        return [result.code for result in await asyncio.gather(*calls)]

    assert asyncio.run(scenario()) == [Code.TIMED_OUT] * 20
    assert keep._pipeline.admission.running == 20
    may_end.set()
    keep.close()
    join_tools()
    assert keep._pipeline.admission.running == 0
    assert set(threading.enumerate()) <= threads
    assert files() == open_files
