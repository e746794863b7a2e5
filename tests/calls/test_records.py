"""What calls leave in the log and beside it: the chain of each call, hashes, and never a secret."""

import asyncio
import base64
import contextlib
import errno
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import BaseModel

from toolkeep import Code, Keep, Secret, ToolDefinition, tool
from toolkeep.audit.entry import Leaf
from toolkeep.audit.kept_refusal import KeptRefusal, parse_kept
from toolkeep.calls import ToolResult
from toolkeep.config.settings import Run
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.parameter_marks import Touches
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.errors import StateUnusable
from toolkeep.json_values.canonical import canonical_bytes, canonical_hash
from toolkeep.limits import BODY_ARGUMENT_BYTES, CallLimits
from toolkeep.policy.policy_settings import DEFAULT_GRANT, Grant, PolicySettings
from toolkeep.registry.coerce import Offer
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.storage.log.file_records import FileRecord
from toolkeep.stores.records import MemoryRecord

pytestmark = pytest.mark.spec("AUD-1", "AUD-5")

SECRET = 'hunter2-"Ωmega"-S3CRET-0123456789'
PIN = 924681357


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture(autouse=True)
def _in_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A working folder with the data that tools say they touch."""
    project = tmp_path / "project"
    (project / "data").mkdir(parents=True)
    monkeypatch.chdir(project)


MAY_WRITE = PolicySettings(
    agents={
        "local": Grant(capabilities=(*DEFAULT_GRANT.capabilities, Capability("fs.write", "./data"))),
        "planner": DEFAULT_GRANT,
    }
)

WRITES: dict[str, Any] = {"danger": "safe", "side_effects": ["FsWrite"], "capabilities": ["fs.write:./data"]}


@tool(side_effects=["FsRead"], capabilities=["fs.read:./data"])
async def read(path: str, how: str = "well") -> str:
    """Read a file."""
    if how == "fail":
        raise ToolFailed("told to")
    return f"content of {path}"


@tool(name="write", description="Write a file", **WRITES)
async def write(path: str) -> int:
    return len(path)


@tool(danger="high")
async def erase() -> None:
    """Erase everything."""


@tool(required_permissions=["tool.communication.send"])
async def send() -> None:
    """Send a letter."""


ASK = ToolDefinition.from_dict({
    "name": "ask_user", "description": "Ask the user.", "client_executed": True, "side_effects": ["None"],
})  # fmt: skip


DESCRIBED = ToolDefinition.from_dict({"name": "describe_only", "description": "Is only described."})


UNCONFINED = Offer(
    tool={"name": "unconfined", "description": "Run at none.", "constraints": {"required_isolation": "none"}},
    runner=Run(kind="python", target="os:getpid"),
)


def records_of(record: MemoryRecord) -> list[dict[str, Any]]:
    return [entry.record for entry in record.log.entries]


def called(*calls: dict[str, Any], **options: Any) -> tuple[list[ToolResult], list[dict[str, Any]]]:
    """Results of calls one after another, and every record they left."""
    record = MemoryRecord()
    keep = Keep(record=lambda: record, **{"policy": MAY_WRITE, **options})
    keep.register(read, write, erase, send, UNCONFINED, DESCRIBED, ASK)

    async def scenario() -> list[ToolResult]:
        return [await keep.call(**one) for one in calls]

    return asyncio.run(scenario()), records_of(record)


READ = {"name": "read", "arguments": {"path": "a.txt"}}
WRITE = {"name": "write", "arguments": {"path": "a.txt"}}
BEGINNING = ["ToolInvoked", "CapabilityCheck", "PolicyDecision"]


def types(records: Sequence[dict[str, Any]]) -> list[str]:
    return [record["type"] for record in records]


# --- the chain ---------------------------------------------------------------------------------------


def test_a_call_that_works_leaves_the_whole_chain() -> None:
    (result,), records = called({**READ, "conversation": "talk-1", "session": "s", "correlation_id": "c"})
    assert result.decision is not None
    for record in records:
        assert record.pop("time").endswith("+00:00")
    stages = records[-1].pop("stage_us")
    assert (len(stages), min(stages) >= 0, stages[5] >= int(result.execute_ms * 1000)) == (7, True, True)
    policy = result.decision.to_dict()
    assert records == [
        {
            "type": "ToolInvoked",
            "call": result.call_id,
            "agent": "local",
            "conversation": "talk-1",
            "session": "s",
            "correlation_id": "c",
            "tool": "read",
            "version": "1.0.0",
            "definition_hash": result.definition_hash,
            "argument_hash": canonical_hash({"path": "a.txt", "how": "well"}),
            "has_arguments": True,
        },
        {
            "type": "CapabilityCheck",
            "call": result.call_id,
            "required": ["fs.read:./data"],
            "verdict": "stated by the tool; checked by PolicyDecision, enforced only by the isolation in ToolCompleted",
        },
        {"type": "PolicyDecision", "call": result.call_id, **policy},
        {
            "type": "ToolCompleted",
            "call": result.call_id,
            "agent": "local",
            "tool": "read",
            "version": "1.0.0",
            "definition_hash": result.definition_hash,
            "argument_hash": result.argument_hash,
            "decision": policy,
            "approval": None,
            "isolation": "none",
            "enforced": [],
            "status": "ok",
            "codes": [],
            "result_hash": canonical_hash("content of a.txt"),
            "is_cached": False,
            "execute_us": int(result.execute_ms * 1000),
        },
    ]
    assert result.leaf == 3


CHAINS: dict[str, tuple[dict[str, Any], list[str], list[str]]] = {
    "reads": (READ, [*BEGINNING, "ToolCompleted"], []),
    "writes": (WRITE, [*BEGINNING, "ToolCompleted"], []),
    "pending": ({"name": "ask_user", "arguments": {}}, [*BEGINNING, "ToolCompleted"], []),
    "fails": (
        {"name": "read", "arguments": {"path": "a", "how": "fail"}},
        [*BEGINNING, "ToolCompleted"],
        [Code.TOOL_FAILED],
    ),
    "refused at get": ({"name": "no_such_tool", "arguments": {}}, ["ToolInvoked"], [Code.UNKNOWN_TOOL]),
    "refused at validation": (
        {"name": "read", "arguments": {"path": 1, "x": 2}},
        ["ToolInvoked"],
        [Code.WRONG_TYPE, Code.CONSTRAINT],
    ),
    "agent refused by policy": ({**READ, "agent": "stranger"}, BEGINNING, [Code.AGENT_UNKNOWN]),
    "tool refused by policy": ({"name": "send", "arguments": {}}, BEGINNING, [Code.NOT_PERMITTED]),
    "refused by capability": ({**WRITE, "agent": "planner"}, BEGINNING, [Code.NOT_PERMITTED]),
    "nothing runs it": ({"name": "describe_only", "arguments": {}}, BEGINNING, [Code.NOT_RUNNABLE]),
    "isolation not there": ({"name": "unconfined", "arguments": {}}, BEGINNING, [Code.ISOLATION_UNAVAILABLE]),
    "options refused": ({**READ, "timeout_s": -1}, BEGINNING, [Code.OPTION_REFUSED]),
    "too dangerous for nobody to be asked": (
        {"name": "erase", "arguments": {}},
        [*BEGINNING, "Approval"],
        [Code.APPROVAL_NEEDED],
    ),
    "refused at approval": (
        {**WRITE, "confirm": True},
        [*BEGINNING, "Approval"],
        [Code.APPROVAL_NEEDED],
    ),
}


@pytest.mark.parametrize("case", CHAINS)
def test_the_chain_of_a_call_ends_where_it_was_refused(case: str) -> None:
    call, expected, codes = CHAINS[case]
    (result,), records = called(call)
    assert types(records) == expected
    assert {record["call"] for record in records} == {result.call_id}
    assert records[-1].get("codes", []) == list(map(str, codes))
    assert result.leaf == len(records) - 1


@pytest.mark.parametrize(
    ("call", "decision"),
    [
        (READ, "allow"),
        ({**READ, "agent": "stranger"}, "deny"),
        ({"name": "send", "arguments": {}}, "deny"),
        ({**WRITE, "agent": "planner"}, "deny"),
        ({"name": "erase", "arguments": {}}, "allow"),
        ({**READ, "confirm": True}, "allow"),
    ],
)
def test_the_decision_of_the_policy_is_in_the_chain(call: dict[str, Any], decision: str) -> None:
    _, records = called(call)
    assert [record["decision"] for record in records if record["type"] == "PolicyDecision"] == [decision]


def test_a_call_that_is_not_admitted_leaves_its_refusal() -> None:
    _, records = called(READ, call_limits=CallLimits(calls_per_second=1.0, burst=0.0))
    assert [(record["type"], record["codes"]) for record in records] == [
        ("ToolInvoked", [Code.RATE_LIMITED.value])
    ]


def test_a_repeated_call_leaves_a_record_that_names_the_first() -> None:
    call = {**READ, "idempotency_key": "key-1"}
    (first, second), records = called(call, call)
    assert types(records) == [*BEGINNING, "ToolCompleted", "ToolInvoked"]
    assert (records[4]["status"], records[4]["repeats"]) == ("repeated", first.call_id)
    assert records[4]["call"] != first.call_id
    assert second.leaf == first.leaf == 3


def test_a_submitted_result_ends_the_chain_of_its_call() -> None:
    record = MemoryRecord()
    keep = Keep(record=lambda: record)
    keep.register(ASK)
    pending = asyncio.run(keep.call("ask_user", {}))
    result = asyncio.run(keep.submit(pending.call_id, "blue"))
    records = records_of(record)
    assert types(records) == [*BEGINNING, "ToolCompleted", "ToolCompleted"]
    assert {one["call"] for one in records} == {pending.call_id}
    assert [one["status"] for one in records[3:]] == ["pending", "ok"]
    assert (records[4]["result_hash"], result.leaf) == (canonical_hash("blue"), 4)


def test_chains_of_calls_at_once_are_each_whole() -> None:
    record = MemoryRecord()
    keep = Keep(record=lambda: record, policy=MAY_WRITE)
    keep.register(read, write)

    async def scenario() -> list[ToolResult]:
        calls = [keep.call("read" if number % 2 else "write", {"path": "a.txt"}) for number in range(20)]
        return await asyncio.gather(*calls)

    for result in asyncio.run(scenario()):
        chain = [one for one in records_of(record) if one["call"] == result.call_id]
        assert types(chain) == [*BEGINNING, "ToolCompleted"]


@pytest.mark.parametrize(("together", "alone"), [(1, {True}), (5, {False, True})])
def test_the_log_is_told_whether_others_are_about_to_append(
    monkeypatch: pytest.MonkeyPatch, together: int, alone: set[bool]
) -> None:
    told: list[bool] = []
    record = MemoryRecord()
    append = record.log.append_soon

    async def watched(*records: bytes, is_alone: bool = False) -> Leaf:
        told.append(is_alone)
        return await append(*records)

    monkeypatch.setattr(record.log, "append_soon", watched)
    keep = Keep(record=lambda: record, policy=MAY_WRITE)
    keep.register(read)

    async def scenario() -> None:
        await asyncio.gather(*[keep.call("read", {"path": "a.txt"}) for _ in range(together)])

    asyncio.run(scenario())
    assert set(told) == alone
    assert told[0] is (together == 1)


@pytest.mark.parametrize("arguments", [{"path": "a.txt"}, {"path": 7}], ids=["cached", "refused"])
def test_calls_that_run_nothing_give_way_to_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any]
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda _: None)

    @tool(side_effects=["None"], determinism="pure")
    async def look(path: str) -> str:
        """Look."""
        return path

    answered: list[str] = []

    async def call(who: str) -> None:
        for _ in range(3):
            await keep.call("look", arguments)
            answered.append(who)

    async def scenario() -> None:
        await keep.call("look", arguments)
        await asyncio.gather(call("one"), call("other"))

    with Keep(record=lambda: FileRecord(folder)) as keep:
        keep.register(look)
        asyncio.run(scenario())
    assert answered[:3] != ["one"] * 3


# --- what is in it -----------------------------------------------------------------------------------


def test_records_hold_hashes_and_neither_arguments_nor_results() -> None:
    argument, result = "argument-94f2", "content of argument-94f2"
    _, records = called(
        {"name": "read", "arguments": {"path": argument}},
        {"name": "write", "arguments": {"path": argument}},
        {"name": "read", "arguments": {"path": argument, "how": 3}},
        {"name": "read", "arguments": {"path": argument, "how": "fail"}},
    )
    text = json.dumps(records)
    assert argument not in text
    assert result not in text
    assert "told to" not in text


def in_folder(folder: Path, *calls: dict[str, Any], tools: Sequence[Any] = (read, write)) -> list[ToolResult]:
    """Results of calls of a keep with a real folder, which is closed again."""
    with Keep(record=lambda: FileRecord(folder), policy=MAY_WRITE) as keep:
        keep.register(*tools)

        async def scenario() -> list[ToolResult]:
            return [await keep.call(**one) for one in calls]

        return asyncio.run(scenario())


def bodies(folder: Path) -> dict[str, bytes]:
    if not (folder / "bodies.db").exists():
        return {}
    with contextlib.closing(sqlite3.connect(folder / "bodies.db")) as connection:
        return dict(connection.execute("SELECT digest, body FROM bodies"))


def test_the_reason_of_a_denied_call_lies_beside_the_log(folder: Path) -> None:
    in_folder(folder, {"name": "send", "arguments": {}}, tools=(send,))
    with AuditLog(folder) as log:
        last = log.read()[-1].record
    assert (last["type"], last["status"]) == ("PolicyDecision", "error")
    assert b"lacks a permission that the tool requires" in bodies(folder)[last["diagnosis_hash"]]


def refusals(folder: Path) -> list[KeptRefusal]:
    """What is kept of the calls that ended with a refusal, in order."""
    with AuditLog(folder) as log:
        hashes = [entry.record["diagnosis_hash"] for entry in log.read() if "diagnosis_hash" in entry.record]
    return [parse_kept(bodies(folder)[digest]) for digest in hashes]


def test_arguments_and_text_of_a_call_that_is_refused_by_validation_lie_beside_the_log(folder: Path) -> None:
    results = in_folder(
        folder,
        {"name": "read", "arguments": {"path": 3}},
        {"name": "read", "arguments": '{"path": '},
        {"name": "raed", "arguments": {"path": SECRET}},
        {"name": "read", "arguments": {"path": "x" * BODY_ARGUMENT_BYTES, "who": 1}},
        {"name": "read", "arguments": {"path": object()}},
    )
    kept = refusals(folder)
    assert [one.text for one in kept] == [result.text for result in results]
    assert [(one.received, one.is_whole) for one in kept] == [
        ({"path": 3}, True),
        ('{"path": ', False),
        ({"path": f"(string, {len(SECRET)} characters)"}, False),
        ("(object, 2 properties)", False),
        ("(object, 1 property)", False),
    ]
    with AuditLog(folder) as log:
        assert [len(entry.record["stage_us"]) for entry in log.read()] == [2] * 5, "admit, validate"
    (problem,) = kept[0].problems
    assert (problem.path, problem.actual) == ("/path", "3")


def test_arguments_and_results_lie_beside_the_log_by_their_hashes(folder: Path) -> None:
    (result,) = in_folder(folder, READ)
    assert bodies(folder) == {
        result.argument_hash: canonical_bytes({"path": "a.txt", "how": "well"}),
        result.hash: canonical_bytes("content of a.txt"),
    }
    with AuditLog(folder) as log:
        assert types([entry.record for entry in log.read()]) == [*BEGINNING, "ToolCompleted"]


def test_arguments_are_kept_as_they_were_sent_whatever_the_tool_does_to_them(folder: Path) -> None:
    @tool(side_effects=["None"])
    async def take_all(words: list[Any]) -> int:
        """Take all words out of a list."""
        taken = len(words)
        words[:] = [object()]
        return taken

    (result,) = in_folder(folder, {"name": "take_all", "arguments": {"words": ["a"]}}, tools=[take_all])
    assert result.value == 1
    assert result.argument_hash == canonical_hash({"words": ["a"]})
    assert bodies(folder)[result.argument_hash] == canonical_bytes({"words": ["a"]})


def test_large_arguments_are_not_kept_and_the_record_says_so(folder: Path) -> None:
    (result,) = in_folder(folder, {"name": "write", "arguments": {"path": "x" * BODY_ARGUMENT_BYTES}})
    assert list(bodies(folder)) == [result.hash]
    with AuditLog(folder) as log:
        assert log.read()[0].record["has_arguments"] is False


def test_a_body_that_cannot_be_kept_fails_the_call_which_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output beyond the caller's limit comes by reference: without a body there is nothing to refer to."""
    record = MemoryRecord()

    def full(body: bytes) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(record.bodies, "put", full)
    keep = Keep(record=lambda: record)
    keep.register(read)
    result = asyncio.run(keep.call("read", {"path": "x" * 5000}, max_output_bytes=1000, idempotency_key="k"))
    assert (result.status, result.code, result.value) == ("error", Code.OUTCOME_NOT_RECORDED, None)
    assert types(records_of(record)) == [*BEGINNING, "ToolCompleted"]
    again = asyncio.run(keep.call("read", {"path": "x" * 5000}, max_output_bytes=1000, idempotency_key="k"))
    assert (again.code, again.is_repeated) == (Code.OUTCOME_NOT_RECORDED, True)


