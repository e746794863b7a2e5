"""The order of the stages (EXE-1), and that nothing starts or goes out before it is written down (AUD-3)."""

import ast
import asyncio
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import toolkeep
from toolkeep import Code, Keep, tool
from toolkeep.audit.entry import Leaf
from toolkeep.audit.errors import LogUnwritable
from toolkeep.audit.record import Recorder
from toolkeep.calls import ApprovedCall, PermittedCall, RecordedCall, Refusal, ToolResult, refuse
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.execution.execute import Executor
from toolkeep.execution.in_process_runner import InProcessRunner
from toolkeep.execution.runner import Runner
from toolkeep.keep import pipeline as pipeline_module
from toolkeep.limits import CallLimits
from toolkeep.policy.policy_settings import Grant, PolicySettings
from toolkeep.stores.records import MemoryRecord

SOURCE = Path(inspect.getfile(toolkeep)).parent

ORDER = [
    "admit",
    "resolve_name",
    "validate",
    "authorize",
    "claim",
    "ask",
    "approve",
    "intent",
    "unchanged",
    "execute",
    "check_output",
    "normalize",
    "outcome",
]

DOORS = ("resolve_name", "validate", "claim", "check_output", "normalize")
"""The stages that the pipeline imported as functions."""


@tool(side_effects=["None"])
async def obey(how: str = "well") -> object:
    """Do as it is told."""
    if how == "fail":
        raise ToolFailed("told to")
    return {1, 2}.__iter__ if how == "give no JSON" else how


