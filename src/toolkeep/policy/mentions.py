"""The mail domains and the hosts of URLs in the arguments of a call: facts that policies compare with lists.

In come valid arguments; out goes a set of canonical names, or `Unreadable`. Every text is looked at, keys of
objects too, as it stands, without line breaks and tabs, and percent-decoded once: the tool reads the same
text with a parser of its own. What two parsers may read differently is `Unreadable`, never left out, because
whatever is missing from the set is inside every list.
Not found: a mailbox without @, a host without a scheme, and text in another encoding than the three above.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from toolkeep.network.hosts import DEFAULT_PORTS, Host, HostRefused, read_host
from toolkeep.pointers import escaped

TEXTS: Final = 5_000
"""Values and keys in the arguments that are looked at."""

MENTIONS: Final = 5_000
"""Addresses in the arguments that are looked at, some 2 µs each."""

NAMES: Final = 200
"""Different names among them, some 0.1 ms each where they are not ASCII."""

ENCODED: Final = 5_000
"""Percent signs in the arguments that are decoded, some 2 µs each."""

_AT_SIGNS: Final = re.compile("[@\uff20\ufe6b]")
"""The last two become @ where text is normalized (NFKC)."""
_ROUTED: Final = re.compile("[%!\uff05\ufe6a\uff01\ufe57]")
"""What makes a local part name another host: `bob%evil.test@example.com`, `evil.test!bob@example.com`. Some
mail servers still pass such mail on. The last four become the first two where text is normalized (NFKC)."""
_OPTION: Final = re.compile("['`{]*[-\uff0d\ufe63]")
"""How an address begins that a mail program takes for an option."""
_HELD_TOGETHER: Final = re.compile(r'"[^"]*"|\([^()]*\)')
_ADDRESS_START: Final = '<>,;:"()[]'
"""What ends whatever stands before an address."""
_LOCAL_CHARS: Final = 160
_LOCAL_MARKS: Final = 20
"""Quotes and parentheses among those characters that are taken apart, some 1 µs each."""
_DOMAIN: Final = re.compile(r"[^\x00-,/:-@\[-^`{-\x7f]*")
_DOMAIN_END: Final = re.compile(r'[ \t\r\n]*(?:\Z|[,;:<>"\])])')
"""What ends a domain to every reader. White space does not: some join what stands before and behind it, and a
comment in parentheses is left out (RFC 5322 section 4.4)."""
_ENCODED_WORD: Final = "=?"
"""How a word of a header begins that stands for other characters (RFC 2047)."""

_SLASHES: Final = re.compile(r"[\x00-\x20]*+[/\\]{2}")
"""How a URL begins that takes the scheme of another."""
_LOOSE_URL: Final = re.compile(r":(?!//[^/\\]|[\x00-\x20]|\Z)")
"""Browsers take any number of slashes, of either kind, also none."""
_LOOSE_SCHEMES: Final = ("http:", "https:", "ws:", "wss:", "ftp:")
_SCHEME: Final = re.compile(r"(?<![a-z0-9+.-])(?:https?|wss?|ftp|file)\Z")
_SCHEME_CHARS: Final = 6
"""The longest of those, and what stands before it: a pattern that looked for any scheme would go over a long
text once for each of its letters."""
_UNTIL_PATH: Final = re.compile(r"[^/?#]*")
_HOST: Final = re.compile(r"[^/?# \t\r\n]*")
_CLOSING: Final = "\"'`<>),;.!*}"
"""What may stand behind a URL in a sentence, and in no host."""


class Unreadable(Exception):
    """Addresses that cannot be told with certainty."""

    def __init__(self, pointer: str, what: str) -> None:
        super().__init__(what)
        self.pointer = pointer
        self.what = what


_TOO_MANY: Final = f"more than {NAMES} addresses, or {MENTIONS} with repetitions"


class _Name(NamedTuple):
    """A name as it stands in a text, and the scheme before it."""

    text: str
    scheme: str = ""


def mail_domains(arguments: Mapping[str, Any]) -> frozenset[str]:
    """The domain of every mail address in the arguments; raises `Unreadable`."""
    return _found(arguments, _domains, "a mail address")


def url_hosts(arguments: Mapping[str, Any]) -> frozenset[str]:
    """The host, with its port where it is not the scheme's, of every URL in the arguments.

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
    """Every text with its pointer, also as programs read it that take line breaks away, or decode it."""
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
    """What stands behind every @: a name too many keeps a list from being met, one too few would not."""
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
    """The words before an @ that some reader takes for the local part, the last one first.

    White space and comments may stand around each of its dots, and before the @ (RFC 5322 section 4.4).
    """
    before = before.rstrip()
    cut = max(0, len(before) - _LOCAL_CHARS)
    is_quoted = before.count('"', 0, cut) % 2
    near = '"' * is_quoted + before[cut:]
    # All of it may belong to the local part where that is longer, nested, escaped or in many pieces.
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
    """A comment or quoted text as a part between two dots, so that what stands around it is looked at too."""
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
    """Whether a scheme stands somewhere with another number of slashes than two."""
    colons = (place + len(scheme) - 1 for place in _places(text, scheme))
    return any(_LOOSE_URL.match(text, colon) and _scheme(text, colon) == scheme[:-1] for colon in colons)


def _places(text: str, needle: str) -> Iterator[int]:
    """Where a needle stands in a text: `find` goes over a long text 50 × faster than a pattern."""
    place = -1
    for _ in range(MENTIONS):
        if (place := text.find(needle, place + 1)) < 0:
            return
        yield place
    raise Unreadable("", _TOO_MANY)


def _scheme(text: str, end: int) -> str:
    """The scheme before a place, if it is one whose hosts are read in a way of their own."""
    found = _SCHEME.search(text[max(0, end - _SCHEME_CHARS) : end])
    return found.group() if found else ""


def _host(text: str, start: int) -> str:
    """The host and port behind two slashes."""
    authority = _UNTIL_PATH.match(text, start)
    # `http://a @b` and `http://a\@b` are a to some readers and b to others.
    if authority and ("@" in authority.group() or "\\" in authority.group()):
        raise HostRefused("it holds an @ or a backslash before the path")
    run = _HOST.match(text, start)
    named = run.group() if run else ""
    behind = text[start + len(named) : start + len(named) + 1]
    if behind and behind in "?#":  # `http://a#@b` is b to some readers; all agree once a slash stands first
        raise HostRefused("it has no / behind the host")
    if behind != "/":
        named = named.rstrip(_CLOSING if "[" in named else _CLOSING + "]") or named
    return named
