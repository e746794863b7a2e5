"""Audit record types of a call, in the order of its stages (AUD-1).

Fields are declared in alphabetical order and none is a float, so that msgspec writes canonical JSON (RFC
8785) directly; a test checks it. Unset fields are omitted.
"""

from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from toolkeep.calls import Approval, Decision, FlowRecord, Identity, ShadowDecision, UsedReference
from toolkeep.json_values.canonical import canonical_bytes

VERDICT: Final = (
    "stated by the tool; checked by PolicyDecision, enforced only by the isolation in ToolCompleted"
)

STAGES: Final = ("admit", "validate", "authorize", "approve", "record", "run", "check")
"""The stages whose times are recorded; to validate includes to resolve the name and to run hooks."""


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Base of all audit records."""


class ToolInvoked(Record, frozen=True, kw_only=True, gc=False):
    """A requested call."""

    agent: str
    argument_hash: str
    argument_hash_before: str | UnsetType = UNSET
    """Hash of the arguments before hooks of the host changed them, if there are hooks."""
    call: str
    codes: tuple[str, ...] | UnsetType = UNSET
    """Error codes, if the call ended at this stage."""
    conversation: str
    correlation_id: str
    data_hash: str | UnsetType = UNSET
    """HMAC of the host's per-call data, if any."""
    definition_hash: str
    diagnosis_hash: str | UnsetType = UNSET
    """Of what is kept of the refusal, if the call ended at this stage."""
    has_arguments: bool | UnsetType = UNSET
    """Whether the arguments are stored beside the log; set for calls that reached authorization."""
    identity: Identity | UnsetType = UNSET
    """The subject on whose behalf it was made, if an identity provider vouched for one."""
    references: tuple[UsedReference, ...] | UnsetType = UNSET
    """What stood in the arguments as a reference; `argument_hash` covers the texts."""
    repeats: str | UnsetType = UNSET
    """The id of the original call whose result was returned (idempotency)."""
    session: str
    stage_us: tuple[int, ...] | UnsetType = UNSET
    status: str | UnsetType = UNSET
    time: str
    tool: str
    type: str = "ToolInvoked"
    version: str
    written_hash: str | UnsetType = UNSET
    """Hash of the arguments as they were written, with their references, if they had any."""


class CapabilityCheck(Record, frozen=True, kw_only=True, gc=False):
    """The capabilities that the tool requires."""

    call: str
    required: tuple[str, ...]
    time: str
    type: str = "CapabilityCheck"
    verdict: str = VERDICT


class PolicyDecision(Record, frozen=True, kw_only=True, gc=False):
    """The policy decision; only `decision` if no policy was evaluated."""

    asked_by: tuple[str, ...] | UnsetType = UNSET
    call: str
    capabilities: tuple[str, ...] | UnsetType = UNSET
    codes: tuple[str, ...] | UnsetType = UNSET
    decided_at: str | UnsetType = UNSET
    decision: str
    diagnosis_hash: str | UnsetType = UNSET
    """Of what is kept of the refusal, if the call ended at this stage."""
    flow: FlowRecord | UnsetType = UNSET
    policies: tuple[str, ...] | UnsetType = UNSET
    policy_set_hash: str | UnsetType = UNSET
    request_hash: str | UnsetType = UNSET
    shadow: ShadowDecision | UnsetType = UNSET
    """What policies in shadow would have decided otherwise."""
    spared_by: tuple[str, ...] | UnsetType = UNSET
    stage_us: tuple[int, ...] | UnsetType = UNSET
    status: str | UnsetType = UNSET
    time: str
    touches: tuple[str, ...] | UnsetType = UNSET
    type: str = "PolicyDecision"


