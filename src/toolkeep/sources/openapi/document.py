"""An OpenAPI document, 3.0 or 3.1, as data, and its local references.

Comes in: bytes that somebody else wrote. Goes out: a `Document`, in which a reference is looked up and never
fetched. What a document says about addresses counts for nothing before a person has seen it.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.documents import read_yaml
from toolkeep.errors import FileUnreadable
from toolkeep.files import read_named
from toolkeep.limits import DEFINITION_FILE_BYTES, DOCUMENT_DEPTH
from toolkeep.validation.parse import parse_json_fully
from toolkeep.validation.reasons import NotStrictJson
from toolkeep.wording import echo, echo_name

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
"""Parts of the components that are looked through for names."""
_HOPS: Final = 32
"""References that lead to references."""


class Refused(Exception):
    """Why an operation, or the whole document, cannot be imported."""


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was read."""

    data: dict[str, Any]
    is_3_0: bool
    anchors: Mapping[str, dict[str, Any]] = {}
    """Schemas of its components that have a name of their own (`$anchor`)."""

    @property
    def title(self) -> str:
        """What it calls itself."""
        title = _object(self.data.get("info")).get("title")
        return title if isinstance(title, str) else ""

    @property
    def version(self) -> str:
        """The version that it says it has."""
        version = _object(self.data.get("info")).get("version")
        return version if isinstance(version, str) else ""

    def look_up(self, reference: Any) -> Any:
        """What a local reference leads to; `Refused` for any other, and for one that leads nowhere."""
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
                    yield path, "is no object with operations"
            except Refused as refused:
                yield path, str(refused)

    def operations(self) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
        """Path, method, path item and operation of each operation there is."""
        for path, item in _object(self.data.get("paths")).items():
            try:
                found = self.followed(item)
            except Refused:
                found = item
            for method in METHODS:
                operation = _object(found).get(method)
                if isinstance(operation, dict) and isinstance(path, str):
                    yield path, method, found, operation


def read_document(raw: bytes, path: str) -> Document:
    """The document in JSON or YAML bytes; `FileUnreadable` says why there is none."""
    if len(raw) > DEFINITION_FILE_BYTES:
        raise FileUnreadable(path, f"is over {DEFINITION_FILE_BYTES} bytes")
    data = _parsed(raw, path)
    if not isinstance(data, dict):
        raise FileUnreadable(path, "is no OpenAPI document: it must be an object")
    version = data.get("openapi")
    if "swagger" in data:
        raise FileUnreadable(path, "is OpenAPI 2.0; convert it to 3.0 or 3.1 first")
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise FileUnreadable(path, f"says openapi: {echo(version)}; 3.0 and 3.1 are read")
    dialect = data.get("jsonSchemaDialect")
    if dialect is not None and dialect not in _DIALECTS:
        raise FileUnreadable(path, f"has the schema dialect {echo(dialect)}, which is not read")
    anchors = _anchors(data) if b"$anchor" in raw else {}
    return Document(data=data, is_3_0=match[1] == "0", anchors=anchors)


def _anchors(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Schemas by their own names; none where two have the same, or there is more than is looked through."""
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


def _parsed(raw: bytes, path: str) -> Any:
    if raw.lstrip()[:1] != b"{":
        return read_yaml(raw, path, takes_numbers_as_keys=True).data
    try:
        return parse_json_fully(raw, depth=DOCUMENT_DEPTH)
    except NotStrictJson:
        return read_yaml(
            raw, path, takes_numbers_as_keys=True
        ).data  # says where it is wrong; YAML with braces is read, too


def _child(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and len(key) < 6 and int(key) < len(value):
        return value[int(key)]
    return None


def _unescaped(token: str) -> str:
    """A token of a JSON Pointer in a URI fragment."""
    from urllib.parse import unquote

    return unquote(token).replace("~1", "/").replace("~0", "~")


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def shown_operation(path: str, method: str) -> str:
    """How an operation is named to a person."""
    return f"{method.upper()} {echo_name(path)}"
