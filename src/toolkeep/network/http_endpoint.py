"""HTTP endpoint of a tool (`run.http`): validated once, turned into one request per call.

Arguments go, encoded, into path, query and body, and into headers and cookies where `arguments` says so;
never into scheme or host. Secrets go into headers, or into the query where `secret_query` says so, and
nowhere else. The host of a call is therefore known before there is a call.
"""

import base64
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

import msgspec

from toolkeep.network.allowlist import READING
from toolkeep.network.hosts import Host, HostRefused, read_url
from toolkeep.network.multipart import MEDIA_TYPE, MULTIPART, Part, Written, file_bytes, write_multipart
from toolkeep.network.parameter_styles import ArgumentUnfit, Placement, form_body
from toolkeep.text.display import echo, echo_name

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
IDEMPOTENT: Final = frozenset({"GET", "PUT", "DELETE"})
"""Methods that may be retried (RFC 9110 section 9.2.2)."""
RETRIES: Final = 3
"""Maximum retries of an idempotent request."""

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})
_PLAIN_KEYS: Final = frozenset({"url", "method", "headers"})
_KEYS: Final = _PLAIN_KEYS | {"arguments", "body", "secret_query", "retries"}
_PLACE: Final = re.compile(r"\{([^{}/?#&=\s]+)\}")
_URL_CHARS: Final = re.compile(r"[!$-;=?-Z_a-z~{}%]*")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")
_SECRET: Final = re.compile(r"\{(secret|basic):([^{}]+)\}")
_OURS: Final = frozenset(
    (
        *("host", "connection", "content-length", "transfer-encoding", "accept-encoding"),
        *("te", "trailer", "upgrade", "expect", "keep-alive"),
    )
)
"""Framing and hop-by-hop headers. A tool that set them could smuggle a second request or another host."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...] = ()
    """Set by the tool; they may hold secrets and go only to its own origin."""
    body: bytes | None = None
    content_type: str = "application/json"
    """Of the body, if there is one."""

    def __repr__(self) -> str:
        """Without what may be secret."""
        return f"<{self.method} request>"


class Body(msgspec.Struct, frozen=True, kw_only=True):
    """Which arguments form the body, and how it is encoded."""

    argument: str
    content_type: str
    is_required: bool = False
    is_file: bool = False
    """Whether the argument is a file, and the body its bytes."""
    fields: Mapping[str, Placement] = {}
    """Form fields that do not use the default style."""
    parts: Mapping[str, Part] = {}
    """The same for multipart forms."""

    @classmethod
    def read(cls, data: Any) -> "Body":
        """Parse the configuration object; ValueError says what is wrong."""
        if (
            not isinstance(data, Mapping)
            or set(data) - set(_BODY_KEYS)
            or not isinstance(data.get("argument"), str)
        ):
            raise ValueError(f"has a body that is not an object with {', '.join(_BODY_KEYS)}")
        content_type, is_file = data.get("content_type", "application/json"), data.get("file") is True
        known = MEDIA_TYPE if is_file else _CONTENT_TYPE
        if not isinstance(content_type, str) or not known.fullmatch(content_type):
            raise ValueError("has a body whose content_type is none that can be sent")
        fields, parts = (data.get(key) or {} for key in ("fields", "parts"))
        if not isinstance(fields, Mapping) or not isinstance(parts, Mapping):
            raise ValueError("has a body whose fields or parts are not an object")
        return cls(
            argument=data["argument"],
            content_type=content_type,
            is_required=data.get("required") is True,
            is_file=is_file,
            fields={name: Placement.read({"argument": name, **place}) for name, place in fields.items()},
            parts={name: Part.read(part) for name, part in parts.items()},
        )

    def write(self, arguments: Mapping[str, Any]) -> Written | None:
        """Body and content type; None if the call has none."""
        if self.argument not in arguments:
            return Written(b"", self.content_type) if self.is_required else None
        value = arguments[self.argument]
        if self.content_type == MULTIPART:
            return write_multipart(value, self.parts)
        return Written(self._bytes(value), self.content_type)

    def _bytes(self, value: Any) -> bytes:
        if self.is_file:
            return file_bytes(value, self.argument)
        if self.content_type == "application/x-www-form-urlencoded":
            return form_body(value, self.fields)
        if self.content_type.startswith("text/") or self.content_type.endswith("xml"):
            if not isinstance(value, str):
                raise ArgumentUnfit(f"'{echo_name(self.argument)}' must be a text")
            return value.encode()
        return json.dumps(value, ensure_ascii=False).encode()


_BODY_KEYS: Final = ("argument", "content_type", "required", "file", "fields", "parts")
_CONTENT_TYPE: Final = re.compile(
    r"application/(?:json|xml|[a-z0-9!#$&^_.-]{1,100}\+(?:json|xml)|x-www-form-urlencoded)"
    r"|text/[a-z0-9.-]{1,40}|multipart/form-data"
)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the calls of a tool go."""

    host: Host
    origin: str
    """Such as `https://api.example.org`."""
    path: str
    query: str
    method: str
    headers: tuple[tuple[str, str], ...]
    placements: tuple[Placement, ...] | None = None
    """Where each argument goes; None for path, query and body by name."""
    body: Body | None = None
    secret_query: tuple[tuple[str, str], ...] = ()
    """Query names and the secrets that go there."""
    retries: int = 0

    @classmethod
    def read(cls, target: Any) -> "Endpoint":
        """Parse a URL or an object with `url`, `method` and `headers`; ValueError says what is wrong."""
        fields = {"url": target} if isinstance(target, str) else target
        if not isinstance(fields, Mapping) or not isinstance(fields.get("url"), str):
            raise ValueError("has no url")
        if unknown := set(fields) - _KEYS:
            known = "url, method, headers, arguments, body, secret_query, retries"
            raise ValueError(f"has the unknown key {echo(min(map(str, unknown)))}; there are {known}")
        method, headers = fields.get("method", "POST"), _read_headers(fields.get("headers"))
        if method not in METHODS:
            raise ValueError(f"has a method that is not one of {', '.join(METHODS)}")
        address = _read_address(fields["url"])
        if not set(fields) - _PLAIN_KEYS:
            return cls(method=method, headers=headers, **address)
        return cls(method=method, headers=headers, **address, **_read_plan(fields, method, address["path"]))

    @property
    def needs(self) -> str:
        """The capability without which a call reaches nothing."""
        return f"{'net.read' if self.method in READING else 'net.write'}:{self.host.scope}"

    def request(self, arguments: Mapping[str, Any], secret: Callable[[str], str]) -> Request:
        """The request of one call; raises `ArgumentUnfit`, and whatever `secret` raises."""
        if self.placements is not None:
            return self._placed(self.placements, arguments, secret)
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

    def _placed(
        self, placements: tuple[Placement, ...], arguments: Mapping[str, Any], secret: Callable[[str], str]
    ) -> Request:
        """The request with every argument at its placement."""
        pairs, headers, cookies = [self.query], list(_with_secrets(self.headers, secret)), list[str]()
        in_path = {place.name: place for place in placements if place.where == "path"}
        for place in placements:
            value = arguments.get(place.argument)
            if value is None or place.where == "path":
                continue
            if place.where == "query":
                pairs += place.in_query(value)
            elif place.where == "header":
                headers.append((place.name, place.in_header(value)))
            else:
                cookies += place.in_cookie(value)
        held = {quote(name, safe="") for name, _ in self.secret_query}
        # A server may take the first or the last of two equal names: an argument must not replace the
        # credential.
        if any(pair.partition("=")[0] in held for pair in pairs):
            raise ArgumentUnfit("an argument would stand where a secret does")
        for name, secret_name in self.secret_query:
            pairs.append(f"{quote(name, safe='')}={quote(secret(secret_name), safe='')}")
        path = _placed_path(self.path, in_path, arguments)
        query = "&".join(filter(None, pairs))
        body = self.body.write(arguments) if self.body else None
        return Request(
            method=self.method,
            url=f"{self.origin}{path}" + (f"?{query}" if query else ""),
            headers=_with_cookies(headers, cookies),
            body=body.body if body else None,
            content_type=body.content_type if body else "application/json",
        )


