"""Host allowlist of a call: which hosts it may read from, and which it may write to."""

from typing import Final

import msgspec

from toolkeep.network.errors import NetworkRefused
from toolkeep.network.hosts import WEB_PORTS, Host, HostScope

READING: Final = frozenset({"GET", "HEAD"})
"""Methods for which `net.read` is enough."""

TUNNEL: Final = "CONNECT"


class HostAllowlist(msgspec.Struct, frozen=True, kw_only=True):
    """Hosts granted for reading and for writing."""

    reads: tuple[HostScope, ...] = ()
    writes: tuple[HostScope, ...] = ()
    trusts_tunnels: bool = False
    """Whether a TLS tunnel counts as reading, although its methods are invisible: only for our own code."""

    @property
    def is_empty(self) -> bool:
        """Whether no host is granted."""
        return not self.reads and not self.writes

    @property
    def ports(self) -> tuple[int, ...]:
        """Ports of the granted hosts, those of the web first; of a grant of every port only those."""
        named = {port for scope in (*self.reads, *self.writes) for port in scope.ports or WEB_PORTS}
        return (*sorted(named & WEB_PORTS), *sorted(named - WEB_PORTS))

    def for_method(self, method: str) -> tuple[HostScope, ...]:
        """Hosts that may be contacted with a method, or through a CONNECT tunnel."""
        is_reading = method in READING or (method == TUNNEL and self.trusts_tunnels)
        # net.write includes reading: whoever may change a host's data learns from its answers anyway.
        return (*self.reads, *self.writes) if is_reading else self.writes

    def check(self, method: str, host: Host) -> None:
        """Raise `NetworkRefused` if a host is granted for reading only and this would be more."""
        # Only for hosts that are granted for reading: for others `resolve_host` refuses, with its own reason.
        if _contain(self.reads, host) and not _contain(self.for_method(method), host):
            how = "TLS, which is not inspected," if method == TUNNEL else f"the method {method}"
            raise NetworkRefused(f"{how} takes net.write of '{host}', and this call may only read from it")


def _contain(scopes: tuple[HostScope, ...], host: Host) -> bool:
    return any(scope.contains(host) for scope in scopes)
