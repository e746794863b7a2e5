import importlib
import importlib.util
import ipaddress
import re
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolkeep.network.addresses import AddressClass, classify
from toolkeep.network.hosts import WEB_PORTS, Host, HostRefused, HostScope, ScopeForm, read_host, read_url

pytestmark = pytest.mark.spec("POL-1")

REFUSED = None

URLS: list[tuple[str, str | None]] = [
    # plain names and ports
    ("http://example.org", "example.org"),
    ("https://example.org/", "example.org"),
    ("ws://example.org/chat", "example.org"),
    ("wss://example.org/chat", "example.org"),
    ("HTTPS://EXAMPLE.ORG/Path", "example.org"),
    ("https://example.org:443/", "example.org"),
    ("http://example.org:443/", "example.org:443"),
    ("https://example.org:80/", "example.org:80"),
    ("https://example.org:65535/", "example.org:65535"),
    ("https://localhost:8443/", "localhost:8443"),
    ("https://my_service/", "my_service"),
    ("https://r1---sn.example.org/", "r1---sn.example.org"),
    ("https://1.example.org/", "1.example.org"),
    ("https://0x7f.example.org/", "0x7f.example.org"),
    ("https://0x7g/", "0x7g"),
    ("https://example.org./", "example.org"),
    # what stands behind the first slash says nothing about the host
    ("https://example.org/@other.net", "example.org"),
    ("https://example.org/a?b=c@other.net#d@e", "example.org"),
    ("https://example.org//other.net/", "example.org"),
    ("https://example.org/%20%5C", "example.org"),
    ("https://example.org/weg/größe", "example.org"),
    ("https://example.org/:8443", "example.org"),
    # user names and passwords
    ("https://user@example.org/", REFUSED),
    ("https://:@example.org/", REFUSED),
    ("https://a:b@example.org/", REFUSED),
    ("https://a@b@example.org/", REFUSED),
    ("https://example.org:80@other.net/", REFUSED),
    ("https://@example.org/", REFUSED),
    ("https://example.org:443:@other.net/", REFUSED),
    # a host behind ? or #
    ("https://example.org#@other.net/", REFUSED),
    ("https://example.org?@other.net/", REFUSED),
    ("https://example.org#.other.net/", REFUSED),
    ("https://example.org?q=1", REFUSED),
    ("https://?example.org/", REFUSED),
    # backslashes, spaces, controls, characters that do not show
    ("https://example.org\\@other.net/", REFUSED),
    ("https:\\\\example.org/", REFUSED),
    ("https://example.org/a\\b", REFUSED),
    (" https://example.org/", REFUSED),
    ("https://example.org/ ", REFUSED),
    ("https://example.org/a b", REFUSED),
    ("https://exam\tple.org/", REFUSED),
    ("https://example.org/\r\nHost: other.net", REFUSED),
    ("ht\ntps://example.org/", REFUSED),
    ("https://example.org\x00.other.net/", REFUSED),
    ("https://example.org/\x7f", REFUSED),
    ("https://example.org\u00a0/", REFUSED),
    ("https://exa\u200bmple.org/", REFUSED),
    ("https://exa\u00admple.org/", REFUSED),
    ("https://example.org/\u202egro.live", REFUSED),
    ("https://example.org/\ud800", REFUSED),
    # no scheme, another scheme, no slashes, no host
    ("", REFUSED),
    ("example.org", REFUSED),
    ("//example.org/", REFUSED),
    ("http:example.org", REFUSED),
    ("http:/example.org", REFUSED),
    ("http:///example.org", REFUSED),
    ("http://", REFUSED),
    ("http://:80/", REFUSED),
    ("http://./", REFUSED),
    ("ftp://example.org/", REFUSED),
    ("file://example.org/etc/passwd", REFUSED),
    ("javascript://example.org/", REFUSED),
    ("view-source:http://example.org/", REFUSED),
    ("httpſ://example.org/", REFUSED),
    # ports
    ("http://example.org:/", REFUSED),
    ("http://example.org:0/", REFUSED),
    ("http://example.org:65536/", REFUSED),
    ("http://example.org:65616/", REFUSED),
    ("http://example.org:+80/", REFUSED),
    ("http://example.org:-80/", REFUSED),
    ("http://example.org:080/", REFUSED),
    ("http://example.org:8_0/", REFUSED),
    ("http://example.org:０/", REFUSED),
    ("http://example.org:８０/", REFUSED),
    ("http://example.org:٨٠/", REFUSED),
    ("http://example.org:80:90/", REFUSED),
    ("http://example.org:80.other.net/", REFUSED),
    # labels
    ("http://example..org/", REFUSED),
    ("http://.example.org/", REFUSED),
    ("http://example.org../", REFUSED),
    ("http://-oProxyCommand=x/", REFUSED),
    ("http://-example.org/", REFUSED),
    ("http://example-.org/", REFUSED),
    ("http://exam%70le.org/", REFUSED),
    ("http://example.org%2f.other.net/", REFUSED),
    ("http://exa!mple.org/", REFUSED),
    ("http://exa,mple.org/", REFUSED),
    ("http://*.example.org/", REFUSED),
    ("http://{host}/", REFUSED),
    (f"http://{'a' * 63}.org/", f"{'a' * 63}.org"),
    (f"http://{'a' * 64}.org/", REFUSED),
    (f"http://{'a.' * 126}b/", f"{'a.' * 126}b"),
    (f"http://{'a.' * 127}b/", REFUSED),
    (f"http://{'ü' * 100_000}/", REFUSED),
    # international names
    ("http://bücher.example/", "xn--bcher-kva.example"),
    ("http://BÜCHER.Example/", "xn--bcher-kva.example"),
    ("http://bücher.example./", "xn--bcher-kva.example"),
    ("http://xn--bcher-kva.example/", "xn--bcher-kva.example"),
    ("http://XN--BCHER-KVA.example/", "xn--bcher-kva.example"),
    ("http://пример.example/", "xn--e1afmkfd.example"),
    ("http://例え.example/", "xn--r8jz45g.example"),
    ("http://xn--fa-hia.example/", "xn--fa-hia.example"),
    ("http://faß.example/", REFUSED),  # fass.example to IDNA 2003
    ("http://βόλος.example/", REFUSED),  # final sigma, the same
    ("http://bu\u0308cher.example/", REFUSED),
    ("http://ｅxample.org/", REFUSED),
    ("http://example．org/", REFUSED),
    ("http://example。org/", REFUSED),
    ("http://example.org／@other.net/", REFUSED),
    ("http://exa℀mple.org/", REFUSED),
    ("http://example.org＃.other.net/", REFUSED),
    ("http://example.org：80/", REFUSED),
    ("http://ⓔxample.org/", REFUSED),
    ("http://１２７.0.0.1/", REFUSED),
    ("http://☃.example/", REFUSED),
    ("http://xn--n3h.example/", REFUSED),
    ("http://xn--a.example/", REFUSED),
    ("http://xn--.example/", REFUSED),
    ("http://xn--bbk.example/", "xn--bbk.example"),
    ("http://xn---bbk.example/", REFUSED),  # the same letter, spelled otherwise
    ("http://xn--example-.org/", REFUSED),
    ("http://xn--bcher-kvA\u0301.example/", REFUSED),
    # IPv4
    ("http://127.0.0.1/", "127.0.0.1"),
    ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
    ("http://127.1/", "127.0.0.1"),
    ("http://127.0.1/", "127.0.0.1"),
    ("http://2130706433/", "127.0.0.1"),
    ("http://0x7f.1/", "127.0.0.1"),
    ("http://0X7F000001/", "127.0.0.1"),
    ("http://1/", "0.0.0.1"),
    ("http://4294967295/", "255.255.255.255"),
    ("http://0177.0.0.1/", REFUSED),
    ("http://127.0.0.01/", REFUSED),
    ("http://127.0.0.08/", REFUSED),
    ("http://00/", REFUSED),
    ("http://127.0.0.1./", REFUSED),
    ("http://127.0.0.256/", REFUSED),
    ("http://256.1/", REFUSED),
    ("http://4294967296/", REFUSED),
    ("http://18446744073709551617/", REFUSED),
    ("http://1.2.3.4.5/", REFUSED),
    ("http://example.org.1/", REFUSED),
    ("http://example.0x/", REFUSED),
    ("http://0x/", REFUSED),
    # IPv6
    ("http://[::1]/", "::1"),
    ("http://[::1]:8443/", "[::1]:8443"),
    ("http://[2001:DB8:0:0:0:0:0:1]/", "2001:db8::1"),
    ("http://[2001:db8:0:1:1:1:1:1]/", "2001:db8:0:1:1:1:1:1"),
    ("http://[::ffff:127.0.0.1]/", "127.0.0.1"),
    ("http://[::FFFF:7f00:1]/", "127.0.0.1"),
    ("http://[64:ff9b::7f00:1]/", "64:ff9b::7f00:1"),
    ("http://[2002:7f00:1::]/", "2002:7f00:1::"),
    ("http://[::127.0.0.1]/", "::7f00:1"),
    ("http://[fe80::1%25eth0]/", REFUSED),
    ("http://[fe80::1%eth0]/", REFUSED),
    ("http://[::ffff:0127.0.0.1]/", REFUSED),
    ("http://[127.0.0.1]/", REFUSED),
    ("http://[v1.a]/", REFUSED),
    ("http://[]/", REFUSED),
    ("http://[::1/", REFUSED),
    ("http://::1/", REFUSED),
    ("http://[::1]example.org/", REFUSED),
    ("http://example.org[::1]/", REFUSED),
    ("http://[[::1]]/", REFUSED),
    ("http://[:::1]/", REFUSED),
]