def _read_plan(fields: Mapping[str, Any], method: str, path: str) -> dict[str, Any]:
    listed, retries = fields.get("arguments") or [], fields.get("retries", 0)
    if not isinstance(listed, (list, tuple)):
        raise ValueError("has arguments that are not a list of places")
    placements = tuple(map(Placement.read, listed))
    in_path = {place.name for place in placements if place.where == "path"}
    # A parameter without a value would be sent literally, braces and all.
    if in_path != set(_PLACE.findall(path)):
        raise ValueError("has a path whose {parameters} are not those that its arguments name")
    for place in placements:
        if place.where == "header":
            # An argument must not set Host, Content-Length or Transfer-Encoding: request smuggling.
            _refuse_ours(place.name)
    # `type is int`: True is an int too. Only idempotent methods are retried: a repeated POST may act twice.
    if type(retries) is not int or not 0 <= retries <= RETRIES or (retries and method not in IDEMPOTENT):
        raise ValueError(f"has retries that are not 0 to {RETRIES}, or that {method} does not allow")
    secret_query = fields.get("secret_query") or {}
    if not isinstance(secret_query, Mapping) or not all(
        isinstance(text, str) and text for pair in secret_query.items() for text in pair
    ):
        raise ValueError("has a secret_query that is not an object of strings")
    body = fields.get("body")
    return {
        "placements": placements,
        "body": None if body is None else Body.read(body),
        "secret_query": tuple(secret_query.items()),
        "retries": retries,
    }


