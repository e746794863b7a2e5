"""What an HTTP tool asks, and whom: the `http` of `run`, checked, and made into the request of a call.

Arguments go into the path, the query and the body, encoded; never into scheme, host or headers. Secrets go
into headers and nowhere else. So whom a call asks is known before there is a call.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from toolkeep.network.hosts import Host, HostRefused, read_url
from toolkeep.network.reaching import READING
from toolkeep.wording import echo, echo_name

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_KEYS: Final = frozenset({"url", "method", "headers"})
_PLACE: Final = re.compile(r"\{([^{}/?#&=\s]+)\}")
_URL_CHARS: Final = re.compile(r"[!$-;=?-Z_a-z~{}%]*")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")
_SECRET: Final = re.compile(r"\{secret:([^{}]+)\}")
_OURS: Final = frozenset(
    (
        *("host", "connection", "content-length", "transfer-encoding", "accept-encoding"),
        *("te", "trailer", "upgrade", "expect", "keep-alive"),
    )
)
"""Headers that say how a message is sent, which is not the tool's to say."""


class ArgumentUnfit(ValueError):
    """An argument that cannot stand where the URL wants it; another one could."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of a server."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    """Those that the tool brings; they may hold secrets, and go to its own origin only."""
    body: bytes | None = None

    def __repr__(self) -> str:
        """Without what may be secret."""
        return f"<{self.method} request>"


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the calls of a tool go."""

    host: Host
    origin: str
    """Such as `https://api.example.org`."""
    path: str
    query: str
    method: str
    headers: tuple[tuple[str, str], ...]

    @classmethod
    def read(cls, target: Any) -> "Endpoint":
        """From a URL or an object with `url`, `method` and `headers`; ValueError says what is wrong."""
        fields = {"url": target} if isinstance(target, str) else target
        if not isinstance(fields, Mapping) or not isinstance(fields.get("url"), str):
            raise ValueError("has no url")
        if unknown := set(fields) - _KEYS:
            raise ValueError(
                f"has the unknown key {echo(min(map(str, unknown)))}; there are url, method, headers"
            )
        method, headers = fields.get("method", "POST"), _read_headers(fields.get("headers"))
        if method not in METHODS:
            raise ValueError(f"has a method that is not one of {', '.join(METHODS)}")
        return cls(method=method, headers=headers, **_read_address(fields["url"]))

    @property
    def needs(self) -> str:
        """The capability without which a call reaches nothing."""
        return f"{'net.read' if self.method in READING else 'net.write'}:{self.host}"

    def request(self, arguments: Mapping[str, Any], secret: Callable[[str], str]) -> Request:
        """The request of one call; raises `ArgumentUnfit`, and whatever `secret` raises."""
        used: set[str] = set()
        path = _filled_path(self.path, arguments, used)
        query = _filled_query(self.query, arguments, used)
        rest = {name: value for name, value in arguments.items() if name not in used}
        body = None
        if self.method in _WITH_BODY:
            body = json.dumps(rest, ensure_ascii=False).encode()
        else:
            query = "&".join(filter(None, [query, *_as_query(rest)]))
        url = f"{self.origin}{path}" + (f"?{query}" if query else "")
        return Request(method=self.method, url=url, headers=_with_secrets(self.headers, secret), body=body)


def _read_address(url: str) -> dict[str, Any]:
    authority = url.partition("://")[2].partition("/")[0]
    if "{" in authority:
        raise ValueError("has a {parameter} in its host; whom a tool asks is the same in every call")
    try:
        host = read_url(url)
    except HostRefused as refused:
        raise ValueError(f"has a url that cannot be used: {refused.reason}") from None
    if host.scheme not in ("http", "https"):
        raise ValueError("has a url that is neither http nor https")
    rest = url.partition("://")[2].partition("/")[2]
    if not _URL_CHARS.fullmatch(rest):
        raise ValueError("has a url with characters that must be percent-encoded, or with a # part")
    path, _, query = f"/{rest}".partition("?")
    if set(_PLACE.sub("", path + query)) & set("{}"):
        raise ValueError("has a { or } in its url that encloses no parameter")
    if _has_dots(path):
        raise ValueError("has a url with . or .. in its path")
    return {"host": host, "origin": f"{host.scheme}://{host.authority}", "path": path, "query": query}


def _read_headers(headers: Any) -> tuple[tuple[str, str], ...]:
    if headers is None:
        return ()
    if not isinstance(headers, Mapping):
        raise ValueError("has headers that are no object of texts")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"has a header whose name cannot be: {echo(str(name))}")
        if name.lower() in _OURS or name.lower().startswith("proxy-"):
            raise ValueError(f"has the header {echo_name(name)}, which is not a tool's to set")
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"has a header {echo_name(name)} that is no plain text of one line")
        if set(_SECRET.sub("", value)) & set("{}"):
            raise ValueError(f"has a header {echo_name(name)} with braces; only {{secret:NAME}} is filled in")
    return tuple(headers.items())


def _with_secrets(
    headers: tuple[tuple[str, str], ...], secret: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    filled = []
    for name, value in headers:
        text = _SECRET.sub(lambda place: secret(place[1]), value)
        if not _HEADER_VALUE.fullmatch(text):
            raise ValueError(f"has a secret that cannot stand in the header {echo_name(name)}")
        filled.append((name, text))
    return tuple(filled)


def _filled_path(path: str, arguments: Mapping[str, Any], used: set[str]) -> str:
    def fill(place: re.Match[str]) -> str:
        name = place[1]
        used.add(name)
        text = _text(arguments.get(name))
        if not text:
            raise ArgumentUnfit(f"'{echo_name(name)}' goes into the address and must be a text or a number")
        return quote(text, safe="")

    filled = _PLACE.sub(fill, path)
    if _has_dots(filled):
        raise ArgumentUnfit("an argument would lead to another place of the server: it holds '.' or '..'")
    return filled


def _has_dots(path: str) -> bool:
    """Whether a step is . or .. to a server that decodes once or twice, or takes a backslash for a slash."""
    decoded = unquote(unquote(path)).replace("\\", "/")
    return any(step in (".", "..") for step in decoded.split("/"))


def _filled_query(query: str, arguments: Mapping[str, Any], used: set[str]) -> str:
    """The query with its places filled; a pair whose argument is absent is left out."""
    pairs = []
    for pair in query.split("&"):
        named = _PLACE.findall(pair)
        used.update(named)
        if all(arguments.get(name) is not None for name in named):
            pairs.append(_PLACE.sub(lambda place: quote(_any_text(arguments[place[1]]), safe=""), pair))
    return "&".join(pairs)


def _as_query(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as pairs; a list gives one for each item, and what is null is left out."""
    items = (
        (name, item)
        for name, value in arguments.items()
        for item in (value if isinstance(value, list) else [value])
    )
    return [
        f"{quote(name, safe='')}={quote(_any_text(item), safe='')}"
        for name, item in items
        if item is not None
    ]


def _text(value: Any) -> str:
    """A plain value as text; empty where it is none."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (bool, int, float)) else ""


def _any_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
