"""An OpenAPI document, 2.0, 3.0 or 3.1, as data, and its local references.

In: untrusted bytes. Out: a `Document`, whose references are looked up and never fetched: a reference could
otherwise make the host read a local file or reach an internal address (SSRF). The servers that a document
names have no effect before a person has chosen one.
"""

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.errors import FileUnreadable
from toolkeep.host.files import read_named
from toolkeep.json_values.yaml import read_yaml
from toolkeep.limits import DEFINITION_FILE_BYTES, DOCUMENT_DEPTH
from toolkeep.text.display import echo, echo_name
from toolkeep.validation.parse import NotStrictJson, parse_json_fully

METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
_VERSION: Final = re.compile(r"3\.([01])(\.[0-9]+)?(-[0-9A-Za-z.-]+)?")
_DIALECTS: Final = frozenset(
    {
        "https://spec.openapis.org/oas/3.1/dialect/base",
        "https://spec.openapis.org/oas/3.1/dialect/2024-11-10",
        "https://json-schema.org/draft/2020-12/schema",
    }
)
_ANCHOR: Final = re.compile(r"#[A-Za-z_][A-Za-z0-9_.-]*")
_ANCHORED: Final = 200_000
"""Subschemas of the components that are searched for anchors; a document with more has none."""
_HOPS: Final = 32
"""References that lead to references; a longer chain is a cycle."""


class Refused(Exception):
    """Why an operation, or the whole document, cannot be imported."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was read."""

    data: dict[str, Any]
    is_3_0: bool
    anchors: Mapping[str, dict[str, Any]] = {}
    """Schemas of its components by their `$anchor`."""

    @property
    def title(self) -> str:
        """Its title."""
        title = _object(self.data.get("info")).get("title")
        return title if isinstance(title, str) else ""

    @property
    def version(self) -> str:
        """Its stated version."""
        version = _object(self.data.get("info")).get("version")
        return version if isinstance(version, str) else ""

    def look_up(self, reference: Any) -> Any:
        """The target of a local reference; `Refused` for any other, and for a dangling one."""
        if isinstance(reference, str) and _ANCHOR.fullmatch(reference):
            return self._named(reference)
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise Refused(f"refers to {echo(reference)}, which is not in the document; nothing is fetched")
        here: Any = self.data
        for token in reference[2:].split("/"):
            here = _child(here, _unescaped(token))
            if here is None:
                raise Refused(f"refers to {echo(reference)}, which the document does not hold")
        return here

    def _named(self, reference: str) -> Any:
        if (found := self.anchors.get(reference[1:])) is None:
            raise Refused(f"refers to {echo(reference)}, which is not one schema of the document")
        return found

    def followed(self, value: Any) -> Any:
        """A parameter, body, response or header, references followed."""
        for _ in range(_HOPS):
            if not isinstance(value, dict) or "$ref" not in value:
                return value
            value = self.look_up(value["$ref"])
        raise Refused("refers in circles")

    def lost_paths(self) -> Iterator[tuple[str, str]]:
        """Paths whose operations cannot be read, and why."""
        for key, item in _object(self.data.get("paths")).items():
            path = str(key)
            if path.startswith("x-"):
                continue
            try:
                if not isinstance(self.followed(item), dict):
                    yield path, "is not an object with operations"
            except Refused as refused:
                yield path, str(refused)

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """Path, method, path item and operation of each operation."""
        for path, item in _object(self.data.get("paths")).items():
            try:
                found = self.followed(item)
            except Refused:
                found = item
            for method in METHODS:
                operation = _object(found).get(method)
                if isinstance(operation, dict) and isinstance(path, str):
                    yield path, method, found, self._followed_operation(operation)

    def _followed_operation(self, operation: dict[str, Any]) -> dict[str, Any]:
        """An operation behind a reference, which OpenAPI does not allow and documents have; `check_operation`
        says what is wrong with one that leads nowhere."""
        with contextlib.suppress(Refused):
            found = self.followed(operation)
            return found if isinstance(found, dict) else operation
        return operation

    def check_operation(self, operation: dict[str, Any]) -> None:
        """Raise if it is a reference: without its target it would be a tool without parameters."""
        if "$ref" in operation:
            self.followed(operation)
            raise Refused("refers to something that is not an operation")


def read_document(raw: bytes, path: str) -> Document:
    """Parse a document in JSON or YAML; `FileUnreadable` says why it failed."""
    if len(raw) > DEFINITION_FILE_BYTES:
        raise FileUnreadable(path, f"is over {DEFINITION_FILE_BYTES} bytes")
    data = parse_document(raw, path)
    if not isinstance(data, dict):
        raise FileUnreadable(path, "is not an OpenAPI document: it must be an object")
    if data.get("swagger") in ("2.0", 2.0):
        from toolkeep.sources.openapi.swagger import from_swagger

        data = from_swagger(data)
    version = data.get("openapi")
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise FileUnreadable(path, f"says openapi: {echo(version)}; 2.0 (Swagger), 3.0 and 3.1 are read")
    dialect = data.get("jsonSchemaDialect")
    if dialect is not None and dialect not in _DIALECTS:
        raise FileUnreadable(path, f"has the schema dialect {echo(dialect)}, which is not read")
    anchors = _anchors(data) if b"$anchor" in raw else {}
    return Document(data=data, is_3_0=match[1] == "0", anchors=anchors)


def _anchors(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Schemas by `$anchor`; empty if two are the same, or there are too many."""
    found: dict[str, dict[str, Any]] = {}
    twice, waiting = set[str](), [_object(data.get("components")).get("schemas")]
    for _ in range(_ANCHORED):
        if not waiting:
            return {name: schema for name, schema in found.items() if name not in twice}
        here = waiting.pop()
        schema = _object(here)
        name = schema.get("$anchor")
        if isinstance(name, str) and found.setdefault(name, schema) is not schema:
            twice.add(name)
        inside = here.values() if isinstance(here, dict) else here if isinstance(here, list) else ()
        waiting += [part for part in inside if isinstance(part, (dict, list))]
    return {}


def load_document(path: Path) -> tuple[Document, bytes]:
    """The document of a file, and its bytes."""
    raw = read_named(path, DEFINITION_FILE_BYTES)
    return read_document(raw, str(path)), raw


def parse_document(raw: bytes, path: str) -> Any:
    """The data of a file in JSON or YAML."""
    if raw.lstrip()[:1] == b"{":
        with contextlib.suppress(NotStrictJson):  # YAML reads it too, and tells where it is wrong
            return parse_json_fully(raw, depth=DOCUMENT_DEPTH)
    # Quotation marks of Windows-1252 in descriptions, which YAML does not allow.
    return read_yaml(_C1_CONTROLS.sub(b" ", raw), path, takes_numbers_as_keys=True).data


_C1_CONTROLS: Final = re.compile(rb"\xc2[\x80-\x9f]")


def _child(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and len(key) < 6 and int(key) < len(value):
        return value[int(key)]
    return None


def _unescaped(token: str) -> str:
    """A JSON Pointer token from a URI fragment."""
    from urllib.parse import unquote

    return unquote(token).replace("~1", "/").replace("~0", "~")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def shown_operation(path: str, method: str) -> str:
    """The name of an operation for people."""
    return f"{method.upper()} {echo_name(path)}"
