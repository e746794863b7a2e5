"""The Tasks extension (2026-07-28): calls that go on while the client does something else.

A task is known by a name that cannot be guessed, to the agent whose call it is. It is kept in memory until
its time is over; its call is in the log like any other.
"""

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from toolkeep.limits import MCP_TASK_POLL_MS, MCP_TASK_SECONDS, MCP_TASKS
from toolkeep.mcp.connection import Connection
from toolkeep.mcp.running import Running, read_answers
from toolkeep.wire.era import TASKS
from toolkeep.wire.messages import INTERNAL_ERROR, INVALID_PARAMS, MISSING_CAPABILITY, ProtocolError

Finish = Callable[[Running], dict[str, Any]]
"""What came of work that has ended; raises `ProtocolError` or `CancelledError`."""
Tell = Callable[["TaskRecord"], None]


class TaskRecord:
    """One task."""

    def __init__(self, agent: str, running: Running, finish: Finish, tell: Tell) -> None:
        self.id = secrets.token_urlsafe(24)
        self.agent = agent
        self.running = running
        self.created_at = self.updated_at = _now()
        self._finish = finish
        self.is_cancelled = False
        self._tell = tell
        self._told = self._state()
        running.on_change = self.changed

    def changed(self) -> None:
        """Note that it is not what it was, and tell whoever wants to hear."""
        self.updated_at = _now()
        if self._state() != self._told:
            self._told = self._state()
            self._tell(self)

    def _state(self) -> str:
        running = self.running
        if self.is_cancelled or running.task.done():
            return "ended"
        return "input_required" if running.asked else "working"

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
        if self.running.waits_for_person and status == "working":
            data["statusMessage"] = "The call waits for a person to agree."
        return data

    def details(self) -> dict[str, Any]:
        """Status, and what goes with it: what is asked, the result, or the error."""
        running = self.running
        if self.is_cancelled or (running.task.done() and running.task.cancelled()):
            return {"status": "cancelled"}
        if not running.task.done():
            return {"status": "input_required", "inputRequests": running.asked} if running.asked else _WORKING
        try:
            return {"status": "completed", "result": self._finish(running)}
        except ProtocolError as error:
            return {"status": "failed", "error": error.to_dict()}
        except Exception:  # noqa: BLE001 -- what broke is in the log, under the call
            return {"status": "failed", "error": ProtocolError(INTERNAL_ERROR, "Internal error").to_dict()}


_WORKING: dict[str, Any] = {"status": "working"}


class Tasks:
    """The tasks of one server."""

    def __init__(self) -> None:
        self._tasks: dict[str, TaskRecord] = {}
        self.tell: Tell = lambda _: None
        """Who hears of every change."""

    @property
    def is_full(self) -> bool:
        """Whether no other can begin."""
        return len(self._tasks) >= MCP_TASKS

    def create(self, agent: str, running: Running, finish: Finish) -> dict[str, Any]:
        """A task for work that runs; what the client is answered."""
        record = TaskRecord(agent, running, finish, self.tell)
        self._tasks[record.id] = record
        asyncio.get_running_loop().call_later(MCP_TASK_SECONDS, self._expire, record.id)
        return {"resultType": "task", **record.summary()}

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
        record = self._find(connection, params)
        record.running.give(read_answers(params))
        return {}

    def cancel(self, connection: Connection, params: dict[str, Any]) -> dict[str, Any]:
        """`tasks/cancel`; one that has ended stays as it is."""
        record = self._find(connection, params)
        if not record.running.task.done():
            record.is_cancelled = True
            record.running.cancel()
            record.changed()
        return {}

    def close(self) -> None:
        """End them all."""
        for record in self._tasks.values():
            record.running.cancel()
        self._tasks.clear()

    def _find(self, connection: Connection, params: dict[str, Any]) -> TaskRecord:
        check_has_tasks(connection)
        name = params.get("taskId")
        record = self._tasks.get(name) if isinstance(name, str) else None
        if record is None or record.agent != connection.agent:
            raise ProtocolError(INVALID_PARAMS, "There is no such task")
        return record

    def _expire(self, name: str) -> None:
        record = self._tasks.pop(name, None)
        if record is not None:
            record.running.cancel()


def check_has_tasks(connection: Connection) -> None:
    """Raise for a client that does not know tasks."""
    if not connection.has_tasks:
        data: dict[str, Any] = {"requiredCapabilities": {"extensions": {TASKS: {}}}}
        raise ProtocolError(MISSING_CAPABILITY, f"The client does not offer {TASKS}", data)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
