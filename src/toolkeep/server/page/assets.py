"""Static files: ours and those of others, read once, named by their hash, compressed once."""

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


class Asset(msgspec.Struct, frozen=True):
    """One file as it is sent."""

    path: str
    body: bytes
    compressed: bytes
    content_type: bytes


class Assets:
    """Every file that a page may ask for."""

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
        """The file at an address; None where there is none, or another than the page was made with."""
        return self._by_path.get(path)

    def address(self, name: str) -> str:
        """Where a page finds a file."""
        return self._by_name[name].path


def manifest() -> list[dict[str, Any]]:
    """What is vendored: each file with its hash, and the packages in it with version and licence."""
    data: dict[str, list[dict[str, Any]]] = json.loads((VENDOR / "manifest.json").read_text())
    return data["files"]
