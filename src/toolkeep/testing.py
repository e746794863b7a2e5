"""Test helpers: contract checks for tools, a recording keep and context, a fake clock, in-memory stores.

    def test_greeting_keeps_its_contract() -> None:
        check_tool(HelloWorldTool, {"name": "Ada"})

    def test_every_tool_of_the_keep() -> None:
        check_keep(build_my_keep())

A check raises AssertionError with everything that is wrong.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolkeep.authoring.agent_tool_class import AgentTool, contract_problems
from toolkeep.authoring.function_tool import FunctionTool
from toolkeep.authoring.wasm_tool import WasmTool
from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.tool_context import InvokeResult, ToolContext
from toolkeep.definitions.vocabulary import Determinism
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.keep.keep import Keep
from toolkeep.stores.api_tokens import MemoryTokens
from toolkeep.stores.definitions import MemoryStore
from toolkeep.stores.registry_state import MemoryState
from toolkeep.validation.validate import Arguments

__all__ = [
    "FakeClock",
    "MemoryRegistry",
    "MemoryState",
    "MemoryStore",
    "MemoryTokens",
    "RecordingContext",
    "check_keep",
    "check_tool",
]

_STRANGER = "toolkeep_no_such_property"
_BROKEN = "toolkeep broke this on purpose"


@dataclass(kw_only=True)
class RecordingContext:
    """Creates contexts for tests and records the progress that a tool reports."""

    secrets: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    """Per-call data that the tool reads as `context.data`."""
    cancelled: bool = False
    progress: list[tuple[float, float | None, str]] = field(default_factory=list)

    def context(self) -> ToolContext:
        """A context like that of a call."""
        return ToolContext(
            agent="test",
            correlation_id="test-call",
            conversation_id="test-conversation",
            session_id="test-session",
            secrets=self.secrets,
            data=self.data,
            on_progress=lambda done, total, message: self.progress.append((done, total, message)),
            is_cancelled=lambda: self.cancelled,
        )


class MemoryRegistry(Keep):
    """A keep for tests: no configuration, no state; records the arguments it was asked to check."""

    def __init__(self, *tools: Any) -> None:
        super().__init__()
        self.register(*tools)
        self.checked: list[tuple[str, Any]] = []
        """Tool and arguments of each check."""

    def try_validate_arguments(
        self,
        name: str,
        arguments: Arguments,
        *,
        agent: str = "local",
        conversation: str = "",
        correlation_id: str = "",
    ) -> CheckedCall | Refusal:
        """Like `Keep.try_validate_arguments`, and records the arguments."""
        self.checked.append((name, arguments))
        return super().try_validate_arguments(
            name, arguments, agent=agent, conversation=conversation, correlation_id=correlation_id
        )


@dataclass
class FakeClock:
    """A clock for tests that moves only by `advance`."""

    now: float = 0.0

    def __call__(self) -> float:
        """The current time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the clock."""
        self.now += seconds


def check_tool(
    tool: Any,
    arguments: Mapping[str, Any],
    *,
    bad_arguments: Sequence[Mapping[str, Any]] = (),
    services: Sequence[object] = (),
    context: ToolContext | None = None,
) -> None:
    """Check one tool: happy path, argument failures, exceptions, stable schema, declared determinism.

    `arguments` is a valid call; each of `bad_arguments` must be refused or fail with a message.
    """
    keep = Keep(services=services)
    keep.register(tool)
    registered = keep.tools()[0]
    wrong = _ToolCheck(keep, registered, context or RecordingContext().context())
    wrong.stable_definition(tool)
    wrong.argument_failures(arguments, bad_arguments)
    if registered.runner is not None:
        asyncio.run(wrong.runs(arguments, bad_arguments))
    _raise(registered.name, wrong.problems)


def check_keep(keep: Keep) -> None:
    """Check every tool of a keep: contract, stable definition, invalid calls refused."""
    problems = []
    for registered in keep.tools():
        wrong = _ToolCheck(keep, registered, RecordingContext().context())
        wrong.stable_definition(registered.runner)
        wrong.argument_failures({}, ())
        problems += [f"{registered.name}: {problem}" for problem in wrong.problems]
    _raise("the keep", problems)


def _raise(name: str, problems: Sequence[str]) -> None:
    if problems:
        raise AssertionError(f"{name} breaks its contract:" + "".join(f"\n  - {p}" for p in problems))


class _ToolCheck:
    def __init__(self, keep: Keep, registered: RegisteredTool, context: ToolContext) -> None:
        self.keep = keep
        self.registered = registered
        self.context = context
        self.problems: list[str] = []

    def stable_definition(self, tool: Any) -> None:
        definition = self.registered.definition
        if ToolDefinition.from_dict(definition.to_dict()) != definition:
            self.problems.append("the definition does not survive JSON")
        tool_class = tool if isinstance(tool, type) else type(tool)
        if isinstance(self.registered.runner, AgentTool) and hasattr(tool_class, "get_schema"):
            self.problems += map(str, contract_problems(tool_class))

    def argument_failures(
        self, arguments: Mapping[str, Any], bad_arguments: Sequence[Mapping[str, Any]]
    ) -> None:
        """Invalid calls are refused before the tool sees them, each with a code and a pointer."""
        required = self.registered.definition.parameters.get("required", [])
        calls: list[Any] = [{**arguments, _STRANGER: 1}, "[]", "not JSON"]
        calls += [{k: v for k, v in arguments.items() if k != name} for name in _names(required)]
        for call in calls:
            if not self._is_refused(call) and not self._takes_anything():
                self.problems.append(f"a wrong call is accepted: {json.dumps(call, default=str)[:200]}")
        runs_here = self.registered.runner is not None
        for bad in () if runs_here else bad_arguments:
            if not self._is_refused(bad):
                self.problems.append(f"bad arguments are accepted: {json.dumps(bad, default=str)[:200]}")

    def _is_refused(self, arguments: Any) -> bool:
        return isinstance(self.keep.try_validate_arguments(self.registered.name, arguments), Refusal)

    def _takes_anything(self) -> bool:
        return self.registered.definition.parameters.get("additionalProperties", False) is not False

    async def runs(self, arguments: Mapping[str, Any], bad_arguments: Sequence[Mapping[str, Any]]) -> None:
        """Run the tool: it works, fails with a message, and is deterministic if it declares so."""
        check = self.keep.try_validate_arguments(self.registered.name, dict(arguments))
        if isinstance(check, Refusal):
            self.problems.append(f"the call that should work is refused: {check.text}")
            return
        run = self._runner()
        first = await self._outcome(lambda: run(check.arguments))
        promised = self.registered.definition.determinism
        if first is not None and promised in (Determinism.PURE, Determinism.DETERMINISTIC):
            second = await self._outcome(lambda: run(check.arguments))
            if second != first:
                self.problems.append("declared deterministic, but two equal calls gave different results")
        for bad in bad_arguments:
            if not self._is_refused(bad):
                await self._fails_politely(bad)
        if isinstance(self.registered.runner, AgentTool):
            await self._hides_exceptions(self.registered.runner, check.arguments)

    def _runner(self) -> Callable[[dict[str, Any]], Coroutine[Any, Any, Any]]:
        runner = self.registered.runner
        if isinstance(runner, FunctionTool):
            return lambda arguments: runner.invoke(arguments, self.context)
        if isinstance(runner, WasmTool):
            return self._call
        return lambda arguments: _execute(runner, json.dumps(arguments), self.context)

    async def _call(self, arguments: dict[str, Any]) -> Any:
        """Call through the keep, for what only a keep can run."""
        result = await self.keep.call(self.registered.name, arguments)
        if not result.ok:
            raise _Failed(result.text)
        return result.value

    async def _outcome(self, run: Callable[[], Coroutine[Any, Any, Any]]) -> str | None:
        """The hash of a result; None after recording a problem."""
        try:
            value = await run()
            value = value.model_dump(mode="json") if hasattr(value, "model_dump") else value
            if self.registered.output is not None and not self.registered.output.is_valid(value):
                self.problems.append("the result does not satisfy the output schema")
            return canonical_hash(value) if not isinstance(value, bytes) else value.hex()
        except _Failed as failure:
            self.problems.append(f"the call that should work failed: {failure}")
            return None
        except Exception as error:  # noqa: BLE001 -- whatever the tool does wrong is the finding
            self.problems.append(f"the call that should work raised {type(error).__name__}: {error}")
            return None

    async def _fails_politely(self, arguments: Mapping[str, Any]) -> None:
        """Bad arguments must fail with a message: a function raises, a class returns a failed result."""
        shown = json.dumps(arguments, default=str)[:200]
        try:
            await self._runner()(dict(arguments))
        except _Failed as failure:
            if not str(failure).strip():
                self.problems.append(f"bad arguments fail without a message: {shown}")
        except Exception as error:  # noqa: BLE001 -- whatever the tool does wrong is the finding
            if isinstance(self.registered.runner, AgentTool):
                self.problems.append(f"bad arguments raise {type(error).__name__}: {shown}")
        else:
            self.problems.append(f"bad arguments work: {shown}")

    async def _hides_exceptions(self, runner: AgentTool, arguments: dict[str, Any]) -> None:
        """Invalid arguments and a broken context must give a failed result without internal details."""
        calls = (("{", self.context), ("{}", self.context), (json.dumps(arguments), _Broken()))
        for arguments_json, context in calls:
            try:
                # Broken on purpose.
                result: object = await runner.execute(arguments_json, context)  # type: ignore[arg-type]
            except Exception as error:  # noqa: BLE001 -- as above
                self.problems.append(f"execute raised {type(error).__name__} instead of a failed result")
                continue
            if not isinstance(result, InvokeResult):
                self.problems.append("execute did not return an InvokeResult")
            elif "Traceback" in result.error_message:
                self.problems.append("a failed result holds a stack trace")
            elif _BROKEN in result.error_message:
                self.problems.append("a failed result holds the text of an unexpected exception")


class _Broken:
    """A context on which every access raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{_BROKEN}: context.{name}")


class _Failed(Exception):
    """The tool reported a failure."""


async def _execute(runner: AgentTool, arguments_json: str, context: ToolContext) -> Any:
    result = await runner.execute(arguments_json, context)
    if not result.successful:
        raise _Failed(result.error_message)
    return json.loads(result.result_json)


def _names(required: object) -> list[str]:
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
