"""What every action of the server works with."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolkeep.keep import Keep
from toolkeep.limits import ServerLimits
from toolkeep.server.auth import Caller, Recognizer
from toolkeep.server.statistics import Statistics
from toolkeep.tokens import Scope, Tokens

if TYPE_CHECKING:
    from toolkeep.server.calls import OpenCalls
    from toolkeep.server.health import Health
    from toolkeep.telemetry.metrics import Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A keep, who may use it, and what is under way."""

    keep: Keep
    tokens: Tokens
    recognizer: Recognizer
    limits: ServerLimits
    calls: "OpenCalls"
    health: "Health"
    statistics: Statistics = field(default_factory=Statistics)
    metrics: "Metrics | None" = None
    has_traces: bool = False
    issuers: tuple[str, ...] = ()
    """Authorization servers that give out tokens for this one."""
    base: str = ""
    """The address under which clients know the server, if not as they say."""


def sees_as(caller: Caller) -> str | None:
    """The agent whose view of the tools a caller has; None for all of them."""
    return None if caller.has_scope(Scope.ADMIN) else caller.agent
