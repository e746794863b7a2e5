"""Parses the host of a URL or host argument into one canonical form; host scopes of network grants.

Input: text that a model wrote. Output: a `Host`, or `HostRefused`. The tool parses the same text with its own
parser. Whatever parsers read differently is refused, never repaired: otherwise policy would check one host
and the tool contact another.

Not protected: where a name resolves to (see `resolve`), look-alike names (mixed scripts), names completed by
a resolver's search list, redirects, and public suffixes (`*.co.uk` is a scope).
"""

import re
import socket
from enum import Enum
from ipaddress import IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import msgspec
from msgspec.structs import replace

from toolkeep.network.addresses import AddressClass, Network, barred_reason, class_of_network, classify
from toolkeep.text.display import echo

DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443}
"""Supported schemes and their default ports."""

MAX_NAME_CHARS: Final = 253
"""Longest name that fits into 255 bytes of DNS wire format (RFC 1035 section 2.3.4)."""

MAX_LABEL_CHARS: Final = 63
"""Longest label of a DNS name (RFC 1035 section 2.3.4)."""

MAX_PORT: Final = 65_535

WEB_PORTS: Final = frozenset(DEFAULT_PORTS.values())
"""Ports of a scope without a port: 80 and 443."""

_AUTHORITY_END = re.compile(r"[/?#]")
_AUTHORITY = re.compile(r"(?P<host>\[[^\[\]]*\]|[^:\[\]]*)(?::(?P<port>.*))?")
_PORT = re.compile(r"[1-9][0-9]{0,4}")
_IPV6_CHARS = re.compile(r"[0-9a-fA-F:.]+")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]+(?<!-)")
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_IPV4_PART = r"(?:0|[1-9][0-9]{0,9}|0x[0-9a-f]{1,8})"
_IPV4 = re.compile(rf"{_IPV4_PART}(?:\.{_IPV4_PART}){{0,3}}")
_NETWORK = re.compile(r"[0-9a-fA-F.:]+/(?:0|[1-9][0-9]{0,2})")


