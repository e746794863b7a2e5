"""The Tasks extension (2026-07-28): calls that continue after their request.

A task has a random id and can be reached by its own agent only. Its result is kept in memory until it expires
or its agent has too many; the call is in the audit log like any other. Where servers share a database, each
state is stored there, too: a task is seen, answered and cancelled through any of them.
"""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from toolkeep.limits import (
    MCP_AGENT_TASK_BYTES,
    MCP_AGENT_TASKS,
    MCP_TASK_POLL_MS,
    MCP_TASK_SECONDS,
    MCP_TASKS,
)
from toolkeep.mcp_protocol.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    MISSING_CAPABILITY,
    ProtocolError,
    encode,
)
from toolkeep.mcp_protocol.versions import TASKS
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.detached_requests import DetachedRequest, outliving, read_answers

if TYPE_CHECKING:
    from toolkeep.storage.postgres.peers import Peers
    from toolkeep.storage.postgres.work_table import StoredWork

Finish = Callable[[DetachedRequest], dict[str, Any]]
"""Makes the result of finished work; raises `ProtocolError` or `CancelledError`."""
Tell = Callable[["TaskRecord"], None]


class TaskRecord:
    """One task."""

    def __init__(self, agent: str, running: DetachedRequest, finish: Finish, tell: Tell) -> None:
        # 192 random bits: with guessable ids, an agent could at least probe how many tasks others run.
        self.id = secrets.token_urlsafe(24)
        self.agent = agent
        self.created_at = self.updated_at = _now()
        self.kept_bytes = 0
        """Size of its result, once it has one."""
        self._work: tuple[DetachedRequest, Finish] | None = running, finish
        self._outcome: dict[str, Any] = {}
        """The final state; the work itself is released."""
        self.publish: Tell = lambda _: None
        """Called on every change, also of its requests to the client."""
        self._tell = tell
        self._told = self._state()
        running.on_change = self.changed

    @property
    def is_over(self) -> bool:
        """Whether its state is final."""
        return self._work is None

    def changed(self) -> None:
        """Update the state and notify subscribers."""
        self.updated_at = _now()
        self._settle()
        self.publish(self)
        if self._state() != self._told:
            self._told = self._state()
            self._tell(self)

    def give(self, answers: dict[str, Any]) -> None:
        """Pass on answers to its requests."""
        if self._work is not None:
            self._work[0].give(answers)

    def cancel(self) -> None:
        """Cancel the work; a finished task stays as it is."""
        self._settle()
        if self._work is None:
            return
        running, self._work = self._work[0], None
        self._outcome = _CANCELLED
        running.cancel()
        self.changed()

    def view(self) -> dict[str, Any]:
        """The complete state."""
        return {**self.summary(), **self.details()}

    def summary(self) -> dict[str, Any]:
        """The state that the client gets when the task is created."""
        status = self.details()["status"]
        data: dict[str, Any] = {
            "taskId": self.id,
            "status": "working" if status == "input_required" else status,
            "createdAt": self.created_at,
            "lastUpdatedAt": self.updated_at,
            "ttlMs": MCP_TASK_SECONDS * 1000,
            "pollIntervalMs": MCP_TASK_POLL_MS,
        }
        if self._work is not None and (tell := self._work[0].notice) is not None and (words := tell()):
            data["statusMessage"] = words
        return data

    def details(self) -> dict[str, Any]:
        """Status, with the pending requests, the result or the error."""
        self._settle()
        if self._work is None:
            return self._outcome
        asked = self._work[0].asked
        return {"status": "input_required", "inputRequests": asked} if asked else _WORKING

    def _state(self) -> str:
        return str(self.details()["status"])

    def _settle(self) -> None:
        """Keep the encoded result of finished work, and release the work."""
        if self._work is None or not self._work[0].task.done():
            return
        (running, finish), self._work = self._work, None
        self._outcome = _CANCELLED if running.task.cancelled() else _ended(running, finish)
        self.kept_bytes = len(self._outcome.get("result", b""))