def watched(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages that a call of this keep passes, in order, as they are entered."""
    passed: list[str] = []

    def watch(owner: Any, attribute: str) -> None:
        stage = getattr(owner, attribute)

        def noted(*args: Any, **options: Any) -> Any:
            passed.append(attribute)
            return stage(*args, **options)

        monkeypatch.setattr(owner, attribute, noted)

    for door in DOORS:
        watch(pipeline_module, door)
    watch(keep._pipeline.admission, "admit")
    for door in ("authorize", "authorize_again", "unchanged"):
        watch(keep._pipeline.authorizer, door)
    watch(keep._pipeline.asker, "ask")
    watch(keep._pipeline.asker, "approve")
    watch(keep._pipeline.recorder, "intent")
    watch(keep._pipeline.executor, "execute")
    watch(keep._pipeline.recorder, "outcome")
    return passed


MAY_WRITE = PolicySettings(agents={"local": Grant(capabilities=(Capability("fs.write", "./data"),))})


def keep_with(*tools: Any, **options: Any) -> Keep:
    keep = Keep(**{"policy": MAY_WRITE, **options})
    keep.register(*tools)
    return keep


def writing(started: list[str], **fields: Any) -> Any:
    """A tool that notes when it starts."""

    @tool(name="change", description="Change the world", **fields)
    async def change() -> str:
        started.append("change")
        return "changed"

    return change


WRITES = {"danger": "safe", "side_effects": ["FsWrite"], "capabilities": ["fs.write:./data"]}
WRITING = pytest.mark.parametrize("fields", [WRITES, {}], ids=["write effects", "undeclared effects"])
READS = {"side_effects": ["None"]}


@pytest.mark.spec("EXE-1")
def test_a_call_passes_every_stage_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = keep_with(obey)
    passed = watched(keep, monkeypatch)
    assert asyncio.run(keep.call("obey", {}, idempotency_key="key-1")).ok
    assert passed == ORDER


AFTER_A_YES = [
    "admit",
    "resolve_name",
    "validate",
    "authorize",
    "claim",
    "ask",
    "resolve_name",
    "authorize_again",
    "unchanged",
    "authorize",
    "approve",
    "intent",
    "unchanged",
    "execute",
    "check_output",
    "normalize",
    "outcome",
]


@pytest.mark.spec("EXE-1")
def test_a_call_that_a_person_agreed_to_is_looked_at_again_before_the_yes_is_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keep = keep_with(obey, approver=lambda _: True)
    passed = watched(keep, monkeypatch)
    assert asyncio.run(keep.call("obey", {}, confirm=True, idempotency_key="key-1")).ok
    assert passed == AFTER_A_YES


@pytest.mark.spec("EXE-1")
def test_a_call_that_policy_no_longer_permits_after_the_yes_stops_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started: list[str] = []

    def agree(_: object) -> bool:
        keep.use_policies('@id("closed") forbid (principal, action == Action::"call", resource);')
        return True

    keep = keep_with(writing(started), approver=agree)
    passed = watched(keep, monkeypatch)
    assert asyncio.run(keep.call("change", {}, confirm=True)).code is Code.NOT_PERMITTED
    assert passed == [*AFTER_A_YES[: AFTER_A_YES.index("approve")], "outcome"]
    assert started == []


def claimed_before(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keep._pipeline.record.ledger, "claim", _conflicting)


async def _conflicting(key: str, call_id: str, argument_hash: str) -> Any:
    from toolkeep.execution.idempotency import IdempotentResult

    return IdempotentResult(state="running", argument_hash="another")


def used_before(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else was faster to use up the yes."""
    monkeypatch.setattr(keep._pipeline.asker, "approve", _used)


async def _used(call: PermittedCall, asked: Any) -> Any:
    return refuse(call.request, Code.APPROVAL_NEEDED, "It was used before", "Call again.")


def unwritable(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, is_alone: bool) -> Any:
        raise LogUnwritable("audit", "disk full")

    monkeypatch.setattr(keep._pipeline.record.log, "append_soon", refused)


def nothing(keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is as usual."""


STOPS: dict[str, tuple[int, Code, dict[str, Any], Callable[[Keep, pytest.MonkeyPatch], None]]] = {
    "get": (2, Code.UNKNOWN_TOOL, {"name": "no_such_tool"}, nothing),
    "validate": (3, Code.WRONG_TYPE, {"arguments": {"how": 1}}, nothing),
    "authorize": (4, Code.AGENT_UNKNOWN, {"agent": "stranger"}, nothing),
    "claim": (5, Code.KEY_CONFLICT, {"idempotency_key": "key-1"}, claimed_before),
    "ask": (6, Code.APPROVAL_NEEDED, {"confirm": True}, nothing),
    "approve": (7, Code.APPROVAL_NEEDED, {}, used_before),
    "intent": (8, Code.NOT_RECORDED, {"name": "change"}, unwritable),
    "execute": (10, Code.TOOL_FAILED, {"arguments": {"how": "fail"}}, nothing),
    "check_output": (11, Code.OUTPUT_INVALID, {"arguments": {"how": "give no JSON"}}, nothing),
}


@pytest.mark.spec("EXE-1")
@pytest.mark.parametrize("stage", STOPS)
def test_a_call_stops_at_the_first_refusal_which_is_recorded(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, code, changed, arrange = STOPS[stage]
    started: list[str] = []
    keep = keep_with(obey, writing(started))
    arrange(keep, monkeypatch)
    passed = watched(keep, monkeypatch)
    result = asyncio.run(keep.call(**{"name": "obey", "arguments": {}, **changed}))
    assert result.code is code
    assert passed == [*ORDER[:count], "outcome"]
    assert started == []


@pytest.mark.spec("EXE-1", "EXE-7")
def test_a_call_that_is_not_admitted_is_not_even_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = keep_with(obey, call_limits=CallLimits(calls_per_second=1.0, burst=0.0))
    passed = watched(keep, monkeypatch)
    assert asyncio.run(keep.call("obey", {})).code is Code.RATE_LIMITED
    assert passed == ["admit", "outcome"]


@pytest.mark.spec("EXE-1", "EXE-5")
def test_a_cached_result_passes_the_same_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    @tool(determinism="Pure", side_effects=["None"])
    async def count() -> int:
        """Count its runs."""
        runs.append(1)
        return len(runs)

    keep = keep_with(count)
    first = asyncio.run(keep.call("count", {}))
    passed = watched(keep, monkeypatch)
    second = asyncio.run(keep.call("count", {}))
    assert (first.value, second.value, second.is_cached, runs) == (1, 1, True, [1])
    assert passed == ORDER


# --- durability --------------------------------------------------------------------------------------


class HeldLog:
    """A log whose records become durable when the test says so."""

    def __init__(self) -> None:
        self.groups: list[list[Mapping[str, Any]]] = []
        self.appended = asyncio.Event()
        self._waiting: list[tuple[asyncio.Future[Leaf], int]] = []

    def append_soon(self, *records: bytes, is_alone: bool = False) -> "asyncio.Future[Leaf]":
        waiter: asyncio.Future[Leaf] = asyncio.get_running_loop().create_future()
        self.groups.append(list(map(json.loads, records)))
        self._waiting.append((waiter, sum(map(len, self.groups)) - 1))
        self.appended.set()
        return waiter

    async def next_group(self) -> list[str]:
        """Wait for the next append; the types of its records."""
        await self.appended.wait()
        self.appended.clear()
        return [record["type"] for record in self.groups[-1]]

    def make_durable(self) -> None:
        for waiter, index in self._waiting:
            if not waiter.done():
                waiter.set_result(Leaf(index=index, hash="", origin="test"))
        self._waiting = []

    def fail(self) -> None:
        for waiter, _ in self._waiting:
            waiter.set_exception(LogUnwritable("audit", "disk full"))
        self._waiting = []


def held(*tools: Any, **options: Any) -> tuple[Keep, HeldLog]:
    record, log = MemoryRecord(), HeldLog()
    record.log = log  # type: ignore[assignment]  # another log of the same Protocol
    return keep_with(*tools, record=lambda: record, **options), log


async def settled() -> None:
    """Let everything that can go on go on."""
    for _ in range(50):
        await asyncio.sleep(0)


@pytest.mark.spec("EXE-1")
@WRITING
def test_a_tool_that_may_write_does_not_start_before_its_intent_is_durable(fields: dict[str, Any]) -> None:
    async def scenario() -> None:
        started: list[str] = []
        keep, log = held(writing(started, **fields))
        call = asyncio.create_task(keep.call("change", {}))
        assert await log.next_group() == ["ToolInvoked", "CapabilityCheck", "PolicyDecision"]
        await settled()
        assert started == []
        log.make_durable()
        assert await log.next_group() == ["ToolCompleted"]
        assert started == ["change"]
        log.make_durable()
        assert (await call).value == "changed"

    asyncio.run(scenario())


@pytest.mark.spec("EXE-1")
def test_a_tool_that_only_reads_does_not_wait_for_the_log_to_start() -> None:
    async def scenario() -> None:
        started: list[str] = []
        keep, log = held(writing(started, **READS))
        call = asyncio.create_task(keep.call("change", {}))
        assert await log.next_group() == ["ToolInvoked", "CapabilityCheck", "PolicyDecision", "ToolCompleted"]
        assert started == ["change"]
        log.make_durable()
        assert (await call).ok

    asyncio.run(scenario())


@pytest.mark.spec("EXE-1")
@pytest.mark.parametrize("name", ["change", "no_such_tool"])
def test_no_result_goes_out_before_its_outcome_is_durable(name: str) -> None:
    async def scenario() -> None:
        keep, log = held(writing([], **READS))
        call = asyncio.create_task(keep.call(name, {}))
        await log.next_group()
        await settled()
        assert not call.done()
        log.make_durable()
        result = await call
        assert result.leaf == len(log.groups[0]) - 1

    asyncio.run(scenario())


@WRITING
@pytest.mark.parametrize("how", ["at once", "later"])
def test_nothing_that_may_write_runs_when_its_intent_cannot_be_recorded(
    fields: dict[str, Any], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> ToolResult:
        keep, log = held(writing(started, **fields))
        if how == "at once":
            unwritable(keep, monkeypatch)
            return await keep.call("change", {})
        call = asyncio.create_task(keep.call("change", {}))
        await log.next_group()
        log.fail()
        await log.next_group()
        log.fail()
        return await call

    started: list[str] = []
    result = asyncio.run(scenario())
    assert (result.status, result.code, result.value, result.leaf) == ("error", Code.NOT_RECORDED, None, None)
    assert started == []


@WRITING
def test_a_call_whose_intent_was_not_recorded_has_no_outcome_but_says_why_it_ended(
    fields: dict[str, Any],
) -> None:
    async def scenario() -> tuple[ToolResult, list[Mapping[str, Any]]]:
        keep, log = held(writing([], **fields))
        call = asyncio.create_task(keep.call("change", {}))
        await log.next_group()
        log.fail()
        await log.next_group()
        log.make_durable()
        return await call, log.groups[-1]

    result, records = asyncio.run(scenario())
    assert result.code is Code.NOT_RECORDED
    assert "could not be recorded (LogUnwritable); nothing was run" in result.text
    assert [record["type"] for record in records] == ["ToolInvoked", "CapabilityCheck", "PolicyDecision"]
    assert records[-1]["codes"] == [Code.NOT_RECORDED.value]


@pytest.mark.parametrize("fields", [WRITES, READS], ids=["writes", "reads"])
def test_a_result_whose_outcome_cannot_be_recorded_is_kept_back(fields: dict[str, Any]) -> None:
    async def scenario() -> ToolResult:
        keep, log = held(writing([], **fields))
        call = asyncio.create_task(keep.call("change", {}))
        while "ToolCompleted" not in await log.next_group():
            log.make_durable()
        log.fail()
        return await call

    result = asyncio.run(scenario())
    assert (result.status, result.code, result.value, result.hash) == (
        "error",
        Code.OUTCOME_NOT_RECORDED,
        None,
        "",
    )
    assert result.raw is None
    assert "The tool ran, and its outcome could not be recorded (LogUnwritable)" in result.text


# --- the stamps --------------------------------------------------------------------------------------

OWNERS = {
    "CheckedCall": {"validation/validate.py"},
    "PermittedCall": {"policy/authorize.py"},
    "ApprovedCall": {"approval/approve.py", "keep/decided_calls.py: run"},
    "RecordedCall": {"audit/record.py: intent", "keep/decided_calls.py: run"},
    "RawOutput": {"execution/execute.py", "keep/pipeline.py: submit", "keep/worker_samples.py: _checked"},
    "CheckedOutput": {"results/output_check.py"},
    "ToolResult": {"results/normalize.py", "execution/idempotency.py: decode"},
}
"""Where each stamp is made. `submit` makes the output that a client gave; `decode` reads back a result;
`decided_calls` runs what a server elsewhere approved and recorded; `worker_samples` compares a second output,
which nobody is given."""


def makers(stamp: str) -> set[str]:
    """The modules that make a stamp, and the function where the module is not its owner."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if stamp not in text:
            continue
        module = path.relative_to(SOURCE).as_posix()
        for function in _functions(ast.parse(text)):
            if any(_makes(node, stamp) for node in ast.walk(function)):
                found.add(module if module in OWNERS[stamp] else f"{module}: {function.name}")
    return found


def _functions(module: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    wrapped = ast.FunctionDef("<module>", ast.arguments([], [], None, [], [], None, []), [], [], None)
    outside = [node for node in module.body if not isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    wrapped.body = [node for node in outside if not isinstance(node, ast.AsyncFunctionDef)]
    inside = [node for node in ast.walk(module) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return [*inside, wrapped]


def _makes(node: ast.AST, stamp: str) -> bool:
    """Whether code calls the class, or hands it to something that could: `convert(data, ToolResult)`."""
    if not isinstance(node, ast.Call):
        return False
    if ast.unparse(node.func).split(".")[-1] == stamp:
        return True
    asks = ast.unparse(node.func) in ("isinstance", "issubclass", "cast")
    return not asks and any(ast.unparse(given).split(".")[-1] == stamp for given in node.args)


@pytest.mark.spec("EXE-1")
@pytest.mark.parametrize("stamp", OWNERS)
def test_each_stamp_is_made_by_its_stage_alone(stamp: str) -> None:
    assert makers(stamp) == OWNERS[stamp]


@pytest.mark.spec("EXE-1")
@pytest.mark.parametrize("door", [Executor.execute, Runner.run, InProcessRunner.run])
def test_only_a_recorded_call_can_be_executed(door: Callable[..., Any]) -> None:
    assert typing.get_type_hints(door)["call"] is RecordedCall


@pytest.mark.spec("EXE-1")
def test_a_recorded_call_is_made_of_an_approved_one_by_recording_its_intent() -> None:
    hints = typing.get_type_hints(Recorder.intent)
    assert (hints["call"], hints["return"]) == (ApprovedCall, RecordedCall | Refusal)


@pytest.mark.parametrize("stamp", [Refusal, ToolResult])
def test_nothing_else_is_a_kind_of_what_the_stages_know_by_its_exact_type(stamp: type) -> None:
    assert stamp.__subclasses__() == []
