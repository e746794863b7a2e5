"""Idempotency keys through a keep with a real folder: a keyed call runs once, whatever happens."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.calls.claims import open_claims
from toolkeep import Code, Keep, ToolDefinition, tool
from toolkeep.calls import ToolResult
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.execution import client_results as pending_module
from toolkeep.policy.policy_settings import DEFAULT_GRANT, PolicySettings
from toolkeep.storage.log.file_records import FileRecord

pytestmark = pytest.mark.spec("EXE-9")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


class Counter:
    """Tools that count their runs."""

    def __init__(self) -> None:
        self.runs: list[Any] = []

    def tools(self) -> list[Any]:
        @tool(danger="safe")
        async def count(n: int, how: str = "well") -> Any:
            """Count its runs."""
            self.runs.append(n)
            if how == "fail":
                raise ToolFailed("told to")
            if how == "raise":
                raise RuntimeError("hidden")
            return {"run": len(self.runs), "n": n}

        @tool
        async def count_elsewhere(n: int) -> int:
            """Count its runs, too."""
            self.runs.append(n)
            return len(self.runs)

        @tool(result_type="binary")
        async def give_bytes() -> bytes:
            """Give bytes."""
            self.runs.append("bytes")
            return b"\x00\xff"

        @tool
        async def give_large() -> Any:
            """Give an integer beyond 64 bits."""
            self.runs.append("large")
            return {"n": 2**100}

        asking = {"name": "ask_user", "description": "Ask the user.", "client_executed": True}
        return [count, count_elsewhere, give_bytes, give_large, ToolDefinition.from_dict(asking)]


def opened(folder: Path, counter: Counter) -> Keep:
    policy = PolicySettings(agents={"planner": DEFAULT_GRANT})
    keep = Keep(record=lambda: FileRecord(folder), policy=policy)
    keep.register(*counter.tools())
    return keep


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def keep(folder: Path, counter: Counter) -> Iterator[Keep]:
    with opened(folder, counter) as keep:
        yield keep


def call(keep: Keep, name: str = "count", arguments: Any = None, **options: Any) -> ToolResult:
    sent = {"n": 1} if arguments is None else arguments
    return asyncio.run(keep.call(name, sent, **{"idempotency_key": "key-1", **options}))


def same(first: ToolResult, second: ToolResult) -> bool:
    """Whether the second is the recorded first."""
    names = set(first.to_dict()) - {"leaf", "is_repeated"}
    return {name: first.to_dict()[name] for name in names} == {name: second.to_dict()[name] for name in names}


@pytest.mark.parametrize(
    ("name", "arguments"),
    [("count", {"n": 1}), ("give_bytes", {}), ("give_large", {})],
)
def test_a_retried_call_returns_the_recorded_result(
    keep: Keep, counter: Counter, name: str, arguments: Any
) -> None:
    first = call(keep, name, arguments)
    second = call(keep, name, arguments)
    assert first.ok
    assert (first.is_repeated, second.is_repeated) == (False, True)
    assert same(first, second)
    assert second.value == first.value
    assert len(counter.runs) == 1


def test_a_result_outlasts_the_keep(folder: Path, counter: Counter) -> None:
    with opened(folder, counter) as keep:
        first = call(keep)
    with opened(folder, counter) as keep:
        second = call(keep)
    assert second.is_repeated
    assert same(first, second)
    assert counter.runs == [1]


def test_calls_without_a_key_run_each_time(keep: Keep, counter: Counter) -> None:
    assert [call(keep, idempotency_key="").value["run"] for _ in range(2)] == [1, 2]


def test_equal_arguments_count_as_the_same_call_however_they_are_written(
    keep: Keep, counter: Counter
) -> None:
    call(keep, arguments='{"n": 1, "how": "well"}')
    assert call(keep, arguments={"n": 1.0}).is_repeated
    assert counter.runs == [1]


def test_the_same_key_with_other_arguments_is_a_conflict(keep: Keep, counter: Counter) -> None:
    call(keep)
    result = call(keep, arguments={"n": 2})
    assert (result.code, result.is_repeated, counter.runs) == (Code.KEY_CONFLICT, False, [1])


@pytest.mark.parametrize(
    "changed",
    [
        {"agent": "planner"},
        {"conversation": "talk-2"},
        {"name": "count_elsewhere"},
        {"idempotency_key": "key-2"},
    ],
    ids=["agent", "conversation", "tool", "key"],
)
def test_a_key_counts_for_one_agent_conversation_and_tool(
    keep: Keep, counter: Counter, changed: dict[str, str]
) -> None:
    call(keep)
    assert call(keep, **changed).is_repeated is False
    assert len(counter.runs) == 2


def test_parts_of_a_scope_cannot_be_moved_from_one_to_the_next(keep: Keep, counter: Counter) -> None:
    call(keep, conversation="a", idempotency_key="b\x00count\x00c")
    call(keep, conversation="a\x00count\x00b", idempotency_key="c")
    assert len(counter.runs) == 2


def test_a_session_is_not_part_of_the_scope(keep: Keep, counter: Counter) -> None:
    call(keep, session="session-1", correlation_id="correlation-1")
    assert call(keep, session="session-2", correlation_id="correlation-2").is_repeated
    assert counter.runs == [1]


def test_calls_with_one_key_at_once_run_once(folder: Path) -> None:
    runs: list[int] = []

    async def scenario() -> list[ToolResult]:
        may_end = asyncio.Event()

        @tool
        async def hold() -> int:
            """Run until the test lets it end."""
            runs.append(1)
            await may_end.wait()
            return 1

        with Keep(record=lambda: FileRecord(folder)) as keep:
            keep.register(hold)
            calls = [asyncio.create_task(keep.call("hold", {}, idempotency_key="key-1")) for _ in range(5)]
            await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            others = [one for one in calls if one.done()]
            while len(others) < 4:
                done, _ = await asyncio.wait(set(calls) - set(others), return_when=asyncio.FIRST_COMPLETED)
                others += done
            may_end.set()
            return [await one for one in [*others, *(set(calls) - set(others))]]

    results = asyncio.run(scenario())
    assert [result.code for result in results] == [Code.KEY_CONFLICT] * 4 + [None]
    assert runs == [1]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"confirm": True}, Code.APPROVAL_NEEDED),
        ({"agent": "stranger"}, Code.AGENT_UNKNOWN),
        ({"timeout_s": 1000}, Code.OPTION_REFUSED),
        ({"arguments": {"n": "1"}}, Code.WRONG_TYPE),
    ],
)
def test_a_call_refused_before_it_ran_leaves_its_key_free(
    keep: Keep, counter: Counter, options: dict[str, Any], code: Code
) -> None:
    assert call(keep, **options).code is code
    result = call(keep)
    assert (result.ok, result.is_repeated, counter.runs) == (True, False, [1])


@pytest.mark.parametrize("how", ["fail", "raise"])
def test_a_failure_is_remembered(keep: Keep, counter: Counter, how: str) -> None:
    first = call(keep, arguments={"n": 1, "how": how})
    second = call(keep, arguments={"n": 1, "how": how})
    assert (first.code, second.code, second.is_repeated) == (Code.TOOL_FAILED, Code.TOOL_FAILED, True)
    assert same(first, second)
    assert counter.runs == [1]


def test_the_receipt_of_a_retried_call_is_that_of_the_recorded_result(keep: Keep) -> None:
    first, second = call(keep), call(keep)
    receipts = [asyncio.run(keep.receipt(result)) for result in (first, second)]
    assert [receipt.entry for receipt in receipts] == [receipts[0].entry] * 2
    assert receipts[1].entry.record["result_hash"] == first.hash


def test_a_pending_call_is_handed_out_once_and_its_result_is_remembered(keep: Keep, folder: Path) -> None:
    pending = call(keep, "ask_user", {})
    assert call(keep, "ask_user", {}).code is Code.KEY_CONFLICT
    submitted = asyncio.run(keep.submit(pending.call_id, "blue"))
    again = call(keep, "ask_user", {})
    assert (again.value, again.is_repeated, again.call_id) == ("blue", True, pending.call_id)
    assert same(submitted, again)
    assert open_claims(folder) == 0


def test_the_key_of_a_pending_call_that_gave_way_says_that_nobody_knows_its_outcome(
    keep: Keep, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_module, "PENDING_CALLS", 1)
    first, second = (call(keep, "ask_user", {}, idempotency_key=key) for key in ("first", "second"))
    assert asyncio.run(keep.submit(first.call_id, "blue")).code is Code.NOT_PENDING
    again = call(keep, "ask_user", {}, idempotency_key="first")
    assert (again.code, again.call_id, again.is_repeated) == (Code.OUTCOME_UNKNOWN, first.call_id, True)
    assert asyncio.run(keep.submit(second.call_id, "blue")).ok
    assert open_claims(folder) == 0


def test_a_recorded_result_is_returned_even_while_the_tool_is_suspended(keep: Keep, counter: Counter) -> None:
    first = call(keep)
    for number in range(6):
        call(keep, arguments={"n": 1, "how": "raise"}, idempotency_key=f"failing-{number}")
    assert call(keep, idempotency_key="").code is Code.CIRCUIT_OPEN
    assert same(first, call(keep))


WORKER = """
import asyncio, sys
from pathlib import Path
from toolkeep import Keep, tool
from toolkeep.storage.log.file_records import FileRecord

