"""`tools/call`, `prompts/get`, `resources/read`: from a message to a call of the keep, and to the answer.

The agent is that of the connection. What the client says about itself is only recorded with the call.
"""

import asyncio
import contextlib
import hashlib
import re
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolkeep.calls import Identity, ToolResult, caller_identity
from toolkeep.errors import Code
from toolkeep.execution.thread_pool import is_on_loop
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.keep.keep import Keep
from toolkeep.limits import MCP_TASK_AFTER_SECONDS
from toolkeep.mcp_protocol.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS, Message, ProtocolError
from toolkeep.mcp_server.approval_notices import ApprovalNotices
from toolkeep.mcp_server.client_context import Client, Requests, forget_current, set_current
from toolkeep.mcp_server.connection import Connection, Emit
from toolkeep.mcp_server.detached_requests import DetachedRequest, read_answers
from toolkeep.mcp_server.progress_notifications import Progress
from toolkeep.mcp_server.request_state import HeldElsewhere, RequestStates
from toolkeep.mcp_server.tasks import OUTCOME_UNKNOWN, Tasks, check_has_tasks
from toolkeep.mcp_server.tool_search import CALL, FIND, find, read_call
from toolkeep.mcp_server.upstream_items import Wanted
from toolkeep.providers.mcp import for_mcp, result_data

if TYPE_CHECKING:
    from toolkeep.storage.postgres.peers import Peers

_NO_SUCH_TOOL: Final = frozenset((Code.UNKNOWN_TOOL, Code.TOOL_DISABLED, Code.TOOL_QUARANTINED))
_TRACE: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

RESUME: Final = "resume"
Finish = Callable[[Any], dict[str, Any]]
"""Makes the answer to a request from the value that its work returned."""


def peers_of(keep: Keep) -> "Peers | None":
    """The other servers on the same database; None for a keep without one."""
    return None if keep.shared is None else keep.shared.peers()


class PassedOn(msgspec.Struct):
    """A request of 2026-07-28 that another server received."""

    agent: str
    version: str
    log_level: str
    message: Message
    identity: Identity | None = None


class DirectAsks:
    """Sends requests to a client of a handshake version directly."""

    def __init__(self, connection: Connection, emit: Emit) -> None:
        self._connection = connection
        self._emit = emit

    async def ask(self, requests: Requests) -> dict[str, Any]:
        """Send the requests one after the other and return the answers."""
        return {
            name: await self._connection.ask(one["method"], one["params"], self._emit)
            for name, one in requests.items()
        }

    def start_task(self) -> bool:
        """Handshake versions have no tasks."""
        return False

    def person_is_asked(self, notice: Callable[[], str]) -> None:
        """Do nothing: the client waits."""


