"""Run a call through the stages in order (EXE-1). `Pipeline._stages` lists them.

Each stage takes the type that the stage before it made, so no stage can be skipped; it refuses by returning a
`Refusal`, which goes straight to normalization and record. Nothing here raises for what a call, a tool or a
full disk did wrong.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec.json import decode as from_json
from msgspec.structs import replace

from toolkeep.approval.approve import ApprovalGate, Asked
from toolkeep.approval.approver import Approver
from toolkeep.audit.record import Recorder
from toolkeep.audit.record_kinds import ServerAsked
from toolkeep.calls import (
    NO_DATA,
    CallOptions,
    CheckedCall,
    CheckedOutput,
    Output,
    PermittedCall,
    Progress,
    RawOutput,
    RecordedCall,
    Refusal,
    RegisteredTool,
    ToolCall,
    ToolResult,
    caller_identity,
    ran_unrecorded,
    refuse,
)
from toolkeep.config.settings import Run
from toolkeep.definitions.vocabulary import CallKind
from toolkeep.errors import Code, StoreUnavailable, ToolkeepError
from toolkeep.events import Bus, CallEnded, ValidationPassed
from toolkeep.execution.admission import Admission, Slot
from toolkeep.execution.circuit_breaker import CircuitBreaker
from toolkeep.execution.client_results import PendingCalls
from toolkeep.execution.contact_events import ContactEvents
from toolkeep.execution.execute import Executor
from toolkeep.execution.http_runner import HttpRunner
from toolkeep.execution.idempotency import NO_CLAIM, claim
from toolkeep.execution.in_process_runner import InProcessRunner
from toolkeep.execution.isolation_check import IsolationCheck, UnconfinedTools
from toolkeep.execution.persistent.pool import ProcessPool
from toolkeep.execution.result_cache import ResultCache, is_cacheable
from toolkeep.execution.runner import Held, Runner, RunnerOnDemand
from toolkeep.execution.sandbox_runner import SandboxRunner
from toolkeep.execution.thread_pool import NO_SLOT, NoThread, ThreadPool, is_on_loop, to_end
from toolkeep.flow.host_session import Session, state_of
from toolkeep.flow.session_references import SESSION_BYTES
from toolkeep.flow.session_state import Earlier, SessionState
from toolkeep.host.random_ids import random_digits
from toolkeep.json_values.canonical import canonical_bytes, canonical_hash
from toolkeep.keep.call_state import CallState, Foreseen, with_data
from toolkeep.keep.hooks import AfterHook, BeforeHook, Hooks
from toolkeep.limits import LARGE_ANSWER_BYTES, NAMED_CHARS, CallLimits
from toolkeep.policy.authorize import Authorizer
from toolkeep.policy.policy_settings import PolicySettings
from toolkeep.registry.registry import ToolRegistry
from toolkeep.registry.resolve_tool import Suggestions, resolve_name
from toolkeep.results.normalize import normalize, pending, refused
from toolkeep.results.output_check import Normalizers, check_output, is_large
from toolkeep.sandbox.trusted_paths import TrustedPaths
from toolkeep.stores.records import KeepRecord, MemoryRecord
from toolkeep.stores.sign_ins import SignInStore
from toolkeep.text.display import echo_name
from toolkeep.validation.refusal_history import RefusalHistory
from toolkeep.validation.validate import Arguments, validate

if TYPE_CHECKING:
    from toolkeep.audit.entry import Leaf
    from toolkeep.fleet.dispatcher import Ran
    from toolkeep.fleet.fleet_runner import FleetRunner
    from toolkeep.flow.tracker import Flow
    from toolkeep.keep.drift import DriftWatch
    from toolkeep.keep.fleet_records import FleetRecords
    from toolkeep.mcp_client.elicitation import Answerer
    from toolkeep.sandbox.launch import EarlyStart
    from toolkeep.wasm.compiled_cache import CompiledModules

log = logging.getLogger("toolkeep.execution")

T = TypeVar("T")
Shown = Callable[..., None]
"""A callback that shows text of a tool while it runs."""


class Spans(Protocol):
    """Traces calls."""

    def around(self, call: ToolCall, tool_name: str) -> AbstractContextManager[Callable[[ToolResult], None]]:
        """A span around one call, which receives the result."""


class Pipeline:
    """The stages of one keep, assembled."""

    def __init__(
        self,
        *,
        registry: ToolRegistry,
        refusals: RefusalHistory,
        bus: Bus,
        record: KeepRecord,
        limits: CallLimits,
        authorizer: Authorizer,
        policy: PolicySettings,
        trusted: TrustedPaths,
        approver: Approver | None,
        answerer: "Answerer | None",
        normalizers: Normalizers,
        tool_secrets: Mapping[str, Mapping[str, str]],
        before_call: Sequence[BeforeHook],
        after_call: Sequence[AfterHook],
        sign_ins: SignInStore | None,
        suggest: Callable[[str], Suggestions],
        is_ending: Callable[[], bool],
        flow: "Flow | None" = None,
        early: "EarlyStart | None" = None,
        fleet: "FleetRunner | None" = None,
    ) -> None:
        """`suggest` gives what the refusal of an unknown name may tell an agent.

        `is_ending` says whether the process is shutting down: a call cut short may have had an effect.
        `flow` watches what passes between calls, `early` are processes that were started for the first call,
        `fleet` sends calls to workers on other machines.
        """
        self.record = record
        self.flow = flow
        self._watched: dict[str, SessionState] = {}
        """Sessions of the calls that run, by call id."""
        self._noting: dict[str, asyncio.Future[None]] = {}
        """Text that calls show once a server elsewhere has stored that they do."""
        self.authorizer = authorizer
        self.asker = ApprovalGate(
            record.approvals,
            approver=approver,
            is_paranoid=policy.is_paranoid,
            wait_s=policy.wait_s,
            tell=bus.tell,
            body_of=record.bodies.get,
        )
        self.admission = Admission(limits)
        record.watch_servers(self.admission.divide)
        project = policy.project
        self.recorder = Recorder(
            record.log, record.bodies, record.secret_key, is_alone=self.admission.has_one
        )
        machine, contacts = IsolationCheck(UnconfinedTools(policy.unconfined)), ContactEvents(bus)
        self.sandbox = SandboxRunner(project, trusted, machine, contacts, bus, early)
        self.processes = ProcessPool(bus)
        self._threads = ThreadPool()
        self._hooks = Hooks(
            before_call,
            after_call,
            threads=self._threads,
            timeout_s=limits.hook_s,
            sealed=self.recorder.sealed,
        )

        def wasm_runner() -> Runner:
            from toolkeep.execution.wasm_runner import WasmRunner

            return WasmRunner(project, trusted, _compiled_modules(record), self._threads)

        def persistent_runner() -> Runner:
            from toolkeep.execution.persistent.persistent_runner import PersistentRunner

            return PersistentRunner(self.processes, machine, contacts, project, trusted)

        def mcp_runner() -> Runner:
            from toolkeep.mcp_client.upstream_runner import McpRunner

            tell, asked = bus.tell, self._server_asked
            return McpRunner(self.processes, machine, contacts, tell, asked, trusted, sign_ins, answerer)

        self.fleet = fleet
        self._fleet_records: FleetRecords | None = None
        if fleet is not None:
            from toolkeep.keep import fleet_records

            self._fleet_records = fleet_records.FleetRecords(self.recorder, bus, self._answered_late)
        runners: list[Runner] = [
            InProcessRunner(self._threads),
            self.sandbox,
            RunnerOnDemand("wasm", wasm_runner),
            HttpRunner(),
            RunnerOnDemand("process", persistent_runner),
            RunnerOnDemand("mcp", mcp_runner),
        ]
        away = [] if fleet is None else [fleet]
        self.executor = Executor([*away, *runners], CircuitBreaker(limits), ResultCache(), contacts)
        if fleet is not None and self._fleet_records is not None:
            from toolkeep.keep.worker_samples import WorkerSamples

            samples = WorkerSamples(
                fleet.sample,
                recorder=self.recorder,
                bus=bus,
                registry=registry,
                here=Executor(runners, CircuitBreaker(limits), ResultCache(), contacts),
                objection=_changed_code,
                check=lambda raw: _checked(raw, normalizers),
                forget_results=self.executor.cache.clear,
            )
            fleet.report_to(self._fleet_records, samples)
        self._drift: DriftWatch | None = None
        if policy.watches_drift:
            from toolkeep.keep import drift

            self._drift = drift.DriftWatch(record.log, bus.tell, self.recorder.note)
        self._registry = registry
        self._suggest = suggest
        self._refusals = refusals
        self._bus = bus
        self._pending = PendingCalls()
        self._normalizers = normalizers
        self._secrets = tool_secrets
        self.spans: Spans | None = None
        self._is_ending = is_ending
        self._is_closed = False

    async def end_processes(self) -> None:
        """Terminate every confined process of this event loop."""
        await self.processes.close()
        await self.sandbox.close()
        await self.leave_fleet()

    async def leave_fleet(self) -> None:
        """Disconnect from the workers of this event loop."""
        if self.fleet is not None and self._fleet_records is not None:
            await self._fleet_records.write_refusals()
            await self.fleet.close()
            await self._fleet_records.close()

    def close(self) -> None:
        """Close the record; later calls are refused."""
        self._is_closed = True
        self.processes.close_soon()
        self.sandbox.close_soon()
        self._threads.close()
        if self._drift is not None:
            self._drift.close()
        self.record.close()

    def call(
        self,
        name: object,
        arguments: Arguments,
        *,
        agent: object,
        conversation: object = "",
        session: object = "",
        caller: object = "",
        correlation_id: object = "",
        response: object = "",
        options: CallOptions,
        data: Mapping[str, Any] = NO_DATA,
        on_progress: Progress | None = None,
        on_output: Output | None = None,
        is_direct: bool = False,
        kind: CallKind = CallKind.TOOL,
    ) -> Awaitable[ToolResult]:
        """One call, from request to result; `response` may be what `foresee` gave for it."""
        _check_loop()
        drawn = random_digits()
        foreseen = response if isinstance(response, Foreseen) else None
        watched, unknown = None, None
        if self.flow is not None and not self.flow.is_remote:
            try:
                watched = self._session(agent, conversation, session, caller)
            except (OSError, ToolkeepError) as error:
                unknown = error
        request = ToolCall(
            id=drawn[:32] if foreseen is None else foreseen.id,
            tool=named(name),
            arguments=arguments,
            agent=named(agent),
            conversation=named(conversation),
            session=named(getattr(session, "id", session)),
            correlation_id=named(correlation_id) or drawn[32:],
            response=named(response) if foreseen is None else foreseen.response,
            options=options,
            data=data,
            on_progress=self._opening(watched, named(name), on_progress),
            # Pieces would pass by the hooks, which see the whole output.
            on_output=None if self._hooks.after else self._opening(watched, named(name), on_output),
            began_ns=time.monotonic_ns(),
            is_direct=is_direct,
            kind=kind,
            flow=watched,
            identity=caller_identity.get(),
        )
        state = CallState(request, self._visible(request))
        state.prepared = None if foreseen is None else foreseen.prepared
        if unknown is not None:
            return self._unwatched(state, unknown)
        if self.flow is not None and self.flow.is_remote:
            return self._made_remotely(state, self.flow, agent, conversation, session, caller)
        return self._made(state) if self.spans is None else self._traced(state, self.spans)

    async def _made_remotely(
        self,
        state: CallState,
        flow: "Flow",
        agent: object,
        conversation: object,
        session: object,
        caller: object,
    ) -> ToolResult:
        """Make a call whose session a server elsewhere knows."""
        request, watched = state.request, None
        try:
            if not isinstance(session, Session):
                name = request.session or request.conversation
                watched = await flow.go_on(request.agent, name, caller=named(caller))
            if watched is None:
                find = partial(self._session, agent, conversation, session, caller)
                watched = await self._threads.run_to_end(find)
        except asyncio.CancelledError:
            await self._end(state, state.refused(_cancelled(request)))
            raise
        except (OSError, ToolkeepError, NoThread) as error:
            return await self._unwatched(state, error)
        state.request = replace(
            request,
            flow=watched,
            on_progress=self._opening(watched, request.tool, request.on_progress, request.id),
            on_output=self._opening(watched, request.tool, request.on_output, request.id),
        )
        return await (self._made(state) if self.spans is None else self._traced(state, self.spans))

    async def _waiting(self, work: Callable[..., T], *given: Any, **options: Any) -> T:
        """Do what changes sessions or measures: in a thread, where that waits for a server elsewhere."""
        if self.flow is None or not self.flow.is_remote:
            return work(*given, **options)
        return await self._threads.run_to_end(partial(work, *given, **options))

    def _session(
        self, agent: object, conversation: object, session: object, caller: object
    ) -> "SessionState":
        """The session whose state the call reads."""
        flow = self.flow
        if flow is None:
            raise TypeError("nothing watches sessions")
        if isinstance(session, Session) and not caller:
            state = state_of(session)
            if state.agent != agent and state.agent != named(agent):
                raise ValueError(f"the session belongs to agent {state.agent!r}, not to {named(agent)!r}")
            flow.resume(state)
            return state
        return flow.session_of(named(agent), named(session) or named(conversation), caller=named(caller))

    async def _unwatched(self, state: CallState, error: Exception) -> ToolResult:
        """Refuse a call of a session whose state cannot be read: it may have seen everything."""

        async def stages() -> ToolResult:
            raise error

        return await self._end(state, await self._through(state, stages()))

    def _opening(
        self, session: "SessionState | None", name: str, shown: Shown | None, call: str = ""
    ) -> Shown | None:
        """A callback that notes first that text of a tool is shown."""
        flow = self.flow
        if session is None or shown is None or flow is None:
            return shown
        tell = shown

        def opened(*shown: Any) -> None:
            if flow.is_remote and is_on_loop():
                self._note(call, session, self._registry.find(name), partial(tell, *shown))
                return
            flow.open(session, self._registry.find(name))
            tell(*shown)

        return opened

    def _note(
        self, call: str, session: "SessionState", tool: RegisteredTool | None, then: Callable[[], None]
    ) -> "asyncio.Future[None]":
        """Have it stored that a call shows text, then show it: in order, and before its result."""
        flow, before = self.flow, self._noting.get(call)

        async def note() -> None:
            if before is not None:
                await before
            if flow is not None:
                await self._waiting(flow.open, session, tool)
            then()

        self._noting[call] = noting = asyncio.ensure_future(note())
        noting.add_done_callback(_note_failure)
        return noting

    async def _traced(self, state: CallState, spans: Spans) -> ToolResult:
        with spans.around(state.request, state.shown_name) as tell:
            result = await self._made(state)
            tell(result)
        return result

    async def _made(self, state: CallState) -> ToolResult:
        request = state.request
        if self._is_closed:
            message = "The keep is closed; nothing was run"
            return state.refused(refuse(request, Code.NOT_RECORDED, message, "Tell the operator."))
        try:
            slot = await self.admission.admit(request, state.shown_name)
        except asyncio.CancelledError:
            await self._end(state, state.refused(_cancelled(request)))
            raise
        if type(slot) is Refusal:
            return await self._end(state, state.refused(slot))
        state.slot = slot
        state.passed()
        if request.flow is not None:
            self._watched[request.id] = request.flow
        try:
            return await self._end(state, await self._through(state, self._stages(state, slot)))
        finally:
            self._watched.pop(request.id, None)
            state.let_go()
            slot.release()

    async def _through(self, state: CallState, stages: Awaitable[ToolResult]) -> ToolResult:
        """Run the stages; a refusal, a cancellation or an error becomes a result."""
        request = state.request
        try:
            return await stages
        except _Ended as ended:
            return state.refused(ended.refusal)
        except asyncio.CancelledError:
            may_have_acted = state.recorded is not None and state.recorded.tool.may_write
            is_cut = self._is_ending() and may_have_acted
            refusal = _cut_short(request) if is_cut else _given_up(state, may_have_acted=may_have_acted)
            await self._end(state, state.refused(refusal))
            raise
        except (OSError, ToolkeepError) as error:
            log.error("the state of a call cannot be stored", exc_info=error)  # noqa: TRY400 -- with its cause
            if state.has_run:
                return state.refused(ran_unrecorded(request, type(error).__name__))
            if type(error) is StoreUnavailable:  # what servers share is away, and comes back
                message = "The database of the keep cannot be used; nothing was run"
                return state.refused(refuse(request, error.code, message, "Try again soon."))
            message = "The state of the keep cannot be read or written; nothing was run"
            return state.refused(refuse(request, Code.NOT_RECORDED, message, "Tell the operator."))
        except Exception:
            fields = {"tool_name": state.shown_name, "correlation_id": request.correlation_id}
            log.exception("internal error during a call", extra=fields)
            return state.refused(_broken(request))

    async def _stages(self, state: CallState, slot: Slot) -> ToolResult:
        tool = state.tool = _passed(self._answering(state.request))
        if not isinstance(state.prepared, ToolCall):
            # Known before a hook or a check speaks: what they refuse may quote the texts.
            state.request = _passed(self._with_texts(state.request, tool))
        state.request = request = _passed(await self._prepared(state.request, tool, slot, state.prepared))
        checked = state.checked = _passed(self._validate(request, tool))
        state.passed()
        permitted = state.permitted = _passed(await self._authorized(request, checked))
        state.passed()
        deadline_s, output_bytes = _passed(_within(request, tool))
        # The hash binds approval, idempotency key and log to these very arguments.
        hashed = self.recorder.hashed(checked)
        state.argument_hash = hashed.hash
        claimed = await claim(self.record.ledger, permitted, _claimed_hash(request, hashed.hash))
        if type(claimed) is ToolResult:
            return claimed
        state.claim = _passed(claimed)
        # Before a person is asked: nobody should approve a call that cannot run.
        _passed(self._runnable(permitted))
        waiting = partial(self._asking, permitted, slot)
        asked = _passed(await self.asker.ask(permitted, hashed.body, waiting))
        # Minutes may have passed while a person decided. Without this, a rule that was tightened, a grant
        # that was revoked or a definition that changed meanwhile would not apply to the call.
        shown = permitted
        permitted = state.permitted = _passed(await self._still_permitted(permitted, asked))
        approved = _passed(await self.asker.approve(permitted, asked))
        state.passed()
        is_told = asked.question is not None and asked.question.is_about_flow
        if self.flow is not None and is_told and shown.asked_by:
            # By what the person was told, not by what fell since.
            await self._waiting(self.flow.endorse, shown.flow)
        is_first = permitted.is_recorded_first
        state.is_begun = is_first  # also if it is cancelled while its intent is written
        intent = await self.recorder.intent(
            approved,
            arguments=hashed,
            deadline_s=deadline_s,
            output_bytes=output_bytes,
        )
        state.is_begun = is_first and type(intent) is not Refusal
        recorded = state.recorded = _passed(intent)
        # Paths and code once more, right before the run: while the intent was written, a file may have been
        # swapped for a symlink, or a script for another (TOCTOU).
        _passed(self.authorizer.unchanged(permitted))
        _passed(_changed_code(permitted))
        if request.flow is not None and any(one.secret for one in request.references):
            # Before it runs: its progress may tell the secret.
            await self._waiting(request.flow.fall, secret=True)
        state.passed()
        if tool.definition.client_executed:
            return await self._hand_out(state, recorded, slot)
        kept = await self._keep_replaced(recorded)
        executor = state.run_by(self.executor)
        raw = _passed(await executor.execute(recorded, slot, self._secrets_of(tool)))
        if kept is not None:
            await self._threads.run_to_end(kept)
        state.passed()
        result = await self._finished(state, raw, slot)
        state.passed()
        return result

    async def _keep_replaced(self, recorded: RecordedCall) -> "Callable[[], None] | None":
        """Keep what the call will replace in a file; what to do once it has run."""
        tool = recorded.tool
        is_elsewhere = self.fleet is not None and self.fleet.runs(tool)
        if not getattr(tool.runner, "replaces_file", False) or is_elsewhere:
            return None
        from toolkeep.keep.undo import keep_replaced

        replaced = self.record.replaced
        return await self._threads.run_to_end(partial(keep_replaced, replaced, recorded))

    async def _prepared(
        self, request: ToolCall, tool: RegisteredTool, slot: Held, before: ToolCall | Refusal | None = None
    ) -> ToolCall | Refusal:
        """The request with a copy of its data, after the hooks of the host, which run once for a call."""
        if before is not None:
            if isinstance(before, Refusal):
                return before
            return replace(
                request,
                arguments=before.arguments,
                data=before.data,
                data_hash=before.data_hash,
                argument_hash_before=before.argument_hash_before,
                references=before.references,
                written=before.written,
                written_hash=before.written_hash,
            )
        if request.data is not NO_DATA:
            copied = with_data(request, self.recorder.sealed)
            if isinstance(copied, Refusal):
                return copied
            request = copied
        if self._hooks.before:
            hooked = await self._hooks.prepare(request, tool, tool.arguments.limits, slot)
            if isinstance(hooked, Refusal) or not hooked.references:
                return hooked
            from toolkeep.keep.resolve_references import anywhere_in_arguments

            return anywhere_in_arguments(hooked)
        return request

    def _views(self, request: ToolCall) -> bool:
        """Whether the caller is shown typed views, and may name references."""
        flow = self.flow
        is_typed = flow is not None and flow.references is not None
        return is_typed and request.flow is not None and request.kind is CallKind.TOOL

    def _with_texts(self, request: ToolCall, tool: RegisteredTool) -> ToolCall | Refusal:
        """The request with texts in place of references, where views are typed."""
        if self.flow is None or self.flow.references is None or not self._views(request):
            return request
        from toolkeep.keep.resolve_references import with_texts

        return with_texts(request, tool, self.flow.references, self.recorder.sealed)

    async def foresee(self, call: Mapping[str, Any], foreseen: Foreseen | None, response: str) -> Foreseen:
        """Decide a call as far as approval, without its effects; nothing is recorded.

        `call` holds keyword arguments of `Keep.call`. Ended with `let_go`.
        """
        session, conversation = call.get("session", ""), call.get("conversation", "")
        data, watched = call.get("data"), None
        if self.flow is not None:
            caller = call.get("caller", "")
            watched = await self._waiting(self._session, call["agent"], conversation, session, caller)
        request = ToolCall(
            id=random_digits()[:32] if foreseen is None else foreseen.id,
            tool=named(call["name"]),
            arguments=call["arguments"],
            agent=named(call["agent"]),
            conversation=named(conversation),
            session=named(getattr(session, "id", session)),
            response=response,
            options=CallOptions(requires_confirmation=bool(call.get("confirm"))),
            data=NO_DATA if data is None else data,
            kind=CallKind.read(call.get("kind", CallKind.TOOL)),
            flow=watched,
            identity=caller_identity.get(),
        )
        found = self._registry.snapshot.answering.get(request.tool)
        tool = found if found is not None and self._visible(request) is found else None
        if tool is None or tool.definition.kind != request.kind:
            return Foreseen(request.id, response)
        before = None if foreseen is None else foreseen.prepared
        resolved = request if before is not None else self._with_texts(request, tool)
        if isinstance(resolved, Refusal):
            return Foreseen(request.id, response, resolved)
        prepared = await self._prepared(resolved, tool, NO_SLOT, before)
        if isinstance(prepared, Refusal):
            return Foreseen(request.id, response, prepared)
        checked = validate(tool, prepared.arguments, RefusalHistory(), request.agent)
        permitted = await self._authorized(prepared, checked) if checked.success else None
        if not isinstance(permitted, PermittedCall):
            return Foreseen(request.id, response, prepared)
        decided = Foreseen(request.id, response, prepared, permitted)
        if self._runnable(permitted) is None:
            return decided
        await self.let_go(decided)
        return Foreseen(request.id, response, prepared)

    async def let_go(self, foreseen: Foreseen) -> None:
        """Close what a call holds that was decided ahead, and give back what it reserved."""
        permitted = foreseen.permitted
        if permitted is None:
            return
        for one in permitted.touched:
            one.close()
        if self.flow is not None and permitted.flow is not None and permitted.flow.reserved is not None:
            await self._waiting(self.flow.meter.release, permitted.flow.reserved)

    def may_ask(self, call: Mapping[str, Any]) -> bool:
        """Whether a call may need a person, by what is known without its arguments."""
        tool = self._registry.snapshot.answering.get(named(call["name"]))
        # One with a key may have its result already.
        if tool is None or call.get("idempotency_key"):
            return False
        by_danger = self.asker.may_ask(tool, confirms=bool(call.get("confirm")))
        return by_danger or self.authorizer.may_ask(named(call["agent"]), tool)

    @contextlib.asynccontextmanager
    async def _asking(self, permitted: PermittedCall, slot: Slot) -> AsyncIterator[None]:
        """While a person is asked."""
        if self.flow is not None and permitted.flow is not None and permitted.flow.reserved is not None:
            await self._waiting(self.flow.meter.add, permitted.flow.reserved, questions=1)
        async with slot.released_for_approval():
            yield

    def _secrets_of(self, tool: RegisteredTool) -> Mapping[str, str]:
        """The secrets that the host gave to a tool by name, over those of its upstream."""
        given = self._secrets.get(tool.name, {})
        of_upstream = getattr(tool.runner, "secrets", None)
        if of_upstream is None or not isinstance(of_upstream, Mapping):
            return given
        return {**of_upstream, **given} if given else of_upstream

    def _visible(self, request: ToolCall) -> RegisteredTool | None:
        """The tool that a call names, if its agent may see it."""
        found = self._registry.snapshot.find(request.tool)
        return found if found is not None and self.authorizer.sees(request.agent, found) else None

    def _answering(self, request: ToolCall) -> RegisteredTool | Refusal:
        if problem := self._registry.problem:
            # Not in the message: it names the address of the database, which a model must not learn.
            log.warning("a call was refused, as the shared database is away", extra={"problem": problem})
            message = "The shared database is away, so what other servers disabled or withdrew is not known"
            return refuse(request, Code.STORE_UNAVAILABLE, message, "Try again soon.")
        sees = partial(self.authorizer.sees, request.agent) if self.authorizer.hides_tools else None
        return resolve_name(
            request.tool,
            self._registry.snapshot,
            self._bus,
            partial(self._suggest, request.agent),
            correlation_id=request.correlation_id,
            sees=sees,
            kind=request.kind,
        )

    async def _authorized(self, request: ToolCall, checked: CheckedCall) -> PermittedCall | Refusal:
        """Authorize a call, which may count it and store what a parent's session has seen."""
        session, counted = request.flow, self.authorizer.active_policies.counted_too
        if self.flow is None or session is None or not (counted or session.parent):
            return self.authorizer.authorize(request, checked)
        return await self._waiting(self.authorizer.authorize, request, checked)

    async def _still_permitted(self, permitted: PermittedCall, asked: Asked) -> PermittedCall | Refusal:
        """Check a call that waited for a person again, as if it came now (POL-4)."""
        if asked.question is None:
            return permitted
        answering = _passed(self._answering(permitted.request))
        if answering.definition_hash != permitted.tool.definition_hash:
            message = f"Tool '{permitted.tool.name}' is not the one that was approved"
            return refuse(
                permitted.request, Code.TOUCHED_CHANGED, message, "Look at the tool, then call again."
            )
        return await self._waiting(self.authorizer.authorize_again, permitted)

    def _validate(self, request: ToolCall, tool: RegisteredTool) -> CheckedCall | Refusal:
        began = time.perf_counter() if self._bus.timed else 0.0
        checked = validate(
            tool,
            request.arguments,
            self._refusals,
            request.agent,
            f"{request.session} {request.conversation}",  # two clients may share an agent and a name
            request.correlation_id,
        )
        if began and checked.success:
            took_ms = (time.perf_counter() - began) * 1000
            passed = ValidationPassed(tool_name=tool.name, agent=request.agent, validation_ms=took_ms)
            self._bus.tell_passed(passed)
        return checked

    def _runnable(self, permitted: PermittedCall) -> Refusal | None:
        if permitted.tool.definition.client_executed and permitted.tool.runner is None:
            return None
        objection = _changed_code(permitted) or self.executor.objection(permitted)
        return objection or self._not_here(permitted)

    def _not_here(self, permitted: PermittedCall) -> Refusal | None:
        """Refuse to run a tool here that its definition leaves to workers elsewhere."""
        tool = permitted.tool
        if self.fleet is not None or tool.definition.constraints.runs_on is None:
            return None
        message = f"Tool '{tool.name}' runs on workers on other machines, and none are configured"
        return refuse(
            permitted.request, Code.WORKER_UNAVAILABLE, message, "Do without it, or ask the operator."
        )

    async def _hooked(self, state: CallState, raw: RawOutput, slot: Held) -> RawOutput:
        """Output after the hooks of the host."""
        if not self._hooks.after:
            return raw
        secrets = self._secrets_of(raw.call.tool)
        raw, state.result_hash_before = _passed(await self._hooks.finish(raw, secrets, slot))
        return raw

    async def _finished(self, state: CallState, raw: RawOutput, slot: Held) -> ToolResult:
        """Output, hooked, checked, normalized and hashed."""
        raw = await self._hooked(state, raw, slot)
        output = _passed(await _checked(raw, self._normalizers))
        state.body = output.body
        if not raw.is_cached and is_cacheable(raw.call.tool) and self._may_cache(raw.call):
            self.executor.cache.put(raw.call, output.body)
        self.recorder.keep_result(output)
        if len(output.body) > LARGE_ANSWER_BYTES:  # truncated output is stored whole, which takes a while
            return _passed(await asyncio.to_thread(normalize, output, self.record.bodies))
        return _passed(normalize(output, self.record.bodies))

    def _may_cache(self, call: RecordedCall) -> bool:
        """Whether a result may answer another call: not if it depends on per-call data or on a hook."""
        return not call.request.data_hash and not self._hooks.after

    async def _hand_out(self, state: CallState, recorded: RecordedCall, slot: Slot) -> ToolResult:
        """A call that the client executes: its server half runs here, the rest is pending (EXE-6)."""
        value = None
        if recorded.tool.runner is not None:
            given = self._secrets_of(recorded.tool)
            executor = state.run_by(self.executor)
            raw = _passed(await executor.execute(recorded, slot, given))
            raw = await self._hooked(state, raw, slot)
            value = _passed(await _checked(raw, {}, is_final=False)).value
        return pending(state.request, recorded.approved, value, state.argument_hash)

    async def submit(self, call_id: str, value: Any, *, agent: str, is_labelled: bool = True) -> ToolResult:
        """The client's result of a pending call, from output check to record.

        `is_labelled` says whether the labels of its tool describe it.
        """
        waiting = self._pending.take(call_id, agent)
        if waiting is None:
            request = ToolCall(
                id=named(call_id), tool="", arguments=None, agent=named(agent), began_ns=time.monotonic_ns()
            )
            message = "This agent has no pending call with this id"
            return refused(
                request, refuse(request, Code.NOT_PENDING, message, "Submit the result of each call once.")
            )
        state = CallState.going_on(*waiting)
        state.is_labelled = is_labelled
        raw = RawOutput(call=waiting[0], value=value, isolation="client", execute_ms=0.0)
        return await self._end(state, await self._through(state, self._finished(state, raw, NO_SLOT)))

    async def _end(self, state: CallState, result: ToolResult) -> ToolResult:
        """Record the outcome of the call and settle its claim, also if the caller cancels meanwhile."""
        if state.request.flow is not None:
            if self.flow is None or not self.flow.is_remote:
                result = self._observed(state, result)
            else:
                result = await to_end(self._observed_remotely(state, result))
        try:
            result = await self.recorder.outcome(result, state)
        except asyncio.CancelledError:
            if result.status == "pending":  # nobody was told its id, so nobody will submit a result
                result = state.refused(_cancelled(state.request))
            raise
        finally:
            await state.settle(result)
        if state.request.references and result.decision is not None:
            # A path or host may be a text that the caller has not seen. The log names it.
            result = replace(result, decision=replace(result.decision, touches=()))
        if result.status == "pending" and state.recorded is not None:
            for gave_way in self._pending.put(state.recorded, state.claim):
                left = CallState.going_on(*gave_way)
                await left.settle(left.refused(_left_waiting(left.request)))
        if self._fleet_records is not None and state.has_run and result.code is Code.OUTCOME_UNKNOWN:
            self._fleet_records.ended(state)
        if self._drift is not None and state.recorded is not None:
            self._drift.heard(result)
        self._tell(state, result)
        return result

    async def _answered_late(self, state: CallState, ran: "Ran") -> ToolResult:
        """The result of a call whose worker answered after it was given up."""
        from toolkeep.fleet.fleet_runner import ran_on, value_of

        recorded = state.recorded
        if recorded is None:
            raise TypeError("a call that was not recorded did not run")
        late = CallState.going_on(recorded, state.claim)
        secrets = self._secrets_of(recorded.tool)
        try:
            raw = _passed(
                self.executor.late_outcome(recorded, lambda: value_of(recorded, ran), ran_on(ran), secrets)
            )
            return await self._finished(late, raw, NO_SLOT)
        except _Ended as ended:
            return late.refused(ended.refusal)

    async def _observed_remotely(self, state: CallState, result: ToolResult) -> ToolResult:
        noting = self._noting.pop(state.request.id, None)
        if noting is not None:
            await asyncio.wait({noting})
        facts = None if state.permitted is None else state.permitted.flow
        if (facts is None or facts.reserved is None) and self._is_settled(state):
            return self._observed(state, result)
        try:
            return await self._waiting(self._observed, state, result)
        except NoThread as error:
            log.exception("the state of a session cannot be kept", extra={"tool_name": state.shown_name})
            return state.refused(ran_unrecorded(state.request, type(error).__name__))

    def _is_settled(self, state: CallState) -> bool:
        """Whether nothing that the call shows can change the state of its session."""
        if self.flow is None or state.tool is None:
            return True
        request = state.request
        return self.flow.is_settled(request.flow, state.tool, _hosts(state.permitted), request.references)

    def _observed(self, state: CallState, result: ToolResult) -> ToolResult:
        """Let the session take in what the caller is about to see; without that, nothing is shown."""
        flow, session, tool = self.flow, state.request.flow, state.tool
        if flow is None or tool is None:
            return result
        try:
            self._measured(flow, state, result)
            hosts, references = _hosts(state.permitted), state.request.references
            if result.error is not None:
                # What a tool or its server says when it fails is a result, too.
                if state.executor is not None or result.is_repeated:
                    flow.open(session, tool, hosts, references)
                elif references and result.code not in _QUOTES_NOTHING:
                    flow.open(session, tool, references=references)
            elif result.status == "ok" or result.value is not None:
                if not state.is_labelled:
                    flow.open(session, tool, hosts, references)
                    return result
                is_typed = self._views(state.request) and result.status == "ok"
                if result.truncation is not None and not is_typed:  # a part as text, which no label fits
                    flow.open(session, tool)
                body = state.body or canonical_bytes(result.value)
                view = flow.observe(
                    session,
                    tool,
                    result.value if not is_typed or result.truncation is None else _whole(result, body),
                    body,
                    Earlier(tool.name, bytes.fromhex(result.hash)),
                    arguments=state.checked.arguments if state.checked is not None else {},
                    hosts=hosts,
                    references=references,
                    is_typed=is_typed,
                )
                if is_typed:
                    # Of what was cut off, nothing is shown.
                    is_cut = result.truncation is not None and type(view) is not dict
                    result = replace(result, typed_view=result.value if is_cut else view)
        except Exception as error:
            log.exception("the state of a session cannot be kept", extra={"tool_name": state.shown_name})
            with contextlib.suppress(Exception):
                flow.lose(session)
            return state.refused(ran_unrecorded(state.request, type(error).__name__))
        return result

    def _measured(self, flow: "Flow", state: CallState, result: ToolResult) -> None:
        """Count what a call took; give back what it reserved if it did not run."""
        facts = None if state.permitted is None else state.permitted.flow
        if facts is None or facts.reserved is None:
            return
        if not state.is_unrun(result):
            ran_s = (time.monotonic_ns() - state.ran_ns) / 1e9 if state.ran_ns else 0.0
            flow.meter.add(facts.reserved, result_bytes=len(state.body), run_seconds=ran_s)
            return
        try:
            flow.meter.release(facts.reserved)
        except ToolkeepError:  # it counts as if it had run
            log.exception("a reservation was not given back", extra={"tool_name": state.shown_name})

    def _server_asked(self, record: ServerAsked) -> "asyncio.Future[Leaf]":
        """Record a question of an upstream server, whose text is shown: a result of its call, for flow."""
        session = self._watched.get(record.call)
        if self.flow is not None and session is not None:
            if self.flow.is_remote:
                return asyncio.ensure_future(self._server_asked_remotely(session, record))
            self.flow.open(session, None)
        return self.recorder.note(record)

    async def _server_asked_remotely(self, session: "SessionState", record: ServerAsked) -> "Leaf":
        await self._note(record.call, session, None, lambda: None)
        return await self.recorder.note(record)

    def _tell(self, state: CallState, result: ToolResult) -> None:
        if self._bus.listeners:
            ended = CallEnded(
                tool_name=state.shown_name,
                agent=state.request.agent,
                status=result.status,
                error_code=result.error.code.value if result.error else "",
                total_ms=result.total_ms,
                correlation_id=result.correlation_id,
            )
            self._bus.tell(ended)

    def may_write(self, name: object) -> bool:
        """Whether a call of that name may have a write effect."""
        tool = self._registry.find(named(name))
        return tool is not None and tool.may_write


