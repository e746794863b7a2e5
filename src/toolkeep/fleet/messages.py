"""Messages between servers and workers inside a sealed session (`sealed_session.py`).

Every time is a duration: clocks of two machines are never compared.
"""

import hashlib
from typing import Annotated, Final, Literal

import msgspec

PROTOCOL: Final = 2
"""Rises with each change that an older program would misunderstand."""


_Short = Annotated[str, msgspec.Meta(max_length=100)]
"""Stands in the server's log, which a worker must not fill."""


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """A tool that a worker has."""

    name: str
    definition_hash: str
    code_hash: str


class Claims(msgspec.Struct, frozen=True, array_like=True, tag="claims"):
    """What a worker says of itself, first of all in a session."""

    labels: tuple[str, ...]
    levels: tuple[str, ...]
    """Isolation levels that this machine was seen to provide."""
    tools: tuple[Claim, ...]
    slots: Annotated[int, msgspec.Meta(ge=1, le=10_000)]
    """How many jobs run at once; calls are shared out by the part of them that is free."""
    version: str
    takes_code: bool = False
    """Whether this server may install the code of tools that the worker lacks."""


class StoredBody(msgspec.Struct, frozen=True, array_like=True):
    """A body that is too large for a frame, in the object store (`object_store.py`)."""

    name: str
    key: bytes
    size: int
    hash: bytes
    """SHA-256 of the body, so that what the worker signs covers it."""

    def __repr__(self) -> str:
        """Without the key."""
        return f"<stored {self.name}>"


class Job(msgspec.Struct, frozen=True, array_like=True, tag="job"):
    """One call to run, decided and recorded by the server."""

    id: str
    """The id of the call, with the number of the attempt."""
    tool: str
    definition_hash: str
    code_hash: str
    level: str
    agent: str
    capabilities: tuple[str, ...]
    """What the agent holds: the worker resolves paths and hosts on its own machine, inside this."""
    permissions: tuple[str, ...]
    arguments: bytes | StoredBody
    """JSON."""
    deadline_ms: int
    output_bytes: int
    wants_progress: bool = False
    wants_output: bool = False
    secrets: dict[str, str] = {}
    correlation_id: str = ""
    conversation: str = ""
    session: str = ""
    data: bytes | StoredBody = b""
    """JSON, for the tool's context alone."""
    trace: str = ""
    """W3C `traceparent` of the call."""

    def __repr__(self) -> str:
        """Without arguments and secrets."""
        return f"<job {self.id} of {self.tool!r}>"


class Cancel(msgspec.Struct, frozen=True, array_like=True, tag="cancel"):
    """End a job."""

    id: str


REFUSAL_KINDS: Final = 50


class RefusalCount(msgspec.Struct, frozen=True, array_like=True):
    """What a worker refused since its process began, from whatever server.

    Servers learn nothing of each other's calls by it, and a worker that lies has no more room than this.
    """

    what: Literal["frame", "job", "code"]
    reason: Annotated[str, msgspec.Meta(pattern=r"\A[ -~]{1,80}\Z")]
    server: Annotated[str, msgspec.Meta(pattern=r"\A(?:[0-9a-f]{32})?\Z")]
    """The token of the trusted server in whose name it came; empty if it is of none."""
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 53)]
    recorded: Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)] = 0
    """How many of them are in the log of the server that is told, as it said."""


class Renew(msgspec.Struct, frozen=True, array_like=True, tag="renew"):
    """Answers a heartbeat: the lease begins anew at the time that heartbeat was sent."""

    heartbeat: int
    acknowledged: tuple[str, ...] = ()
    """Jobs whose final answer arrived: the worker need not keep it."""
    recorded: Annotated[tuple[RefusalCount, ...], msgspec.Meta(max_length=REFUSAL_KINDS)] = ()
    """Refusals with as many of each as are in the log by now, if these are more than the heartbeat said."""


class Query(msgspec.Struct, frozen=True, array_like=True, tag="query"):
    """What became of a job? One that never arrived is refused for good, so that it can run elsewhere."""

    id: str


