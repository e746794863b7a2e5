"""Bundle an OpenAPI document that refers to files beside it into one document.

Only a person who names the document bundles it (`toolkeep add openapi`); what is kept and accepted is the
bundle. Files are read from the folder of the document and below, never through a link that leads out of it,
and nothing is fetched: the document's author must not choose which files of the machine are read.
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from toolkeep.errors import FileUnreadable
from toolkeep.host.files import read_named
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.sources.openapi.document import parse_document

_FILES: Final = "x-files"
"""Key of the bundle below which it holds the other files, by their path."""
_MOST_FILES: Final = 5_000
"""Several times as many as the largest public document has; each is opened and parsed."""
_OTHER_PLACE: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:|//")
_DATA: Final = frozenset((".json", ".yaml", ".yml"))


def bundle(path: Path, raw: bytes) -> bytes:
    """The document with the files that it refers to, as JSON; as it is if it refers to none."""
    data = parse_document(raw, str(path))
    if not isinstance(data, dict) or not any(map(_file_of, _references(data))):
        return raw
    bundled = _Bundle(path.parent, len(raw)).document(data)
    made = json.dumps(bundled, ensure_ascii=False, separators=(",", ":")).encode()
    if len(made) > DEFINITION_FILE_BYTES:
        raise FileUnreadable(str(path), f"is over {DEFINITION_FILE_BYTES} bytes with the files it refers to")
    return made


class _Bundle:
    def __init__(self, folder: Path, size: int) -> None:
        self._folder = Path(os.path.realpath(folder))
        self._read = size
        self._waiting: list[str] = []
        self._files: dict[str, Any] = {}

    def document(self, data: dict[str, Any]) -> dict[str, Any]:
        made = self._moved(data, "")
        while self._waiting:
            name = self._waiting.pop()
            self._files[name] = self._moved(self._content(name), name)
        return {**made, _FILES: self._files}

    def _moved(self, value: Any, inside: str) -> Any:
        """A value of the file `inside`, with references into the bundle."""
        if isinstance(value, list):
            return [self._moved(one, inside) for one in value]
        if not isinstance(value, dict):
            return value
        return {
            key: self._reference(one, inside)
            if key == "$ref" and isinstance(one, str)
            else self._moved(one, inside)
            for key, one in value.items()
        }

    def _reference(self, reference: str, inside: str) -> str:
        file, _, fragment = reference.partition("#")
        if _OTHER_PLACE.match(reference) or (not file and not inside):
            return reference
        name = os.path.normpath(PurePosixPath(inside).parent / file) if file else inside
        if name not in self._files:
            self._files[name] = None
            self._waiting.append(name)
            if len(self._files) > _MOST_FILES:
                raise FileUnreadable(str(self._folder), f"refers to more than {_MOST_FILES} files")
        return f"#/{_FILES}/{_escaped(name)}{fragment}"

    def _content(self, name: str) -> Any:
        path = self._folder / name
        if not Path(os.path.realpath(path)).is_relative_to(self._folder):
            raise FileUnreadable(name, "is outside the folder of the document, and is not read")
        raw = read_named(path, DEFINITION_FILE_BYTES)
        self._read += len(raw)
        if self._read > DEFINITION_FILE_BYTES:
            raise FileUnreadable(name, f"makes the document larger than {DEFINITION_FILE_BYTES} bytes")
        return parse_document(raw, name) if path.suffix in _DATA else raw.decode("utf-8", "replace")


def _references(value: Any) -> Iterator[str]:
    waiting = [value]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            if isinstance(reference := here.get("$ref"), str):
                yield reference
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here


def _file_of(reference: str) -> str:
    return "" if _OTHER_PLACE.match(reference) else reference.partition("#")[0]


def _escaped(name: str) -> str:
    """A path as one token of a JSON Pointer in a URI."""
    return name.replace("%", "%25").replace("~", "~0").replace("/", "~1")