def test_a_call_that_fails_between_its_record_and_its_tool_is_said_not_to_have_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = MemoryRecord()
    keep = Keep(record=lambda: record)
    keep.register(read)

    def broken(*_: Any) -> None:
        raise OSError(errno.EIO, "broken disk")

    monkeypatch.setattr(type(keep.authorizer), "unchanged", broken)
    result = asyncio.run(keep.call("read", {"path": "a.txt"}))
    assert (result.code, "nothing was run" in result.text) == (Code.NOT_RECORDED, True)


# --- secrets -----------------------------------------------------------------------------------------


class Login(BaseModel):
    user: str
    password: Annotated[str, Secret()]


@tool(side_effects=["None"])
async def log_in(key: Annotated[str, Secret()], pin: Annotated[int, Secret()] = 0, note: str = "") -> int:
    """Log in with a key."""
    return len(key)


@tool
async def log_in_nested(logins: list[Login]) -> int:
    """Log in with several passwords."""
    return len(logins)


@tool(sensitive=True)
async def echo_sensitive(text: str) -> Any:
    """Give back what it got."""
    return {"echo": text}


@tool
async def spill(key: Annotated[str, Secret()]) -> None:
    """Fail, with the key in the exception."""
    raise RuntimeError(key)


SECRETIVE = [log_in, log_in_nested, echo_sensitive, spill]
NESTED = {"logins": [{"user": "ada", "password": SECRET}]}

