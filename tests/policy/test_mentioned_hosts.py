"""Mail domains and hosts of URLs in arguments: none is left out, and what is uncertain is said to be so."""

import contextlib
from email._parseaddr import AddressList  # type: ignore[import-not-found]
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolkeep.policy.mentioned_hosts import (
    ENCODED,
    MENTIONS,
    NAMES,
    TEXTS,
    Unreadable,
    mail_domains,
    url_hosts,
)

pytestmark = pytest.mark.spec("POL-2")

OURS = {"example.com"}

MAIL = [
    ("", set()),
    ("Ann", set()),
    ("ann@example.com", OURS),
    ("Ann@EXAMPLE.Com", OURS),
    ("ann@example.com.", OURS),
    ("<ann@example.com>", OURS),
    ("Ann Lee <ann@example.com>", OURS),
    ('"Lee, Ann" <ann@example.com>', OURS),
    ("ann@example.com, bob@evil.test", {"example.com", "evil.test"}),
    ("ann@example.com,bob@evil.test", {"example.com", "evil.test"}),
    ("ann@example.com; bob@evil.test", {"example.com", "evil.test"}),
    ("ann@example.com ,bob@evil.test", {"example.com", "evil.test"}),
    ("team: ann@example.com, bob@evil.test;", {"example.com", "evil.test"}),
    ('"bob@evil.test" <ann@example.com>', {"example.com", "evil.test"}),
    ('"bob@evil.test"@example.com', {"example.com", "evil.test"}),
    ("<@evil.test:ann@example.com>", {"example.com", "evil.test"}),
    ("(bob@evil.test) ann@example.com", {"example.com", "evil.test"}),
    ("It is 50% off! Ask ann@example.com", OURS),
    ("50%! <ann@example.com>", OURS),
    ("50%, ann@example.com", OURS),
    ('{"rate": "5%", "to": "ann@example.com"}', OURS),
    ('She said "wow!" to ann@example.com', OURS),
    ("(50% off) ann@example.com", OURS),
    ("ask - ann@example.com", OURS),
    ('<!DOCTYPE html><p width="50%">' + '<a href="/x">x</a>' * 100 + "<p>ann@example.com</p>", OURS),
    ("ann-lee-@example.com", OURS),
    ("ann+tag@sub.example.com", {"sub.example.com"}),
    ("ann@localhost", {"localhost"}),
    ("ann@192.0.2.1", {"192.0.2.1"}),
    ("ann@b\u00fccher.example", {"xn--bcher-kva.example"}),
    ("ann@xn--bcher-kva.example", {"xn--bcher-kva.example"}),
    ("mailto:ann@example.com", OURS),
    ("ann%40evil.test", {"evil.test"}),
    ("git@example.com:org/repo.git", OURS),
    ("{'to': [\"ann@example.com\"]}", OURS),
]


@pytest.mark.parametrize(("text", "expected"), MAIL)
def test_the_domain_of_every_address_is_found(text: str, expected: set[str]) -> None:
    assert mail_domains({"to": text}) == expected
    assert mail_domains({"to": [{"deep": text}]}) == expected
    assert mail_domains({"to": {text: 1}}) == expected