class ToolCallHandler:
    """Makes the calls of one server, and owns suspended requests and tasks."""

    def __init__(
        self, keep: Keep, *, finds_tools: bool = False, page_url: str | Callable[[], str] = ""
    ) -> None:
        self._keep = keep
        self._finds_tools = finds_tools
        self.notices = ApprovalNotices(page_url)
        self._peers = peers_of(keep)
        self.parked = RequestStates(peers=self._peers)
        self.tasks = Tasks(self._peers)

    def close(self) -> None:
        """Cancel suspended requests and tasks."""
        self.notices.close()
        self.parked.close()
        self.tasks.close()

    async def call(self, message: Message, connection: Connection, emit: Emit) -> dict[str, Any]:
        """Handle one `tools/call`."""
        name, arguments = _named(message)
        is_modern = connection.is_modern
        if self._finds_tools and name in (FIND, CALL):
            raw = arguments if isinstance(arguments, bytes) else b"{}"
            if name == FIND:
                return find(self._keep, connection.agent, raw, is_modern=is_modern)
            called = read_call(raw)
            if isinstance(called, dict):
                return called
            name, arguments = called
        tool = self._keep.look_up(name, agent=connection.agent)
        if tool is not None and for_mcp(tool.definition).get("task") == "required":
            check_has_tasks(connection)

        def finish(result: ToolResult) -> dict[str, Any]:
            if result.code in _NO_SUCH_TOOL and result.error is not None:
                raise ProtocolError(INVALID_PARAMS, result.error.text)
            definition = tool.definition if tool is not None else None
            data = result_data(result, definition, is_modern=is_modern)
            if result.error is not None and self._keep.diagnosis(result.call_id) is not None:
                # The id is no secret, and the diagnosis is not in the text: its person finds it by the id.
                data["content"][0]["text"] += f"\nThe user sees why: toolkeep audit show {result.call_id[:8]}"
            return data

        progress = Progress(message, emit)
        work = self._keep.call(
            name,
            arguments,
            agent=connection.agent,
            session=connection.session,
            caller=connection.caller,
            conversation=connection.label,
            correlation_id=_trace(message.meta),
            response=connection.response,
            forwarded=True,
            on_progress=progress if progress.to is not None else None,
        )
        bound = (name, arguments, tool.definition_hash if tool else "")
        return await self.run(work, finish, message, connection, emit, bound, progress)

    async def call_item(
        self, wanted: Wanted, finish: Finish, message: Message, connection: Connection, emit: Emit
    ) -> dict[str, Any]:
        """Handle one use of what an upstream server passes on beside its tools: a call of its own kind."""
        tool, progress = wanted.tool, Progress(message, emit)
        work = self._keep.call(
            tool.name,
            wanted.arguments,
            agent=connection.agent,
            session=connection.session,
            caller=connection.caller,
            conversation=connection.label,
            correlation_id=_trace(message.meta),
            response=connection.response,
            forwarded=True,
            on_progress=progress if progress.to is not None else None,
            kind=tool.definition.kind,
        )
        bound = (tool.name, wanted.arguments, tool.definition_hash)
        return await self.run(work, finish, message, connection, emit, bound, progress)

    async def run_own(
        self, work: Coroutine[Any, Any, Any], message: Message, connection: Connection, emit: Emit
    ) -> dict[str, Any]:
        """Handle one use of what the host offers beside its tools: no label describes what it gives."""
        try:
            if (noted := self.note_text(connection)) is not None:
                await noted
        except BaseException:
            work.close()
            raise
        return await self.run(work, dict, message, connection, emit)

    def note_text(self, connection: Connection) -> "asyncio.Future[None] | None":
        """Note that text is shown to the client which is no result of a call: for flow, it is one.

        Where a server elsewhere stores that, returns what to wait for before the text is shown.
        """
        if self._keep.record.sessions.is_remote and is_on_loop():
            return asyncio.ensure_future(asyncio.to_thread(self._note_text, connection))
        self._note_text(connection)
        return None

    def _note_text(self, connection: Connection) -> None:
        with contextlib.suppress(RuntimeError):  # nothing watches sessions
            session = self._keep.session(connection.session, agent=connection.agent, caller=connection.caller)
            session.pasted("text")

    async def run(
        self,
        work: Coroutine[Any, Any, Any],
        finish: Finish,
        message: Message,
        connection: Connection,
        emit: Emit,
        bound: tuple[Any, ...] = (),
        progress: Progress | None = None,
    ) -> dict[str, Any]:
        """Run work for a request that may send requests to its client."""
        # A client without elicitation, sampling, roots and tasks waits for the end: 0.8 × the time.
        if connection.is_modern and (connection.is_askable or "requestState" in message.params):
            return await self._run_modern(work, finish, message, connection, emit, bound, progress)
        asks = DirectAsks(connection, emit)
        on_text = partial(self.note_text, connection)
        client = Client(connection, emit, asks, progress=progress, notices=self.notices, on_text=on_text)
        token = set_current(client)
        try:
            return _finished(client, await work, finish)
        finally:
            client.let_go()
            forget_current(token)

    async def _run_modern(
        self,
        work: Coroutine[Any, Any, Any],
        finish: Finish,
        message: Message,
        connection: Connection,
        emit: Emit,
        bound: tuple[Any, ...],
        progress: Progress | None,
    ) -> dict[str, Any]:
        params = message.params
        try:
            answers = read_answers(params)
            if "requestState" in params:
                running = self.parked.take(params["requestState"], _seal(message, connection, bound))
                work.close()
                running.go_on_for(emit, progress)
                self._give(running, answers, message, connection, bound)
            else:
                on_text = partial(self.note_text, connection)
                running = DetachedRequest(connection, emit, answers, progress, self.notices, on_text=on_text)
                running.start(work)
        except HeldElsewhere as held:
            work.close()
            return await self._resume_elsewhere(held.server, message, connection, emit)
        except BaseException:
            work.close()
            raise
        try:
            await running.settle(MCP_TASK_AFTER_SECONDS)
        except BaseException:
            running.cancel()
            raise
        if running.is_task and not running.task.done() and self.tasks.has_room(connection.agent):
            return await self.tasks.create(
                connection.agent, running, lambda ended: _finished(ended.client, ended.task.result(), finish)
            )
        if running.asked and not running.task.done():
            running.go_on_for(emit, None)
            state = self.parked.put(running, _seal(message, connection, bound))
            return {"resultType": "input_required", "inputRequests": running.asked, "requestState": state}
        try:
            result = await running.task
        except asyncio.CancelledError:
            if running.task.cancelled():
                raise ProtocolError(INTERNAL_ERROR, "The call was cancelled") from None
            running.cancel()
            raise
        return _finished(running.client, result, finish)

    async def _resume_elsewhere(
        self, server: str, message: Message, connection: Connection, emit: Emit
    ) -> dict[str, Any]:
        """Have the server that holds the work of a request go on with it."""
        if self._peers is None:
            raise ProtocolError(INTERNAL_ERROR, "Internal error")
        request = PassedOn(
            agent=connection.agent,
            version=connection.version,
            log_level=connection.log_level,
            message=message,
            identity=caller_identity.get(),
        )
        frame = await self._peers.request(server, RESUME, msgspec.json.encode(request), emit)
        if not frame:
            raise ProtocolError(INTERNAL_ERROR, OUTCOME_UNKNOWN)
        said = msgspec.json.decode(frame)
        if "error" in said:
            error = said["error"]
            raise ProtocolError(error["code"], error["message"], error.get("data"))
        result: dict[str, Any] = said["result"]
        return result

    def _give(
        self,
        running: DetachedRequest,
        answers: dict[str, Any],
        message: Message,
        connection: Connection,
        bound: tuple[Any, ...],
    ) -> None:
        """Pass on answers; malformed ones suspend the work again, and the client may retry."""
        try:
            running.give(answers)
        except ProtocolError as error:
            state = self.parked.put(running, _seal(message, connection, bound))
            raise ProtocolError(error.code, error.message, {"requestState": state}) from error