SECRET_CALLS: dict[str, dict[str, Any]] = {
    "secret parameter": {"name": "log_in", "arguments": {"key": SECRET, "pin": PIN, "note": "fine"}},
    "in a nested object": {"name": "log_in_nested", "arguments": NESTED},
    "sensitive tool": {"name": "echo_sensitive", "arguments": {"text": SECRET}},
    "sensitive tool by reference": {
        "name": "echo_sensitive",
        "arguments": {"text": SECRET * 100},
        "max_output_bytes": 1000,
    },
    "sensitive tool with a key": {
        "name": "echo_sensitive",
        "arguments": {"text": SECRET},
        "idempotency_key": "key-1",
    },
    "with a key": {"name": "log_in", "arguments": {"key": SECRET}, "idempotency_key": "key-1"},
    "in an exception": {"name": "spill", "arguments": {"key": SECRET}, "idempotency_key": "key-1"},
    "of the wrong type": {"name": "log_in", "arguments": {"key": [SECRET], "pin": str(PIN)}},
    "of the wrong shape": {"name": "log_in_nested", "arguments": {"logins": SECRET}},
    "under another name": {"name": "log_in", "arguments": {"key": "k", "password": SECRET}},
    "of a refused call": {"name": "log_in", "arguments": {"key": SECRET}, "confirm": True},
}


