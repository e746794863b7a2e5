"""Claims: made once whoever tries, finished, released, and unknown after a crash. In memory and in a file."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from asyncio import run
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from toolkeep.calls import Advice, Approval, Decision, Refusal, ToolResult, Truncation, Violation
from toolkeep.errors import Code, StateUnusable
from toolkeep.execution.idempotency import Claim, IdempotentResult, Ledger, MemoryLedger, decode, encode
from toolkeep.storage.postgres.ledger_table import PostgresLedger
from toolkeep.storage.postgres.shared_changes import SharedChanges
from toolkeep.storage.postgres.shared_database import SharedDatabase
from toolkeep.storage.row_key import RowKey
from toolkeep.storage.sql.database_location import SCHEMA, PostgresLocation
from toolkeep.storage.sqlite.ledger_db import SqliteLedger

EACH = pytest.mark.parametrize("kind", ["memory", "file", "postgres"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def ledger(kind: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Ledger]:
    if kind == "memory":
        yield MemoryLedger()
    elif kind == "file":
        with contextlib.closing(SqliteLedger(folder)) as ledger:
            yield ledger
    else:
        place = PostgresLocation(request.getfixturevalue("postgres").clean())
        with contextlib.closing(SharedDatabase(place, is_single=True)) as database:
            presence = SharedChanges(database, "server")
            presence.start()
            seen(database)
            yield PostgresLedger(database, RowKey(b"key"))
            presence.close()


def seen(database: SharedDatabase) -> None:
    """Wait until the presence of a server is in the database."""
    query = f"SELECT 1 FROM {SCHEMA}.shared_servers WHERE id = %s"  # noqa: S608 -- our own words
    while not database.change(lambda connection: connection.execute(query, (database.server,)).fetchone()):
        time.sleep(0.01)


RUNNING = IdempotentResult(state="running", argument_hash="arguments-1")
DONE = IdempotentResult(state="done", argument_hash="arguments-1", result=b"result-1")

STEPS: dict[str, tuple[list[tuple[str, ...]], IdempotentResult | None]] = {
    "nothing before": ([], None),
    "another key": ([("claim", "key-2", "call-1", "arguments-1")], None),
    "claimed": ([("claim", "key-1", "call-1", "arguments-1")], RUNNING),
    "claimed twice": ([("claim", "key-1", "call-1", "arguments-1"), ("claim", "key-1", "call-0", "other")], RUNNING),
    "finished": ([("claim", "key-1", "call-1", "arguments-1"), ("finish", "key-1", "call-1", "result-1")], DONE),
    "finished by another call": (
        [("claim", "key-1", "call-1", "arguments-1"), ("finish", "key-1", "call-2", "result-1")], RUNNING,
    ),
    "released": ([("claim", "key-1", "call-1", "arguments-1"), ("release", "key-1", "call-1")], None),
    "released twice": ([("claim", "key-1", "call-1", "a"), ("release", "key-1", "call-1"), ("release", "key-1", "call-1")], None),
    "released by another call": ([("claim", "key-1", "call-1", "arguments-1"), ("release", "key-1", "call-2")], RUNNING),
    "released and never claimed": ([("release", "key-1", "call-1")], None),
    "released and claimed": (
        [("claim", "key-1", "call-1", "a"), ("release", "key-1", "call-1"), ("claim", "key-1", "call-3", "arguments-1")],
        RUNNING,
    ),
}  # fmt: skip


@EACH
@pytest.mark.parametrize("case", STEPS)
def test_what_a_claim_finds(ledger: Ledger, case: str) -> None:
    steps, expected = STEPS[case]
    for action, *values in steps:
        if action == "finish":
            run(ledger.finish(values[0], values[1], "arguments-1", values[2].encode()))
        else:
            run(getattr(ledger, action)(*values))
    assert run(ledger.claim("key-1", "call-2", "arguments-1")) == expected


@EACH
def test_a_result_stays_when_its_claim_is_released(ledger: Ledger) -> None:
    run(ledger.claim("key-1", "call-1", "arguments-1"))
    run(ledger.finish("key-1", "call-1", "arguments-1", b"result-1"))
    run(ledger.release("key-1", "call-1"))
    assert run(ledger.claim("key-1", "call-2", "arguments-1")) == DONE


@EACH
def test_of_eight_threads_exactly_one_claims_a_key(ledger: Ledger) -> None:
    barrier = threading.Barrier(8)

    def claim_all(thread: int) -> list[bool]:
        barrier.wait()
        return [run(ledger.claim(f"key-{key}", f"call-{thread}", "arguments")) is None for key in range(20)]

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(claim_all, range(8)))
    assert [sum(column) for column in zip(*won, strict=True)] == [1] * 20


# --- claims of calls ---------------------------------------------------------------------------------


class Broken:
    """A ledger on a full disk."""

    async def claim(self, key: str, call_id: str, argument_hash: str) -> IdempotentResult | None:
        raise StateUnusable("ledger.db", "disk full", hint="")

    async def finish(self, key: str, call_id: str, argument_hash: str, result: bytes) -> None:
        raise StateUnusable("ledger.db", "disk full", hint="")

    async def release(self, key: str, call_id: str) -> None:
        raise StateUnusable("ledger.db", "disk full", hint="")

    def close(self) -> None:
        pass


RESULT = ToolResult(status="ok", tool="t", call_id="1", agent="local")


def test_a_claim_that_cannot_be_settled_is_logged_and_does_not_raise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    claim = Claim(Broken(), "key-1")
    run(claim.finish(RESULT))
    run(claim.release())
    assert [record.getMessage() for record in caplog.records] == ["a claim could not be settled"] * 2


@pytest.mark.parametrize("claim", [Claim(None, ""), Claim(Broken(), "")], ids=["no ledger", "no key"])
def test_the_claim_of_a_call_without_a_key_does_nothing(
    claim: Claim, caplog: pytest.LogCaptureFixture
) -> None:
    run(claim.finish(RESULT))
    run(claim.release())
    assert caplog.records == []  # a ledger that was asked would have failed, and said so


VALUES: dict[str, Any] = {
    "null": None,
    "text": 'é🙂\x00"\\',
    "bytes": bytes(range(256)),
    "no bytes": b"",
    "integer beyond 64 bits": {"n": [2**64, -(2**100)]},
    "floats": [0.1, 1e300, 5e-324, -0.0],
    "nested": {"a": [{"b": None}, True]},
}


@pytest.mark.parametrize("case", VALUES)
def test_a_result_is_decoded_as_it_was_encoded(case: str) -> None:
    value = VALUES[case]
    error = Violation("/a", Code.CONSTRAINT, "wrong", "right", None, "fix it")
    result = ToolResult(
        status="ok",
        tool="t",
        call_id="1",
        agent="local",
        value=value,
        error=Refusal(
            tool="t",
            errors=(error,),
            advice=Advice("t()", ({"op": "remove", "path": "/a"},)),
            correlation_id="c",
        ),
        hash="h",
        decision=Decision(
            decision="deny",
            policies=("p",),
            policy_set_hash="h",
            request_hash="r",
            capabilities=("fs.read",),
            touches=("fs.read:/a",),
            decided_at="now",
        ),
        approval=Approval(approver="Ada", way="web", id="question-1"),
        truncation=Truncation(full_bytes=3, reference="r"),
        side_effects=("FsRead",),
        isolation="none",
        execute_ms=1.5,
        leaf=7,
    )
    again = decode(encode(result))
    assert (again.value, type(again.value)) == (value, type(value))
    assert again.to_dict() == result.to_dict()
    assert again.approval == result.approval
    assert again.text == result.text


# --- in a file ---------------------------------------------------------------------------------------


def open_files(folder: Path) -> list[str]:
    """What this process has open in a folder."""
    links = [path.readlink() for path in list(Path("/proc/self/fd").iterdir()) if path.is_symlink()]
    return [str(link) for link in links if link.is_relative_to(folder)]


def test_nothing_is_made_before_the_first_claim(folder: Path) -> None:
    SqliteLedger(folder).close()
    assert not folder.exists()


def test_results_outlast_the_ledger_and_closing_leaves_no_file_open(folder: Path) -> None:
    first = SqliteLedger(folder)
    assert run(first.claim("key-1", "call-1", "arguments-1")) is None
    run(first.finish("key-1", "call-1", "arguments-1", b"result-1"))
    assert open_files(folder) != []
    first.close()
    assert open_files(folder) == []
    second = SqliteLedger(folder)
    assert run(second.claim("key-1", "call-2", "arguments-1")) == DONE
    second.close()


def test_two_ledgers_of_one_folder_see_the_same_claims(folder: Path) -> None:
    first, second = SqliteLedger(folder), SqliteLedger(folder)
    run(first.claim("key-1", "call-1", "arguments-1"))
    assert run(second.claim("key-1", "call-2", "arguments-1")) == RUNNING
    run(second.finish("key-1", "call-1", "arguments-1", b"result-1"))
    assert run(first.claim("key-1", "call-3", "arguments-1")) == DONE
    first.close()
    second.close()


def test_a_folder_that_cannot_be_used_is_named(folder: Path) -> None:
    folder.mkdir(mode=0o755)
    with pytest.raises(StateUnusable):
        run(SqliteLedger(folder).claim("key-1", "call-1", "arguments-1"))


def test_a_file_that_cannot_be_used_is_named_and_nothing_stays_open(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    (folder / "ledger.db").mkdir()
    ledger = SqliteLedger(folder)
    for _ in range(3):
        with pytest.raises(StateUnusable):
            run(ledger.claim("key-1", "call-1", "arguments-1"))
    assert open_files(folder) == []


PROCESS = """
import sys
from asyncio import run
from pathlib import Path
from toolkeep.storage.sqlite.ledger_db import SqliteLedger

