"""How much of the network one call may use, counted as it is used (DEF-6)."""

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.limits import NETWORK_BYTES, NETWORK_REQUESTS
from toolkeep.network.errors import NetworkRefused


class Budget:
    """Requests and bytes, both ways together; what would pass a bound is refused before it moves."""

    def __init__(self, bounds: NetworkBounds | None = None) -> None:
        self.max_requests = bounds.max_requests if bounds else NETWORK_REQUESTS
        self.max_bytes = bounds.max_bytes if bounds else NETWORK_BYTES
        self.requests = 0
        self.bytes = 0

    def take_request(self) -> None:
        """Count one request, whether it will be let through or not: refused ones cost work too."""
        if self.requests >= self.max_requests:
            raise NetworkRefused(f"this call has made its {self.max_requests} requests")
        self.requests += 1

    def take_bytes(self, count: int) -> None:
        """Count bytes that are about to be passed on."""
        if self.bytes + count > self.max_bytes:
            raise NetworkRefused(f"this call has moved its {self.max_bytes} bytes")
        self.bytes += count
