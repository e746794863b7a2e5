"""Limits of one execution: time, output, isolation, memory, network. None means the default."""

from dataclasses import dataclass
from typing import Any

from toolkeep.definitions.vocabulary import Isolation
from toolkeep.limits import (
    DEFAULT_EXECUTION_SECONDS,
    DEFAULT_MEMORY_BYTES,
    DEFAULT_OUTPUT_BYTES,
    RESTRICTED_MEMORY_BYTES,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Constraints:
    """Limits of one execution (DEF-6); None means the keep's default."""

    max_execution_time_s: float | None = None
    max_output_bytes: int | None = None
    allow_side_effects: bool = True
    required_isolation: Isolation | None = None
    runs_on: str | None = None
    """Label of the workers on other machines that run it; empty for any of them."""

    @property
    def execution_seconds(self) -> float:
        """The effective time limit."""
        return self.max_execution_time_s or DEFAULT_EXECUTION_SECONDS

    @property
    def output_bytes(self) -> int:
        """The effective output limit."""
        return self.max_output_bytes or DEFAULT_OUTPUT_BYTES

    @property
    def isolation(self) -> Isolation:
        """The effective isolation of a tool named by reference; SBX-1 decides for a live function."""
        return self.required_isolation or Isolation.STANDARD

    def to_dict(self) -> dict[str, Any]:
        """The stated limits, in the data form."""
        stated = {
            "max_execution_time": self.max_execution_time_s,
            "max_output_size": self.max_output_bytes,
            "allow_side_effects": None if self.allow_side_effects else False,
            "required_isolation": self.required_isolation and self.required_isolation.value,
            "runs_on": self.runs_on,
        }
        return {key: value for key, value in stated.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkBounds:
    """How much one call may use the network."""

    max_requests: int
    max_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The data form."""
        return {"max_requests": self.max_requests, "max_bytes": self.max_bytes}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Resources of one execution; None means the default of the isolation level."""

    max_memory_bytes: int | None = None
    max_cpu_cores: float | None = None
    max_network: NetworkBounds | None = None

    def memory_bytes(self, isolation: Isolation) -> int:
        """The effective memory limit at an isolation level."""
        default = RESTRICTED_MEMORY_BYTES if isolation is Isolation.RESTRICTED else DEFAULT_MEMORY_BYTES
        return self.max_memory_bytes or default

    def to_dict(self) -> dict[str, Any]:
        """The stated limits, in the data form."""
        stated = {
            "max_memory": self.max_memory_bytes,
            "max_cpu": self.max_cpu_cores,
            "max_network": self.max_network and self.max_network.to_dict(),
        }
        return {key: value for key, value in stated.items() if value is not None}