def _placed_path(path: str, placements: Mapping[str, Placement], arguments: Mapping[str, Any]) -> str:
    def fill(match: re.Match[str]) -> str:
        place = placements[match[1]]
        value = arguments.get(place.argument)
        text = "" if value is None else place.in_path(value)
        # Empty after its separators: the path would collapse to that of another resource.
        if not text.strip(".;,="):
            raise ArgumentUnfit(f"'{echo_name(place.argument)}' goes into the address and must not be empty")
        return text

    filled = _PLACE.sub(fill, path)
    if _has_dots(filled):
        raise ArgumentUnfit("an argument would change the path: it contains '.' or '..' as a segment")
    return filled


def _with_cookies(headers: list[tuple[str, str]], cookies: list[str]) -> tuple[tuple[str, str], ...]:
    """All cookies in one header (RFC 6265)."""
    if not cookies:
        return tuple(headers)
    given = [value for name, value in headers if name.lower() == "cookie"]
    others = [(name, value) for name, value in headers if name.lower() != "cookie"]
    return (*others, ("Cookie", "; ".join([*given, *cookies])))


def _read_address(url: str) -> dict[str, Any]:
    authority = url.partition("://")[2].partition("/")[0]
    # Otherwise an argument would choose the host, and the tool's secrets would go there.
    if "{" in authority:
        raise ValueError("has a {parameter} in its host; whom a tool asks is the same in every call")
    try:
        host = read_url(url)
    except HostRefused as refused:
        raise ValueError(f"has a url that cannot be used: {refused.reason}") from None
    if host.scheme not in ("http", "https"):
        raise ValueError("has a url that is neither http nor https")
    rest = url.partition("://")[2].partition("/")[2]
    # Control characters and spaces in a request line would start a second request.
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
        raise ValueError("has headers that are not an object of strings")
    for name, value in headers.items():
        if not isinstance(name, str) or not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"has a header whose name cannot be: {echo(str(name))}")
        _refuse_ours(name)
        if not isinstance(value, str) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"has a header {echo_name(name)} that is not a single line of plain text")
        # A misspelled placeholder would be sent to the server, and the secret silently be missing.
        if set(_SECRET.sub("", value)) & set("{}"):
            raise ValueError(f"has a header {echo_name(name)} with braces; only {{secret:NAME}} is filled in")
    return tuple(headers.items())


def _refuse_ours(name: str) -> None:
    if name.lower() in _OURS or name.lower().startswith("proxy-"):
        raise ValueError(f"has the header {echo_name(name)}, which is not a tool's to set")


def _filled_secret(place: re.Match[str], secret: Callable[[str], str]) -> str:
    value = secret(place[2])
    return value if place[1] == "secret" else basic(value)


def basic(pair: str) -> str:
    """Credentials for HTTP Basic (RFC 7617)."""
    return base64.b64encode(pair.encode("utf-8", "surrogatepass")).decode()


def _with_secrets(
    headers: tuple[tuple[str, str], ...], secret: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    filled = []
    for name, value in headers:
        text = _SECRET.sub(lambda place: _filled_secret(place, secret), value)
        # A secret with a newline (a file read with its end of line) would split the header.
        if not _HEADER_VALUE.fullmatch(text):
            raise ValueError(f"has a secret that cannot be sent in the header {echo_name(name)}")
        filled.append((name, text))
    return tuple(filled)


def _filled_path(path: str, arguments: Mapping[str, Any], used: set[str]) -> str:
    def fill(place: re.Match[str]) -> str:
        name = place[1]
        used.add(name)
        text = _text(arguments.get(name))
        if not text:
            raise ArgumentUnfit(f"'{echo_name(name)}' goes into the address and must be a text or a number")
        # safe="": a slash in an argument must not add a path segment.
        return quote(text, safe="")

    filled = _PLACE.sub(fill, path)
    if _has_dots(filled):
        raise ArgumentUnfit("an argument would change the path: it contains '.' or '..' as a segment")
    return filled


def _has_dots(path: str) -> bool:
    """Whether a path segment is . or .. under any decoding that a server may apply.

    Servers decode once or twice, take a backslash for a slash, or ignore what follows a semicolon.
    """
    decoded = unquote(unquote(path)).replace("\\", "/")
    return any(step.partition(";")[0] in (".", "..") for step in decoded.split("/"))


def _filled_query(query: str, arguments: Mapping[str, Any], used: set[str]) -> str:
    """The query with its parameters filled; a pair whose argument is absent is dropped."""
    pairs = []
    for pair in query.split("&"):
        named = _PLACE.findall(pair)
        used.update(named)
        if all(arguments.get(name) is not None for name in named):
            pairs.append(_PLACE.sub(lambda place: quote(_any_text(arguments[place[1]]), safe=""), pair))
    return "&".join(pairs)


def _as_query(arguments: Mapping[str, Any]) -> list[str]:
    """Arguments as query pairs: one per list item, null dropped."""
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
    """A scalar as text; empty if it is none."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, (bool, int, float)) else ""


def _any_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
