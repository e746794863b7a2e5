"""Static files, our own and vendored: read once, named by hash, compressed once."""

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any, Final

import msgspec

STATIC: Final = Path(__file__).resolve().parent / "static"
VENDOR: Final = STATIC / "vendor"
PREFIX: Final = "/ui/static/"
_TYPES: Final = {
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_HASH_CHARS: Final = 12
"""Characters of the hash in a URL: 48 bits tell versions of a file apart. No protection depends on them."""


class Asset(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    path: str
    body: bytes
    compressed: bytes
    content_type: bytes


class Assets:
    """All files that a page may load."""

    def __init__(self) -> None:
        self._by_name: dict[str, Asset] = {}
        self._by_path: dict[str, Asset] = {}
        for path in sorted([*STATIC.iterdir(), *VENDOR.iterdir()]):
            if path.suffix in _TYPES:
                self._add(path.relative_to(STATIC).as_posix(), path)

    def _add(self, name: str, path: Path) -> None:
        body = path.read_bytes()
        digest = hashlib.sha256(body).hexdigest()[:_HASH_CHARS]
        asset = Asset(f"{PREFIX}{digest}/{name}", body, gzip.compress(body, 9, mtime=0), _TYPES[path.suffix])
        self._by_name[name] = self._by_path[asset.path] = asset

    def find(self, path: str) -> Asset | None:
        """The file at a path; None if there is none, or its hash differs.

        A lookup in a table of known paths: no path of a request ever reaches the file system.
        """
        return self._by_path.get(path)

    def address(self, name: str) -> str:
        """The URL of a file."""
        return self._by_name[name].path


def manifest() -> list[dict[str, Any]]:
    """The vendored files with hashes, packages, versions and licences."""
    data: dict[str, list[dict[str, Any]]] = json.loads((VENDOR / "manifest.json").read_text())
    return data["files"]