def traces() -> Iterator[bytes]:
    """Every form in which a secret could be written."""
    for secret in (SECRET, str(PIN)):
        raw = secret.encode()
        yield raw
        yield json.dumps(secret)[1:-1].encode()
        yield json.dumps(secret, ensure_ascii=False)[1:-1].encode()
        yield raw.hex().encode()
        for shift in range(3):
            yield base64.b64encode(b"\0" * shift + raw)[4:-4]
        yield base64.urlsafe_b64encode(raw)[:-4]
    yield SECRET[-10:].encode()


def leaks(folder: Path) -> list[tuple[str, bytes]]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in files}
    return [(name, trace) for name, content in contents.items() for trace in traces() if trace in content]


@pytest.mark.parametrize("case", SECRET_CALLS)
def test_no_secret_is_anywhere_in_the_folder(folder: Path, case: str) -> None:
    (result,) = in_folder(folder, SECRET_CALLS[case], tools=SECRETIVE)
    assert result.leaf is not None
    assert leaks(folder) == []


def test_what_a_secret_argument_touches_is_not_written_down(folder: Path) -> None:
    @tool(side_effects=["FsRead"], capabilities=["fs.read:."])
    async def open_box(path: Annotated[str, Touches("fs.read"), Secret()]) -> int:
        """Open a box."""
        return len(path)

    @tool(side_effects=["FsRead"], capabilities=["fs.read:."], sensitive=True)
    async def open_any(path: Annotated[str, Touches("fs.read")]) -> int:
        """Open another box."""
        return len(path)

    Path(SECRET).touch()
    calls = [{"name": name, "arguments": {"path": SECRET}} for name in ("open_box", "open_any")]
    results = in_folder(folder, *calls, tools=[open_box, open_any])
    assert [result.value for result in results] == [len(SECRET)] * 2
    assert leaks(folder) == []


