"""Which hosts a call may read from and which it may write to, and what that means for one request."""

from typing import Final

import msgspec

from toolkeep.network.errors import NetworkRefused
from toolkeep.network.hosts import Host, HostScope

READING: Final = frozenset({"GET", "HEAD"})
"""Methods for which `net.read` is enough."""

TUNNEL: Final = "CONNECT"


class HostReach(msgspec.Struct, frozen=True, kw_only=True):
    """The hosts that a call may read from, and those that it may write to."""

    reads: tuple[HostScope, ...] = ()
    writes: tuple[HostScope, ...] = ()
    trusts_tunnels: bool = False
    """Whether TLS, into which nobody looks, counts as reading: for code of ours, which only reads."""

    @property
    def is_empty(self) -> bool:
        """Whether it leads nowhere."""
        return not self.reads and not self.writes

    def by(self, method: str) -> tuple[HostScope, ...]:
        """The hosts that may be asked with a method, or through a tunnel."""
        is_reading = method in READING or (method == TUNNEL and self.trusts_tunnels)
        return (*self.reads, *self.writes) if is_reading else self.writes

    def check(self, method: str, host: Host) -> None:
        """Raise `NetworkRefused` where a host may be read from, and this would be more than that."""
        if _contain(self.reads, host) and not _contain(self.by(method), host):
            how = "TLS, which nobody looks into," if method == TUNNEL else f"the method {method}"
            raise NetworkRefused(f"{how} takes net.write of '{host}', and this call may only read from it")


def _contain(scopes: tuple[HostScope, ...], host: Host) -> bool:
    return any(scope.contains(host) for scope in scopes)