class HostRefused(ValueError):
    """The text names no host, or one that two parsers may read differently."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Host(msgspec.Struct, frozen=True):
    """Target of a call. Texts that name the same host and port are equal except for the scheme."""

    name: str
    """Lower-case A-labels without a final dot, dotted IPv4, or RFC 5952 IPv6 without brackets."""
    port: int
    """Always set for a URL; 0 if a host argument has none, so that the tool may use any."""
    scheme: str
    """Empty for a host argument."""
    is_address: bool

    @property
    def authority(self) -> str:
        """As in a URL, or in the Host header."""
        is_usual = self.port in (0, DEFAULT_PORTS.get(self.scheme))
        return _bracketed(self.name) if is_usual else f"{_bracketed(self.name)}:{self.port}"

    @property
    def scope(self) -> str:
        """As a requirement or grant names it: loopback always with its port."""
        is_loopback = self.is_address and classify(self.name) is AddressClass.LOOPBACK
        return f"{_bracketed(self.name)}:{self.port}" if is_loopback and self.port else self.authority

    def __str__(self) -> str:
        if self.port in (0, DEFAULT_PORTS.get(self.scheme)):
            return self.name
        return f"{_bracketed(self.name)}:{self.port}"


def read_url(text: str) -> Host:
    """Host of an absolute http, https, ws or wss URL."""
    _refuse_hidden(text)
    # Own parser instead of urllib's: that one accepts and repairs what tools' parsers read differently.
    scheme, separator, rest = text.partition("://")
    scheme = scheme.lower()
    if not separator or scheme not in DEFAULT_PORTS:
        raise HostRefused("the URL must start with one of " + ", ".join(f"{s}://" for s in DEFAULT_PORTS))
    end = _AUTHORITY_END.search(rest)
    name, is_address, port = _read_authority(rest[: end.start()] if end else rest)
    # `http://a#@b` is host a to some parsers and b to others; all agree if a slash comes first.
    if end and end.group() != "/":
        raise HostRefused(f"a / must stand between the host and {end.group()}")
    return Host(name, port or DEFAULT_PORTS[scheme], scheme, is_address)


def read_host(text: str) -> Host:
    """Host of an argument: `name`, `name:port`, `[v6]` or `[v6]:port`."""
    _refuse_hidden(text)
    if "/" in text:
        raise HostRefused("a host is wanted, such as example.org or example.org:8443, without scheme or path")
    name, is_address, port = _read_authority(text)
    return Host(name, port, "", is_address)


def _refuse_hidden(text: str) -> None:
    # Some parsers strip these, some cut there, some pass them on; browsers take a backslash for a slash.
    if not text.isprintable() or " " in text:
        raise HostRefused("it holds a space, a control character or another that does not show")
    if "\\" in text:
        raise HostRefused("it holds a backslash; write / or %5C")


def _read_authority(text: str) -> tuple[str, bool, int]:
    """Name, whether it is an address, and port (0 if none)."""
    if "@" in text:  # Before anything is echoed: it may hold a password.
        raise HostRefused("it holds an @ before the path; a user name or password is not taken there")
    # `::1:8443` is an address to some parsers and an address with a port to others.
    if text.count(":") > 1 and "[" not in text:
        raise HostRefused("it has several colons; an IPv6 address needs brackets, such as [::1]:8443")
    match = _AUTHORITY.fullmatch(text)
    if match is None:
        raise HostRefused(
            f"in {echo(text)} the brackets do not hold an IPv6 address with at most a port behind it"
        )
    host, port = match["host"], match["port"]
    number = 0 if port is None else _read_port(port)
    if host.startswith("["):
        return _read_ipv6(host[1:-1]), True, number
    return *_read_name(host), number


def _read_port(text: str) -> int:
    # Parsers differ about "", "+80", "080", "٨٠" and 65616, which some take modulo 65536.
    if not _PORT.fullmatch(text) or int(text) > MAX_PORT:
        raise HostRefused(f"port {echo(text)} is not a plain number from 1 to {MAX_PORT}")
    return int(text)


def _read_ipv6(text: str) -> str:
    """RFC 5952. An IPv4-mapped address becomes the IPv4 address that it reaches; 6to4 and NAT64 stay IPv6."""
    try:
        # This excludes zone ids, which name a network interface of this machine.
        address = IPv6Address(text if _IPV6_CHARS.fullmatch(text) else "")
    except ValueError:
        raise HostRefused(f"{echo(text)} is not an IPv6 address") from None
    # ::ffff:10.0.0.1 reaches 10.0.0.1, so it must compare equal to it in grants.
    return str(address.ipv4_mapped or address)


def _read_name(text: str) -> tuple[str, bool]:
    """The canonical name, and whether it is an IPv4 address."""
    name = text.removesuffix(".")
    if len(name) <= MAX_NAME_CHARS:  # IDNA takes quadratic time in the length.
        name = name.lower() if name.isascii() else _to_a_labels(name)
    if len(name) > MAX_NAME_CHARS:
        raise HostRefused(f"the host is longer than {MAX_NAME_CHARS} characters")
    for label in name.split("."):
        _check_label(label, name)
    if not _ENDS_IN_NUMBER.fullmatch(name):
        return name, False
    if text.endswith("."):  # An address to browsers, a name to the resolver.
        raise HostRefused(f"the address {echo(name)} ends in a dot")
    return _read_ipv4(name), True


def _check_label(label: str, name: str) -> None:
    if not label:
        raise HostRefused(f"the host {echo(name)} has an empty part" if name else "it has no host")
    if len(label) > MAX_LABEL_CHARS:
        raise HostRefused(f"the host has a part longer than {MAX_LABEL_CHARS} characters")
    # A leading hyphen would be an option to a program that gets the host as an argument.
    if not _LABEL.fullmatch(label):
        raise HostRefused(
            f"the part {echo(label)} of the host is not made of letters, digits, _ and inner hyphens alone"
        )
    # An xn-- label that does not round-trip may be shown as another name than it resolves to.
    if label.startswith("xn--") and not _is_a_label(label):
        raise HostRefused(f"the part {echo(label)} of the host is not valid IDNA 2008")


def _is_a_label(label: str) -> bool:
    """Whether it decodes to Unicode that encodes to exactly this label."""
    import idna

    try:
        return idna.encode(idna.decode(label)).decode() == label
    except UnicodeError:
        return False


def _to_a_labels(name: str) -> str:
    """UTS 46, non-transitional, only if nothing but case is mapped and IDNA 2003 gives the same.

    Python's own sockets still use IDNA 2003, to which `faß.de` is `fass.de`.
    """
    import idna

    try:
        encoded = idna.encode(name, uts46=True, std3_rules=True).decode()
        is_same = idna.decode(encoded) == name.lower() and name.encode("idna").decode().lower() == encoded
    except UnicodeError:
        is_same = False
    if not is_same:
        raise HostRefused(
            f"the host {echo(name)} is read differently by different programs; write its xn-- form"
        )
    return encoded


def _read_ipv4(name: str) -> str:
    """`127.0.0.1`, also from `127.1`, `0x7f.1` and `2130706433`: browsers and sockets agree on these.

    They disagree on `0x`, which is zero to one and a name to the other. A part with a leading zero is octal
    to some and decimal or an error to others, so it is refused.
    """
    try:
        return socket.inet_ntoa(socket.inet_aton(name if _IPV4.fullmatch(name) else ""))
    except OSError:
        raise HostRefused(
            f"{echo(name)} ends in a number and is not an IPv4 address such as 192.0.2.1"
        ) from None


class ScopeForm(Enum):
    """Kinds of scopes."""

    NOTHING = "nothing"
    HOST = "host"
    BELOW = "below"
    ANY_NAME = "any name"
    NETWORK = "network"


class HostScope(msgspec.Struct, frozen=True, kw_only=True):
    """Scope of a `net.read` or `net.write` grant.

    `example.org` and `192.0.2.1` match that host; `*.example.org` matches every name below it, not itself;
    `10.0.0.0/8` and `2001:db8::/32` match addresses, never names that resolve to them; an IPv6 network
    matches no IPv4 address, mapped or not. All cover ports 80 and 443; `example.org:8443` covers only that
    port and `example.org:*` every port, which a host argument without a port needs. IPv6 needs brackets
    before a port: `[2001:db8::/32]:8443`. `*.*` matches every name of two or more labels except internal
    ones, and no address. `*` and the empty text match nothing.

    Private and loopback addresses are matched only where the scope names them: `10.1.2.3:8443`, `10.0.0.0/8`,
    or for a name `api.corp=10.0.0.0/8`, which then leads nowhere else. Any other name and every wildcard
    leads to public addresses alone. Loopback takes exactly one port: `127.0.0.1:8080`.
    """

    form: ScopeForm
    name: str = ""
    """The host, or the parent of all matching names."""
    network: Network | None = None
    ports: frozenset[int] | None = WEB_PORTS
    """None means every port."""
    leads_to: Network | None = None
    """The private or loopback network that the scope names; None for public addresses alone."""

    @classmethod
    def read(cls, text: str) -> "HostScope":
        """Parse the text form; ValueError says what is wrong."""
        if text in ("", "*"):
            return cls(form=ScopeForm.NOTHING, ports=frozenset())
        try:
            return _read_scope(text)
        except ValueError as error:
            raise ValueError(f"{echo(text)} is not the scope of a network grant: {error}") from None

    @classmethod
    def read_grant(cls, text: str) -> "HostScope":
        """Like `read`; ValueError also for a grant that could never allow anything."""
        scope = cls.read(text)
        network = scope.network or (ip_network(scope.name) if _is_address(scope.name) else None)
        if network is None:
            return scope
        if what := barred_reason(network):
            raise ValueError(f"{echo(text)} can never be granted: the address is {what}")
        if class_of_network(network) is AddressClass.LOOPBACK and scope.leads_to is None:
            raise ValueError(f"{echo(text)} needs one port, such as 127.0.0.1:8080: it is loopback")
        return scope

    @classmethod
    def of(cls, host: Host, *, is_named: bool = False) -> "HostScope":
        """The scope of one host. `is_named` if a person wrote it, so that it may be a private address."""
        address = ip_network(host.name) if is_named and host.is_address else None
        leads_to = address if address is not None and class_of_network(address) else None
        # A public server may redirect from http to https.
        is_web = host.port in WEB_PORTS and leads_to is None
        ports = WEB_PORTS if is_web else frozenset({host.port})
        return cls(form=ScopeForm.HOST, name=host.name, ports=ports, leads_to=leads_to)

    def reaches(self, address: str) -> bool:
        """Whether a host of this scope may have the address."""
        found = classify(address)
        if self.leads_to is None or found is AddressClass.BARRED:
            return found is AddressClass.PUBLIC
        return ip_address(address) in self.leads_to

    def narrowed(self, target: "Host | HostScope") -> "HostScope":
        """The part of this grant for a host or scope inside it: its addresses stay those of the grant."""
        if isinstance(target, Host):
            ports = frozenset({target.port}) if target.port else WEB_PORTS
            target = HostScope(form=ScopeForm.HOST, name=target.name, ports=ports)
        has_web = self.ports is None or self.ports >= WEB_PORTS
        # A server may redirect from http to https; never wider than the grant.
        is_web = has_web and target.ports is not None and target.ports <= WEB_PORTS
        ports_of_both = WEB_PORTS if is_web else target.ports
        return replace(target, ports=ports_of_both, leads_to=target.leads_to or self.leads_to)

    def contains(self, host: Host) -> bool:
        """Whether the grant covers this host and port."""
        # Port 0 (a host argument without one) is in no set: only a grant of every port covers it.
        if self.ports is not None and host.port not in self.ports:
            return False
        # `0.0.0.0/0` holds private addresses without naming them.
        if host.is_address and not self.reaches(host.name):
            return False
        if self.form is ScopeForm.HOST:
            return host.name == self.name
        if self.form is ScopeForm.BELOW:
            # With the dot: `evilexample.org` must not match `*.example.org`.
            return not host.is_address and host.name.endswith("." + self.name)
        if self.form is ScopeForm.ANY_NAME:
            return not host.is_address and _is_public_name(host.name)
        return self.network is not None and host.is_address and ip_address(host.name) in self.network

    def covers(self, other: "HostScope") -> bool:
        """Whether this scope contains everything that another contains.

        A plain name says nothing about addresses: they are those of this scope, see `narrowed`.
        """
        if self.ports is not None and (other.ports is None or not other.ports <= self.ports):
            return False
        if other.leads_to is not None and not _is_inside(other.leads_to, self.leads_to):
            return False
        if self.form is ScopeForm.ANY_NAME:
            names = (ScopeForm.HOST, ScopeForm.BELOW)
            is_name = other.form in names and not _is_address(other.name) and _is_public_name(other.name)
            return is_name or other.form is ScopeForm.ANY_NAME
        if self.form is ScopeForm.BELOW:
            is_name = other.form is ScopeForm.BELOW or not _is_address(other.name)
            return (
                is_name
                and f".{other.name}".endswith(f".{self.name}")
                and (other.form is ScopeForm.BELOW or other.name != self.name)
            )
        if self.network is not None and other.network is not None:
            return _is_inside(other.network, self.network)
        if other.form is not ScopeForm.HOST or (_is_address(other.name) and not self.reaches(other.name)):
            return False
        if self.network is not None:
            return _is_address(other.name) and ip_address(other.name) in self.network
        return self.form is ScopeForm.HOST and self.name == other.name

    def __str__(self) -> str:
        if self.form is ScopeForm.NOTHING:
            return ""
        prefix = "*." if self.form is ScopeForm.BELOW else ""
        target = _ANY_NAME if self.form is ScopeForm.ANY_NAME else prefix + str(self.network or self.name)
        leads_to = self.leads_to if self.name and not _is_address(self.name) else None
        behind = f"={leads_to}" if leads_to else ""
        if self.ports == WEB_PORTS:
            return (target if self.network else _bracketed(target)) + behind
        port = "*" if self.ports is None else min(self.ports)
        return f"{_bracketed(target)}:{port}{behind}"


_ANY_NAME: Final = "*.*"

_INSIDE: Final = (
    "localhost", "local", "home.arpa", "intranet", "internal", "private", "corp", "home", "lan",
)  # fmt: skip
"""Special-use and internal names (RFC 6761, RFC 6762 appendix G, RFC 8375). Clouds serve instance metadata
under `internal`."""


def _is_public_name(name: str) -> bool:
    """Whether a name may be public; a single label is completed by the resolver's search list."""
    return "." in name and not f".{name}".endswith(tuple(f".{inside}" for inside in _INSIDE))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _read_scope(text: str) -> HostScope:
    if "://" in text:
        raise ValueError("write the host alone, without scheme and path")
    named, equals, led = text.partition("=")
    target, ports = _split_ports(named)
    if equals:
        return _read_name_with_network(target, ports, led)
    if "/" in target:
        network = _read_network(target)
        leads_to = _named_network(network, ports)
        return HostScope(form=ScopeForm.NETWORK, network=network, ports=ports, leads_to=leads_to)
    if target == _ANY_NAME:
        return HostScope(form=ScopeForm.ANY_NAME, ports=ports)
    if "*" not in target:
        host = read_host(target)
        leads_to = _named_network(ip_network(host.name), ports) if host.is_address else None
        return HostScope(form=ScopeForm.HOST, name=host.name, ports=ports, leads_to=leads_to)
    base = read_host(target.removeprefix("*."))
    if base.is_address or "." not in base.name:
        raise ValueError("*. must be followed by a name of at least two parts, such as *.example.org")
    return HostScope(form=ScopeForm.BELOW, name=base.name, ports=ports)


