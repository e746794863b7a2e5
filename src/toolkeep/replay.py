"""Does a deterministic call still give what it gave? (AUD-4)

A recorded call is made again, past the cache, with the arguments that were kept, and the hashes of both
results are compared: a tool that lies about its determinism is found out.
"""

import json
from typing import TYPE_CHECKING, Any

import msgspec

from toolkeep.audit.errors import BodyUnavailable
from toolkeep.calls import RegisteredTool, ToolResult
from toolkeep.definitions.vocabulary import Determinism
from toolkeep.errors import NotRecorded

if TYPE_CHECKING:
    from toolkeep.keep import Keep
    from toolkeep.records import KeepRecord


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a replay."""

    recorded_hash: str
    result: ToolResult
    """Of the second call."""

    @property
    def is_same(self) -> bool:
        """Whether both calls gave the same."""
        return self.result.ok and self.result.hash == self.recorded_hash


async def replay(keep: "Keep", record: "KeepRecord", call_id: str, *, agent: str) -> Replay:
    """Make a recorded call again; raises `NotRecorded` where that cannot be done, with the reason."""
    records = record.records_of(call_id)
    invoked = next((r for r in records if r["type"] == "ToolInvoked"), None)
    completed = next((r for r in records if r["type"] == "ToolCompleted" and r["status"] == "ok"), None)
    if invoked is None or completed is None:
        raise NotRecorded(f"call {call_id[:64]!r} has no result to compare with")
    tool = keep.get(f"{invoked['tool']}@{invoked['version']}")
    _refuse_unlike(tool, invoked)
    result = await keep.call(
        f"{tool.name}@{tool.version}", _arguments(record, invoked), agent=agent, fresh=True, forwarded=True
    )
    return Replay(recorded_hash=completed["result_hash"], result=result)


def _arguments(record: "KeepRecord", invoked: dict[str, Any]) -> dict[str, Any]:
    if not invoked.get("has_arguments"):
        raise NotRecorded("the arguments of this call were not kept: they are secret or too large")
    try:
        arguments: dict[str, Any] = json.loads(record.bodies.get(invoked["argument_hash"]))
    except (BodyUnavailable, KeyError) as error:
        raise NotRecorded("the arguments of this call are no longer there") from error
    return arguments


def _refuse_unlike(tool: RegisteredTool, invoked: dict[str, Any]) -> None:
    if tool.definition_hash != invoked["definition_hash"]:
        raise NotRecorded(f"the definition of {tool.name!r} is not the one that was called")
    if tool.definition.determinism not in (Determinism.PURE, Determinism.DETERMINISTIC):
        raise NotRecorded(f"{tool.name!r} does not promise the same result twice")
