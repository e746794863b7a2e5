"""Runner of WASM modules (SBX-3): each call in its own instance, in a thread of this process.

Input: a recorded call and what policy resolved for it. The module gets the arguments as JSON, can open the
folders of this call and nothing else, and ends with its deadline, its fuel or its caller. The boundary is
wasmtime, not the kernel: see docs/threats.md.
"""

import json
import logging
import math
import os
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, Final, NamedTuple

from toolkeep.authoring.wasm_tool import WasmTool
from toolkeep.calls import Diagnosis, RecordedCall, RegisteredTool
from toolkeep.definitions.tool_context import ToolContext, ToolFailed
from toolkeep.definitions.vocabulary import Isolation
from toolkeep.errors import Code
from toolkeep.execution.runner import Held, RunRefused
from toolkeep.execution.thread_pool import NoThread, ThreadPool
from toolkeep.execution.wasm_preopens import Preopens
from toolkeep.execution.worker_grant import check_hidden, resolved_arguments
from toolkeep.limits import CANCEL_GRACE_SECONDS, FUEL_PER_SECOND, LOGGED_CHARS, OUTPUT_CAP_BYTES
from toolkeep.sandbox.frames import FrameRefused, parse_value
from toolkeep.sandbox.trusted_paths import TrustedPaths
from toolkeep.text.display import truncated_lines
from toolkeep.wasm.compiled_cache import CompiledModules
from toolkeep.wasm.errors import Ending, WasmEnded
from toolkeep.wasm.modules import LoadedModule, Modules
from toolkeep.wasm.run import Answer, Bounds, Run
from toolkeep.wasm.run_watch import Watch
from toolkeep.wasm.runtime import Runtime

log = logging.getLogger("toolkeep.execution")

WASM: Final = "wasm"
"""Isolation name in results: no kernel level, and not `none` either."""

_CODES: Final = {
    Ending.UNUSABLE: Code.NOT_RUNNABLE,
    Ending.DIED: Code.TOOL_FAILED,
    Ending.STOPPED: Code.TIMED_OUT,
    Ending.TOO_BIG: Code.OUTPUT_TOO_BIG,
    Ending.BROKEN: Code.OUTPUT_INVALID,
}


class _Target(NamedTuple):
    """Module path and calling convention."""

    path: str
    output: str = "json"
    fuel: int | None = None

    @classmethod
    def of(cls, runner: Any) -> "_Target":
        """From code or configuration."""
        if isinstance(runner, WasmTool):
            return cls(runner.path, runner.output, runner.fuel)
        return cls(**runner.target) if isinstance(runner.target, dict) else cls(runner.target)


class WasmRunner:
    """Runs modules named by a configuration or a `WasmTool`."""

    def __init__(
        self, project: str, trusted: TrustedPaths, compiled: CompiledModules | None, threads: ThreadPool
    ) -> None:
        """`project` is the base of its own tools' relative paths; no tool may write what is `trusted`.

        `compiled` is a cache that outlives the process.
        """
        self._project = project
        self._trusted = trusted
        self._compiled = compiled
        self._threads = threads
        self._lock = threading.Lock()
        self._runtime: Runtime | None = None
        self._modules: Modules | None = None

    def runs(self, tool: RegisteredTool) -> bool:
        """Whether it is a WASM module; other obstacles are reported when it is called."""
        return getattr(tool.runner, "kind", "") == WASM

    def isolation(self, tool: RegisteredTool) -> str:
        """`wasm`."""
        return WASM

    def enforced(self, tool: RegisteredTool) -> tuple[str, ...]:
        """No kernel mechanism: wasmtime confines it."""
        return ()

    async def run(self, call: RecordedCall, context: Callable[[], ToolContext], slot: Held) -> Any:
        """The module's output. It stops within a tick after cancellation, or holds its slot."""
        try:
            _check_level(call.tool)
            # There is no mount namespace to hide the state folder in.
            check_hidden(call.approved.permitted, self._trusted.state)
            places = Preopens.of(call, self._trusted)
        except ValueError as error:
            raise _not_run(call, Code.ISOLATION_UNAVAILABLE, str(error)) from error
        # Slightly longer than the call's deadline: the executor gives up first, and reports it.
        watch = Watch(call.deadline_s + CANCEL_GRACE_SECONDS, context().is_cancelled)
        try:
            return await self._threads.run(partial(self._work, call, places, watch), slot, may_stop=True)
        except NoThread:
            places.close()
            raise

    def _work(self, call: RecordedCall, places: Preopens, watch: Watch) -> Any:
        target = _Target.of(call.tool.runner)
        request = json.dumps(resolved_arguments(call), ensure_ascii=False).encode()
        with closing(places):
            try:
                runtime, modules = self._made_ready()
                module = modules.load(self._path(call.tool, target.path))
                with places.opened() as folders:
                    run = Run(runtime, module, _bounds(call, target), watch)
                    answer = run.answer(call.tool.name, request, folders)
                    _note(call, module, answer)
            except WasmEnded as ended:
                raise _ended(call, ended) from ended
            except ValueError as error:
                raise _not_run(call, Code.ISOLATION_UNAVAILABLE, str(error)) from error
        return _value(call, target, answer.body)

    def _made_ready(self) -> tuple[Runtime, Modules]:
        with self._lock:
            if self._runtime is None or self._modules is None:
                self._runtime = Runtime()
                self._modules = Modules(self._runtime, self._compiled)
            return self._runtime, self._modules

    def _path(self, tool: RegisteredTool, path: str) -> str:
        """Resolve the module path: relative only for a project's own tools."""
        if tool.provider == "project" and self._project:
            return os.path.join(self._project, path)
        expanded = os.path.expanduser(path)
        # A relative path would depend on the working directory of whoever starts the keep.
        if not expanded.startswith("/"):
            raise WasmEnded(Ending.UNUSABLE, "the path of its module is relative; write it from / or ~")
        return expanded


