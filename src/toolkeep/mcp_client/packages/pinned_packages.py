"""The dependency tree of a server, pinned: each package with its version and integrity hash.

It stands in the file that pins the tools of the server, and is accepted with it. The tree is installed from
it, on this machine or another, and `toolkeep.lock` lists its packages. No registry's address is in it.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from toolkeep.json_values.canonical import canonical_hash

if TYPE_CHECKING:
    from toolkeep.registry.lockfile import LockedPackage

_INTEGRITY: Final = re.compile(r"sha(?:256|384|512)-[A-Za-z0-9+/=]{40,100}")
_PATH: Final = re.compile(r"(?!.*(?:^|/)\.\.?(?:/|$))[^/\0].*")
"""A relative path without dot components: the tree comes from a file that others may have written."""
_PACKAGES: Final = 5_000
"""More than any server has; bounds what a hostile file costs."""


class PinnedPackages(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is installed for one server."""

    ecosystem: Literal["npm", "pypi"]
    program: str
    """Path of the program in the tree."""
    tree: dict[str, dict[str, Any]]
    """npm: entries of a package-lock.json by place; PyPI: version and integrity by name.

    For one that was built here, `integrity` is of the wheel, `source` of its source archive, and `build` has
    the entries of its build requirements.
    """
    made_for: str = ""
    """PyPI: the Python and platform of its wheels."""
    scripts: tuple[str, ...] = ()
    """Packages whose install scripts, or build from source, a person allowed."""

    @classmethod
    def read(cls, data: Any) -> "PinnedPackages":
        """Parse the data form; ValueError says what is wrong."""
        try:
            pinned = msgspec.convert(data, cls)
        except msgspec.ValidationError as error:
            raise ValueError(f"its packages cannot be read: {error}") from None
        if not _PATH.fullmatch(pinned.program):
            raise ValueError("its program lies outside its packages")
        if len(pinned.tree) > _PACKAGES:
            raise ValueError(f"it has more than {_PACKAGES} packages")
        for place, entry in pinned.tree.items():
            _check(pinned.ecosystem, place, entry)
            if "source" in entry or "build" in entry:
                _check_build(pinned, place, entry)
        return pinned

    def to_dict(self) -> dict[str, Any]:
        """The data form."""
        data = {**msgspec.to_builtins(self), "scripts": list(self.scripts)}
        return {key: value for key, value in data.items() if value}

    @property
    def digest(self) -> str:
        """Identity of the tree: the same packages in the same places."""
        return canonical_hash(self.to_dict())

    def locked(self) -> "tuple[LockedPackage, ...]":
        """Its packages as `toolkeep.lock` lists them, sorted and each once."""
        from toolkeep.registry.lockfile import LockedPackage  # a keep without a lock does without

        found = {
            LockedPackage(
                name=f"{self.ecosystem}:{_name(place, entry)}",
                version=entry["version"],
                integrity=entry["integrity"],
            )
            for place, entry in self.tree.items()
            if "integrity" in entry
        }
        return tuple(sorted(found, key=lambda package: (package.name, package.version, package.integrity)))


def _name(place: str, entry: Mapping[str, Any]) -> str:
    """The name of a package: an alias has another one than its place."""
    return str(entry.get("name") or place.rpartition("node_modules/")[2])


def _check(ecosystem: str, place: str, entry: Mapping[str, Any]) -> None:
    """Raise ValueError for an entry that a registry does not vouch for."""
    if ecosystem == "npm" and not place:
        return  # the list of what was asked for
    is_inside = _PATH.fullmatch(place) and (ecosystem == "pypi" or place.startswith("node_modules/"))
    if not is_inside or entry.get("link") or "resolved" in entry:
        raise ValueError(f"its package at {place!r} does not come from a registry")
    if not isinstance(entry.get("version"), str):
        raise ValueError(f"its package at {place!r} has no version")
    # A bundled package is part of another one's archive, whose hash covers it.
    is_covered = bool(entry.get("inBundle"))
    if not is_covered and not _INTEGRITY.fullmatch(str(entry.get("integrity"))):
        raise ValueError(f"its package at {place!r} has no SHA-256 or SHA-512 hash")


def _check_build(pinned: PinnedPackages, name: str, entry: Mapping[str, Any]) -> None:
    """Raise ValueError for a package that would be built without permission, or without hashes."""
    requirements = entry.get("build")
    if pinned.ecosystem != "pypi" or name not in pinned.scripts or not isinstance(requirements, dict):
        raise ValueError(f"its package at {name!r} is built from source, which is not allowed")
    for place, needed in requirements.items():
        _check("pypi", place, needed if isinstance(needed, dict) else {})
    if not _INTEGRITY.fullmatch(str(entry.get("source"))):
        raise ValueError(f"its package at {name!r} has no hash of its source")