UNCERTAIN_MAIL = [
    "bob@evil.test@example.com",
    "ann@",
    "ann@ example.com",
    "ann@\nexample.com",
    "ann@example.com .evil.test",
    "ann@example.com munity",
    "ann@example.com\n.evil.test",
    "ann@example.com\r\nBcc: bob@evil.test",
    "ann@example.com(x).evil.test",
    "ann@(x)evil.test",
    "ann@example.com'.evil.test",
    "ann@example.com/.evil.test",
    "ann@example.com!evil.test",
    "ann@example.com%2eevil.test",
    "ann@example.com\\.evil.test",
    "ann@example.com\x00.evil.test",
    "ann@example.com\x0b.evil.test",
    "ann@example.com\u00a0.evil.test",
    "ann@example.com\u3002evil.test",
    "ann@example.com\u200b",
    "ann@ex\u00adample.com",
    "ann@fa\u00df.example",
    "ann@\u0435xample.com..",
    "ann@-example.com",
    "ann@example..com",
    "ann@[192.0.2.1]",
    "ann@[IPv6:::1]",
    "ann@01.2.3.4",
    "ann\uff20evil.test",
    "ann\ufe6bevil.test",
    "=?utf-8?q?bob=40evil.test=2c?= <ann@example.com>",
    "ann@" + "a" * 300,
    "ann@xn--zz.example",
    "@property def",
    "bob%evil.test@example.com",
    "evil.test!bob@example.com",
    "ann@example.com, bob%evil.test@example.com",
    "<bob%evil.test@example.com>",
    '"bob%evil.test"@example.com',
    '"bob%evil.test, x"@example.com',
    '"evil.test!bob" @example.com',
    "bob%evil.test (x)@example.com",
    "bob%evil.test @example.com",
    "bob%evil(x).test@example.com",
    "bob%evil(x)y@example.com",
    "bob%evil(x(y)z).test@example.com",
    '"bob%evil".test@example.com',
    '"bob % evil, y".test@example.com',
    '"bob%evil"y@example.com',
    '"b\\"ob%evil"@example.com',
    "bob%evil.test .x@example.com",
    "bob%evil . test@example.com",
    "bob\uff05evil.test@example.com",
    "evil.test\ufe57bob@example.com",
    "-fbob@example.com",
    "<-fbob@example.com>",
    "'-fbob@example.com'",
    "--bcc=bob@example.com",
    "\uff0dfbob@example.com",
    "%2dfbob@example.com",
    "bob%evil.test" + " " * 400 + ".x@example.com",
    '"bob%evil.test' + " " * 400 + 'x"@example.com',
    '"bob%evil.test' + "x, " * 400 + '".x@example.com',
    "bob%evil.test" + "()" * 40 + "@example.com",
    "(x(y)z) -fbob@example.com",
]


@pytest.mark.parametrize("text", UNCERTAIN_MAIL)
def test_an_address_that_is_read_in_two_ways_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable) as raised:
        mail_domains({"a": "x", "to/": [text]})
    assert raised.value.pointer == "/to~1/0"


URLS = [
    ("", set()),
    ("see the docs // here", set()),
    ("a//b", set()),
    ("/srv/a", set()),
    ("https://example.com", OURS),
    ("HTTPS://EXAMPLE.com:443/x", OURS),
    ("https://example.com./x", OURS),
    ("https://example.com/a//b", OURS),
    ("http://example.com:443/", {"example.com:443"}),
    ("wss://example.com:8443/x?y#z", {"example.com:8443"}),
    ("ftp://example.com/x", OURS),
    ("postgres://example.com:5432/db", {"example.com:5432"}),
    ("file:///etc/passwd", set()),
    ("file://evil.test/share", {"evil.test"}),
    ("//evil.test/x", {"evil.test"}),
    (" \t//evil.test/x", {"evil.test"}),
    ("ht\ntp://evil.test/", {"evil.test"}),
    ("see https://example.com, or https://evil.test.", {"example.com", "evil.test"}),
    ("(https://example.com)", OURS),
    ('<a href="https://example.com/">x</a>', OURS),
    ("https://example.com/?next=https://evil.test/", {"example.com", "evil.test"}),
    ("https://example.com/?next=https%3A%2F%2Fevil.test%2F", {"example.com", "evil.test"}),
    ("http://0x7f.1/", {"127.0.0.1"}),
    ("http://2130706433/", {"127.0.0.1"}),
    ("http://[::1]/", {"::1"}),
    ("http://[::1]:8443/", {"[::1]:8443"}),
    ("http://[::ffff:127.0.0.1]/", {"127.0.0.1"}),
    ("http://b\u00fccher.example/", {"xn--bcher-kva.example"}),
    ("http: nothing", set()),
]


@pytest.mark.parametrize(("text", "expected"), URLS)
def test_the_host_of_every_url_is_found(text: str, expected: set[str]) -> None:
    assert url_hosts({"url": text}) == expected
    assert url_hosts({"url": {text: [text]}}) == expected


UNCERTAIN_URLS = [
    "http://ann@evil.test/",
    "http://example.com@evil.test/",
    "http://example.com:80@evil.test/",
    "http://example.com @evil.test/",
    "http://example.com,@evil.test/",
    "http://example.com\t@evil.test/",
    'http://example.com"@evil.test/',
    "http://example.com\\@evil.test/",
    "http://example.com#@evil.test/",
    "http://example.com?@evil.test/",
    "http://%65vil.test/",
    "http://example.com%2eevil.test/",
    "http://example.com\u3002evil.test/",
    "http://example.com\u200b/",
    "http://example.com\x00.evil.test/",
    "http://fa\u00df.example/",
    "http:evil.test",
    "http:/evil.test",
    "http:///evil.test",
    "http:\\\\evil.test",
    "h\nttp:evil.test",
    "\\\\evil.test\\share",
    "/\\evil.test",
    "http://0177.0.0.1/",
    "http://[fe80::1%eth0]/",
    "http://example.com:080/",
    "http://",
    "http://a_very-.example/",
]


