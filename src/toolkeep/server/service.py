"""Shared state of the request handlers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkeep.keep.drift_news import DriftReader
from toolkeep.keep.keep import Keep
from toolkeep.limits import COUNTED_AT_ONCE, ServerLimits
from toolkeep.server.api.approval_history import ApprovalHistory
from toolkeep.server.api.call_index import CallIndex
from toolkeep.server.api.health import Health
from toolkeep.server.api.milestones import MilestoneReader
from toolkeep.server.api.open_calls import RunningCalls
from toolkeep.server.api.statistics import Statistics
from toolkeep.server.api.verification import Verification
from toolkeep.server.http.bearer_auth import BearerAuth, Caller
from toolkeep.stores.api_tokens import Scope, Tokens

if TYPE_CHECKING:
    from toolkeep.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A keep, its tokens, and the state of the server."""

    keep: Keep
    tokens: Tokens
    authenticator: BearerAuth
    limits: ServerLimits
    calls: RunningCalls
    health: Health
    index: CallIndex
    statistics: Statistics = field(default_factory=lambda: Statistics(at_once=COUNTED_AT_ONCE))
    history: ApprovalHistory = field(default_factory=ApprovalHistory)
    milestones: MilestoneReader = field(default_factory=MilestoneReader)
    drift: DriftReader = field(default_factory=DriftReader)
    verification: Verification = field(default_factory=Verification)
    metrics: "Metrics | None" = None
    has_traces: bool = False
    issuers: tuple[str, ...] = ()
    """Authorization servers that hand out tokens for this server."""
    resource: str = ""
    """What tokens of issuers are for; empty for the address that a client uses."""
    """Authorization servers that issue tokens for this server."""
    base: str = ""
    """Public base URL; if empty, taken from the (checked) `Host` header."""


def sees_as(caller: Caller) -> str | None:
    """The agent whose tools a caller sees; None (all tools) with the scope `admin`."""
    return None if caller.has_scope(Scope.ADMIN) else caller.agent
