"""Network budget of one call: requests and bytes, counted as they are used (DEF-6)."""

from typing import Final

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.limits import NETWORK_BYTES, NETWORK_REQUESTS
from toolkeep.network.errors import NetworkRefused

_LOOKUPS: Final = 10
"""Queries for each request: programs retry, and try names that they do not contact."""


class Budget:
    """Requests and bytes in both directions; what would exceed the budget is refused before it is sent."""

    def __init__(self, bounds: NetworkBounds | None = None) -> None:
        self.max_requests = bounds.max_requests if bounds else NETWORK_REQUESTS
        self.max_bytes = bounds.max_bytes if bounds else NETWORK_BYTES
        self.requests = 0
        self.lookups = 0
        self.bytes = 0

    def take_request(self) -> None:
        """Count one request, refused ones included: they cost work too."""
        if self.requests >= self.max_requests:
            raise NetworkRefused(f"this call has used its {self.max_requests} requests")
        self.requests += 1

    def take_lookup(self) -> None:
        """Count one query for a name; a request needs two, for each version of IP."""
        if self.lookups >= _LOOKUPS * self.max_requests:
            raise NetworkRefused(f"this call has asked for {self.lookups} names")
        self.lookups += 1

    def take_bytes(self, count: int) -> None:
        """Count bytes that are about to be relayed."""
        # Checked before the bytes move: a check afterwards would let one large chunk through.
        if self.bytes + count > self.max_bytes:
            raise NetworkRefused(f"this call has used its {self.max_bytes} bytes")
        self.bytes += count