@tool
async def count(n: int, how: str = "well") -> int:
    "Count its runs."
    print("inside", flush=True)
    await asyncio.Event().wait()
    return 1

keep = Keep(record=lambda: FileRecord(Path(sys.argv[1])))
keep.register(count)
asyncio.run(keep.call("count", {"n": 1}, idempotency_key="key-1"))
"""


def test_a_call_whose_process_was_killed_is_unknown_and_never_run_again(
    folder: Path, counter: Counter
) -> None:
    process = subprocess.Popen([sys.executable, "-c", WORKER, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "inside\n"
    with opened(folder, counter) as keep:
        assert call(keep).code is Code.KEY_CONFLICT
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        assert [call(keep).code for _ in range(2)] == [Code.OUTCOME_UNKNOWN] * 2
        assert call(keep, arguments={"n": 2}).code is Code.KEY_CONFLICT
        assert counter.runs == []
        assert call(keep, idempotency_key="key-2").ok


def test_a_ledger_that_cannot_be_used_refuses_the_call(folder: Path, counter: Counter) -> None:
    folder.mkdir(mode=0o755)
    with opened(folder, counter) as keep:
        assert call(keep).code is Code.NOT_RECORDED
    assert counter.runs == []


def test_a_ledger_that_was_emptied_lets_nothing_run_twice(folder: Path, counter: Counter) -> None:
    with opened(folder, counter) as keep:
        assert call(keep).ok
    (folder / "ledger.db").write_bytes(b"")
    with opened(folder, counter) as keep:
        assert call(keep).code is Code.NOT_RECORDED
    assert len(counter.runs) == 1


def test_a_ledger_that_was_removed_lets_nothing_run_twice(folder: Path, counter: Counter) -> None:
    with opened(folder, counter) as keep:
        assert call(keep).ok
    for file in folder.glob("ledger.db*"):
        file.unlink()
    with opened(folder, counter) as keep:
        assert call(keep).code is Code.NOT_RECORDED
        assert not (folder / "ledger.db").exists()
    assert len(counter.runs) == 1


def test_a_ledger_that_is_removed_under_an_open_keep_lets_nothing_run_twice(
    folder: Path, counter: Counter
) -> None:
    with opened(folder, counter) as keep:
        assert call(keep).ok
        for file in folder.glob("ledger.db*"):
            file.unlink()
        assert call(keep).code is Code.NOT_RECORDED
    assert len(counter.runs) == 1


def test_a_ledger_is_begun_anew_by_whoever_removes_its_mark_too(folder: Path, counter: Counter) -> None:
    with opened(folder, counter) as keep:
        assert call(keep).ok
    for file in (*folder.glob("ledger.db*"), folder / "keys" / "ledger.made"):
        file.unlink()
    with opened(folder, counter) as keep:
        assert call(keep).ok
    assert len(counter.runs) == 2


@pytest.mark.parametrize("writes", [True, False])
def test_a_call_that_its_caller_gave_up_says_no_call_it_again_under_its_key(
    folder: Path, writes: bool
) -> None:
    async def scenario() -> ToolResult:
        begun = asyncio.Event()

        @tool(
            danger="safe",
            side_effects=["DbWrite"] if writes else [],
            capabilities=["db.write:x"] if writes else [],
        )
        async def linger() -> str:
            """Take long."""
            begun.set()
            await asyncio.Event().wait()
            return ""

        record = FileRecord(folder)
        with Keep(record=lambda: record) as keep:
            keep.declare_agent("local", capabilities=["db.write:x"])
            keep.register(linger)
            first = asyncio.create_task(keep.call("linger", {}, idempotency_key="key"))
            await begun.wait()
            first.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await first
            return await keep.call("linger", {}, idempotency_key="key")

    result = asyncio.run(scenario())
    assert (result.code, result.is_repeated) == (Code.CANCELLED, True)
    hint = "Find out what it did" if writes else "Call it again, with a new key, if it is needed"
    assert hint in result.text


@pytest.mark.parametrize("spoilt", ["result = x'ff00'", "result = x'7b7d'", "result = NULL, owner = 'x-y'"])
def test_a_claim_that_cannot_be_read_is_unknown_and_never_run_again(
    folder: Path, counter: Counter, spoilt: str
) -> None:
    with opened(folder, counter) as keep:
        assert call(keep).ok
    with contextlib.closing(sqlite3.connect(folder / "ledger.db")) as ledger:
        ledger.execute(f"UPDATE claims SET {spoilt}")  # noqa: S608 -- from above
        ledger.commit()
    with opened(folder, counter) as keep:
        assert call(keep).code is Code.OUTCOME_UNKNOWN
    assert len(counter.runs) == 1