def test_the_search_finds_what_is_not_secret(folder: Path) -> None:
    in_folder(folder, {"name": "read", "arguments": {"path": SECRET}})
    assert leaks(folder) != []


def test_a_keyed_call_of_a_sensitive_tool_runs_once_though_its_result_is_not_kept(folder: Path) -> None:
    call = SECRET_CALLS["sensitive tool with a key"]
    first, second = in_folder(folder, call, call, tools=SECRETIVE)
    assert (first.value, second.value) == ({"echo": SECRET}, None)
    assert (second.is_repeated, second.hash) == (True, first.hash)


def hashes(folder: Path, *arguments: dict[str, Any], name: str = "log_in") -> list[str]:
    calls = [{"name": name, "arguments": one} for one in arguments]
    return [result.argument_hash for result in in_folder(folder, *calls, tools=SECRETIVE)]


@pytest.mark.parametrize(
    ("name", "arguments", "other"),
    [
        ("log_in", {"key": SECRET, "note": "a"}, {"key": SECRET + "x", "note": "a"}),
        ("log_in_nested", NESTED, {"logins": [{"user": "ada", "password": "x"}]}),
        ("echo_sensitive", {"text": SECRET}, {"text": "x"}),
    ],
)
def test_the_hash_of_arguments_with_a_secret_is_steady_within_a_keep_and_another_elsewhere(
    tmp_path: Path, name: str, arguments: dict[str, Any], other: dict[str, Any]
) -> None:
    here, again = hashes(tmp_path / "here", arguments, arguments, name=name)
    (after_reopening,) = hashes(tmp_path / "here", arguments, name=name)
    (of_other,) = hashes(tmp_path / "here", other, name=name)
    (elsewhere,) = hashes(tmp_path / "elsewhere", arguments, name=name)
    assert here == again == after_reopening
    assert len({here, of_other, elsewhere, canonical_hash(arguments)}) == 4