class ApprovalGiven(Record, frozen=True, kw_only=True, gc=False):
    """An approval or its denial."""

    approver: str
    asked_at: str | UnsetType = UNSET
    """When the question was asked; unset for an earlier approval, or if nobody could be asked."""
    call: str
    codes: tuple[str, ...] | UnsetType = UNSET
    diagnosis_hash: str | UnsetType = UNSET
    """Of what is kept of the refusal, if the call ended at this stage."""
    id: str
    identity: Identity | UnsetType = UNSET
    """The person who answered, if an identity provider vouches for them."""
    stage_us: tuple[int, ...] | UnsetType = UNSET
    status: str | UnsetType = UNSET
    time: str
    type: str = "Approval"
    waited_ms: int | UnsetType = UNSET
    """How long the question waited for its answer; set together with `asked_at`."""
    way: str


class ServerAsked(Record, frozen=True, kw_only=True, gc=False):
    """An elicitation or other request of an upstream server during a call, and the outcome.

    Never its content.
    """

    answerer: str
    """Who answered; empty if nobody did."""
    call: str
    method: str
    """The MCP method; `other` if it is unknown, because the name is untrusted text."""
    of_calls: int
    """Number of calls that the request may belong to, if the server does not say; each gets such a record."""
    outcome: str
    """The reply: `accept`, `decline`, `cancel`, or `refused` if nobody was asked."""
    question_hash: str
    """SHA-256 of the request parameters; empty if they are too large."""
    time: str
    type: str = "ServerAsked"
    upstream: str


class SessionEnded(Record, frozen=True, kw_only=True, gc=False):
    """A person ended a session: its next call begins with a clean state (FLO-1)."""

    agent: str
    ended_by: str
    opened: bool
    """What the state was before, as `secret` too."""
    secret: bool
    session: str
    """What the state belongs to, as in `flow` of a decision."""
    time: str
    type: str = "SessionEnded"


class OperatorChange(Record, frozen=True, kw_only=True, gc=False):
    """A person changed what is in force: a tool, its danger or flow, policies, a grant (WEB-2)."""

    codes: tuple[str, ...] | UnsetType = UNSET
    """Why it did not take effect, after a record that it would."""
    difference: str
    """What changes; the beginning, if it is long."""
    difference_hash: str
    """SHA-256 of the whole difference."""
    identity: Identity | UnsetType = UNSET
    """The person, if an identity provider vouches for them."""
    name: str
    """What the person typed to confirm it."""
    person: str
    time: str
    type: str = "OperatorChange"
    way: str
    """`page`, `http` or `terminal`."""
    what: str
    """`tool accepted`, `tool kept out`, `danger`, `flow`, `policies`, `grant` or `drift seen`."""


class AgentDrift(Record, frozen=True, kw_only=True, gc=False):
    """An agent did what it never did before (FLO-8)."""

    agent: str
    count: int
    """How many new things; `values` names the first of them."""
    kind: str
    """`tool`, `host`, `folder`, `origin` or `measure`."""
    time: str
    tool: str
    """Of the newest call that did."""
    type: str = "AgentDrift"
    values: tuple[str, ...]


class AuditAlarm(Record, frozen=True, kw_only=True, gc=False):
    """A log, of this server or another, was found cut, rewritten, forked or no longer published (AUD-2)."""

    alarm: str
    checkpoints: tuple[str, ...]
    """The signed checkpoints that contradict each other."""
    origin: str
    reason: str
    time: str
    type: str = "AuditAlarm"
    witness: str
    """The witness that says so; empty if it is this server."""


class RanElsewhere(Record, frozen=True, kw_only=True, gc=False):
    """A worker on another machine ran the call (SCL-3), and says how it was confined."""

    answer_hash: str
    """Hash of the job and its answer: what the worker signs."""
    call: str
    enforced: tuple[str, ...]
    isolation: str
    key: str
    """The public key of the worker."""
    session: str
    time: str
    type: str = "RanElsewhere"
    worker: str


