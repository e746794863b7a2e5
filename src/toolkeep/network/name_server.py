"""Name server of a confined program: a synthetic address for each granted name (RFC 1035, over TCP).

Input: queries of a hostile program. Output: responses; nothing is looked up, so no query leaves this machine.
The program connects to the synthetic address of a name, and the egress proxy finds the name again by it. The
addresses decide nothing: the name is checked and resolved when a connection is made.
"""

import asyncio
from ipaddress import IPv4Address
from typing import Final

from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.errors import NetworkRefused
from toolkeep.network.hosts import Host, read_host

_FIRST: Final = IPv4Address("198.18.0.1")
"""198.18.0.0/15 is for measurements between networks (RFC 2544): no host has such an address."""
_NAMES: Final = 4096
"""Names that get an address: a program that may reach `*.example.org` could ask for names without end."""
_QUERY_BYTES: Final = 512
"""A name has at most 255 bytes (RFC 1035 section 2.3.4)."""

_HEADER_BYTES: Final = 12
"""Header of a message (RFC 1035 section 4.1.1)."""
_ADDRESS: Final = b"\0\1\0\1"
"""Type A, class IN."""
_MISSING: Final = 3
"""NXDOMAIN."""
_NO_HOST: Final = "a name is asked for that no host can have"
_TO_THE_NAME: Final = b"\xc0\x0c"
"""The name of the question, which begins after the header."""


class SyntheticAddresses:
    """Addresses of the granted names that a program asked for."""

    def __init__(self) -> None:
        self._addresses: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def address_of(self, name: str) -> str:
        """The address of a name; `NetworkRefused` if there are too many."""
        if name not in self._addresses:
            if len(self._addresses) >= _NAMES:
                raise NetworkRefused(f"this program has asked for {_NAMES} names")
            address = str(_FIRST + len(self._addresses))
            self._addresses[name], self._names[address] = address, name
        return self._addresses[name]

    def host_of(self, address: str, port: int) -> Host:
        """The host that a connection to an address is for: the address itself, unless it is synthetic."""
        name = self._names.get(address)
        return Host(name or address, port, "http", name is None)


class Lookup:
    """One query: the name that is asked for, and the response to it."""

    def __init__(self, query: bytes) -> None:
        """`EOFError` for what is no query for one name."""
        self._query = query
        end = query.find(b"\0", _HEADER_BYTES)
        is_query = len(query) > _HEADER_BYTES and query[2] & 0xF8 == 0 and query[4:6] == b"\0\1"
        if not is_query or end < 0 or len(query) < end + 5:
            raise EOFError
        self._question = query[_HEADER_BYTES : end + 5]
        self.is_address = self._question[-4:] == _ADDRESS
        """Whether it asks for IPv4 addresses."""

    @property
    def name(self) -> str:
        """The name; `NetworkRefused` if no host can have it."""
        labels, at = [], 0
        try:
            # A length of 64 or more is a pointer, which is no label of a host either.
            while length := self._question[at]:
                labels.append(self._question[at + 1 : at + 1 + length].decode("ascii"))
                at += 1 + length
            host = read_host(".".join(labels))
        except (IndexError, ValueError):
            raise NetworkRefused(_NO_HOST) from None
        if host.is_address or host.port:
            raise NetworkRefused(_NO_HOST)
        return host.name

    def response(self, address: str = "", *, status: int = 0) -> bytes:
        """A response with at most one address, to be asked for again each time (TTL 0)."""
        packed = IPv4Address(address).packed if address and self.is_address else b""
        record = _TO_THE_NAME + _ADDRESS + bytes(4) + b"\0\4" + packed if packed else b""
        flags = bytes((0x81, 0x80 | status))
        counts = b"\0\1" + (b"\0\1" if record else b"\0\0") + bytes(4)
        return _framed(self._query[:2] + flags + counts + self._question + record)

    def refusal(self) -> bytes:
        """The response for a name that is not granted (NXDOMAIN)."""
        return self.response(status=_MISSING)


def _framed(message: bytes) -> bytes:
    """With its length before it (RFC 1035 section 4.2.2)."""
    return len(message).to_bytes(2, "big") + message


async def next_query(reader: asyncio.StreamReader) -> Lookup:
    """The next query of a connection; `EOFError` at its end, and for what is none."""
    length = int.from_bytes(await reader.readexactly(2), "big")
    if length > _QUERY_BYTES:
        raise EOFError
    return Lookup(await reader.readexactly(length))


def is_granted(name: str, allowlist: HostAllowlist) -> bool:
    """Whether a name may be reached at any port."""
    return any(
        scope.contains(Host(name, port, "", is_address=False))
        for scope in (*allowlist.reads, *allowlist.writes)
        for port in scope.ports or (443,)
    )