def _finished(client: Client, result: Any, finish: Finish) -> dict[str, Any]:
    if client.error is not None:
        raise client.error
    return finish(result)


def _named(message: Message) -> tuple[str, bytes | dict[str, Any]]:
    name = message.params.get("name")
    if not isinstance(name, str):
        raise ProtocolError(INVALID_PARAMS, "name must be text")
    arguments = message.arguments
    return name, b"{}" if arguments is None or arguments == b"null" else arguments


def _seal(message: Message, connection: Connection, bound: tuple[Any, ...]) -> bytes:
    """What a resuming request must have in common with the first: agent, method, name, arguments, definition.

    Without the definition hash, an approval given for one version of a tool could run another.
    """
    about = message.params.get("name") or message.params.get("uri")
    name, arguments, definition_hash = bound or (about, message.arguments or b"", "")
    parts = (connection.agent, message.method, str(name), _digest(arguments), definition_hash)
    return hashlib.sha256("\0".join(parts).encode()).digest()


def _digest(arguments: bytes | dict[str, Any]) -> str:
    """A hash that does not depend on how the JSON of the arguments is written."""
    import jiter

    try:
        if isinstance(arguments, bytes):
            arguments = jiter.from_json(arguments, catch_duplicate_keys=True)
        return canonical_hash(arguments)
    except ValueError:
        return hashlib.sha256(bytes(arguments)).hexdigest() if isinstance(arguments, bytes) else ""


def _trace(meta: dict[str, Any]) -> str:
    """The trace id that the client sends (W3C Trace Context), or empty."""
    said = meta.get("traceparent")
    found = _TRACE.fullmatch(said) if isinstance(said, str) else None
    return found.group(1) if found else ""


def from_any_thread(emit: Emit) -> Emit:
    """Make `emit` callable from other threads, in which tools may run."""
    loop = asyncio.get_running_loop()
    home = threading.get_ident()

    def tell(frame: bytes) -> None:
        if threading.get_ident() == home:
            emit(frame)
        else:
            loop.call_soon_threadsafe(emit, frame)

    return tell