ledger = SqliteLedger(Path(sys.argv[1]))
"""

Starts = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(folder: Path) -> Iterator[Starts]:
    """Starts processes that share the folder, and ends them after the test."""
    started: list[subprocess.Popen[str]] = []

    def start(code: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", PROCESS + textwrap.dedent(code), str(folder)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


HOLD = """
print(run(ledger.claim("key-1", "call-1", "arguments-1")), flush=True)
input()
"""


def test_a_claim_of_a_living_process_is_running_and_of_a_killed_one_unknown(
    folder: Path, start: Starts
) -> None:
    process = start(HOLD)
    assert said(process) == "None"
    ledger = SqliteLedger(folder)
    assert run(ledger.claim("key-1", "call-2", "arguments-1")) == RUNNING
    process.send_signal(signal.SIGKILL)
    process.wait()
    for _ in range(2):
        found = run(ledger.claim("key-1", "call-2", "arguments-1"))
        assert found == IdempotentResult(state="unknown", argument_hash="arguments-1")
    ledger.close()


def test_a_claim_of_a_killed_process_is_unknown_before_anybody_asks_how_it_ended(
    folder: Path, start: Starts
) -> None:
    """In a container without an init, a process that was killed stays in the table of processes."""
    process = start(HOLD)
    assert said(process) == "None"
    process.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    ledger = SqliteLedger(folder)
    found = run(ledger.claim("key-1", "call-2", "arguments-1"))
    ledger.close()
    assert found == IdempotentResult(state="unknown", argument_hash="arguments-1")


def test_a_child_that_outlives_a_killed_process_does_not_keep_its_claims_alive(
    folder: Path, start: Starts
) -> None:
    process = start(
        """
        import os
        run(ledger.claim("key-1", "call-1", "arguments-1"))
        child = os.fork()
        if child == 0:
            print(os.getpid(), flush=True)
            sys.stdin.read()
            os._exit(0)
        os.waitpid(child, 0)
        """
    )
    child = int(said(process))
    ledger = SqliteLedger(folder)
    assert run(ledger.claim("key-1", "call-2", "arguments-1")) == RUNNING
    process.send_signal(signal.SIGKILL)
    process.wait()
    try:
        found = run(ledger.claim("key-1", "call-2", "arguments-1"))
    finally:
        os.kill(child, signal.SIGKILL)
    assert found == IdempotentResult(state="unknown", argument_hash="arguments-1")
    ledger.close()


def test_of_two_processes_exactly_one_claims_a_key(start: Starts) -> None:
    code = """
    print("ready", flush=True)
    input()
    won = [run(ledger.claim(f"key-{key}", "call", "arguments")) is None for key in range(40)]
    print("".join(map(str, map(int, won))), flush=True)
    input()
    """
    processes = [start(code) for _ in range(2)]
    assert [said(process) for process in processes] == ["ready", "ready"]
    for process in processes:
        tell(process, "go")
    won = [said(process) for process in processes]
    assert [int(a) + int(b) for a, b in zip(*won, strict=True)] == [1] * 40
