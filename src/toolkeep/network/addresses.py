"""Whether an address is one of the public internet: everything else may be the host's own surroundings.

Comes in: the text of an address as a resolver gave it or a caller wrote it. Goes out: what it is instead of
public, or nothing. IPv4 is public unless it is set aside; IPv6 only inside 2000::/3, and not where it carries
an IPv4 address on, for who forwards that is unknown.
Not protected against: public addresses that lead inside (a NAT64 prefix of the operator's own, a router that
sends its outer address back in).
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
        "168.63.129.16/32": "a cloud's own service",  # of Azure: public by number, and inside every machine
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
"""What IANA's special-purpose registries set aside, and what clouds keep for themselves. The first that
holds an address gives it its word."""

_GLOBAL_IPV6: Final = ip_network("2000::/3")

_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""The upper half of an interface id that carries an IPv4 address (RFC 5214 section 6.1)."""


def not_public(text: str) -> str:
    """What an address is instead of public; empty where it is public."""
    if "%" in text:
        return "bound to a network card"
    try:
        address = ip_address(text)
    except ValueError:
        return "no address"
    for network, what in _SET_ASIDE.items():
        if address in network:
            return what
    if isinstance(address, IPv4Address):
        return "" if address.is_global else "reserved"
    return _wrong_with_ipv6(address)


def _wrong_with_ipv6(address: IPv6Address) -> str:
    if address not in _GLOBAL_IPV6 or not address.is_global:
        return "reserved"
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return "an IPv4 address inside IPv6 (ISATAP)"
    return ""