class AnsweredLate(Record, frozen=True, kw_only=True, gc=False):
    """A worker answered a call that had ended before, its outcome unknown (SCL-4)."""

    answer_hash: str
    call: str
    codes: tuple[str, ...]
    enforced: tuple[str, ...]
    is_settled: bool
    """Whether the outcome of the call is known now: a cancelled run tells nothing."""
    isolation: str
    key: str
    result_hash: str
    session: str
    status: str
    time: str
    type: str = "AnsweredLate"
    worker: str


class AnswersSigned(Record, frozen=True, kw_only=True, gc=False):
    """A worker signed answers that it gave in a session (SCL-3)."""

    answers: tuple[str, ...]
    """Hashes of jobs and answers, in the order that is signed."""
    key: str
    session: str
    signature: str
    time: str
    type: str = "AnswersSigned"
    worker: str


class WorkersDisagreed(Record, frozen=True, kw_only=True, gc=False):
    """Two workers gave different results for the same deterministic call (SCL-3)."""

    answer_hash: str
    call: str
    decided_by: str
    """`server`, or the name of a third worker; empty if nothing could decide."""
    decided_hash: str
    definition_hash: str
    key: str
    other_answer_hash: str
    other_key: str
    other_result_hash: str
    other_worker: str
    quarantined: tuple[str, ...]
    """Names of the workers that take no more calls."""
    result_hash: str
    time: str
    tool: str
    type: str = "WorkersDisagreed"
    worker: str
    """Whose result the caller has."""


class WorkerRefused(Record, frozen=True, kw_only=True, gc=False):
    """Frames from a worker, or in its name, counted for nothing (SCL-3)."""

    count: int
    """How many since the last such record."""
    reason: str
    time: str
    type: str = "WorkerRefused"
    worker: str
    """The name of the worker; empty if it is of none that is trusted."""


class RefusedElsewhere(Record, frozen=True, kw_only=True, gc=False):
    """A worker on another machine says that it refused frames, jobs or code (SCL-3)."""

    call: str
    """The call whose job it refused; empty where this counts what it refused from any server."""
    count: int
    """How many since the last such record."""
    key: str
    """The public key of the worker."""
    reason: str
    server: str
    """The token of the server in whose name it came; empty if it is of none that the worker trusts."""
    time: str
    type: str = "RefusedElsewhere"
    what: str
    worker: str


class IdentityRefused(Record, frozen=True, kw_only=True, gc=False):
    """An access token, a sign-in or a logout of an identity provider counted for nothing (IDN-1, IDN-2)."""

    count: int
    """How many since the last such record."""
    issuer: str
    """The issuer of the configuration that it names; empty if it names none."""
    reason: str
    time: str
    type: str = "IdentityRefused"
    what: str
    """`access token`, `sign-in` or `logout`."""


class ToolCompleted(Record, frozen=True, gc=False):
    """The outcome of a call: everything that a receipt shows."""

    agent: str
    approval: Approval | None
    argument_hash: str
    call: str
    codes: tuple[str, ...]
    decision: Decision | None
    definition_hash: str
    diagnosis_hash: str | UnsetType = UNSET
    """Hash of the diagnosis, if the call failed; empty if the diagnosis is not stored beside the log."""
    enforced: tuple[str, ...] = ()
    execute_us: int = 0
    is_cached: bool = False
    isolation: str = ""
    result_hash: str = ""
    result_hash_before: str | UnsetType = UNSET
    """Hash of the output before hooks of the host changed it, if there are hooks."""
    stage_us: tuple[int, ...] = ()
    """How long each of the `STAGES` took, up to the one where the call ended; none of a client's result."""
    status: str = ""
    time: str = ""
    tool: str = ""
    type: str = "ToolCompleted"
    version: str = ""


def written(record: Record) -> bytes:
    """The canonical JSON of a record."""
    try:
        return _encode(record)
    except OverflowError:  # integers beyond 64 bits
        data: Any = msgspec.to_builtins(record)
        return canonical_bytes(data)


_encode: Final = msgspec.json.Encoder().encode
