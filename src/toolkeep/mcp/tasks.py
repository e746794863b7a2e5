"""The Tasks extension (2026-07-28): calls that go on while the client does something else.

A task is known by a name that cannot be guessed, to the agent whose call it is. It is kept in memory until
its time is over, or its agent has too many; its call is in the log like any other.
"""

import asyncio
import secrets
from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

import msgspec

from toolkeep.limits import (
    MCP_AGENT_TASK_BYTES,
    MCP_AGENT_TASKS,
    MCP_TASK_POLL_MS,
    MCP_TASK_SECONDS,
    MCP_TASKS,
)
from toolkeep.mcp.connection import Connection
from toolkeep.mcp.running import Running, read_answers
from toolkeep.wire.era import TASKS
from toolkeep.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY, ProtocolError, encode

Finish = Callable[[Running], dict[str, Any]]
"""What came of work that has ended; raises `ProtocolError` or `CancelledError`."""
Tell = Callable[["TaskRecord"], None]
Outliving = Callable[[asyncio.Task[Any]], object]
outliving: ContextVar[Outliving | None] = ContextVar("toolkeep_outliving", default=None)
"""Who is told of work that goes on after its request."""


class TaskRecord:
    """One task."""

    def __init__(self, agent: str, running: Running, finish: Finish, tell: Tell) -> None:
        self.id = secrets.token_urlsafe(24)
        self.agent = agent
        self.created_at = self.updated_at = _now()
        self.kept_bytes = 0
        """Of its result, once there is one."""
        self._work: tuple[Running, Finish] | None = running, finish
        self._outcome: dict[str, Any] = {}
        """How it ended; then its work is let go, with all that belongs to it."""
        self._tell = tell
        self._told = self._state()
        running.on_change = self.changed

    @property
    def is_over(self) -> bool:
        """Whether nothing more will become of it."""
        return self._work is None

    def changed(self) -> None:
        """Note that it is not what it was, and tell whoever wants to hear."""
        self.updated_at = _now()
        self._settle()
        if self._state() != self._told:
            self._told = self._state()
            self._tell(self)

    def give(self, answers: dict[str, Any]) -> None:
        """Answers to what it asks."""
        if self._work is not None:
            self._work[0].give(answers)

    def cancel(self) -> None:
        """End its work; one that has ended stays as it is."""
        self._settle()
        if self._work is None:
            return
        running, self._work = self._work[0], None
        self._outcome = _CANCELLED
        running.cancel()
        self.changed()

    def view(self) -> dict[str, Any]:
        """All that there is to say."""
        return {**self.summary(), **self.details()}

    def summary(self) -> dict[str, Any]:
        """What a client is told when the task begins."""
        status = self.details()["status"]
        data: dict[str, Any] = {
            "taskId": self.id,
            "status": "working" if status == "input_required" else status,
            "createdAt": self.created_at,
            "lastUpdatedAt": self.updated_at,
            "ttlMs": MCP_TASK_SECONDS * 1000,
            "pollIntervalMs": MCP_TASK_POLL_MS,
        }
        if self._work is not None and self._work[0].waits_for_person and status == "working":
            data["statusMessage"] = "The call waits for a person to agree."
        return data

    def details(self) -> dict[str, Any]:
        """Status, and what goes with it: what is asked, the result, or the error."""
        self._settle()
        if self._work is None:
            return self._outcome
        asked = self._work[0].asked
        return {"status": "input_required", "inputRequests": asked} if asked else _WORKING

    def _state(self) -> str:
        return str(self.details()["status"])

    def _settle(self) -> None:
        """Keep what came of work that has ended, as it is sent, and nothing else of it."""
        if self._work is None or not self._work[0].task.done():
            return
        (running, finish), self._work = self._work, None
        self._outcome = _CANCELLED if running.task.cancelled() else _ended(running, finish)
        self.kept_bytes = len(self._outcome.get("result", b""))


def _ended(running: Running, finish: Finish) -> dict[str, Any]:
    try:
        return {"status": "completed", "result": msgspec.Raw(encode(finish(running)))}
    except ProtocolError as error:
        return {"status": "failed", "error": error.to_dict()}
    except Exception:  # noqa: BLE001 -- what broke is in the log, under the call
        return {"status": "failed", "error": ProtocolError(INTERNAL_ERROR, "Internal error").to_dict()}


_WORKING: dict[str, Any] = {"status": "working"}
_CANCELLED: dict[str, Any] = {"status": "cancelled"}


class Tasks:
    """The tasks of one server."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskRecord] = {}
        self._ends: dict[str, asyncio.TimerHandle] = {}
        self.tell: Tell = lambda _: None
        """Who hears of every change."""

    def has_room(self, agent: str) -> bool:
        """Whether another of an agent can begin; its oldest that has ended gives way."""
        own = self._of(agent)
        if len(own) >= MCP_AGENT_TASKS:
            ended = next((record for record in own if record.is_over), None)
            if ended is None:
                return False
            self._forget(ended.id)
        return len(self._tasks) < MCP_TASKS

    def create(self, agent: str, running: Running, finish: Finish) -> dict[str, Any]:
        """A task for work that runs; what the client is answered."""
        record = TaskRecord(agent, running, finish, self._changed)
        self._tasks[record.id] = record
        if (tell := outliving.get()) is not None:
            tell(running.task)
        loop = asyncio.get_running_loop()
        self._ends[record.id] = loop.call_later(MCP_TASK_SECONDS, self._expire, record.id)
        return {"resultType": "task", **record.summary()}

    def _changed(self, record: TaskRecord) -> None:
        self.tell(record)
        if record.kept_bytes:
            self._make_room(record)

    def _make_room(self, newest: TaskRecord) -> None:
        """Forget results of an agent, oldest first, where it has too much of them."""
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

    def get(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        """`tasks/get`."""
        return self._find(connection, params).view()

    def own(self, connection: Connection, wanted: object) -> dict[str, TaskRecord]:
        """Those among the named tasks that there are and that are the client's agent's."""
        if not connection.has_tasks or not isinstance(wanted, list):
            return {}
        names = [name for name in wanted if isinstance(name, str)]
        found = {name: self._tasks[name] for name in names if name in self._tasks}
        return {name: record for name, record in found.items() if record.agent == connection.agent}

    def update(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        """`tasks/update`: answers to what the task asks."""
        self._find(connection, params).give(read_answers(params))
        return {}

    def cancel(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        """`tasks/cancel`; one that has ended stays as it is."""
        self._find(connection, params).cancel()
        return {}

    def close(self) -> None:
        """End them all."""
        for name in list(self._tasks):
            self._expire(name)

    def _find(self, connection: Connection, params: dict[str, Any]) -> TaskRecord:
        check_has_tasks(connection)
        name = params.get("taskId")
        record = self._tasks.get(name) if isinstance(name, str) else None
        if record is None or record.agent != connection.agent:
            raise ProtocolError(INVALID_PARAMS, "There is no such task")
        return record

    def _expire(self, name: str) -> None:
        self._forget(name).cancel()

    def _forget(self, name: str) -> TaskRecord:
        """A task that cannot be asked about any more, nor has to end by itself."""
        self._ends.pop(name).cancel()
        return self._tasks.pop(name)


def check_has_tasks(connection: Connection) -> None:
    """Raise for a client that does not know tasks."""
    if not connection.has_tasks:
        data: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise ProtocolError(MISSING_CAPABILITY, f"The client does not offer {TASKS}", data)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