def _whole(result: ToolResult, body: bytes) -> Any:
    """What references to a truncated text stand for: all of it, if that is not too long to be kept."""
    is_kept = type(result.value) is str and len(body) <= SESSION_BYTES
    return from_json(body) if is_kept else result.value


def _hosts(permitted: PermittedCall | None) -> Sequence[str]:
    """The hosts that a call may have reached."""
    touched = () if permitted is None else permitted.touched
    if not touched:
        return ()
    return [one.shown for one in touched if one.kind.startswith("net.")]


async def _checked(
    raw: RawOutput, normalizers: Normalizers, *, is_final: bool = True
) -> CheckedOutput | Refusal:
    """The output as data, parsed in a thread if it is large: one result must not block the event loop."""
    if is_large(raw.value):
        return await asyncio.to_thread(check_output, raw, normalizers, is_final=is_final)
    return check_output(raw, normalizers, is_final=is_final)


def _compiled_modules(record: KeepRecord) -> "CompiledModules | None":
    """Where compiled modules are cached between processes: only if the key that authenticates them is
    persistent.

    Without authentication, whoever can write the cache could have this process run native code of theirs.
    """
    from toolkeep.wasm.compiled_cache import CompiledModules, cache_folder

    folder = cache_folder(os.environ)
    if folder is None or isinstance(record, MemoryRecord):
        return None
    return CompiledModules(folder, record.secret_key)


