"""OpenAPI parameter styles: where an argument goes in a request, and how it is encoded.

Input: a placement, validated before there is a call, and the argument of a call. Output: encoded text, so
that no argument adds a path segment, a query pair or a header line. Values that a style cannot encode raise
`ArgumentUnfit`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, get_args
from urllib.parse import quote

import msgspec

from toolkeep.text.display import echo, echo_name

Where = Literal["path", "query", "header", "cookie"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject", "json"]

STYLES: Final[Mapping[str, frozenset[str]]] = {
    "path": frozenset({"simple", "label", "matrix", "json"}),
    "query": frozenset({"form", "spaceDelimited", "pipeDelimited", "deepObject", "json"}),
    "header": frozenset({"simple", "json"}),
    "cookie": frozenset({"form", "json"}),
}
"""Styles by location; `json` encodes any value as JSON text."""

_KEYS: Final = frozenset({"argument", "in", "name", "style", "explode", "reserved"})
_RESERVED: Final = ":/?@!$'()*,;[]"
"""What `allowReserved` leaves unencoded. Never & = + #: those would start another pair, or end the query."""
_SEPARATORS: Final = {"form": ",", "simple": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
_HEADER_VALUE: Final = re.compile(r"[\t -~]*")
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_DEEP: Final = 8
"""Nesting limit of `deepObject`."""


class ArgumentUnfit(ValueError):
    """An argument value that cannot be encoded at its place; another value could."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """One argument, and where it goes."""

    argument: str
    where: Where
    name: str
    style: Style
    explode: bool = False
    reserved: bool = False
    """Whether reserved characters stay unencoded, where that is harmless."""

    @classmethod
    def read(cls, data: Any) -> "Placement":
        """Parse an object with argument, in, name, style, explode; ValueError says what is wrong."""
        if not isinstance(data, Mapping) or set(data) - _KEYS:
            raise ValueError(
                "has an argument whose place is no object with argument, in, name, style, explode"
            )
        argument, name = data.get("argument"), data.get("name")
        where: Any = data.get("in")
        if not isinstance(argument, str) or not isinstance(name, str) or where not in get_args(Where):
            raise ValueError("has an argument whose place names no argument, in and name")
        style = data.get("style", "simple" if where in ("path", "header") else "form")
        if style not in STYLES[where]:
            raise ValueError(
                f"has the argument {echo(argument)} in the {where} in a style that cannot be there"
            )
        # A name with CRLF or a colon would inject a header.
        if where in ("header", "cookie") and not _HEADER_NAME.fullmatch(name):
            raise ValueError(f"has a {where} whose name cannot be: {echo(name)}")
        flags = data.get("explode", style == "form"), data.get("reserved", False)
        if not all(isinstance(flag, bool) for flag in flags):
            raise ValueError(
                f"has the argument {echo(argument)} with an explode or reserved that is no boolean"
            )
        return cls(
            argument=argument, where=where, name=name, style=style, explode=flags[0], reserved=flags[1]
        )

    def in_path(self, value: Any) -> str:
        """Replacement of `{name}` in the path."""
        if self.style == "json":
            return quote(_json(value), safe="")
        parts = self._parts(value)
        if self.style == "simple":
            return self._joined(parts, ",")
        start = "." if self.style == "label" else ";"
        if self.style == "matrix" and not isinstance(value, dict):
            pairs = [f"{quote(self.name, safe='')}={part}" for part in parts]
            joined = ";".join(pairs) if self.explode else f"{quote(self.name, safe='')}={','.join(parts)}"
            return f";{joined}"
        if self.style == "matrix" and not self.explode:
            return f";{quote(self.name, safe='')}={','.join(parts)}"
        return start + self._joined(parts, start if self.explode else ",")

    def in_query(self, value: Any) -> list[str]:
        """The query pairs."""
        name = quote(self.name, safe="[]")
        if self.style == "json":
            return [f"{name}={quote(_json(value), safe='')}"]
        if self.style == "deepObject":
            return self._deep(name, value, _DEEP)
        parts = self._parts(value)
        if isinstance(value, dict) and self.explode:
            return parts
        if isinstance(value, list) and self.explode:
            return [f"{name}={part}" for part in parts]
        return [f"{name}={_SEPARATORS[self.style].join(parts)}"] if parts or isinstance(value, str) else []

    def in_header(self, value: Any) -> str:
        """A header value. Headers have no encoding, so only single-line plain text is accepted."""
        text = _json(value) if self.style == "json" else self._plain_joined(value)
        # CRLF injection: header values are not encoded, so anything but printable ASCII is refused.
        if not _HEADER_VALUE.fullmatch(text) or text != text.strip():
            reason = "goes into a header and must be plain text of one line"
            raise ArgumentUnfit(f"'{echo_name(self.argument)}' {reason}")
        return text

    def in_cookie(self, value: Any) -> list[str]:
        """The cookie pairs, encoded."""
        if self.style == "json":
            return [f"{self.name}={quote(_json(value), safe='')}"]
        if isinstance(value, dict) and self.explode:
            raise self._unfit("cannot be written into a cookie")
        return [f"{self.name}={'%2C'.join(self._parts(value))}"]

    def _plain_joined(self, value: Any) -> str:
        if isinstance(value, dict):
            between = "=" if self.explode else ","
            return ",".join(f"{name}{between}{self._text(inside)}" for name, inside in value.items())
        if isinstance(value, list):
            return ",".join(map(self._text, value))
        return self._text(value)

    def _joined(self, parts: list[str], separator: str) -> str:
        return separator.join(parts)

    def _parts(self, value: Any) -> list[str]:
        """A value as encoded parts: one, one per item, or name and value of each member."""
        if isinstance(value, list):
            return [self._encoded(item) for item in value if item is not None]
        if not isinstance(value, dict):
            return [self._encoded(value)]
        members = [(quote(n, safe=""), self._encoded(v)) for n, v in value.items() if v is not None]
        if self.explode:
            return [f"{name}={text}" for name, text in members]
        return [part for member in members for part in member]

    def _deep(self, name: str, value: Any, depth: int) -> list[str]:
        if isinstance(value, dict):
            if not depth:
                raise self._unfit("is nested too deep for a query")
            inside = [(f"{name}[{quote(key, safe='')}]", item) for key, item in value.items()]
            return [pair for key, item in inside for pair in self._deep(key, item, depth - 1)]
        if isinstance(value, list):
            return [f"{name}={self._encoded(item)}" for item in value if item is not None]
        return [] if value is None else [f"{name}={self._encoded(value)}"]

    def _encoded(self, value: Any) -> str:
        return quote(self._text(value), safe=_RESERVED if self.reserved and self.where == "query" else "")

    def _text(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, (bool, int, float)):
            return json.dumps(value)
        raise self._unfit("holds something that cannot be written there: only plain values can")

    def _unfit(self, reason: str) -> ArgumentUnfit:
        return ArgumentUnfit(f"'{echo_name(self.argument)}' {reason}")


def form_body(fields: Any, placements: Mapping[str, Placement]) -> bytes:
    """Encode an object as `application/x-www-form-urlencoded`."""
    if not isinstance(fields, dict):
        raise ArgumentUnfit("the body must be an object")
    pairs: list[str] = []
    for name, value in fields.items():
        if value is not None:
            place = placements.get(name) or _usual(name, value)
            _refuse_spilling(place, value, fields)
            pairs += place.in_query(value)
    return "&".join(pairs).encode()


def _usual(name: str, value: Any) -> Placement:
    """Scalars as they are, lists of scalars item by item, anything deeper as JSON (Encoding Object)."""
    items = value if isinstance(value, list) else [value]
    is_deep = any(isinstance(item, (dict, list)) for item in items)
    return Placement(
        argument=name, where="query", name=name, style="json" if is_deep else "form", explode=True
    )


def _refuse_spilling(place: Placement, value: Any, fields: dict[str, Any]) -> None:
    """Refuse an exploded object whose members would overwrite other fields of the form."""
    if isinstance(value, dict) and place.style == "form" and place.explode:
        for name in value:
            if name in fields and name != place.name:
                raise ArgumentUnfit(
                    f"'{echo_name(place.argument)}' has a member that is another field, '{echo_name(name)}'"
                )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
