"""Which addresses are public; the words tell who set the others aside."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolkeep.network.addresses import non_public_reason


@pytest.mark.parametrize(
    "text",
    ["93.184.216.34", "1.1.1.1", "8.8.8.8", "2606:2800:220:1::34", "2a00:1450:4001::1", "192.31.196.1"],
)
def test_public_addresses_are_public(text: str) -> None:
    assert non_public_reason(text) == ""


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("0.0.0.0", "unspecified"), ("0.1.2.3", "unspecified"), ("10.255.255.255", "private"),  # noqa: S104 -- not bound to
        ("100.64.0.1", "shared by a provider (CGNAT)"), ("100.100.100.200", "a cloud's own service"),
        ("127.0.0.1", "loopback"), ("127.255.0.1", "loopback"), ("168.63.129.16", "a cloud's own service"),
        ("169.254.169.254", "link-local"), ("172.31.255.255", "private"), ("192.0.0.192", "reserved for protocols"),
        ("192.0.2.1", "for documentation"), ("192.88.99.1", "a 6to4 relay"), ("192.168.0.1", "private"),
        ("198.19.255.255", "for benchmarks"), ("198.51.100.1", "for documentation"),
        ("203.0.113.1", "for documentation"), ("224.0.0.1", "multicast"), ("240.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"), ("::", "unspecified"), ("::1", "loopback"),
        ("::93.184.216.34", "an IPv4 address inside IPv6"), ("::ffff:93.184.216.34", "an IPv4 address inside IPv6"),
        ("::ffff:0:93.184.216.34", "an IPv4 address inside IPv6"),
        ("64:ff9b::5db8:d822", "an IPv4 address inside IPv6 (NAT64)"),
        ("64:ff9b:1::5db8:d822", "an IPv4 address inside IPv6 (NAT64)"), ("100::1", "thrown away"),
        ("2001:0:4136:e378::1", "an IPv4 address inside IPv6 (Teredo)"), ("2001:10::1", "reserved for protocols"),
        ("2001:db8::1", "for documentation"), ("2002:5db8:d822::1", "an IPv4 address inside IPv6 (6to4)"),
        ("3fff::1", "for documentation"), ("5f00::1", "reserved for protocols"), ("fd00:ec2::254", "a cloud's own service"), ("fd00::1", "private"),
        ("fe80::1", "link-local"), ("fec0::1", "site-local"), ("ff02::1", "multicast"), ("4000::1", "reserved"),
        ("2606:2800:220:1:0:5efe:a00:5", "an IPv4 address inside IPv6 (ISATAP)"),
        ("2606:2800:220:1:200:5efe:a00:5", "an IPv4 address inside IPv6 (ISATAP)"),
        ("2606:2800:220:1::34%eth0", "bound to a network card"), ("example.org", "no address"), ("", "no address"),
    ],
)  # fmt: skip
def test_what_is_set_aside_is_not(text: str, what: str) -> None:
    assert non_public_reason(text) == what


@pytest.mark.spec("SBX-4")
@given(st.ip_addresses())
def test_what_python_calls_local_is_never_public(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    if not address.is_global or address.is_multicast:
        assert non_public_reason(str(address))