_QUOTES_NOTHING: Final = frozenset((Code.APPROVAL_NEEDED, Code.APPROVAL_DENIED))
"""Refusals that quote nothing of what references in the arguments stand for; any other may."""


class _Ended(Exception):
    """A stage refused the call; later stages are not reached."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


def _passed(outcome: T | Refusal) -> T:
    """The result of a stage; ends the call if it is a refusal."""
    if type(outcome) is Refusal:
        raise _Ended(outcome)
    return outcome


def _note_failure(noting: "asyncio.Future[None]") -> None:
    """Log why text was not shown; whoever shows it has nothing to do with it."""
    if not noting.cancelled() and (error := noting.exception()) is not None:
        log.error("text of a call was not shown", exc_info=error)


def _check_loop() -> None:
    """Raise under trio and the like, before anything begins that could not be recorded there."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise RuntimeError(
            "keep.call needs a running asyncio loop; elsewhere use keep.call_sync, in a thread of its own"
        ) from error


def named(given: object) -> str:
    """A name or id as the log can hold it, whatever a model or client sent: bounded, valid Unicode, no NUL.

    PostgreSQL takes no NUL in a text, and would fail the calls of others in the same transaction, too.
    """
    if given == "":
        return ""
    text = given if type(given) is str else str(given)
    if text.isascii() and len(text) <= NAMED_CHARS and "\0" not in text:
        return text
    return text[:NAMED_CHARS].encode("utf-8", "replace").decode().replace("\0", "?")