def canonical(read: Callable[[str], Host], text: str) -> str | None:
    try:
        return str(read(text))
    except HostRefused as refused:
        assert refused.reason == str(refused)
        assert refused.reason.isprintable()
        return REFUSED


@pytest.mark.parametrize(("text", "expected"), URLS, ids=[ascii(text)[:60] for text, _ in URLS])
def test_a_url_names_one_canonical_host_or_is_refused(text: str, expected: str | None) -> None:
    assert canonical(read_url, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("example.org", Host("example.org", 0, "", is_address=False)),
        ("Example.ORG.", Host("example.org", 0, "", is_address=False)),
        ("example.org:443", Host("example.org", 443, "", is_address=False)),
        ("bücher.example:22", Host("xn--bcher-kva.example", 22, "", is_address=False)),
        ("127.1:22", Host("127.0.0.1", 22, "", is_address=True)),
        ("[::1]", Host("::1", 0, "", is_address=True)),
        ("[::1]:22", Host("::1", 22, "", is_address=True)),
        ("[::ffff:10.0.0.1]:22", Host("10.0.0.1", 22, "", is_address=True)),
    ],
)
def test_a_host_argument_is_read_whole(text: str, expected: Host) -> None:
    assert read_host(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", ":22", "::1", "::1:22", "[::1", "example.org:", "example.org:0", "example.org/", "//example.org",
     "https://example.org", "user@example.org", "-oProxyCommand", "a b", "a\n", "example.org#", "example.org?x",
     "example.org,other.net", "*.example.org", "10.0.0.0/8", "%31"],
)  # fmt: skip
def test_a_host_argument_that_is_more_or_less_than_a_host_is_refused(text: str) -> None:
    assert canonical(read_host, text) is REFUSED


