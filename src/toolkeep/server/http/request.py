"""One request, parsed as its route declares it: everything that is not declared is refused."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl

import jiter
import msgspec

from toolkeep.errors import Code
from toolkeep.mcp_server.http_app import Gone, TooLong, read_body
from toolkeep.mcp_server.http_headers import Headers
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.responses import Send
from toolkeep.text.display import echo_name

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]

_QUERY_FIELDS: Final = 32
"""Maximum number of query fields, counted before any is parsed: several times what any route takes."""
_MISSING: Final = object()
_PARENT: Final = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """One parameter of the path, the query or the headers, with its constraints."""

    name: str
    about: str
    place: str = "query"
    kind: str = "string"
    default: Any = None
    minimum: int | None = None
    maximum: int | None = None
    longest: int = 256
    shortest: int = 1
    pattern: str = ""
    choices: tuple[str, ...] = ()
    is_required: bool = False

    def schema(self) -> dict[str, Any]:
        """Its JSON Schema."""
        schema: dict[str, Any] = {"type": self.kind}
        if self.kind == "string":
            schema |= {"minLength": self.shortest, "maxLength": self.longest}
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        limits = {"minimum": self.minimum, "maximum": self.maximum, "default": self.default}
        schema |= {key: value for key, value in limits.items() if value is not None}
        return schema | ({"enum": list(self.choices)} if self.choices else {})

    def read(self, text: str) -> Any:
        """Parse a value; raises if it does not fit."""
        value = self._value(text)
        if value is _MISSING:
            # The value is not echoed: it may be a token in the wrong place, and errors end up in logs.
            raise RequestRefused(Code.REQUEST_INVALID, f"{self.name} {self._wanted()}")
        return value

    def _value(self, text: str) -> Any:
        if self.kind == "integer":
            value = int(text) if _INTEGER.fullmatch(text) else None
            low, high = self.minimum, self.maximum
            fits = value is not None and (low is None or value >= low) and (high is None or value <= high)
            return value if fits else _MISSING
        if self.kind == "boolean":
            return {"true": True, "false": False}.get(text, _MISSING)
        fits = self.shortest <= len(text) <= self.longest and (not self.choices or text in self.choices)
        return text if fits and (not self.pattern or re.fullmatch(self.pattern, text)) else _MISSING

    def _wanted(self) -> str:
        if self.kind == "integer":
            return f"must be a whole number from {self.minimum} to {self.maximum}"
        if self.kind == "boolean":
            return "must be true or false"
        if self.choices:
            return f"must be one of {', '.join(filter(None, self.choices))}"
        return f"must have {self.shortest} to {self.longest} characters of the documented form"


class Request:
    """A request and its authenticated caller."""

    __slots__ = ("_scope", "body_bytes", "caller", "headers", "method", "names", "query", "receive", "send")

    def __init__(self, scope: Scope, receive: Receive, send: Send, headers: Headers, body_bytes: int) -> None:
        self._scope = scope
        self.receive = receive
        self.send = send
        self.headers = headers
        self.method: str = scope["method"]
        self.names: Mapping[str, str] = {}
        """Path parameters."""
        self.query: Mapping[str, Any] = {}
        self.caller: Caller = _NOBODY
        self.body_bytes = body_bytes

    def read_query(self, declared: Mapping[str, Parameter]) -> None:
        """Parse the query as declared; raises for anything else."""
        raw: bytes = self._scope["query_string"]
        found: dict[str, Any] = {}
        if raw:
            found = self._given(raw, declared)
        for name, parameter in declared.items():
            if name not in found:
                if parameter.is_required:
                    raise RequestRefused(Code.REQUEST_INVALID, f"{name} is missing from the query")
                found[name] = parameter.default
        self.query = found

    def _given(self, raw: bytes, declared: Mapping[str, Parameter]) -> dict[str, Any]:
        try:
            pairs = parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                strict_parsing=True,
                errors="strict",
                max_num_fields=_QUERY_FIELDS,
            )
        except ValueError as error:
            raise RequestRefused(Code.REQUEST_INVALID, "the query cannot be read") from error
        found: dict[str, Any] = {}
        for name, text in pairs:
            if name not in declared or name in found:
                why = "is given twice" if name in found else "is not a parameter here"
                shown = name if name in declared else "a name in the query"
                known = ", ".join(declared) or "none"
                raise RequestRefused(Code.REQUEST_INVALID, f"{shown} {why}", hint=f"known: {known}")
            found[name] = declared[name].read(text)
        return found

    def read_headers(self, declared: Iterable[Parameter]) -> None:
        """Check the declared headers; raises for one that does not fit."""
        for parameter in declared:
            if parameter.name.lower().encode() in self.headers:
                parameter.read(self.header(parameter.name))

    def header(self, name: str) -> str:
        """A header that must not be duplicated; empty if absent."""
        raw = name.lower().encode()
        if self.headers.is_doubled(raw):
            raise RequestRefused(Code.REQUEST_INVALID, f"{name} is given more than once")
        return self.headers.raw(raw).decode("latin-1").strip(" \t")

    def base(self, said: str) -> str:
        """The base URL of the server: the operator's, or else from the `Host` header, which was checked."""
        if said:
            return said
        host = self.headers.raw(b"host").decode("latin-1") or "localhost"
        return f"{self._scope.get('scheme', 'http')}://{host}"

    @property
    def trace_id(self) -> str:
        """The trace id of the request (W3C Trace Context), or empty."""
        if b"traceparent" not in self.headers:
            return ""
        found = _PARENT.fullmatch(self.header("traceparent"))
        return found.group(1) if found else ""

    @property
    def wants_events(self) -> bool:
        """Whether the client accepts an SSE stream."""
        return b"text/event-stream" in self.headers.raw(b"accept")

    async def body(self) -> bytes:
        """The raw body; raises unless it is declared as JSON, within the limit and complete.

        The content type is a CSRF guard too: a foreign page can send a form, but not JSON without a
        preflight.
        """
        kind = self.headers.raw(b"content-type").partition(b";")[0].strip().lower()
        if kind != b"application/json" or self.headers.is_doubled(b"content-type"):
            raise RequestRefused(
                Code.MEDIA_REFUSED,
                "the body must be JSON",
                hint="send `Content-Type: application/json`",
                headers=((b"accept", b"application/json"),),
            )
        # A compressed body could expand far beyond the limit (decompression bomb).
        if self.headers.raw(b"content-encoding").strip().lower() not in (b"", b"identity"):
            raise RequestRefused(Code.MEDIA_REFUSED, "the body must not be compressed")
        try:
            return await read_body(self.receive, self.headers, self.body_bytes)
        except TooLong:
            raise RequestRefused(
                Code.REQUEST_TOO_BIG,
                f"the body is longer than {self.body_bytes} bytes",
                headers=((b"connection", b"close"),),
            ) from None

    async def read(self, kind: type[T]) -> T:
        """Parse the body as a type; raises with what does not fit."""
        raw = await self.body()
        return read_strictly(raw, kind)