def _within(request: ToolCall, tool: RegisteredTool) -> tuple[float, int] | Refusal:
    """The effective deadline and output limit: the definition's, or the caller's if tighter (EXE-9).

    A caller can never extend them.
    """
    constraints = tool.definition.constraints
    deadline_s, output_bytes = constraints.execution_seconds, constraints.output_bytes
    seconds, size = request.options.timeout_s, request.options.max_output_bytes
    if seconds is not None:
        if not _is_tighter(seconds, deadline_s, (int, float)):
            message = f"timeout_s must be a number above 0 and at most {deadline_s:g}"
            return refuse(request, Code.OPTION_REFUSED, message, "Ask for less time.")
        deadline_s = seconds
    if size is not None:
        if not _is_tighter(size, output_bytes, (int,)):
            message = f"max_output_bytes must be an integer above 0 and at most {output_bytes}"
            return refuse(request, Code.OPTION_REFUSED, message, "Ask for less output.")
        output_bytes = size
    return deadline_s, output_bytes


def _claimed_hash(request: ToolCall, argument_hash: str) -> str:
    """What an idempotency key is bound to: the same key with other per-call data is another call."""
    return canonical_hash([argument_hash, request.data_hash]) if request.data_hash else argument_hash


def _is_tighter(asked: object, most: float, kinds: tuple[type[int | float], ...]) -> bool:
    return isinstance(asked, kinds) and 0 < asked <= most