def test_a_url_always_has_a_port() -> None:
    assert read_url("wss://example.org/") == Host("example.org", 443, "wss", is_address=False)


def test_a_port_of_a_host_argument_is_shown_whatever_it_is() -> None:
    assert [str(read_host(text)) for text in ("a:80", "[::1]:443", "[::1]")] == ["a:80", "[::1]:443", "::1"]


def test_a_refusal_holds_no_password() -> None:
    for text in (
        "https://me:hunter2@example.org/",
        "https://me:hunter2@[/",
        "https://me:hunter2\\@example.org",
    ):
        with pytest.raises(HostRefused) as caught:
            read_url(text)
        assert "hunter2" not in caught.value.reason


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("https://exam%70le.org/", '"exam%70le"'),
        ("https://example..org/", '"example..org" has an empty part'),
        ("https:///example.org", "no host"),
        ("https://example.org?q=1", "a / must stand between the host and ?"),
        ("https://::1/", "several colons"),
        ("https://example.org[::1]/", "brackets"),
        ("https://[::1]example.org/", "brackets"),
        (f"https://{'ü' * 254}/", "longer than 253"),
        ("https://exa．mple/", "xn-- form"),
        ("https://1.2.3.256/", '"1.2.3.256"'),
        ("https://example.org:99999/", '"99999"'),
    ],
)
def test_a_refusal_shows_what_is_at_fault(text: str, words: str) -> None:
    with pytest.raises(HostRefused) as caught:
        read_url(text)
    assert words in caught.value.reason


