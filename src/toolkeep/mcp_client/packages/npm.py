"""Resolves and installs npm packages with npm itself, confined and without install scripts.

npm checks each archive against its hash, keeps archives from writing outside their folder, and skips links in
them. What it leaves is checked again when the tree is kept.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.errors import ImportRefused
from toolkeep.host.files import read_named
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.mcp_client.packages.confined_install import (
    ConfinedInstall,
    ProgramFailed,
    Registry,
    Resolution,
    public_files,
    without_credentials,
)
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.mcp_client.packages.runner_commands import PackageCommand
from toolkeep.text.display import echo_name, visible

_QUIET: Final = (
    *("--ignore-scripts", "--omit=dev", "--no-audit", "--no-fund", "--no-update-notifier", "--no-progress"),
    *("--loglevel=error", "--userconfig=none", "--globalconfig=none-global"),
    *("--fetch-retry-mintimeout=500", "--fetch-retry-maxtimeout=5000"),
    # Archives come from the registry too, whatever host its metadata names.
    *("--replace-registry-host=always", "--omit-lockfile-registry-resolved=false"),
)
_KEPT: Final = (
    *("version", "integrity", "name", "dependencies", "optionalDependencies", "peerDependencies"),
    *(
        "peerDependenciesMeta",
        "bundleDependencies",
        "inBundle",
        "optional",
        "devOptional",
        "peer",
        "os",
        "cpu",
    ),
    *("libc", "bin", "hasInstallScript"),
)
"""Fields of an entry in package-lock.json that npm needs to install it; not the registry's address."""
_SPEC: Final = re.compile(r"(?:npm:(?:@[^/:]+/)?[^/:@]+(?:@|$))?[^/:]*")
"""A range of versions or a tag, of the package itself or of another by its alias."""
_TAG: Final = re.compile(r"[A-Za-z][A-Za-z_-]+")
_TREE: Final = "tree"
_ROOT: Final = {"name": "server", "version": "0.0.0", "private": True}


