"""Checks of HTTP headers: the allowed host and origin, and agreement with the JSON-RPC body (2026-07-28).

A page in a browser can reach a server on this machine under any name that its owner points here (DNS
rebinding). `Host` and `Origin` tell such requests from those of a client: a browser sets both, and scripts
cannot change them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final

from toolkeep.mcp_protocol.header_params import annotated, at, decoded, rendered
from toolkeep.mcp_protocol.jsonrpc import HEADER_MISMATCH, Message, ProtocolError
from toolkeep.mcp_protocol.versions import (
    CAPABILITIES_KEY,
    HANDSHAKE_VERSIONS,
    MODERN_VERSIONS,
    NAMED_BY,
    VERSION_KEY,
    check_envelope,
)

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))
VERSION_HEADER: Final = b"mcp-protocol-version"
LAST_EVENT_HEADER: Final = b"last-event-id"
SESSION_HEADER: Final = b"mcp-session-id"
_METHOD_HEADER: Final = b"mcp-method"
_NAME_HEADER: Final = b"mcp-name"
_TELLING: Final = (b"host", b"origin", b"content-type", VERSION_HEADER, _METHOD_HEADER, _NAME_HEADER)
"""The headers that `Head` is parsed from."""
_PARAM_PREFIX: Final = b"mcp-param-"
_HOST: Final = re.compile(r"(\[[0-9a-f:]+\]|[a-z0-9.-]+)(?::[0-9]{1,5})?")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,400}(\.0+)?")
_REMEMBERED: Final = 64
_REMEMBERED_BYTES: Final = 1_000
"""Entries of each cache, and the size up to which a head is cached: ordinary clients repeat a few short
heads, and the cached ones have at most 64 KB together."""
_SCOPE_KEY: Final = "toolkeep.headers"


class Headers:
    """The headers of one request, with a note of duplicates.

    Duplicates are refused where they matter: a proxy may check the first and the app use the last.
    """

    __slots__ = ("_found", "_twice")

    @classmethod
    def of(cls, scope: MutableMapping[str, Any]) -> "Headers":
        """The headers of a request, parsed once however many apps it passes."""
        found: Headers | None = scope.get(_SCOPE_KEY)
        if found is None:
            found = scope[_SCOPE_KEY] = cls(scope["headers"])
        return found

    def __init__(self, raw: list[tuple[bytes, bytes]]) -> None:
        self._found: dict[bytes, bytes] = dict(raw)
        self._twice: frozenset[bytes] = frozenset()
        if len(self._found) != len(raw):
            times = Counter(name for name, _ in raw)
            self._twice = frozenset(name for name, count in times.items() if count > 1)

    def get(self, name: bytes) -> str | None:
        """The value without surrounding whitespace; raises for a duplicate."""
        value = self._found.get(name)
        if value is None:
            return None
        if name in self._twice:
            raise ProtocolError(HEADER_MISMATCH, f"{name.decode()} is given more than once")
        return value.decode("latin-1").strip(" \t")

    def raw(self, name: bytes) -> bytes:
        """The raw value; empty if absent."""
        return self._found.get(name, b"")

    def values(self, names: tuple[bytes, ...]) -> tuple[bytes | None, ...]:
        """The raw values of several headers."""
        return tuple(map(self._found.get, names))

    def __contains__(self, name: object) -> bool:
        return name in self._found

    def is_doubled(self, name: bytes) -> bool:
        """Whether the header occurs more than once."""
        return name in self._twice

    @property
    def has_doubles(self) -> bool:
        """Whether any header occurs more than once."""
        return bool(self._twice)


def is_allowed_host(headers: Headers, hosts: frozenset[str]) -> bool:
    """Whether `Host` is one of these, and so is `Origin`, if there is one (DNS rebinding, CSRF)."""
    if headers.is_doubled(b"host") or headers.is_doubled(b"origin"):
        return False
    if _host_of(headers.raw(b"host").decode("latin-1")) not in hosts:
        return False
    # Clients that are no browsers send no Origin. A browser always does for a POST, and sends "null" for a
    # sandboxed frame or a file: that is no host of ours, and is refused.
    origin = headers.raw(b"origin").decode("latin-1")
    if not origin:
        return True
    scheme, mark, host = origin.partition("://")
    return mark != "" and scheme.lower() in ("http", "https") and _host_of(host) in hosts


class AllowedHosts:
    """`is_allowed_host` with a cache: a client sends the same headers each time."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._known: set[tuple[bytes, bytes]] = set()

    def __call__(self, headers: Headers) -> bool:
        """Whether the request is for an allowed host and from no foreign origin."""
        said = (headers.raw(b"host"), headers.raw(b"origin"))
        if said in self._known and not (headers.is_doubled(b"host") or headers.is_doubled(b"origin")):
            return True
        is_allowed = is_allowed_host(headers, self._hosts)
        # Only accepted pairs are cached, so a client cannot fill the cache with made-up ones.
        if is_allowed and len(self._known) < _REMEMBERED:
            self._known.add(said)
        return is_allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The parsed headers that many requests share."""

    is_allowed: bool
    """Whether host and origin are allowed."""
    is_json: bool
    version: str
    is_modern: bool
    """Whether the version header names 2026-07-28 or later; without the header it is a handshake version."""
    method: str
    name: str | None

    def agrees(self, message: Message) -> bool:
        """Fast path: whether headers and body of a 2026-07-28 request agree.

        True only for requests that `check_modern` accepts, in a fifth of its time; `check_modern` gives the
        reason otherwise.
        """
        meta = message.params.get("_meta")
        if type(meta) is not dict or self.version not in MODERN_VERSIONS:
            return False
        if meta.get(VERSION_KEY) != self.version or type(meta.get(CAPABILITIES_KEY)) is not dict:
            return False
        if message.method != self.method:
            return False
        key = NAMED_BY.get(message.method)
        return key is None or (self.name is not None and message.params.get(key) == self.name)


class Heads:
    """Parses the heads of requests for these hosts, with a cache."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self._hosts = frozenset(hosts)
        self._known: dict[tuple[bytes | None, ...], Head] = {}

    def read(self, headers: Headers) -> Head:
        """Parse the head of a request."""
        said = headers.values(_TELLING)
        known = self._known.get(said)
        if known is not None and not headers.has_doubles:
            return known
        head = _read_head(headers, self._hosts)
        length = sum(len(value or b"") for value in said)
        if head.is_allowed and not headers.has_doubles and length <= _REMEMBERED_BYTES:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[said] = head
        return head


