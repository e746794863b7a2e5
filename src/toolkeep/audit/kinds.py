"""The kinds of records that a call leaves behind, in the order of a call (AUD-1).

The fields stand in the order of their names, and none is a float: written as they are, records are canonical
JSON (a test holds it). What a record does not say is left out of it.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from toolkeep.calls import Approval, Decision
from toolkeep.canonical import canonical_bytes

VERDICT: Final = "required by the tool; enforced only by a sandbox that the result names"


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that happened to a call."""


class ToolInvoked(Record, frozen=True, kw_only=True, gc=False):
    """Who asked for what."""

    agent: str
    argument_hash: str
    call: str
    codes: tuple[str, ...] | UnsetType = UNSET
    """Why the call ended here, where it did."""
    conversation: str
    correlation_id: str
    definition_hash: str
    has_arguments: bool | UnsetType = UNSET
    """Whether the arguments are kept beside the log, of a call that policy looked at."""
    repeats: str | UnsetType = UNSET
    """The call whose recorded result was given back."""
    session: str
    status: str | UnsetType = UNSET
    time: str
    tool: str
    type: str = "ToolInvoked"
    version: str


class CapabilityCheck(Record, frozen=True, kw_only=True, gc=False):
    """What the tool requires."""

    call: str
    required: tuple[str, ...]
    time: str
    type: str = "CapabilityCheck"
    verdict: str = VERDICT


class PolicyDecision(Record, frozen=True, kw_only=True, gc=False):
    """What policy said; only `decision` where no policy was asked."""

    call: str
    capabilities: tuple[str, ...] | UnsetType = UNSET
    codes: tuple[str, ...] | UnsetType = UNSET
    decided_at: str | UnsetType = UNSET
    decision: str
    policies: tuple[str, ...] | UnsetType = UNSET
    policy_set_hash: str | UnsetType = UNSET
    request_hash: str | UnsetType = UNSET
    spared_by: tuple[str, ...] | UnsetType = UNSET
    status: str | UnsetType = UNSET
    time: str
    touches: tuple[str, ...] | UnsetType = UNSET
    type: str = "PolicyDecision"


class ApprovalGiven(Record, frozen=True, kw_only=True, gc=False):
    """Who agreed, or did not."""

    approver: str
    call: str
    codes: tuple[str, ...] | UnsetType = UNSET
    id: str
    status: str | UnsetType = UNSET
    time: str
    type: str = "Approval"
    way: str


class ServerAsked(Record, frozen=True, kw_only=True, gc=False):
    """What the upstream server of the tool wanted while the call ran, and was told. Never in its words."""

    answerer: str
    """Who said yes or no; empty where nobody did."""
    call: str
    method: str
    """As MCP calls it; `other` for what it does not know."""
    of_calls: int
    """How many calls the server had then, where it does not say for which it asks; each has such a record."""
    outcome: str
    """What the server was told: `accept`, `decline`, `cancel`, or `refused` where nobody was asked."""
    question_hash: str
    """Of all that it sent along; empty where that is too much to be looked at."""
    time: str
    type: str = "ServerAsked"
    upstream: str


class ToolCompleted(Record, frozen=True, gc=False):
    """What became of the call: everything that a receipt shows."""

    agent: str
    approval: Approval | None
    argument_hash: str
    call: str
    codes: tuple[str, ...]
    decision: Decision | None
    definition_hash: str
    enforced: tuple[str, ...]
    execute_us: int
    is_cached: bool
    isolation: str
    result_hash: str
    status: str
    time: str
    tool: str
    type: str = "ToolCompleted"
    version: str = ""


def written(record: Record) -> bytes:
    """The canonical form of a record."""
    try:
        return _encode(record)
    except OverflowError:  # an integer beyond 64 bits
        data: Any = msgspec.to_builtins(record)
        return canonical_bytes(data)


_encode: Final = msgspec.json.Encoder().encode