def read_strictly(raw: bytes, kind: type[T]) -> T:
    """Parse JSON without duplicate keys: two parsers could pick different ones."""
    try:
        data = jiter.from_json(raw, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise RequestRefused(Code.REQUEST_INVALID, "the body must be exactly one valid JSON value") from error
    return converted(data, kind)


def converted(data: Any, kind: type[T]) -> T:
    """Convert JSON data to a type; errors never contain a value."""
    try:
        return msgspec.convert(data, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise schema_error(error) from error


def schema_error(error: Exception, hint: str = "") -> RequestRefused:
    """The error for a body that does not match its schema."""
    where = str(error) if isinstance(error, msgspec.ValidationError) else "it is nested too deep"
    return RequestRefused(Code.REQUEST_INVALID, f"the body is invalid: {_clean(where)}", hint=hint)


def _clean(text: str) -> str:
    """msgspec's message with types and paths, without the values that it may contain."""
    head, mark, place = text.partition(" - at ")
    if head.startswith("Invalid enum value"):
        head = "a value that is not allowed here"
    if unknown := _UNKNOWN.fullmatch(head):
        head = f"the field '{echo_name(unknown[1])}' is not documented"
    return f"{head}{mark}{place}"[:200]


_NOBODY: Final = Caller(id="", name="", scopes=(), agent="", created_at=0.0)

__all__ = [
    "Gone",
    "Parameter",
    "Receive",
    "Request",
    "Scope",
    "Send",
    "converted",
    "read_strictly",
    "schema_error",
]


def read_raw(raw: bytes, decoder: "msgspec.json.Decoder[Any]") -> Any:
    """Decode a body but leave its `arguments` unparsed; duplicate keys in the rest are refused."""
    try:
        body = decoder.decode(raw)
    except msgspec.ValidationError as error:
        hint = 'put the arguments of the tool below "arguments"' if _UNKNOWN.match(str(error)) else ""
        raise schema_error(error, hint) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestRefused(Code.REQUEST_INVALID, "the body must be exactly one valid JSON value") from error
    arguments = bytes(body.arguments)
    # Most bodies hold only `arguments`, and then there can be no duplicate.
    if not (raw.startswith(b'{"arguments":') and len(raw) == len(arguments) + 14):
        try:
            jiter.from_json(raw.replace(arguments, b"0", 1), allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError as error:
            raise RequestRefused(
                Code.REQUEST_INVALID, "the body must be exactly one valid JSON value"
            ) from error
    return body
