"""SSRF protection: classifies IP addresses as public, private, loopback or barred.

Input: an address as text, from a resolver or a caller. Output: its class, and what it is instead of public.
IPv4 is public unless reserved. IPv6 is public only inside 2000::/3, and not if it embeds an IPv4 address
(6to4, Teredo, NAT64, ISATAP): who forwards that, and where to, is unknown. Private and loopback addresses
need a grant that names them; no grant names a barred one.

Not protected: public addresses that lead inside (an operator's own NAT64 prefix, a router with hairpin NAT).
"""

from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Network = IPv4Network | IPv6Network


class AddressClass(Enum):
    """Who may contact an address."""

    PUBLIC = "public"
    PRIVATE = "private"
    """A grant must name it."""
    LOOPBACK = "loopback"
    """A grant must name it, with a port."""
    BARRED = "barred"
    """No grant allows it."""


_SET_ASIDE: Final = {
    ip_network(network): what
    for network, what in {
        # Before the private networks that contain them: no grant of those covers a machine's credentials.
        "100.100.100.200/32": "a cloud's own service",  # Alibaba: instance metadata
        "168.63.129.16/32": "a cloud's own service",  # Azure: public by number, reachable in every VM
        "fd00:ec2::/32": "a cloud's own service",  # AWS: metadata, container credentials, DNS
        "fd20:ce::/32": "a cloud's own service",  # Google: instance metadata
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared by a provider (CGNAT)",
        "127.0.0.0/8": "loopback",
        "169.254.0.0/16": "link-local",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved for protocols",
        "192.0.2.0/24": "for documentation",
        "192.88.99.0/24": "a 6to4 relay",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "for benchmarks",
        "198.51.100.0/24": "for documentation",
        "203.0.113.0/24": "for documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
        "::/128": "unspecified",
        "::1/128": "loopback",
        "::/96": "an IPv4 address inside IPv6",
        "::ffff:0:0/96": "an IPv4 address inside IPv6",
        "::ffff:0:0:0/96": "an IPv4 address inside IPv6",
        "64:ff9b::/96": "an IPv4 address inside IPv6 (NAT64)",
        "64:ff9b:1::/48": "an IPv4 address inside IPv6 (NAT64)",
        "100::/64": "thrown away",
        "2001::/32": "an IPv4 address inside IPv6 (Teredo)",
        "2001::/23": "reserved for protocols",
        "2001:db8::/32": "for documentation",
        "2002::/16": "an IPv4 address inside IPv6 (6to4)",
        "3fff::/20": "for documentation",
        "5f00::/16": "reserved for protocols",
        "fc00::/7": "private",
        "fe80::/10": "link-local",
        "fec0::/10": "site-local",
        "ff00::/8": "multicast",
    }.items()
}
"""IANA's special-purpose registries, plus addresses that clouds use for their own services, such as instance
metadata with credentials. The first match gives the description."""

_GRANTABLE: Final = {
    "private": AddressClass.PRIVATE,
    "shared by a provider (CGNAT)": AddressClass.PRIVATE,  # overlay networks number their machines from it
    "loopback": AddressClass.LOOPBACK,
}
"""What a grant can name. An allowlist: what is set aside later is barred until somebody thinks about it."""

_GRANTABLE_NETWORKS: Final = tuple(
    (network, _GRANTABLE[what]) for network, what in _SET_ASIDE.items() if what in _GRANTABLE
)

_GLOBAL_IPV6: Final = ip_network("2000::/3")

_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""Upper half of an interface id that embeds an IPv4 address (RFC 5214 section 6.1)."""


def classify(text: str) -> AddressClass:
    """The class of an address; what is no address is barred."""
    what = non_public_reason(text)
    return _GRANTABLE.get(what, AddressClass.BARRED) if what else AddressClass.PUBLIC


def class_of_network(network: Network) -> AddressClass | None:
    """The class of a network that lies inside one private or loopback network; None for any other.

    `0.0.0.0/0` contains private addresses, but does not name them.
    """
    for known, found in _GRANTABLE_NETWORKS:
        if network.version == known.version and network.subnet_of(known):  # type: ignore[arg-type]  # as compared
            return found
    return None


def barred_reason(network: Network) -> str:
    """What a network is that no grant can name; empty if it, or a part of it, can be granted."""
    for known, what in _SET_ASIDE.items():
        if network.version == known.version and network.subnet_of(known):  # type: ignore[arg-type]  # as compared
            return "" if what in _GRANTABLE else what
    return ""


def non_public_reason(text: str) -> str:
    """What an address is instead of public; empty if it is public."""
    # A zone id (fe80::1%eth0) names a network interface of this machine.
    if "%" in text:
        return "bound to a network card"
    try:
        address = ip_address(text)
    except ValueError:
        return "no address"
    # Any prefix can carry an ISATAP interface id, a private one too, and a router may tunnel it to the
    # embedded IPv4 address.
    if isinstance(address, IPv6Address) and (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return "an IPv4 address inside IPv6 (ISATAP)"
    # Our own table first: it has a description for the operator, and entries that `is_global` lacks.
    for network, what in _SET_ASIDE.items():
        if address in network:
            return what
    if isinstance(address, IPv4Address):
        # The table above is ours, so that a Python release cannot shrink it; `is_global` adds what IANA
        # reserved since.
        return "" if address.is_global else "reserved"
    # An allowlist of one prefix: IANA hands out global unicast from 2000::/3 only, so anything else is
    # internal.
    return "" if address in _GLOBAL_IPV6 and address.is_global else "reserved"