def _read_name_with_network(target: str, ports: frozenset[int] | None, led: str) -> HostScope:
    """`api.corp=10.0.0.0/8`: a name, and the only network that it may lead to."""
    # A wildcard is a name that somebody else may choose: he would choose where it leads, too.
    if "*" in target or "/" in target or (host := read_host(target)).is_address:
        raise ValueError("before = there must be one name, such as api.corp or api.corp:8443")
    network = _read_network(led) if "/" in led else ip_network(read_host(_bracketed(led)).name)
    found = class_of_network(network)
    if found is None:
        raise ValueError("after = there must be a private network, such as 10.0.0.0/8, or an address in one")
    leads_to = _named_network(network, ports)
    if leads_to is None:
        raise ValueError("a name that resolves to loopback needs one port, such as localhost:8080=127.0.0.1")
    return HostScope(form=ScopeForm.HOST, name=host.name, ports=ports, leads_to=leads_to)


def _named_network(network: Network, ports: frozenset[int] | None) -> Network | None:
    """The network, if a scope may name it: private, or loopback with exactly one port.

    Databases, browsers and other people's servers listen at loopback without a password.
    """
    found = class_of_network(network)
    has_one_port = ports is not None and len(ports) == 1
    return None if found is None or (found is AddressClass.LOOPBACK and not has_one_port) else network


def _is_inside(network: Network, other: Network | None) -> bool:
    is_same_kind = other is not None and network.version == other.version
    return is_same_kind and network.subnet_of(other)  # type: ignore[arg-type]  # as compared


def _split_ports(text: str) -> tuple[str, frozenset[int] | None]:
    """Target and ports; an IPv6 target has a port only after brackets."""
    target, colon, port = text.rpartition(":")
    if not colon or text.endswith("]") or (":" in target and not target.endswith("]")):
        return text, WEB_PORTS
    return target, None if port == "*" else frozenset({_read_port(port)})


def _read_network(text: str) -> Network:
    bare = text[1:-1] if ":" in text and text.startswith("[") and text.endswith("]") else text
    if not _NETWORK.fullmatch(bare):
        raise ValueError("a network is an address and a prefix length, such as 10.0.0.0/8 or 2001:db8::/32")
    network = ip_network(bare)
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("IPv4-mapped addresses are read as IPv4; write the IPv4 network")
    return network


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name else name
