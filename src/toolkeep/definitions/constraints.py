"""How far a tool may go: time, output, isolation, memory, network. Null means the default."""

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
    """Limits of one execution (DEF-6); None stands for the default of the keep."""

    max_execution_time_s: float | None = None
    max_output_bytes: int | None = None
    allow_side_effects: bool = True
    required_isolation: Isolation | None = None

    @property
    def execution_seconds(self) -> float:
        """The time limit in force."""
        return self.max_execution_time_s or DEFAULT_EXECUTION_SECONDS

    @property
    def output_bytes(self) -> int:
        """The output limit in force."""
        return self.max_output_bytes or DEFAULT_OUTPUT_BYTES

    @property
    def isolation(self) -> Isolation:
        """The isolation in force for a tool that is named by reference; a live function is SBX-1's."""
        return self.required_isolation or Isolation.STANDARD

    def to_dict(self) -> dict[str, Any]:
        """What is stated, under the names of the data form."""
        stated = {
            "max_execution_time": self.max_execution_time_s,
            "max_output_size": self.max_output_bytes,
            "allow_side_effects": None if self.allow_side_effects else False,
            "required_isolation": self.required_isolation and self.required_isolation.value,
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
    """Resources of one execution; None stands for the default of the level."""

    max_memory_bytes: int | None = None
    max_cpu_cores: float | None = None
    max_network: NetworkBounds | None = None

    def memory_bytes(self, isolation: Isolation) -> int:
        """The memory in force at that level of isolation."""
        default = RESTRICTED_MEMORY_BYTES if isolation is Isolation.RESTRICTED else DEFAULT_MEMORY_BYTES
        return self.max_memory_bytes or default

    def to_dict(self) -> dict[str, Any]:
        """What is stated, under the names of the data form."""
        stated = {
            "max_memory": self.max_memory_bytes,
            "max_cpu": self.max_cpu_cores,
            "max_network": self.max_network and self.max_network.to_dict(),
        }
        return {key: value for key, value in stated.items() if value is not None}
