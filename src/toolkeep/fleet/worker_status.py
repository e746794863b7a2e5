"""What a server knows of its workers, for operators."""

import time
from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

import msgspec

if TYPE_CHECKING:
    from toolkeep.config.fleet_settings import TrustedWorker
    from toolkeep.fleet.remote_worker import WorkerSession


_WHY: Final = {
    "not seen": "it has not announced itself: start toolkeep worker there",
    "silent": "its lease is over: new calls go to other workers",
    "draining": "it finishes its calls and takes no new ones",
}


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A trusted worker as one server sees it."""

    name: str
    key: str
    state: Literal["ready", "full", "draining", "silent", "refused", "not seen", "quarantined"]
    why: str = ""
    """Why it is in this state, unless it takes calls."""
    labels: tuple[str, ...] = ()
    levels: tuple[str, ...] = ()
    """Isolation levels that its machine was seen to provide."""
    tools: tuple[str, ...] = ()
    slots: int = 0
    free: int = 0
    jobs: int = 0
    """Calls of this server that it has; others may have slots, too."""
    running: dict[str, int] = {}
    """These calls, by tool."""
    version: str = ""
    seen_s: float | None = None
    """Seconds since it was heard of; None if it never was."""
    samples_agreed: int = 0
    """Results of it that another worker's result confirmed, since this server was started."""
    samples_differed: int = 0


def status_of(trusted: "TrustedWorker", session: "WorkerSession | None", why: str) -> WorkerStatus:
    """What is known of a worker by the session with it, or why there is none."""
    if session is None:
        state: Literal["refused", "not seen"] = "refused" if why else "not seen"
        return WorkerStatus(name=trusted.name, key=trusted.key, state=state, why=why or _WHY[state])
    claims, free, state_of_session = session.claims, max(0, session.free), _state(session)
    return WorkerStatus(
        name=trusted.name,
        key=trusted.key,
        state=state_of_session,
        why=why or _WHY.get(state_of_session, ""),
        labels=claims.labels,
        levels=claims.levels,
        tools=tuple(sorted(name for name, _, _ in session.tools)),
        slots=claims.slots,
        free=free,
        jobs=len(session.pending_jobs),
        running=dict(Counter(sorted(one.job.tool for one in session.pending_jobs.values()))),
        version=claims.version,
        seen_s=round(time.monotonic() - session.seen_at, 1),
    )


def quarantined(status: WorkerStatus) -> WorkerStatus:
    """The status of a worker that takes no calls."""
    why = "a result of it was wrong: see WorkersDisagreed in the audit log, then `toolkeep fleet restore`"
    return msgspec.structs.replace(status, state="quarantined", why=why, free=0)


def _state(session: "WorkerSession") -> Literal["ready", "full", "draining", "silent"]:
    if not session.has_lease:
        return "silent"
    if session.is_draining:
        return "draining"
    return "ready" if session.free > 0 else "full"