def test_a_url_where_a_host_is_wanted_is_named_as_such() -> None:
    with pytest.raises(HostRefused, match="without scheme or path"):
        read_host("https://example.org/")
    with pytest.raises(ValueError, match="without scheme and path"):
        HostScope.read("https://example.org/")


SCOPES: list[tuple[str, list[str], list[str]]] = [
    (
        "example.org",
        ["http://example.org/", "https://EXAMPLE.org./", "wss://example.org/", "http://example.org:443/"],
        ["https://example.org:8443/", "https://www.example.org/", "https://badexample.org/", "https://org/"],
    ),
    ("Example.org.", ["https://example.org/"], ["https://example.org.other.net/"]),
    ("example.org:8443", ["https://example.org:8443/"], ["https://example.org/", "http://example.org/"]),
    ("example.org:443", ["https://example.org/"], ["http://example.org/"]),
    ("example.org:*", ["https://example.org/", "http://example.org:22/"], ["https://www.example.org/"]),
    (
        "*.example.org",
        ["https://www.example.org/", "https://a.b.example.org/"],
        ["https://example.org/", "https://badexample.org/", "https://www.example.org:8443/", "http://1.2.3.4/"],
    ),
    ("*.example.org:8443", ["https://a.example.org:8443/"], ["https://a.example.org/", "https://example.org:8443/"]),
    ("bücher.example", ["https://xn--bcher-kva.example/"], ["https://bucher.example/"]),
    ("*.bücher.example", ["https://a.xn--bcher-kva.example/"], ["https://xn--bcher-kva.example/"]),
    ("localhost:*", ["http://localhost:1/"], ["http://127.0.0.1:1/"]),
    (
        "127.0.0.1:80",
        ["http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://[::ffff:7f00:1]/"],
        ["http://127.0.0.2/", "http://localhost/", "http://127.0.0.1:8080/"],
    ),
    (
        "10.0.0.0/8",
        ["http://10.0.0.1/", "https://10.255.255.255/", "http://0xa.1/", "http://[::ffff:10.0.0.1]/"],
        ["http://11.0.0.1/", "http://10.example.org/", "http://10.0.0.1:8080/", "http://[::a00:1]/"],
    ),
    ("10.0.0.0/8:8080", ["http://10.0.0.1:8080/"], ["http://10.0.0.1/"]),
    (
        "2A00:DB8::/32",
        ["http://[2a00:db8::1]/"],
        ["http://[2a00:db9::1]/", "http://10.0.0.1/", "http://[2a00:db8::1]:8443/"],
    ),
    ("[2a00:db8::/32]:8443", ["http://[2a00:db8::1]:8443/"], ["http://[2a00:db8::1]/"]),
    ("[2a00:db8::/32]:*", ["http://[2a00:db8::1]:1/"], ["http://[2a00:db9::1]:1/"]),
    ("::/0", ["http://[2a00:db8::1]/"], ["http://10.0.0.1/", "http://[::ffff:10.0.0.1]/", "http://example.org/"]),
    ("[::1]:80", ["http://[0:0::1]/"], ["http://[::2]/"]),
    # loopback without one port; networks that hold private addresses without naming them; what is barred
    ("127.0.0.1", [], ["http://127.0.0.1/"]),
    ("127.0.0.0/8:*", [], ["http://127.0.0.1/"]),
    ("0.0.0.0/0:*", ["http://93.184.216.34/"], ["http://10.0.0.1/", "http://127.0.0.1/", "http://169.254.169.254/"]),
    ("10.0.0.0/7", ["http://11.0.0.1/"], ["http://10.0.0.1/"]),
    ("fd00::/8", ["http://[fd00::1]/"], ["http://[fd00:ec2::254]/", "http://[fd00::5efe:a9fe:a9fe]/"]),
    ("100.64.0.0/10", ["http://100.64.0.1/"], ["http://100.100.100.200/"]),
    ("169.254.169.254", [], ["http://169.254.169.254/"]),
    ("168.63.129.16", [], ["http://168.63.129.16/"]),
    # where a name may lead says nothing about the name
    ("api.corp=10.0.0.0/8", ["http://api.corp/"], ["http://a.api.corp/", "http://10.0.0.1/", "http://api.corp:81/"]),
    ("api.corp:81=fd00::/8", ["http://api.corp:81/"], ["http://api.corp/"]),
    ("[::1]:8443", ["http://[::1]:8443/"], ["http://[::1]/"]),
    (
        "*.*",
        ["https://example.org/", "http://a.b.example.org/", "https://xn--bcher-kva.example/", "http://localhost.com/"],
        ["https://example.org:8443/", "http://localhost/", "http://intranet/", "http://93.184.216.34/",
         "http://127.0.0.1/", "http://169.254.169.254/", "http://[::1]/", "http://[fd00:ec2::254]/", "http://2130706433/",
         "http://metadata.google.internal/", "http://a.localhost/", "http://printer.local./", "http://nas.home.arpa/",
         "http://A.CORP/", "http://x.lan/"],
    ),
    ("*.*:8443", ["https://example.org:8443/"], ["https://example.org/", "https://a.internal:8443/"]),
    ("*.*:*", ["https://example.org:22/", "http://example.org/"], ["http://10.0.0.1:22/", "http://localhost:22/"]),
    ("", [], ["http://example.org/", "http://10.0.0.1/"]),
    ("*", [], ["http://example.org/", "http://10.0.0.1/"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "inside", "outside"), SCOPES, ids=[ascii(text) for text, _, _ in SCOPES])
def test_a_scope_contains_what_it_names_and_nothing_else(
    text: str, inside: list[str], outside: list[str]
) -> None:
    scope = HostScope.read(text)
    assert [url for url in inside if not scope.contains(read_url(url))] == []
    assert [url for url in outside if scope.contains(read_url(url))] == []


@pytest.mark.parametrize("text", [text for text, _, _ in SCOPES])
def test_a_scope_reads_back_from_its_text(text: str) -> None:
    scope = HostScope.read(text)
    assert HostScope.read(str(scope)) == scope


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("EXAMPLE.org.", "example.org"),
        ("[2001:DB8:0::/32]:*", "[2001:db8::/32]:*"),
        ("[0::1]", "[::1]"),
        ("*", ""),
    ],
)
def test_the_text_of_a_scope_is_canonical(text: str, expected: str) -> None:
    assert str(HostScope.read(text)) == expected