def _check_level(tool: RegisteredTool) -> None:
    """Refuse levels that are kernel guarantees, and the level without any."""
    asked = tool.definition.constraints.required_isolation
    if asked is Isolation.NONE:
        raise ValueError("what is named by reference never runs at the level none; leave the level out")
    if asked in (Isolation.STRICT, Isolation.RESTRICTED):
        why = "a WASM module runs in the process of the keep, whose system calls nothing filters"
        raise ValueError(f"the level {asked.value} promises kernel-surface, and {why}; leave the level out")


def _bounds(call: RecordedCall, target: _Target) -> Bounds:
    bounds = call.tool.definition.resource_bounds
    cores = 1.0 if bounds.max_cpu_cores is None else bounds.max_cpu_cores
    return Bounds(
        memory_bytes=bounds.memory_bytes(Isolation.STANDARD),
        fuel=target.fuel or math.ceil(call.deadline_s * cores * FUEL_PER_SECOND),
        output_bytes=OUTPUT_CAP_BYTES,
    )


def _value(call: RecordedCall, target: _Target, body: bytes) -> Any:
    if call.tool.definition.gives_bytes:
        return body
    try:
        if target.output == "text":
            return body.decode()
        if not body.strip():
            raise _refused(call, Code.OUTPUT_INVALID, "gave no output; its result has to be JSON")
        return parse_value(body)
    except UnicodeDecodeError as error:
        raise _refused(call, Code.OUTPUT_INVALID, "gave text that is not UTF-8") from error
    except FrameRefused as error:
        what = f"gave an output that is refused: {error}; for plain text, set output: text under run.wasm"
        raise _refused(call, Code.OUTPUT_INVALID, what) from error


def _note(call: RecordedCall, module: LoadedModule, answer: Answer) -> None:
    """Log which module ran, and its stderr unless it may hold a secret."""
    # stderr may print the arguments.
    is_secret = call.tool.arguments.secrecy.has_secrets
    said = "" if is_secret else truncated_lines(answer.stderr.decode(errors="replace"), LOGGED_CHARS)
    fields = {"tool_name": call.tool.name, "correlation_id": call.request.correlation_id}
    log.info("a WASM module ran", extra={**fields, "sha256": module.sha256, "stderr": said})


def _ended(call: RecordedCall, ended: WasmEnded) -> Exception:
    if ended.ending is Ending.FAILED:
        return ToolFailed(ended.text)
    code = _CODES[ended.ending]
    if ended.ending is Ending.UNUSABLE:
        return _not_run(call, code, ended.text)
    refused = _refused(call, code, ended.text)
    # What a module writes may hold the arguments.
    detail = "" if call.tool.arguments.secrecy.has_secrets else ended.detail
    refused.diagnosis = Diagnosis(denied=ended.denied, limit=ended.limit, detail=detail)
    return refused


def _not_run(call: RecordedCall, code: Code, why: str) -> RunRefused:
    return RunRefused(code, f"Tool '{call.tool.name}' was not run: {why}")


def _refused(call: RecordedCall, code: Code, what: str) -> RunRefused:
    return RunRefused(code, f"Tool '{call.tool.name}' {what}")