def test_what_is_not_secret_still_counts_in_the_hash(folder: Path) -> None:
    first, second = hashes(folder, {"key": SECRET, "note": "a"}, {"key": SECRET, "note": "b"})
    assert first != second


def test_of_a_refused_call_with_a_secret_wrong_values_are_kept_as_type_and_length_alone(folder: Path) -> None:
    """A model that gets the call wrong may put the secret anywhere."""
    in_folder(
        folder,
        {"name": "log_in", "arguments": {"key": SECRET, "note": 7, "unknown": [SECRET]}},
        {"name": "log_in", "arguments": {"note": "fine", "kee": SECRET}},
        {"name": "log_in", "arguments": f'{{"key": "{PIN}'},
        {"name": "log_in_nested", "arguments": {"logins": [{"user": 5, "password": SECRET}, SECRET]}},
        {"name": "echo_sensitive", "arguments": {"text": [PIN], "more": SECRET}},
        tools=SECRETIVE,
    )
    kept = refusals(folder)
    length = f"(string, {len(SECRET)} characters)"
    assert [one.received for one in kept] == [
        {"key": "(hidden)", "note": "(integer)", "unknown": "(array, 1 item)"},
        {"note": "fine", "kee": length},
        "(text, 18 bytes)",
        {"logins": [{"user": "(integer)", "password": "(hidden)"}, length]},
        {"text": "(array, 1 item)", "more": length},
    ]
    assert not any(one.is_whole or one.repair or "got" in one.text for one in kept)
    for body in bodies(folder).values():
        assert not any(part in body for part in (b"hunter2", b"S3CRET", str(PIN).encode()))