def _cancelled(request: ToolCall) -> Refusal:
    return refuse(request, Code.CANCELLED, "The caller cancelled the call", "Call it again if it is needed.")


def _changed_code(permitted: PermittedCall) -> Refusal | None:
    """Why a project's tool may not run: its code is not what a person accepted (REG-5)."""
    runner = permitted.tool.runner
    code = runner.code if isinstance(runner, Run) else None
    changed = code.changed() if code is not None else ""
    if code is None or not changed:
        return None
    message = f"The code of tool '{permitted.tool.name}' changed since it was accepted: {echo_name(changed)}"
    accepts = f"`{code.command}`" if code.command else "`toolkeep accept`, and restarts this server"
    hint = f"Do without it; the operator reviews and accepts the change with {accepts}."
    return refuse(permitted.request, Code.TOOL_QUARANTINED, message, hint)


def _given_up(state: CallState, *, may_have_acted: bool) -> Refusal:
    """The caller cancelled; the stored answer for its idempotency key must not invite a second run."""
    request = state.request
    if may_have_acted:
        message = "The caller cancelled the call while it ran; whether it had an effect is unknown"
        return refuse(
            request,
            Code.CANCELLED,
            message,
            "Find out what it did. If it is still needed, call again with a new key.",
        )
    if state.claim is not NO_CLAIM and state.recorded is not None:
        return refuse(
            request,
            Code.CANCELLED,
            "The caller cancelled the call",
            "Call it again, with a new key, if it is needed.",
        )
    return _cancelled(request)


def _cut_short(request: ToolCall) -> Refusal:
    message = "The keep stopped while the call ran; whether it had an effect is unknown"
    return refuse(request, Code.OUTCOME_UNKNOWN, message, "Find out what it did before you call again.")


def _left_waiting(request: ToolCall) -> Refusal:
    message = (
        "Too many calls wait for their client's result, so this one was abandoned: its outcome is unknown"
    )
    return refuse(
        request,
        Code.OUTCOME_UNKNOWN,
        message,
        "Find out what it did. If it is still needed, call again with a new key.",
    )


def _broken(request: ToolCall) -> Refusal:
    message = "The call could not be made because of an internal error"
    return refuse(request, Code.CHECK_FAILED, message, "Tell the operator.")
