"""Static files, our own and vendored: read once, without comments, named by hash, compressed once."""

import gzip
import hashlib
import json
import re
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
_SOURCE_ONLY: Final = {
    ".css": re.compile(rb"/\*.*?\*/|^[ \t]+", re.DOTALL | re.MULTILINE),
    ".js": re.compile(rb"^[ \t]*(//.*)?", re.MULTILINE),
}
"""Comments and indentation of our files: an eighth of what a browser would load of them. Lines stay."""
_HASH_CHARS: Final = 12
"""Characters of the hash in a URL: 48 bits tell versions of a file apart. No protection depends on them."""


class Asset(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    path: str
    body: bytes
    compressed: bytes
    content_type: bytes
    brotli: bytes | None = None
    """Of a vendored script, which `scripts/vendor` compressed."""

    def encoded(self, accepted: bytes) -> tuple[bytes, bytes]:
        """The smallest form of the body that a client accepts, and its content encoding."""
        codings = {one.partition(b";")[0].strip() for one in accepted.split(b",")}
        if self.brotli is not None and b"br" in codings:
            return self.brotli, b"br"
        return (self.compressed, b"gzip") if b"gzip" in codings else (self.body, b"")


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
        if path.parent == STATIC and path.suffix in _SOURCE_ONLY:
            body = _SOURCE_ONLY[path.suffix].sub(b"", body)
        digest = hashlib.sha256(body).hexdigest()[:_HASH_CHARS]
        brotli = path.with_name(f"{path.name}.br")
        asset = Asset(
            path=f"{PREFIX}{digest}/{name}",
            body=body,
            compressed=gzip.compress(body, 9, mtime=0),
            content_type=_TYPES[path.suffix],
            brotli=brotli.read_bytes() if brotli.exists() else None,
        )
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