COVERED = [
    ("*.*", "example.org", True),
    ("*.*", "*.example.org", True),
    ("*.*", "*.*", True),
    ("*.*:*", "*.*:22", True),
    ("*.*", "*.*:22", False),
    ("*.*", "example.org:*", False),
    ("*.*", "localhost", False),
    ("*.*", "metadata.google.internal", False),
    ("*.*", "*.google.internal", False),
    ("*.*", "127.0.0.1", False),
    ("*.*", "[2001:db8::7]", False),
    ("*.*", "0.0.0.0/0", False),
    ("*.*", "*", False),
    ("*.example.org", "*.*", False),
    ("example.org", "*.*", False),
    ("0.0.0.0/0", "*.*", False),
    ("*", "*.*", False),
]


@pytest.mark.parametrize(("text", "other", "is_covered"), COVERED)
def test_any_name_covers_names_and_is_covered_by_itself_alone(
    text: str, other: str, is_covered: bool
) -> None:
    assert HostScope.read(text).covers(HostScope.read(other)) is is_covered


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("127.0.0.1", "needs one port"), ("127.0.0.0/8", "needs one port"), ("127.0.0.1:*", "needs one port"),
        ("[::1]", "needs one port"), ("localhost=127.0.0.1", "needs one port"), ("localhost:*=::1", "needs one port"),
        ("169.254.169.254:80", "is link-local"), ("2852039166", "is link-local"), ("169.254.0.0/16", "is link-local"),
        ("[::ffff:169.254.169.254]", "is link-local"), ("100.100.100.200", "is a cloud's own service"),
        ("168.63.129.16", "is a cloud's own service"), ("[fd00:ec2::254]", "is a cloud's own service"),
        ("[64:ff9b::a9fe:a9fe]", "(NAT64)"), ("[2002:a9fe:a9fe::]", "(6to4)"), ("0.0.0.0", "is unspecified"),  # noqa: S104 -- not bound to
        ("*.corp.example=10.0.0.0/8", "must be one name"), ("*.*=10.0.0.0/8", "must be one name"),
        ("10.0.0.1=10.0.0.0/8", "must be one name"), ("api.corp=0.0.0.0/0", "must be a private network"),
        ("api.corp=10.0.0.0/7", "must be a private network"), ("api.corp=93.184.216.34", "must be a private network"),
        ("api.corp=169.254.0.0/16", "must be a private network"), ("api.corp=", "it has no host"),
        ("api.corp=fd00::/8=::1", "is not the scope"),
    ],
)  # fmt: skip
def test_a_grant_that_could_allow_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        HostScope.read_grant(text)


