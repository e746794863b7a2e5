"""Builds a wheel from the source archive of a Python package (PEP 517), confined, in a folder of its own.

Input: an archive from the registry, whose code runs here: without network, with nothing but its own folder.
Output: its build requirements and its wheel, both hostile. The name and version of the wheel are checked: a
wheel of another name would stand in for another package.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.errors import FileUnreadable, ImportRefused
from toolkeep.host.files import check_inside, read_named
from toolkeep.limits import MIB
from toolkeep.mcp_client.packages.confined_install import ConfinedInstall, ProgramFailed, Registry
from toolkeep.text.display import echo_name

ARCHIVE_BYTES: Final = 256 * MIB
"""A source archive or wheel: read into memory as a whole; PyPI's own default limit is 100 MB."""
_MANIFEST_BYTES: Final = MIB
"""A pyproject.toml has some kilobytes; it is parsed outside the sandbox."""
_LEGACY: Final = {"requires": ["setuptools>=40.8.0"], "build-backend": "setuptools.build_meta:__legacy__"}
"""What PEP 517 takes for a package that states nothing."""
_REQUIREMENT: Final = re.compile(
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._, -]*\])?"
    r"[ ]*\(?[0-9A-Za-z.*+!_, <>=~-]*\)?[ ]*(?:;[A-Za-z0-9_ .,'\"<>=!~()+-]*)?"
)
"""A package of the registry (PEP 508): no flag for pip, no URL, no path."""
_EPOCH: Final = "315532800"
"""1980-01-01, the first date of a zip archive: the same source gives the same wheel."""

_UNPACK: Final = """
import os, shutil, sys
shutil.unpack_archive(sys.argv[1], "unpacked")
(top,) = os.listdir("unpacked")
os.rename(os.path.join("unpacked", top), "source")
"""

_HOOK: Final = """
import importlib, json, os, site, sys
hook, backend, paths, environment, words = json.loads(sys.argv[1])
said = os.dup(1)
os.dup2(2, 1)  # a build talks on its standard output
site.addsitedir(environment)
sys.path[:0] = [os.path.abspath(path) for path in paths] + [environment]
module, _, inner = backend.partition(":")
found = importlib.import_module(module)
for name in filter(None, inner.split(".")):
    found = getattr(found, name)
call = getattr(found, hook, None)
os.write(said, (json.dumps(call(*words) if call else []) + "\\n").encode())
"""
"""Calls a hook of a build backend. One that does not say what else it needs, needs nothing."""


class _BuildSystem(msgspec.Struct, frozen=True, rename="kebab"):
    requires: list[str]
    build_backend: str = str(_LEGACY["build-backend"])
    backend_path: list[str] = []


class SourceBuild:
    """The build of one package."""

    def __init__(self, folder: Path, name: str, python: str, code: Sequence[str]) -> None:
        self._folder = folder
        self._name = name
        self._python, self._code = python, code
        self._system = _BuildSystem(requires=[])
        self.environment = folder / "environment"
        for part in (folder, folder / "out", folder / "scratch"):
            part.mkdir(parents=True)

    def unpack(self, archive: bytes, suffix: str) -> list[str]:
        """Unpack its source archive; what it states that its build needs."""
        file = self._folder / f"archive{suffix}"
        file.write_bytes(archive)
        self._run(self._folder, _UNPACK, str(file))
        manifest = self._folder / "source" / "pyproject.toml"
        data: dict[str, Any] = {}
        try:
            check_inside(self._folder, manifest)
            if manifest.exists():
                data = tomllib.loads(read_named(manifest, _MANIFEST_BYTES).decode())
            self._system = msgspec.convert(data.get("build-system", _LEGACY), _BuildSystem)
        except (FileUnreadable, RecursionError, ValueError) as error:
            raise self._refused(f"states its build in a way that cannot be read: {error}") from None
        return self._checked(self._system.requires)

    def further_requirements(self) -> list[str]:
        """What its build backend needs besides."""
        found = self._hook("get_requires_for_build_wheel")
        try:
            return self._checked(msgspec.json.decode(found, type=list[str]))
        except msgspec.MsgspecError:
            raise self._refused("does not say what its build needs") from None

    def wheel(self, version: str) -> tuple[str, bytes]:
        """Build it: the name of the wheel, and its content."""
        found = self._hook("build_wheel", str(self._folder / "out"))
        try:
            file = msgspec.json.decode(found, type=str)
            name, built, *rest = file.split("-")
            is_named = re.sub(r"[-_.]+", "-", name).lower() == self._name and built == version
            if not is_named or len(rest) not in (3, 4) or "/" in file or not file.endswith(".whl"):
                raise self._refused(f"builds {echo_name(file)}, which is not its version {version}")
            path = self._folder / "out" / file
            # A link to a file of the user would be read here, outside the sandbox.
            check_inside(self._folder, path)
            return file, read_named(path, ARCHIVE_BYTES)
        except (FileUnreadable, ValueError):
            raise self._refused("builds no wheel") from None

    def _hook(self, hook: str, *words: str) -> str:
        system = self._system
        question = [hook, system.build_backend, system.backend_path, str(self.environment), words]
        return self._run(self._folder / "source", _HOOK, json.dumps(question))

    def _run(self, folder: Path, script: str, *words: str) -> str:
        scratch = str(self._folder / "scratch")
        variables = {"HOME": scratch, "TMPDIR": scratch, "SOURCE_DATE_EPOCH": _EPOCH, "PYTHONHASHSEED": "0"}
        # No registry, and so no network.
        confined = ConfinedInstall(self._folder, Registry(urls=()))
        argv = (self._python, "-s", "-c", script, *words)
        try:
            return confined.run(argv, variables, code=self._code, folder=folder)
        except ProgramFailed as failed:
            raise failed.refusal(f"'{self._name}', from source,") from None

    def _checked(self, requirements: list[str]) -> list[str]:
        for one in requirements:
            if not _REQUIREMENT.fullmatch(one):
                raise self._refused(
                    f"needs {echo_name(one)} for its build, which is no package of a registry"
                )
        return requirements

    def _refused(self, reason: str) -> ImportRefused:
        return ImportRefused(f"'{self._name}'", reason)