class _LockEntry(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of an entry in package-lock.json that are used here."""

    version: str = ""
    dependencies: dict[str, str] = {}
    optional_dependencies: dict[str, str] = {}
    peer_dependencies: dict[str, str] = {}
    bin: dict[str, str] = {}


class _Lock(msgspec.Struct, frozen=True):
    packages: dict[str, _LockEntry]


class _Releases(msgspec.Struct, frozen=True):
    """What `npm view` tells about the versions of a package."""

    time: dict[str, Any] = {}
    tags: dict[str, str] = msgspec.field(default_factory=dict, name="dist-tags")


class Npm:
    """npm of this machine, with its configured registry."""

    def __init__(self) -> None:
        self.node = _host_output("node", "-p", "process.execPath")
        settings = json.loads(_host_output("npm", "config", "ls", "--json"))
        cli = os.path.realpath(shutil.which("npm") or "")
        if not cli.endswith(".js"):  # a version manager's shim
            cli = f"{_host_output('npm', 'root', '-g')}/npm/bin/npm-cli.js"
        self._argv = (self.node, cli)
        # Scopes that the user has elsewhere must not be asked for at the public registry, where others may
        # have registered them (dependency confusion).
        self._registries = {
            key: without_credentials(str(value))
            for key, value in settings.items()
            if value and (key == "registry" or (key.startswith("@") and key.endswith(":registry")))
        }
        if "registry" not in self._registries:
            # npm tells nobody an address with a password in it.
            reason = "is configured with a registry whose address holds a password, and none is passed on"
            raise ImportRefused("npm", reason, hint="configure a registry that needs none")
        self._certificate = str(settings.get("cafile") or "")
        urls = (self._registries["registry"], *self._registries.values())
        self.registry = Registry(urls=tuple(dict.fromkeys(urls)), files=public_files(self._certificate))

    def resolve(
        self, install: ConfinedInstall, command: PackageCommand, before: datetime | None
    ) -> Resolution:
        """The whole dependency tree of a command, from versions that were published before a date.

        Where no such versions will do, newer ones are taken, and said to be young.
        """
        # Any version, as npx wants it: npm then takes the newest that runs on this Node.js.
        wanted = {name: version or "*" for name, version in command.packages}
        try:
            try:
                found, is_young = self._resolved(install, wanted, before), False
            except ProgramFailed as failed:
                if before is None or "ETARGET" not in failed.last_words:
                    raise
                found, is_young = self._resolved(install, wanted, None), True
            tree = {place: _entry(place, entry) for place, entry in found.items()}
            versions = {name: tree[f"node_modules/{name}"]["version"] for name in wanted}
            # What was asked for, as it was resolved: a tag such as `latest` will mean another version later.
            tree[""] = {"dependencies": versions}
            pinned = PinnedPackages.read(
                {"ecosystem": "npm", "program": _program(command, tree), "tree": tree}
            )
            if before is None:
                return Resolution(pinned=pinned)
            young = [f"{name}@{version}" for name, version in versions.items()] if is_young else []
            name, wants = command.packages[0]
            newest, tells_age = self._newest(install, name, before)
            is_passed_over = newest not in ("", versions[name]) and wants in ("", "latest") and not young
            return Resolution(
                pinned=pinned,
                young=tuple(young),
                passed_over=f"{name}@{newest}" if is_passed_over else "",
                tells_age=tells_age,
            )
        except ProgramFailed as failed:
            raise failed.refusal(", ".join(wanted)) from None
        except (KeyError, TypeError, ValueError) as error:
            reason = f"npm resolves it to what cannot be read: {visible(str(error))}"
            raise ImportRefused(", ".join(wanted), reason) from None

    def _resolved(
        self, install: ConfinedInstall, wanted: Mapping[str, str], before: datetime | None
    ) -> dict[str, Any]:
        folder = install.folder / _TREE
        folder.mkdir(exist_ok=True)
        (folder / "package.json").write_text(json.dumps({**_ROOT, "dependencies": wanted}))
        flags = (f"--before={before.isoformat()}",) if before is not None else ()
        self._npm(install, "install", "--package-lock-only", *flags)
        data = msgspec.json.decode(read_named(folder / "package-lock.json", DEFINITION_FILE_BYTES))
        # npm is confined, but it read what the registry says: its file may hold anything.
        msgspec.convert(data, _Lock)
        found: dict[str, Any] = data["packages"]
        return found

    def _newest(self, install: ConfinedInstall, name: str, before: datetime) -> tuple[str, bool]:
        """The newest version, if it was published after a date; and whether the registry tells dates."""
        text = self._npm(install, "view", name, "time", "dist-tags", "--json", "--prefer-offline")
        told = msgspec.json.decode(text or "{}", type=_Releases)
        newest = told.tags.get("latest", "")
        published = str(told.time.get(newest, ""))
        is_older = bool(published) and datetime.fromisoformat(published) < before
        return "" if is_older else newest, bool(told.time)

    def install(self, install: ConfinedInstall, pinned: PinnedPackages) -> Path:
        """Install a pinned tree; the folder that holds it."""
        folder = install.folder / _TREE
        folder.mkdir(exist_ok=True)
        root = {**_ROOT, **pinned.tree.get("", {})}
        lock = {**_ROOT, "lockfileVersion": 3, "requires": True, "packages": {**pinned.tree, "": root}}
        (folder / "package.json").write_text(json.dumps(root))
        (folder / "package-lock.json").write_text(json.dumps(lock))
        try:
            self._npm(install, "ci")
            for package in pinned.scripts:
                self._run_scripts(install, package)
        except ProgramFailed as failed:
            raise failed.refusal("its packages") from None
        for name in (".npmrc", "package-lock.json"):
            (folder / name).unlink()
        return folder

    def _run_scripts(self, install: ConfinedInstall, package: str) -> None:
        flags = ("--ignore-scripts=false", "--foreground-scripts")
        self._npm(install, "rebuild", *flags, package, spawn=("sh", self.node))

    def _npm(self, install: ConfinedInstall, *words: str, spawn: Sequence[str] = ()) -> str:
        folder = install.folder / _TREE
        settings = {**self._registries, **({"cafile": self._certificate} if self._certificate else {})}
        (folder / ".npmrc").write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        flags = (*(flag for flag in _QUIET if flag.partition("=")[0] not in _names(words)), *words)
        argv = (*self._argv, *flags, f"--cache={install.folder}/cache")
        return install.run(argv, {"HOME": str(install.folder)}, folder=folder, spawn=spawn)


def _names(words: Sequence[str]) -> set[str]:
    return {word.partition("=")[0] for word in words}


def _host_output(*argv: str) -> str:
    """What a program of the user prints, outside every project: a clone must not choose the registry."""
    program = shutil.which(argv[0])
    if program is None:
        raise ImportRefused(argv[0], "is not on the PATH of toolkeep", hint="install Node.js with npm")
    try:
        done = subprocess.run(  # noqa: S603 -- the user's own node and npm
            (program, *argv[1:]), cwd="/", capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ImportRefused(argv[0], "does not run on this machine", hint="see that it does") from error
    return done.stdout.strip()


def _entry(place: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    kept = {key: entry[key] for key in _KEPT if key in entry}
    for kind in ("dependencies", "optionalDependencies", "peerDependencies"):
        for name, spec in kept.get(kind, {}).items():
            # A repository, an archive or a folder: no registry vouches for it, and it has no fixed content.
            if not _SPEC.fullmatch(spec):
                what = place.rpartition("node_modules/")[2] or "the command"
                raise ImportRefused(
                    echo_name(what),
                    f"depends on '{echo_name(name)}' from outside the registry: {echo_name(spec)}",
                )
        if kind in kept:
            kept[kind] = {name: "*" if _TAG.fullmatch(spec) else spec for name, spec in kept[kind].items()}
    return kept


def _program(command: PackageCommand, tree: Mapping[str, Any]) -> str:
    """The file of the program: the only one, the one of the package's name, or the one that is named."""
    package = command.packages[0][0]
    place = f"node_modules/{package}"
    entry = tree.get(place)
    bins = entry.get("bin") if isinstance(entry, dict) else None
    if not isinstance(bins, dict) or not bins:
        raise ImportRefused(
            f"'{package}'", "brings no program to run", hint="see what its documentation starts"
        )
    name = command.program or (next(iter(bins)) if len(bins) == 1 else package.rpartition("/")[2])
    if name not in bins:
        known = ", ".join(map(echo_name, sorted(bins)))
        hint = f"name one with npx -p {package} PROGRAM; it has: {known}"
        raise ImportRefused(f"'{package}'", f"brings no program '{echo_name(name)}'", hint=hint)
    return os.path.normpath(f"{place}/{bins[name]}")