def _read_head(headers: Headers, hosts: frozenset[str]) -> Head:
    version = headers.raw(VERSION_HEADER).decode("latin-1").strip()
    name = headers.raw(_NAME_HEADER).decode("latin-1").strip(" \t")
    return Head(
        is_allowed=is_allowed_host(headers, hosts),
        is_json=headers.raw(b"content-type").partition(b";")[0].strip().lower() == b"application/json",
        version="" if headers.has_doubles else version,
        is_modern=version != "" and version not in HANDSHAKE_VERSIONS,
        method=headers.raw(_METHOD_HEADER).decode("latin-1").strip(" \t"),
        name=decoded(name) if _NAME_HEADER in headers else None,
    )


def _host_of(text: str) -> str:
    found = _HOST.fullmatch(text.strip().lower())
    return found.group(1) if found else ""


def check_modern(headers: Headers, message: Message) -> str:
    """Return the protocol version of a request whose headers agree with its body; else raise.

    A proxy routes and authorizes by the headers. If they could differ from the body, a request that looks
    like a harmless method there would run another one here.
    """
    meta = message.params.get("_meta")
    said = meta.get(VERSION_KEY) if isinstance(meta, dict) else None
    version = headers.get(VERSION_HEADER)
    if isinstance(said, str) and version != said:
        raise _mismatch("MCP-Protocol-Version", "the protocol version of the body")
    checked = check_envelope(meta)
    if headers.get(_METHOD_HEADER) != message.method:
        raise _mismatch("Mcp-Method", "the method of the body")
    key = NAMED_BY.get(message.method)
    if key is not None:
        name = message.params.get(key)
        header = headers.get(_NAME_HEADER)
        if isinstance(name, str) and (header is None or decoded(header) != name):
            raise _mismatch("Mcp-Name", f"{key} of the body")
    return checked


def check_params(headers: Headers, schema: Mapping[str, Any], arguments: object) -> None:
    """Raise if arguments differ from their `Mcp-Param-…` headers, which a proxy may have decided by."""
    given = arguments if isinstance(arguments, dict) else {}
    for path, token, kind in annotated(schema):
        shown = f"Mcp-Param-{token}"
        header = headers.get(_PARAM_PREFIX + token.lower().encode())
        value = at(given, path)
        text = rendered(value)
        if text is None and header is None:
            continue
        if header is None or text is None or not _same(decoded(header), value, text, kind):
            raise _mismatch(shown, f"the argument {'.'.join(path)}")


def _same(said: str | None, value: Any, rendered: str, kind: Any) -> bool:
    if said is None:
        return False
    is_whole = type(value) is int or (type(value) is float and value.is_integer())
    if kind == "integer" and is_whole and _DECIMAL.fullmatch(said):
        return int(said.partition(".")[0]) == int(value)
    return said == rendered


def _mismatch(header: str, other: str) -> ProtocolError:
    return ProtocolError(HEADER_MISMATCH, f"The header {header} does not say what {other} says")