@pytest.mark.parametrize(
    ("grant", "named", "leads_to"),
    [
        ("api.corp=10.0.0.0/8", "api.corp", "10.0.0.0/8"),
        ("api.corp=10.0.0.0/8", "api.corp=10.1.0.0/16", "10.1.0.0/16"),
        ("10.0.0.0/8", "10.1.2.3", "10.1.2.3/32"),
        ("*.corp.example", "api.corp.example", None),
    ],
)
def test_a_narrowed_grant_keeps_the_addresses_of_the_grant(
    grant: str, named: str, leads_to: str | None
) -> None:
    held, wanted = HostScope.read(grant), HostScope.read(named)
    assert held.covers(wanted)
    assert held.narrowed(wanted).leads_to == (leads_to and ipaddress.ip_network(leads_to))


@pytest.mark.parametrize(
    ("grant", "named"),
    [
        ("api.corp", "api.corp=10.0.0.0/8"),
        ("api.corp=10.1.0.0/16", "api.corp=10.0.0.0/8"),
        ("0.0.0.0/0", "10.1.2.3"),
        ("0.0.0.0/0", "10.0.0.0/8"),
        ("0.0.0.0/0:*", "169.254.169.254"),
        ("*.corp.example", "api.corp.example=10.0.0.0/8"),
    ],
)
def test_a_grant_covers_no_private_address_that_it_does_not_name(grant: str, named: str) -> None:
    assert not HostScope.read(grant).covers(HostScope.read(named))


def test_a_narrowed_grant_has_no_port_that_the_grant_lacks() -> None:
    narrowed = HostScope.read("example.org:443").narrowed(read_url("https://example.org/"))
    assert narrowed.ports == frozenset({443})
    assert HostScope.read("example.org").narrowed(read_url("https://example.org/")).ports == WEB_PORTS


def test_a_host_argument_without_a_port_needs_a_grant_of_every_port() -> None:
    scopes = ["example.org", "example.org:443", "example.org:*"]
    host = read_host("example.org")
    assert [HostScope.read(scope).contains(host) for scope in scopes] == [False, False, True]


def test_an_address_is_never_below_a_wildcard() -> None:
    scope = HostScope(form=ScopeForm.BELOW, name="0.1")
    assert not scope.contains(read_url("http://127.0.0.1/"))


@pytest.mark.parametrize(
    "text",
    ["*.com", "*.", "*.org.", "**.example.org", "a.*.example.org", "*example.org", "example.*", "*:443", "*.*.org", "*.*.*", "**", "*.*/8",
     "*.10.0.0.1", "*.0.1", "*.[::1]", "https://example.org", "example.org/path", "example.org/", "user@example.org",
     "example.org:0", "example.org:", "example.org:https", "example.org:80-90", ":443", "example..org", " example.org",
     "example.org\n", "exam\tple.org", "10.0.0.1/8", "10.0.0.0/33", "10.0.0.0/255.0.0.0", "10.0.0.0/08", "10.0.0/8",
     "10.0.0.0/", "[10.0.0.0/8]:80", "2001:db8::1", "2001:db8::1/32", "2001:db8::/32:443", "[2001:db8::/32", "::1",
     "::ffff:10.0.0.0/104", "::ffff:0:0/96", "fe80::%eth0/64", "faß.example", "0177.0.0.1", "example.org,other.net"],
)  # fmt: skip
def test_a_scope_that_is_not_plain_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^\".*\" is not the scope of a network grant: ."):
        HostScope.read(text)


# What other programs make of the URLs that are let through.

Seen = tuple[str, int | None]


def seen_by_urllib(url: str) -> Seen:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port


def seen_by_httpx(url: str) -> Seen:
    seen: Any = importlib.import_module("httpx").URL(url)
    return seen.raw_host.decode(), seen.port


def seen_by_yarl(url: str) -> Seen:
    seen: Any = importlib.import_module("yarl").URL(url)
    return seen.raw_host, seen.port


def seen_by_urllib3(url: str) -> Seen:
    seen: Any = importlib.import_module("urllib3.util").parse_url(url)
    return seen.host, seen.port


def seen_by_ada_url(url: str) -> Seen:
    seen: Any = importlib.import_module("ada_url").URL(url)
    return seen.hostname, int(seen.port) if seen.port else None


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


