"""Replay a deterministic call and compare (AUD-4).

A recorded call is made again, bypassing the cache, with the stored arguments, and the hashes of both results
are compared: that finds a tool whose declared determinism is false.
"""

import json
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.calls import RegisteredTool, ToolResult
from toolkeep.definitions.vocabulary import Determinism
from toolkeep.errors import NotRecorded

if TYPE_CHECKING:
    from toolkeep.stores.records import KeepRecord


class Caller(Protocol):
    """What a replay needs of a keep."""

    def get(self, name: str) -> RegisteredTool:
        """The tool of a name, with or without a version."""

    async def call(
        self, name: str, arguments: dict[str, Any], *, agent: str, fresh: bool, forwarded: bool
    ) -> ToolResult:
        """Call it."""


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a replay."""

    recorded_hash: str
    result: ToolResult
    """Of the second call."""

    @property
    def is_same(self) -> bool:
        """Whether both calls gave the same result."""
        return self.result.ok and self.result.hash == self.recorded_hash


async def replay(keep: Caller, record: "KeepRecord", call_id: str, *, agent: str) -> Replay:
    """Make a recorded call again; raises `NotRecorded` with the reason if that is not possible."""
    records = record.records_of(call_id)
    invoked = next((r for r in records if r["type"] == "ToolInvoked"), None)
    completed = next((r for r in records if r["type"] == "ToolCompleted" and r["status"] == "ok"), None)
    if invoked is None or completed is None:
        raise NotRecorded(f"call {call_id[:64]!r} has no result to compare with")
    tool = keep.get(f"{invoked['tool']}@{invoked['version']}")
    _refuse_unlike(tool, invoked)
    for one, name in ((invoked, "argument_hash"), (completed, "result_hash")):
        if one.get(f"{name}_before", one[name]) != one[name]:
            raise NotRecorded("a hook changed this call, and would change it again")
    result = await keep.call(
        f"{tool.name}@{tool.version}", _arguments(record, invoked), agent=agent, fresh=True, forwarded=True
    )
    return Replay(recorded_hash=completed["result_hash"], result=result)


def _arguments(record: "KeepRecord", invoked: dict[str, Any]) -> dict[str, Any]:
    if not invoked.get("has_arguments"):
        raise NotRecorded("the arguments of this call were not stored: they are secret or too large")
    try:
        arguments: dict[str, Any] = json.loads(record.bodies.get(invoked["argument_hash"]))
    except (BodyUnavailable, KeyError) as error:
        raise NotRecorded("the arguments of this call are no longer there") from error
    return arguments


def _refuse_unlike(tool: RegisteredTool, invoked: dict[str, Any]) -> None:
    if "data_hash" in invoked:
        raise NotRecorded("this call was made with per-call data, which the log does not hold")
    if tool.definition_hash != invoked["definition_hash"]:
        raise NotRecorded(f"the definition of {tool.name!r} is not the one that was called")
    if tool.definition.determinism not in (Determinism.PURE, Determinism.DETERMINISTIC):
        raise NotRecorded(f"{tool.name!r} is not declared deterministic and free of side effects")
