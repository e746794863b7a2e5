"""Ports that toolkeep itself relies on: no grant lets a tool contact them (SBX-4).

A tool that reached the keep's own server could approve its calls, and in its database it could rewrite the
tools. Known are the servers and databases of this process, from their first request or connection on; those
of another process are not.
"""

import socket
from collections.abc import Mapping
from typing import Any, Final

from toolkeep.network.addresses import AddressClass, classify

_PORTS: Final[set[int]] = set()
"""Ports of this machine that a server of this process listens at, or its database."""
_ENDPOINTS: Final[set[tuple[str, int]]] = set()
"""Addresses and ports of databases elsewhere."""


def bar_port(port: int) -> None:
    """Bar a port of this machine, at every address that it has."""
    _PORTS.add(port)


def bar_address(address: str, port: int) -> None:
    """Bar a port at an address."""
    if classify(address) is AddressClass.LOOPBACK:
        bar_port(port)
    _ENDPOINTS.add((address, port))


class OwnPorts:
    """The ports that requests to one ASGI app arrive at; barred from the first request on.

    Whoever serves the app chooses the port, so that only requests tell it. A call that could abuse the port
    comes by a request itself.
    """

    def __init__(self) -> None:
        self._seen: set[int] = set()

    def note(self, scope: Mapping[str, Any]) -> None:
        """Bar the port of a request."""
        server = scope.get("server")
        if server and server[1] and server[1] not in self._seen:
            self._seen.add(server[1])
            bar_port(server[1])

    def release(self) -> None:
        """The server ends, and another program may get its ports."""
        while self._seen:
            _PORTS.discard(self._seen.pop())


def is_own(address: str, port: int) -> bool:
    """Whether an address and port are toolkeep's own."""
    return (address, port) in _ENDPOINTS or (port in _PORTS and _is_this_machine(address))


def _is_this_machine(address: str) -> bool:
    if classify(address) is AddressClass.LOOPBACK:
        return True
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Sends nothing: the kernel chooses the route. To an address of its own it goes from that address.
            probe.connect((address, 9))
            return str(probe.getsockname()[0]) == address
    except OSError:
        return False  # no route: nothing there can be contacted either