def _ended(running: DetachedRequest, finish: Finish) -> dict[str, Any]:
    try:
        return {"status": "completed", "result": msgspec.Raw(encode(finish(running)))}
    except ProtocolError as error:
        return {"status": "failed", "error": error.to_dict()}
    except Exception:  # noqa: BLE001 -- what broke is in the log, under the call
        return {"status": "failed", "error": ProtocolError(INTERNAL_ERROR, "Internal error").to_dict()}


_WORKING: dict[str, Any] = {"status": "working"}
_CANCELLED: dict[str, Any] = {"status": "cancelled"}
OUTCOME_UNKNOWN: Final = (
    "The server that ran the request is gone; whether it had an effect is unknown. "
    "Find out what it did before you call again."
)
_LOST: dict[str, Any] = {
    "status": "failed",
    "error": ProtocolError(INTERNAL_ERROR, OUTCOME_UNKNOWN).to_dict(),
}
View = dict[str, Any]


class _Message(msgspec.Struct):
    """To the server of a task."""

    task: str
    agent: str
    answers: dict[str, Any] | None
    """None to cancel it."""


class Tasks:
    """The tasks of one server."""

    def __init__(self, peers: "Peers | None" = None) -> None:
        """`peers` are the other servers that share the database."""
        self._peers = peers
        if peers is not None:
            peers.on("task", self._on_message)
        self._tasks: dict[str, TaskRecord] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self.tell: Tell = lambda _: None
        """Called on every change."""

    def has_room(self, agent: str) -> bool:
        """Whether an agent may create another task; its oldest finished one is dropped if necessary."""
        own = self._of(agent)
        if len(own) >= MCP_AGENT_TASKS:
            ended = next((record for record in own if record.is_over), None)
            if ended is None:
                return False
            self._forget(ended.id)
        return len(self._tasks) < MCP_TASKS

    async def create(self, agent: str, running: DetachedRequest, finish: Finish) -> dict[str, Any]:
        """Create a task for running work and return the answer for the client."""
        record = TaskRecord(agent, running, finish, self._changed)
        self._tasks[record.id] = record
        # That of the first request, if another server has passed this one on.
        if (tell := outliving.get() or running.outliving) is not None:
            tell(running.task)
        loop = asyncio.get_running_loop()
        self._ends[record.id] = loop.call_later(MCP_TASK_SECONDS, self._expire, record.id)
        if self._peers is not None:
            self._peers.attend()
            record.publish = self._publish
            await self._peers.work.put(_stored(record, self._peers.server))  # before the client hears of it
        return {"resultType": "task", **record.summary()}

    def _publish(self, record: TaskRecord) -> None:
        if self._peers is not None:
            self._peers.put_later(_stored(record, self._peers.server))

    async def _published(self, record: TaskRecord) -> None:
        """Wait until other servers see a change: the client may ask one of them next."""
        if self._peers is not None:
            await self._peers.put(_stored(record, self._peers.server))

    def _changed(self, record: TaskRecord) -> None:
        self.tell(record)
        if record.kept_bytes:
            self._make_room(record)

    def _make_room(self, newest: TaskRecord) -> None:
        """Drop an agent's oldest results beyond its byte limit."""
        own = self._of(newest.agent)
        held = sum(record.kept_bytes for record in own)
        for record in own:
            if held <= MCP_AGENT_TASK_BYTES:
                return
            if record.kept_bytes and record is not newest:
                held -= record.kept_bytes
                self._forget(record.id)

    def _of(self, agent: str) -> list[TaskRecord]:
        return [record for record in self._tasks.values() if record.agent == agent]

    async def get(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        """`tasks/get`."""
        found = await self._find(connection, params)
        return found.view() if isinstance(found, TaskRecord) else msgspec.json.decode(found.state)

    async def own(self, connection: Connection, wanted: object) -> dict[str, View]:
        """Those of the named tasks that exist and belong to the client's agent, each with its state."""
        if not connection.has_tasks or not isinstance(wanted, list):
            return {}
        found: dict[str, View] = {}
        for name in wanted[:MCP_AGENT_TASKS]:
            if isinstance(name, str) and (view := await self.view(connection.agent, name)) is not None:
                found[name] = view
        return found

    async def view(self, agent: str, name: str) -> View | None:
        """The state of an agent's task; None if there is none."""
        record = self._tasks.get(name)
        if record is not None:
            return record.view() if record.agent == agent else None
        stored = await self._find_elsewhere(agent, name)
        return None if stored is None else msgspec.json.decode(stored.state)

    def is_here(self, name: str) -> bool:
        """Whether this server runs a task, or has run it."""
        return name in self._tasks

    async def update(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        """`tasks/update`: answers to the requests of a task."""
        answers = read_answers(params)
        found = await self._find(connection, params)
        if isinstance(found, TaskRecord):
            found.give(answers)
            await self._published(found)
        else:
            await self._pass_on(found, answers)
        return {}

    async def cancel(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        """`tasks/cancel`; a finished task stays as it is."""
        found = await self._find(connection, params)
        if isinstance(found, TaskRecord):
            found.cancel()
            await self._published(found)
        else:
            await self._pass_on(found, None)
        return {}

    async def _pass_on(self, task: "StoredWork", answers: dict[str, Any] | None) -> None:
        """Have the server of a task take answers, or cancel it."""
        if self._peers is None or task.is_over:
            return
        data = msgspec.json.encode(_Message(task.id, task.agent, answers))
        said = await self._peers.request(task.server, "task", data)
        if said is None:
            raise ProtocolError(INTERNAL_ERROR, OUTCOME_UNKNOWN)
        if said:
            refused = msgspec.json.decode(said)
            raise ProtocolError(refused["code"], refused["message"], refused.get("data"))

    async def _on_message(self, data: bytes, _: object) -> bytes:
        """A client of another server answers or cancels a task."""
        said = msgspec.json.decode(data, type=_Message)
        record = self._tasks.get(said.task)
        if record is None or record.agent != said.agent:
            return encode(_no_such_task().to_dict())
        if said.answers is None:
            record.cancel()
            return b""
        try:
            record.give(said.answers)
        except ProtocolError as error:
            return encode(error.to_dict())
        return b""

    def close(self) -> None:
        """Cancel all tasks."""
        for name in list(self._tasks):
            self._expire(name)

    async def _find(self, connection: Connection, params: dict[str, Any]) -> "TaskRecord | StoredWork":
        check_has_tasks(connection)
        name = params.get("taskId")
        found: TaskRecord | StoredWork | None = None
        if isinstance(name, str):
            found = self._tasks.get(name) or await self._find_elsewhere(connection.agent, name)
        # One message for both: an agent must not learn that another agent's task exists.
        if found is None or found.agent != connection.agent:
            raise _no_such_task()
        return found

    async def _find_elsewhere(self, agent: str, name: str) -> "StoredWork | None":
        if self._peers is None:
            return None
        self._peers.attend()
        found = await self._peers.work.find(name, "task", agent)
        if found is None or not found.is_lost:
            return found
        # Final, also if its server was only cut off: a task does not leave a final state.
        state = {**msgspec.json.decode(found.state), "lastUpdatedAt": _now(), **_LOST}
        state.pop("inputRequests", None)
        over = msgspec.structs.replace(found, state=encode(state), is_over=True, is_lost=False)
        await self._peers.work.put(over)
        return await self._peers.work.find(name, "task", agent)

    def _expire(self, name: str) -> None:
        self._forget(name).cancel()

    def _forget(self, name: str) -> TaskRecord:
        """Drop a task and its timer."""
        self._ends.pop(name).cancel()
        if self._peers is not None and self._tasks[name].is_over:
            self._peers.spawn(self._peers.work.delete([name]))
        return self._tasks.pop(name)


def _stored(record: TaskRecord, server: str) -> "StoredWork":
    from toolkeep.storage.postgres.work_table import StoredWork

    state = encode(record.view())
    return StoredWork(
        id=record.id,
        kind="task",
        agent=record.agent,
        server=server,
        state=state,
        is_over=record.is_over,
    )


def _no_such_task() -> ProtocolError:
    return ProtocolError(INVALID_PARAMS, "There is no such task")


def check_has_tasks(connection: Connection) -> None:
    """Raise if the client does not support tasks."""
    if not connection.has_tasks:
        data: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise ProtocolError(MISSING_CAPABILITY, f"The client does not offer {TASKS}", data)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
