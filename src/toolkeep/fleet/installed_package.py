"""The installed distribution of a package, and the distributions that it requires (SCL-3).

A server states them of a package that it sends; a worker compares them with what is installed there. Both
read the metadata in the folders that sandboxed tools import from, and import nothing. An installed
distribution is known by its name and version; its content is not compared.
"""

import json
import os
import re
from collections.abc import Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

import msgspec

from toolkeep.errors import FileUnreadable
from toolkeep.execution.tool_code import editable_places, site_folders
from toolkeep.sandbox.trusted_paths import is_within

_OURS: Final = "toolkeep"
_METADATA: Final = (".dist-info", ".egg-info")

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")]
Version = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.!+_-]{0,99}\Z")]


class Pin(msgspec.Struct, frozen=True, array_like=True):
    """A distribution in one version, and what it requires."""

    name: Name
    version: Version
    requires: Annotated[dict[Name, Version], msgspec.Meta(max_length=1_000)]
    """The installed version of each distribution that it requires, directly or indirectly."""


def pin_of(place: str) -> Pin:
    """The distribution that a top-level package or module is of; raises `FileUnreadable`."""
    shown = Path(place).name
    owners = _owners(place)
    if not owners:
        raise FileUnreadable(shown, "is of no installed distribution, so what it requires is not known")
    if len(owners) > 1:
        names = ", ".join(sorted(one.name for one in owners))
        raise FileUnreadable(shown, f"is of several distributions at once: {names}")
    owner = owners[0]
    if beside := _modules(owner) - {_module(shown)}:
        also = f"its distribution {owner.name} {owner.version} also installs '{min(beside)}' beside it"
        raise FileUnreadable(shown, f"{also}, which would be missing")
    return Pin(owner.name, owner.version, _required_by(owner))


def _owners(place: str) -> list[Distribution]:
    folder, name = os.path.split(place)
    site = site_folders()
    if os.path.realpath(folder) in site:
        return [one for one in distributions(path=[folder]) if _module(name) in _modules(one)]
    real = os.path.realpath(place)
    if real not in editable_places(site):
        return []
    # Of projects inside each other, the innermost.
    found = [(project, one) for one in distributions(path=site) if (project := _project(one))]
    around = [(project, one) for project, one in found if is_within(real, project)]
    nearest = max((len(project) for project, _ in around), default=0)
    return [one for project, one in around if len(project) == nearest]


def _project(distribution: Distribution) -> str:
    """The folder of an editable install (PEP 610); empty for another."""
    try:
        origin = json.loads(distribution.read_text("direct_url.json") or "{}")
        is_editable = origin.get("dir_info", {}).get("editable") is True
        return os.path.realpath(unquote(urlsplit(origin["url"]).path)) if is_editable else ""
    except (AttributeError, KeyError, ValueError):
        return ""


def _modules(distribution: Distribution) -> set[str]:
    """What it installs at the top of its folder, but for its metadata; of an editable install, nothing."""
    if _project(distribution):
        return set()
    if distribution.read_text("RECORD") is None:  # packages of a system
        return set((distribution.read_text("top_level.txt") or "").split())
    tops = {file.parts[0] for file in distribution.files or ()}
    # ".." and "/": scripts and manuals, which no import finds
    return {_module(top) for top in tops if not top.endswith(_METADATA)} - {"..", "/", "__pycache__"}


def _module(file: str) -> str:
    return file.removesuffix(".py")


def _required_by(owner: Distribution) -> dict[str, str]:
    """The closure of its requirements without its extras, in the versions that are installed here.

    Not of toolkeep, which a worker has by itself.
    """
    from packaging.requirements import InvalidRequirement, Requirement  # of the extra `nats`
    from packaging.utils import canonicalize_name

    left_out = {canonicalize_name(owner.name), _OURS}
    found: dict[str, str] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(owner, {""})]
    for distribution, extras in waiting:
        for text in distribution.requires or ():
            try:
                needed = Requirement(text)
            except InvalidRequirement as error:
                raise FileUnreadable(distribution.name, f"requires {text!r}, which is unreadable") from error
            if needed.marker and not any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                continue
            name = canonicalize_name(needed.name)
            new = {(name, extra) for extra in ("", *needed.extras)} - seen
            if name in left_out or not new:
                continue
            seen |= new
            installed = _installed(name)
            if installed is None:
                raise FileUnreadable(distribution.name, f"it requires {name}, which is not installed here")
            found[name] = installed.version
            waiting.append((installed, {extra for _, extra in new}))
    return found


def _installed(name: str) -> Distribution | None:
    return next(iter(distributions(name=name, path=site_folders())), None)


def metadata_of(pin: Pin) -> dict[str, bytes]:
    """The file in which code finds its own version, by `importlib.metadata`."""
    name = re.sub(r"[-_.]+", "_", pin.name)  # a dash would end it
    written = f"Metadata-Version: 2.1\nName: {pin.name}\nVersion: {pin.version}\n"
    return {f"{name}-{pin.version}.dist-info/METADATA": written.encode()}


def lacking(requires: Mapping[str, str]) -> str:
    """What is not installed here in the same version; empty if all is."""
    lacks = []
    for name, version in sorted(requires.items()):
        installed = _installed(name)
        if installed is None:
            lacks.append(f"{name} {version}, which is not installed here")
        elif installed.version != version:
            lacks.append(f"{name} {version}, where {installed.version} is installed")
    return "; ".join(lacks)