@pytest.mark.parametrize("text", UNCERTAIN_URLS)
def test_a_url_that_is_read_in_two_ways_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable) as raised:
        url_hosts({"url": text})
    assert raised.value.pointer == "/url"


def test_a_line_break_in_a_host_is_read_both_ways() -> None:
    assert url_hosts({"url": "http://example.com\n.evil.test/"}) == {"example.com", "example.com.evil.test"}


PARTS = st.sampled_from(
    [
        "ann",
        "@",
        "example.com",
        "evil.test",
        ".",
        ",",
        ";",
        "<",
        ">",
        '"',
        "(",
        ")",
        "\\",
        ":",
        "'",
        "[",
        "]",
        "%40",
        "%",
        "!",
        "/",
        "=?",
        "ü",
        "＠",
    ]
) | st.sampled_from(" \n\t")


@given(st.lists(PARTS, max_size=9).map("".join))
@example("ann@example.com munity")
@settings(max_examples=600, deadline=None)
def test_no_domain_that_another_parser_finds_is_missing(text: str) -> None:
    """Python's own parser of addresses is as lenient as mail programs are."""
    try:
        found = mail_domains({"to": text})
    except Unreadable:
        return
    for _, address in AddressList(text).addresslist + AddressList(text.replace("\n", "")).addresslist:
        _, sign, domain = address.rpartition("@")
        assert not sign or not domain.isascii() or domain.lower().removesuffix(".") in found


URL_PARTS = st.sampled_from(
    [
        "http",
        "https",
        ":",
        "/",
        "//",
        "://",
        "\\",
        "@",
        "example.com",
        "evil.test",
        ".",
        ",",
        "?",
        "#",
        "[",
        "]",
        "::1",
        ":80",
        "%2e",
        "%40",
        '"',
        ")",
        "ü",
    ]
) | st.sampled_from(" \n\t")


@given(st.lists(URL_PARTS, max_size=8).map("".join))
@settings(max_examples=600, deadline=None)
def test_no_host_that_another_parser_finds_is_missing(text: str) -> None:
    try:
        found = url_hosts({"url": text})
    except Unreadable:
        return
    try:
        host = urlsplit(text.strip()).hostname
    except ValueError:
        return
    if host and host.isascii() and set(host) <= set("abcdefghijklmnopqrstuvwxyz.:1"):
        assert any(host.rstrip(".") in one for one in found)


@pytest.mark.parametrize("read", [mail_domains, url_hosts])
def test_more_than_can_be_looked_at_is_unreadable(read: Any) -> None:
    with pytest.raises(Unreadable, match=f"more than {TEXTS} values"):
        read({"many": ["x"] * (TEXTS + 1)})
    read({"many": ["x"] * (TEXTS - 3)})
    one = "http://a.test/ <a@b.test>"
    read({"many": [one] * (MENTIONS // 2)})
    with pytest.raises(Unreadable, match=f"more than {NAMES} addresses, or {MENTIONS} with repetitions"):
        read({"many": ",".join([one] * (MENTIONS + 1))})
    different = [f"http://{n}a.test/ <a@{n}a.test>" for n in range(NAMES + 1)]
    read({"many": different[1:]})
    with pytest.raises(Unreadable, match=f"more than {NAMES} addresses"):
        read({"many": different})
    with pytest.raises(Unreadable, match=f"more than {ENCODED} percent signs"):
        read({"many": ["%" * ENCODED, "%"]})


@pytest.mark.parametrize("read", [mail_domains, url_hosts])
@pytest.mark.parametrize(
    "piece",
    [
        "@",
        "a@",
        "://",
        "a://",
        "http:",
        "%40",
        "%",
        "=",
        " ",
        "a",
        "a.",
        "\n",
        "[",
        "//",
        "\\",
        '"',
        "()",
        "(",
    ],
)
def test_a_long_text_is_read_in_one_pass(read: Any, piece: str) -> None:
    """Ends at all: a pattern that tries again would take hours."""
    with contextlib.suppress(Unreadable):
        read({"text": piece * 1_000_000, "more": [piece * 1_000] * 100})