OTHERS = [seen_by_urllib] + [
    reader
    for reader in (seen_by_httpx, seen_by_yarl, seen_by_urllib3, seen_by_ada_url)
    if is_installed(reader.__name__.removeprefix("seen_by_"))
]

DEFAULTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def numeric(name: str) -> str | None:
    """The address that a socket would dial for this text without asking DNS."""
    try:
        found = socket.getaddrinfo(name, None, flags=socket.AI_NUMERICHOST)[0][4][0]
    except (socket.gaierror, UnicodeError):
        return None
    address = ipaddress.ip_address(found)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def dialed(name: str) -> str:
    """That address, else the name that a socket would ask DNS for."""
    bare = name.removeprefix("[").removesuffix("]")
    return numeric(bare) or bare.removesuffix(".").encode("idna").decode().lower()


def assert_others_agree(url: str) -> None:
    try:
        host = read_url(url)
    except HostRefused:
        return
    for reader in OTHERS:
        name, port = reader(url)
        seen = (dialed(name), port or DEFAULTS[host.scheme])
        assert seen == (host.name, host.port), f"{reader.__name__} reads {url!a} otherwise"
    assert dialed(host.name) == host.name
    assert (numeric(host.name) is not None) == host.is_address


@pytest.mark.parametrize("url", [url for url, expected in URLS if expected is not None])
def test_other_parsers_see_the_same_host_and_port(url: str) -> None:
    assert_others_agree(url)


PIECES = [
    "example", "org", "a", "xn--bcher-kva", "xn--", "bücher", "faß", "ς", "İ", "K", "ſ", "例え", "١", "８", "℀", "．", "。",
    "／", "＠", "：", "＃", "\u00ad", "\u200d", "\u0308", "127", "0x7f", "0", "00", "08", "256", "4294967295", "1", "443", "80", "65536",
    "::1", "::ffff:", "fe80::1", "%25eth0", "%2e", "%40", "%", "[", "]", ".", "..", "-", "_", "~", "!", "*", ",", ";", "=", "&",
    "(", "'", "\"", "<", "|", "^", "{", "@", ":", "/", "//", "\\", "?", "#", " ", "\t", "\r\n", "\x00", "\x1f", "\x7f", "\u2028", "\ud800",
]  # fmt: skip
NASTY = st.lists(st.sampled_from(PIECES) | st.characters(), max_size=8).map("".join)
NUMBERS = st.lists(
    st.sampled_from(
        ["0", "1", "127", "255", "256", "0x7f", "0xff", "0x", "0177", "65535", "16777216", "a", ""]
    )
    | st.integers(0, 2**33).map(str)
    | st.integers(0, 2**33).map(hex),
    min_size=1,
    max_size=5,
).map(".".join)
IPV6 = st.ip_addresses(v=6).map(lambda address: f"[{address.exploded}]")
LETTERS = st.text(st.characters(categories=["L", "M", "N", "Pd"]), min_size=1, max_size=6)
NAMES = st.lists(LETTERS | st.sampled_from(PIECES), min_size=1, max_size=4).map(".".join)
PORTS = st.sampled_from(["", "", ":", ":80", ":443", ":8443", ":0", ":080", ":+80", ":65536"])
TAILS = st.sampled_from(["", "/", "/@a", "/?b", "?", "#", "/\\", "/["]) | NASTY


@settings(max_examples=600, deadline=None)
@given(
    scheme=st.sampled_from(["http", "https", "ws", "wss", "HTTP"]),
    host=NASTY | NUMBERS | IPV6 | NAMES,
    port=PORTS,
    tail=TAILS,
)
def test_no_url_is_let_through_that_another_parser_reads_otherwise(
    scheme: str, host: str, port: str, tail: str
) -> None:
    assert_others_agree(f"{scheme}://{host}{port}{tail}")


@settings(max_examples=400, deadline=None)
@given(NASTY | NUMBERS | IPV6 | NAMES)
def test_any_text_gives_a_host_or_a_refusal_and_the_host_is_a_fixed_point(text: str) -> None:
    try:
        host = read_host(text)
    except HostRefused as refused:
        assert refused.reason.isprintable()
        return
    again = f"[{host.name}]" if ":" in host.name else host.name
    assert read_host(again) == Host(host.name, 0, "", host.is_address)
    is_public = not host.is_address or classify(host.name) is AddressClass.PUBLIC
    assert HostScope.read(f"{again}:*").contains(host) or not is_public
