"""SSRF protection: classifies IP addresses; only public internet addresses may be contacted.

Input: an address as text, from a resolver or a caller. Output: what it is instead of public, or nothing. IPv4
is public unless reserved. IPv6 is public only inside 2000::/3, and not if it embeds an IPv4 address (6to4,
Teredo, NAT64, ISATAP): who forwards that, and where to, is unknown.

Not protected: public addresses that lead inside (an operator's own NAT64 prefix, a router with hairpin NAT).
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Final

_SET_ASIDE: Final = {
    ip_network(network): what
    for network, what in {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared by a provider (CGNAT)",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "a cloud's own service",  # Azure: public by number, reachable in every VM
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

_GLOBAL_IPV6: Final = ip_network("2000::/3")

_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""Upper half of an interface id that embeds an IPv4 address (RFC 5214 section 6.1)."""


def non_public_reason(text: str) -> str:
    """What an address is instead of public; empty if it is public."""
    # A zone id (fe80::1%eth0) names a network interface of this machine.
    if "%" in text:
        return "bound to a network card"
    try:
        address = ip_address(text)
    except ValueError:
        return "no address"
    # Our own table first: it has a description for the operator, and entries that `is_global` lacks.
    for network, what in _SET_ASIDE.items():
        if address in network:
            return what
    if isinstance(address, IPv4Address):
        # The table above is ours, so that a Python release cannot shrink it; `is_global` adds what IANA
        # reserved since.
        return "" if address.is_global else "reserved"
    return _wrong_with_ipv6(address)


def _wrong_with_ipv6(address: IPv6Address) -> str:
    # An allowlist of one prefix: IANA hands out global unicast from 2000::/3 only, so anything else is
    # internal.
    if address not in _GLOBAL_IPV6 or not address.is_global:
        return "reserved"
    # Any global prefix can carry an ISATAP interface id, and a router may tunnel it to the embedded IPv4
    # address.
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return "an IPv4 address inside IPv6 (ISATAP)"
    return ""