def test_the_arguments_of_a_call_with_a_secret_are_not_kept_and_the_record_says_so(folder: Path) -> None:
    in_folder(folder, {"name": "log_in", "arguments": {"key": SECRET, "note": "plain"}}, tools=SECRETIVE)
    assert all(b"plain" not in body for body in bodies(folder).values())
    with AuditLog(folder) as log:
        assert log.read()[0].record["has_arguments"] is False


@pytest.mark.parametrize(
    "error", [StateUnusable("keys", "is open to other users", hint=""), OSError(errno.EIO, "broken disk")]
)
def test_a_key_that_cannot_be_read_refuses_the_call(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = MemoryRecord()

    def unreadable() -> bytes:
        raise error

    monkeypatch.setattr(record, "secret_key", unreadable)
    keep = Keep(record=lambda: record)
    keep.register(log_in)
    result = asyncio.run(keep.call("log_in", {"key": SECRET}))
    assert (result.status, result.code) == ("error", Code.NOT_RECORDED)
    assert result.leaf == len(record.log.entries) - 1


def test_closing_lets_go_of_everything_even_where_the_log_cannot_be_signed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads, record = set(threading.enumerate()), FileRecord(folder)
    close = record.log.close

    def unsigned() -> None:
        close()
        raise StateUnusable("audit", "cannot be signed", hint="")

    monkeypatch.setattr(record.log, "close", unsigned)
    keep = Keep(record=lambda: record)
    keep.register(read)
    assert asyncio.run(keep.call("read", {"path": "a.txt"}, idempotency_key="key-1")).ok
    with pytest.raises(StateUnusable):
        keep.close()
    assert (set(threading.enumerate()) - threads, open_files(folder)) == (set(), [])


def open_files(folder: Path) -> list[str]:
    """What this process has open in a folder."""
    links = [path.readlink() for path in list(Path("/proc/self/fd").iterdir()) if path.is_symlink()]
    return [str(link) for link in links if link.is_relative_to(folder)]


@pytest.mark.parametrize("how", ["call", "call_sync", "call_sync in a notebook"])
def test_a_closed_keep_runs_nothing_and_opens_nothing_again(folder: Path, how: str) -> None:
    runs: list[int] = []

    @tool(side_effects=["None"])
    def count() -> int:
        """Count its runs."""
        runs.append(1)
        return len(runs)

    threads, keep = set(threading.enumerate()), Keep(record=lambda: FileRecord(folder))
    keep.register(count)
    assert keep.call_sync("count", {}, idempotency_key="key-1").ok
    keep.close()

    async def cell() -> ToolResult:
        return keep.call_sync("count", {}, idempotency_key="key-2")

    if how == "call":
        result = asyncio.run(keep.call("count", {}, idempotency_key="key-2"))
    else:
        result = asyncio.run(cell()) if "notebook" in how else keep.call_sync("count", {})
    assert (result.status, result.code, runs) == ("error", Code.NOT_RECORDED, [1])
    assert (set(threading.enumerate()) - threads, open_files(folder)) == (set(), [])
