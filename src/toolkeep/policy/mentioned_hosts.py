"""Extracts mail domains and URL hosts from the arguments, for policies with allowlists.

In come valid arguments; out goes a set of canonical names, or `Unreadable`. Every string and object key is
read three ways: as it stands, without line breaks and tabs, and percent-decoded once, because the tool parses
the same text with a parser of its own. Parser differentials are `Unreadable`, never skipped: an allowlist
passes whatever is missing from the set.

Not found: a mailbox without @, a host without a scheme, and text in other encodings. Homoglyph domains are
not recognized; they are other names and fail an allowlist.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from toolkeep.json_values.pointers import escaped
from toolkeep.network.hosts import DEFAULT_PORTS, Host, HostRefused, read_host

TEXTS: Final = 5_000
"""Maximum number of values and keys that are read."""

MENTIONS: Final = 5_000
"""Maximum number of addresses, some 2 µs each."""

NAMES: Final = 200
"""Maximum number of distinct names, some 0.1 ms each if not ASCII (IDNA)."""

ENCODED: Final = 5_000
"""Maximum number of percent signs that are decoded, some 2 µs each."""

_AT_SIGNS: Final = re.compile("[@\uff20\ufe6b]")
"""`@` and the two characters that NFKC maps to it: a mailer that normalizes would see an address there."""
_ROUTED: Final = re.compile("[%!\uff05\ufe6a\uff01\ufe57]")
"""Source routes in a local part: `bob%evil.test@example.com`, `evil.test!bob@example.com`. Some mail servers
still relay such mail to the inner host. The last four characters become the first two under NFKC."""
_OPTION: Final = re.compile("['`{]*[-\uff0d\ufe63]")
"""An address that begins like this is an option to a mail program (argument injection)."""
_HELD_TOGETHER: Final = re.compile(r'"[^"]*"|\([^()]*\)')
_ADDRESS_START: Final = '<>,;:"()[]'
"""Delimiters before an address."""
_LOCAL_CHARS: Final = 160
_LOCAL_MARKS: Final = 20
"""Maximum number of quotes and parentheses that are parsed, some 1 µs each."""
_DOMAIN: Final = re.compile(r"[^\x00-,/:-@\[-^`{-\x7f]*")
_DOMAIN_END: Final = re.compile(r'[ \t\r\n]*(?:\Z|[,;:<>"\])])')
"""What ends a domain for every parser. White space does not: some parsers join the text around it, and drop
comments in parentheses (RFC 5322 section 4.4)."""
_ENCODED_WORD: Final = "=?"
"""Start of an encoded word (RFC 2047), which a mailer decodes to other characters."""

_SLASHES: Final = re.compile(r"[\x00-\x20]*+[/\\]{2}")
"""A scheme-relative URL."""
_LOOSE_URL: Final = re.compile(r":(?!//[^/\\]|[\x00-\x20]|\Z)")
"""Browsers accept any number of slashes or backslashes after the scheme (WHATWG URL); other parsers do
not."""
_LOOSE_SCHEMES: Final = ("http:", "https:", "ws:", "wss:", "ftp:")
_SCHEME: Final = re.compile(r"(?<![a-z0-9+.-])(?:https?|wss?|ftp|file)\Z")
_SCHEME_CHARS: Final = 6
"""Length of the longest scheme plus one character before it. To search for any scheme would be quadratic in a
long text."""
_UNTIL_PATH: Final = re.compile(r"[^/?#]*")
_HOST: Final = re.compile(r"[^/?# \t\r\n]*")
_CLOSING: Final = "\"'`<>),;.!*}"
"""Punctuation that may follow a URL in prose and cannot be part of a host."""


class Unreadable(Exception):
    """Addresses that parsers may read differently, or too many of them."""

    def __init__(self, pointer: str, what: str) -> None:
        super().__init__(what)
        self.pointer = pointer
        self.what = what


_TOO_MANY: Final = f"more than {NAMES} addresses, or {MENTIONS} with repetitions"


class _Name(NamedTuple):
    """A host name as written, and its scheme."""

    text: str
    scheme: str = ""


def mail_domains(arguments: Mapping[str, Any]) -> frozenset[str]:
    """The domain of every mail address in the arguments; raises `Unreadable`."""
    return _found(arguments, _domains, "a mail address")


def url_hosts(arguments: Mapping[str, Any]) -> frozenset[str]:
    """The host of every URL in the arguments, with its port unless it is the scheme's default.

    Raises `Unreadable`.
    """
    return _found(arguments, _hosts, "a URL")


def _found(arguments: Mapping[str, Any], read: Callable[[str], Iterator[_Name]], what: str) -> frozenset[str]:
    found: dict[_Name, str] = {}
    mentions = 0
    for pointer, text in _readings(arguments):
        try:
            for name in read(text):
                mentions += 1
                if name not in found:
                    found[name] = _canonical(name)
                # Over the limit the set would be incomplete, so the call is denied instead.
                if mentions > MENTIONS or len(found) > NAMES:
                    raise Unreadable("", _TOO_MANY)
        except HostRefused as refused:
            raise Unreadable(pointer, f"{what} that programs may read differently") from refused
    return frozenset(found.values())


def _canonical(name: _Name) -> str:
    host = read_host(name.text)
    port = host.port or DEFAULT_PORTS.get(name.scheme, 0)
    return str(Host(host.name, port, name.scheme, host.is_address))


def _readings(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every string with its pointer, in each of the three readings."""
    encoded = 0
    for pointer, text in _texts(arguments):
        yield pointer, text
        joined = text.replace("\n", "").replace("\r", "").replace("\t", "")
        if joined != text:
            yield pointer, joined
        if "%" in joined:
            encoded += joined.count("%")
            if encoded > ENCODED:
                raise Unreadable("", f"more than {ENCODED} percent signs")
            # Decoded once, as a URL parser does. A tool that decodes twice sees another text: not covered.
            yield pointer, unquote(joined)