class Install(msgspec.Struct, frozen=True, array_like=True, tag="install"):
    """Install a tool whose code the worker lacks."""

    tool: Claim
    definition: bytes
    """JSON."""
    code: StoredBody
    """A bundle (`code_bundle.py`)."""


ToWorker = Job | Cancel | Renew | Query | Install


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat"):
    """The worker is alive and asks for its lease."""

    number: int
    others: int
    """Slots that jobs of others hold."""
    running: tuple[str, ...] = ()
    finished: tuple[str, ...] = ()
    """Jobs whose final answer the server has not acknowledged."""
    is_draining: bool = False
    refused: Annotated[tuple[RefusalCount, ...], msgspec.Meta(max_length=REFUSAL_KINDS)] = ()
    """All of it each time, so that a lost heartbeat loses nothing."""


class Running(msgspec.Struct, frozen=True, array_like=True, tag="running"):
    """The queried job runs."""

    id: str


class Delivering(msgspec.Struct, frozen=True, array_like=True, tag="delivering"):
    """The tool has ended. Its large result is being stored, and holds no slot."""

    id: str


class NotRun(msgspec.Struct, frozen=True, array_like=True, tag="not_run"):
    """No line of the job ran, or ever will."""

    id: str
    why: str
    """One of `NotRunReason`."""
    detail: str = ""


class Progress(msgspec.Struct, frozen=True, array_like=True, tag="progress"):
    """Progress that the tool reports."""

    id: str
    done: float
    total: float | None
    message: str


class OutputChunk(msgspec.Struct, frozen=True, array_like=True, tag="chunk"):
    """A chunk of streamed output."""

    id: str
    body: bytes
    """JSON."""


class Failure(msgspec.Struct, frozen=True, array_like=True):
    """A run without a value."""

    code: str
    """An error code; empty where the tool itself said that it failed, or it was cancelled."""
    reason: str
    suggestion: str = ""
    denied: str = ""
    subject: str = ""
    limit: str = ""
    remedy: str = ""
    detail: str = ""
    path: str = ""
    is_unexplained: bool = False
    is_cancelled: bool = False


class Answer(msgspec.Struct, frozen=True, array_like=True, tag="final"):
    """How a job ended: with a value, or with a failure."""

    id: str
    isolation: _Short
    enforced: Annotated[tuple[_Short, ...], msgspec.Meta(max_length=50)]
    body: bytes | StoredBody = b""
    """JSON, or the bytes themselves."""
    is_bytes: bool = False
    failure: Failure | None = None
    cpu_ms: float = 0.0
    peak_bytes: int | None = None


class InstallResult(msgspec.Struct, frozen=True, array_like=True, tag="install_result"):
    """The worker has installed the tool, or why not."""

    tool: Claim
    why: str = ""


class Signed(msgspec.Struct, frozen=True, array_like=True, tag="signed"):
    """The worker signs final answers (`transcript.py`)."""

    ids: tuple[str, ...]
    signature: bytes


ToServer = (
    Claims
    | Heartbeat
    | Running
    | Delivering
    | NotRun
    | Progress
    | OutputChunk
    | Answer
    | InstallResult
    | Signed
)

BUSY, DRAINING, NO_LEASE = "busy", "draining", "no lease"
UNKNOWN_TOOL, OTHER_CODE, NO_LEVEL, NOT_GRANTED, NEVER_SEEN, NO_ARGUMENTS = (
    "unknown tool", "other code", "level not available", "not granted", "never seen", "arguments not there",
)  # fmt: skip
ELSEWHERE: Final = frozenset((BUSY, DRAINING, NO_LEASE, NEVER_SEEN))
"""Reasons that say nothing about the call: another worker may take it."""

encode: Final = msgspec.msgpack.Encoder().encode
decode_to_worker: Final = msgspec.msgpack.Decoder(ToWorker).decode
decode_to_server: Final = msgspec.msgpack.Decoder(ToServer).decode


def _shape() -> str:
    """Hash of everything above: two programs with one protocol number must mean the same by it."""
    shown = msgspec.json.schema_components([ToWorker, ToServer])
    return hashlib.sha256(msgspec.json.encode(shown, order="deterministic")).hexdigest()[:16]


SHAPE: Final = _shape()