def _texts(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    waiting: list[tuple[str, Any]] = [("", arguments)]
    count = 0
    while waiting:
        pointer, value = waiting.pop()
        count += 1
        if count > TEXTS:
            raise Unreadable("", f"more than {TEXTS} values")
        if isinstance(value, str):
            yield pointer, value
        elif isinstance(value, dict):
            for name, inside in value.items():
                place = f"{pointer}/{escaped(name)}"
                waiting += (place, name), (place, inside)
        elif isinstance(value, list):
            waiting.extend((f"{pointer}/{index}", item) for index, item in enumerate(value[: TEXTS + 1]))


def _domains(text: str) -> Iterator[_Name]:
    """The domain after every @. A false positive only denies; a false negative would pass the allowlist."""
    if _ENCODED_WORD in text:
        raise HostRefused("it holds an encoded word")
    behind = 0
    for sign in _AT_SIGNS.finditer(text):
        local = _local_part(text[behind : sign.start()])
        behind = sign.end()
        if any(map(_OPTION.match, local)) or any(map(_ROUTED.search, local)):
            raise HostRefused("its local part may name another host, or an option")
        domain = _DOMAIN.match(text, sign.end())
        if sign.group() != "@" or domain is None or not _DOMAIN_END.match(text, domain.end()):
            raise HostRefused("its domain has no certain end")
        yield _Name(domain.group())


def _local_part(before: str) -> list[str]:
    """The words before an @ that some parser takes for the local part, last first.

    White space and comments may surround each of its dots, and precede the @ (RFC 5322 section 4.4).
    """
    before = before.rstrip()
    cut = max(0, len(before) - _LOCAL_CHARS)
    is_quoted = before.count('"', 0, cut) % 2
    near = '"' * is_quoted + before[cut:]
    # Too long, nested, escaped or fragmented to parse: assume that all of it belongs to the local part.
    whole = [*before.rsplit(None, 1)[-1:], before]
    if sum(map(near.count, '"()')) > _LOCAL_MARKS:
        return whole
    plain = _HELD_TOGETHER.sub(_joined, near).rstrip()
    start = max(map(plain.rfind, _ADDRESS_START)) + 1
    words = plain[start:].split() or [""]
    local = [words.pop()]
    while words and (local[-1].startswith(".") or words[-1].endswith(".")):
        local.append(words.pop())
    is_longer = cut and not start and not words
    return whole if is_longer or ")" in plain or plain.endswith('"') else local


def _joined(held: re.Match[str]) -> str:
    """Replace a comment or quoted string by dots: the text on both sides still counts as local part."""
    return ".%." if held.group().startswith('"') and _ROUTED.search(held.group()) else ".."


def _hosts(text: str) -> Iterator[_Name]:
    text = text.lower()
    if any(scheme in text and _is_loose(text, scheme) for scheme in _LOOSE_SCHEMES):
        raise HostRefused("it has a scheme without two slashes")
    if slashes := _SLASHES.match(text):
        if "\\" in slashes.group():
            raise HostRefused("it begins with a backslash")
        yield _Name(_host(text, slashes.end()))
    for colon in _places(text, "://"):
        scheme, start = _scheme(text, colon), colon + len("://")
        if scheme != "file" or not text.startswith("/", start):
            yield _Name(_host(text, start), scheme)


def _is_loose(text: str, scheme: str) -> bool:
    """Whether a scheme occurs with another number of slashes than two."""
    colons = (place + len(scheme) - 1 for place in _places(text, scheme))
    return any(_LOOSE_URL.match(text, colon) and _scheme(text, colon) == scheme[:-1] for colon in colons)


def _places(text: str, needle: str) -> Iterator[int]:
    """Offsets of a needle in a text: `str.find` is 50 × faster than a regular expression on long texts."""
    place = -1
    for _ in range(MENTIONS):
        if (place := text.find(needle, place + 1)) < 0:
            return
        yield place
    raise Unreadable("", _TOO_MANY)


def _scheme(text: str, end: int) -> str:
    """The scheme before an offset, if it is one of `_SCHEME`."""
    found = _SCHEME.search(text[max(0, end - _SCHEME_CHARS) : end])
    return found.group() if found else ""


def _host(text: str, start: int) -> str:
    """The host and port after two slashes."""
    authority = _UNTIL_PATH.match(text, start)
    # Parser differential: `http://a @b` and `http://a\@b` are host a to some parsers and b to others
    # (userinfo).
    if authority and ("@" in authority.group() or "\\" in authority.group()):
        raise HostRefused("it holds an @ or a backslash before the path")
    run = _HOST.match(text, start)
    named = run.group() if run else ""
    behind = text[start + len(named) : start + len(named) + 1]
    if behind and behind in "?#":  # `http://a#@b` is b to some parsers; after a slash all agree
        raise HostRefused("it has no / behind the host")
    if behind != "/":
        named = named.rstrip(_CLOSING if "[" in named else _CLOSING + "]") or named
    return named
