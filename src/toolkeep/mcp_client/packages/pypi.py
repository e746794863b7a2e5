"""Resolves and installs Python packages with pip, confined and from wheels, which run no code.

A package that is published as source only is refused, unless a person allows its build (`source_build`); pip
then takes the built wheel from a folder. pip checks each wheel against its hash, and keeps it from writing
outside its folder. What it leaves is checked again when the tree is kept.
"""

import base64
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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
from toolkeep.mcp_client.packages.package_trees import PYTHON
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.mcp_client.packages.runner_commands import PackageCommand
from toolkeep.mcp_client.packages.source_build import ARCHIVE_BYTES, SourceBuild

_PASSED_OVER: Final = 100
"""Versions that are passed over because they are too young, before a person is asked."""
_NEWEST: Final = 20
"""Minor version of Python from which others are looked for, downwards."""
_QUIET: Final = (
    *("--isolated", "--no-input", "--disable-pip-version-check", "--no-color", "--progress-bar=off"),
    # A source archive is built by code of its own, which would run while it is installed.
    *("--only-binary=:all:", "--quiet"),
)

_SETTINGS: Final = """
import json
from pip._internal.commands import create_command
said = create_command("install").parser.parse_args([])[0]
print(json.dumps([said.index_url, said.cert]))
"""
"""pip's own reading of its configuration, with its own default."""

_TELL: Final = """
import json, os, platform, sys
version = "%d.%d" % sys.version_info[:2]
made_for = "-".join((sys.implementation.name, version, sys.platform, platform.machine()))
print(json.dumps([os.path.realpath(getattr(sys, "_base_executable", sys.executable)), version, made_for]))
"""
"""An interpreter's own file, its version, and what wheels must be made for."""

_READ: Final = """
import concurrent.futures, datetime, html.parser, http.client, json, ssl, sys, time
import urllib.parse, urllib.request
asked = json.loads(sys.argv[1])
index, before = asked["index"], asked["before"]
context = ssl.create_default_context(cafile=asked["cert"]) if asked["cert"] else None
accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
class Links(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(dict(attributes))
def is_young(when):
    if not before or not when:
        return False
    then = datetime.datetime.fromisoformat(when)
    return (then if then.tzinfo else then.replace(tzinfo=datetime.UTC)).timestamp() > before
def get(url):
    request = urllib.request.Request(url, headers={"Accept": accept})
    for last in (False, False, True):
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                return answer.read(1 << 28), answer.headers.get("Content-Type", ""), answer.url
        except (OSError, http.client.HTTPException) as error:
            if last or 400 <= getattr(error, "code", 0) < 500:
                raise SystemExit(url + ": " + str(error))
            time.sleep(1)
def files_of(name):
    body, kind, url = get(index.rstrip("/") + "/" + name + "/")
    if "json" in kind:
        for one in json.loads(body)["files"]:
            where = urllib.parse.urlsplit(urllib.parse.urljoin(url, one["url"]))
            sha256 = one.get("hashes", {}).get("sha256", "")
            yield where, one.get("upload-time"), one.get("requires-python"), one.get("yanked"), sha256
        return
    links = Links()
    links.found = []
    links.feed(body.decode(errors="replace"))
    for one in links.found:
        where = urllib.parse.urlsplit(urllib.parse.urljoin(url, one.get("href") or ""))
        sha256 = where.fragment.removeprefix("sha256=") if where.fragment.startswith("sha256=") else ""
        yanked = "data-yanked" in one
        yield where, one.get("data-upload-time"), one.get("data-requires-python"), yanked, sha256
"""
"""Reads the files of a package from an index (PEP 503, 691), with their upload times (PEP 700)."""

_INDEX: Final = f"""{_READ}
wanted = asked["wanted"]
def tell(name):
    parts = [(where, when) for where, when, *_ in files_of(name)]
    named = [(where.path.rpartition("/")[2], when) for where, when in parts if where.path.endswith(".whl")]
    return name, {{
        "hosts": sorted({{where.scheme + "://" + where.netloc + "/" for where, _ in parts}}),
        "uploaded": next((when for file, when in named if file == wanted[name]), None),
        "young": sorted({{file.split("-")[1] for file, when in named if is_young(when)}}),
    }}
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    print(json.dumps(dict(threads.map(tell, wanted))))
"""
"""Asks an index from which hosts it serves files, when a file was uploaded, and for the versions with wheels
that were uploaded after a time."""

_SOURCE: Final = f"""{_READ}
sys.path.insert(0, asked["pip"])
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.specifiers import SpecifierSet
from pip._vendor.packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename
wanted = Requirement(asked["wanted"])
name, python = canonicalize_name(wanted.name), "%d.%d.%d" % sys.version_info[:3]
fitting, has_wheel = [], False
for where, when, pythons, yanked, sha256 in files_of(name):
    file = urllib.parse.unquote(where.path.rpartition("/")[2])
    is_wheel = file.endswith(".whl")
    try:
        found, version = (parse_wheel_filename if is_wheel else parse_sdist_filename)(file)[:2]
        fits = found == name and version in wanted.specifier and python in SpecifierSet(pythons or "")
    except ValueError:
        continue
    if fits and not yanked and not is_young(when):
        has_wheel = has_wheel or is_wheel
        if not is_wheel:
            suffix = ".zip" if file.endswith(".zip") else ".tar.gz"
            fitting.append((version, suffix, where._replace(fragment="").geturl(), sha256))
version, suffix, url, sha256 = max(fitting, default=("", "", "", ""))
if version and asked["file"]:
    with open(asked["file"], "wb") as out:
        out.write(get(url)[0])
print(json.dumps([name, str(version), suffix, sha256, has_wheel]))
"""
"""Asks an index for the newest source archive that fits a requirement, and whether any wheel does."""

_MISSING: Final = re.compile(
    r"(No matching distribution found for|depends on) "
    r"([A-Za-z0-9][A-Za-z0-9._-]*(?:\[[^]\n]*\])?[0-9A-Za-z.*+!_, <>=~-]*)"
)
"""How pip names a requirement that it finds no wheel for, alone or with the others of a conflict."""


class _Source(msgspec.Struct, frozen=True, array_like=True):
    """The newest source archive of a package."""

    name: str
    version: str
    suffix: str
    sha256: str
    has_wheel: bool


class _Installed(msgspec.Struct, frozen=True):
    """One package of pip's report."""

    name: str
    version: str
    sha256: str
    url: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def entry(self) -> dict[str, Any]:
        """Its entry in a tree."""
        return {"version": self.version, "integrity": self.sha256}


class _Python(msgspec.Struct, frozen=True):
    """An interpreter of this machine."""

    path: str
    version: str
    made_for: str

    @property
    def packages(self) -> str:
        """The folder of its packages in a tree."""
        return f"lib/python{self.version}/site-packages"

    @property
    def code(self) -> tuple[str, ...]:
        """Where it is installed, outside the system folders."""
        return () if self.path.startswith("/usr/") else (str(Path(self.path).parents[1]),)


def _told(program: str) -> _Python:
    """An interpreter by its own words; raises OSError, ValueError and SubprocessError."""
    done = subprocess.run(  # noqa: S603 -- our own interpreter, or one on the user's PATH
        (program, "-I", "-c", _TELL), cwd="/", capture_output=True, text=True, timeout=60, check=True
    )
    return _Python(*json.loads(done.stdout))


def _others(version: str = "") -> Iterator[_Python]:
    """The other interpreters on the PATH, newest first, or the one of a version."""
    wanted = [version] if version else [f"3.{minor}" for minor in range(_NEWEST, sys.version_info.minor, -1)]
    for name in wanted:
        if found := shutil.which(f"python{name}"):
            # A version manager may have a command for a version that is not there.
            with suppress(OSError, ValueError, subprocess.SubprocessError):
                yield _told(found)


class Pip:
    """pip of this interpreter, with its configured index."""

    def __init__(self, may_build: Iterable[str] = ()) -> None:
        self._may_build = frozenset(map(canonical_name, may_build))
        self._built: dict[str, dict[str, Any]] = {}
        """The entries of packages that were built from source, by name."""
        self._pip, self._code = _find_pip()
        self._python = _told(sys.executable)
        url, self._certificate = self._settings()
        self.registry = Registry(urls=(without_credentials(url),), files=public_files(self._certificate))
        self._urls: dict[str, str] = {}
        """Where each wheel is, by its hash: reading the index again takes half of an installation."""

    def _settings(self) -> tuple[str, str]:
        environment = {**os.environ, "PYTHONPATH": str(Path(self._pip).parent)}
        try:
            done = subprocess.run(  # noqa: S603 -- our own interpreter
                (self._python.path, "-c", _SETTINGS),
                cwd="/",  # outside every project
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            url, certificate = json.loads(done.stdout)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            raise ImportRefused("pip", "does not run on this machine", hint="see that it does") from error
        return str(url), str(certificate or "")

    def resolve(
        self, install: ConfinedInstall, command: PackageCommand, before: datetime | None
    ) -> Resolution:
        """The whole dependency tree of a command, as wheels that were uploaded before a date.

        Where no such versions will do, newer ones are taken, and said to be young. Where none is for this
        Python, another one of this machine is taken.
        """
        if command.python and command.python != self._python.version:
            self._python = self._other(command.python)
        try:
            return self._resolve(install, command, before)
        except ProgramFailed as failed:
            if "Requires-Python" not in failed.last_words or command.python:
                raise failed.refusal(command.packages[0][0]) from None
            first = failed
        for self._python in _others():
            with suppress(ProgramFailed):
                return self._resolve(install, command, before)
        raise first.refusal(command.packages[0][0])

    def _other(self, version: str) -> _Python:
        for python in _others(version):
            return python
        hint = f"install it, so that python{version} is on the PATH"
        raise ImportRefused("its packages", f"need Python {version}, which is not there", hint=hint)

    def _resolve(
        self, install: ConfinedInstall, command: PackageCommand, before: datetime | None
    ) -> Resolution:
        self._admit_hosts(install, command.packages[0][0])
        self._built = {}
        without: set[str] = set()

        def settle() -> list[_Installed]:
            return self._newest(install, command, before, without)

        found, young, passed, tells_age = self._settled(install, settle, before, without)
        pinned = PinnedPackages.read(
            {
                "ecosystem": "pypi",
                "program": f"{self._python.packages}/bin/{command.program}",
                "tree": {one.name: self._built.get(one.name) or one.entry for one in found},
                "made_for": self._python.made_for,
                "scripts": sorted(self._may_build),
            }
        )
        return Resolution(
            pinned=pinned,
            young=tuple(map(str, young)),
            passed_over=", ".join(map(str, passed)) if not young else "",
            tells_age=tells_age,
        )

    def _admit_hosts(self, install: ConfinedInstall, package: str) -> None:
        """Let the hosts be reached that the index serves files from, which only it may name."""
        name = canonical_name(package)
        hosts = self._index(install, {name: ""})[name]["hosts"]
        urls = dict.fromkeys((self.registry.url, *hosts))
        install.registry = msgspec.structs.replace(self.registry, urls=tuple(urls))

    def _settled(
        self,
        install: ConfinedInstall,
        settle: Callable[[], list[_Installed]],
        before: datetime | None,
        without: set[str],
    ) -> tuple[list[_Installed], list[_Installed], list[_Installed], bool]:
        """Resolve until no version is young: found, still young, passed over, and whether ages are told."""
        found = settle()
        young, tells_age = self._young(install, found, before, without)
        passed: list[_Installed] = []
        while young and len(passed) < _PASSED_OVER:
            passed += young
            try:
                found = settle()
            except ProgramFailed:
                break
            young, tells_age = self._young(install, found, before, without)
        return found, young, passed, tells_age

    def _newest(
        self, install: ConfinedInstall, command: PackageCommand, before: datetime | None, without: set[str]
    ) -> list[_Installed]:
        """Resolve a command with the newest version of its server.

        An older one is taken if the newest conflicts with other packages; not if it lacks a wheel, for which
        pip would go back to versions of years ago.
        """
        wanted = [f"{name}{version}" for name, version in command.packages]
        pre = command.allows_prereleases
        (name, version), others = command.packages[0], wanted[1:]
        if not version.startswith("=="):
            flags = ("--no-deps",)
            newest = self._with_builds(install, wanted[:1], before, without, pre=pre, flags=flags)[0]
            later = f"{name}{version}{',' if version else ''}>{newest.version}"
            source = self._source(install, later, before)
            if source.version:
                self._build(install, source, before)
                newest = msgspec.structs.replace(newest, version=source.version)
            with suppress(ProgramFailed):
                exact = [f"{name}=={newest.version}", *others]
                return self._with_builds(install, exact, before, without, pre=pre)
        return self._with_builds(install, wanted, before, without, pre=pre)

    def _with_builds(
        self,
        install: ConfinedInstall,
        wanted: Sequence[str],
        before: datetime | None,
        without: Iterable[str],
        *,
        pre: bool = False,
        flags: Sequence[str] = (),
    ) -> list[_Installed]:
        """Resolve, and build what has no wheel and may be built."""
        while True:
            try:
                return self._resolved(install, wanted, without, pre=pre, flags=flags)
            except ProgramFailed as failed:
                source = self._missing(install, failed.last_words, before)
                if source is None:
                    raise
                self._build(install, source, before)

    def _missing(self, install: ConfinedInstall, words: str, before: datetime | None) -> _Source | None:
        """The package that pip finds no wheel for, if it has a source archive and was not built yet."""
        for how, requirement in dict.fromkeys(_MISSING.findall(words)):
            source = self._source(install, requirement.strip(), before)
            is_alone = how.startswith("No matching")
            if source.version and source.name not in self._built and (is_alone or not source.has_wheel):
                return source
        return None

    def _source(
        self, install: ConfinedInstall, requirement: str, before: datetime | None, file: Path | None = None
    ) -> _Source:
        question = {"wanted": requirement, "file": str(file or ""), "pip": str(Path(self._pip).parent)}
        return msgspec.json.decode(self._ask(install, _SOURCE, question, before), type=_Source)

    def _build(self, install: ConfinedInstall, source: _Source, before: datetime | None) -> None:
        """Build a package from its source, if a person allowed that, with the newest build requirements."""
        if source.name not in self._may_build:
            reason = "is published as source only, without a wheel for this machine; a build runs its code"
            hint = (
                f"--allow-scripts {source.name} builds it, confined; or name an older version of the server"
            )
            raise ImportRefused(f"'{source.name}' {source.version}", reason, hint=hint)
        archive, build = self._fetched(install, source)
        needs = build.unpack(archive, source.suffix)
        pins = self._build_pins(install, needs, before)
        self._install_pins(install, pins, build.environment)
        if further := build.further_requirements():
            pins = self._build_pins(install, [*needs, *further], before)
            shutil.rmtree(build.environment, ignore_errors=True)
            self._install_pins(install, pins, build.environment)
        integrity = self._keep_wheel(install, build, source.version)
        entry = {"version": source.version, "integrity": integrity, "source": _integrity(archive)}
        self._built[source.name] = {**entry, "build": pins}

    def _rebuild(self, install: ConfinedInstall, name: str, entry: Mapping[str, Any]) -> None:
        """Build a pinned package again: the same source, build requirements and wheel, or none."""
        source = self._source(install, f"{name}=={entry['version']}", None)
        archive, build = self._fetched(install, source)
        if _integrity(archive) != entry["source"]:
            raise ImportRefused(f"'{name}'", "has another source archive than was pinned")
        build.unpack(archive, source.suffix)
        self._install_pins(install, entry["build"], build.environment)
        if self._keep_wheel(install, build, entry["version"]) != entry["integrity"]:
            reason = "gives another wheel than was pinned when it is built here"
            raise ImportRefused(f"'{name}'", reason, hint="pin what is built here: toolkeep update NAME")

    def _fetched(self, install: ConfinedInstall, source: _Source) -> tuple[bytes, SourceBuild]:
        file = install.folder / "archive"
        self._source(install, f"{source.name}=={source.version}", None, file)
        archive = read_named(file, ARCHIVE_BYTES)
        if not source.sha256 or hashlib.sha256(archive).hexdigest() != source.sha256:
            raise ImportRefused(
                f"'{source.name}'", "has a source archive without or with another SHA-256 hash"
            )
        folder = Path(tempfile.mkdtemp(prefix="build-", dir=install.folder))
        return archive, SourceBuild(folder / source.name, source.name, self._python.path, self._python.code)

    def _build_pins(
        self, install: ConfinedInstall, needs: Sequence[str], before: datetime | None
    ) -> dict[str, Any]:
        """Resolve build requirements: wheels that are pinned and old enough, like every other package."""
        without: set[str] = set()
        if not needs:
            return {}
        found, young, *_ = self._settled(
            install, lambda: self._resolved(install, needs, without), before, without
        )
        if young:
            reason = "is needed for a build, and too young"
            raise ImportRefused(", ".join(map(str, young)), reason, hint="wait, or pass --allow-new")
        return {one.name: one.entry for one in found}

    def _keep_wheel(self, install: ConfinedInstall, build: SourceBuild, version: str) -> str:
        file, wheel = build.wheel(version)
        (_wheels(install) / file).write_bytes(wheel)
        return _integrity(wheel)

    def _young(
        self,
        install: ConfinedInstall,
        found: Sequence[_Installed],
        before: datetime | None,
        without: set[str],
    ) -> tuple[list[_Installed], bool]:
        """Which of these were uploaded later, and whether the index says when any was.

        Adds all their later versions to those to do without: each resolution takes long.
        """
        if before is None:
            return [], True
        files = {one.name: one.url.rpartition("/")[2] for one in found}
        told = self._index(install, files, before)
        young = [one for one in found if one.version in told[one.name]["young"]]
        without |= {f"{name}!={version}" for name, one in told.items() for version in one["young"]}
        return young, any(one["uploaded"] for one in told.values())

    def _index(
        self, install: ConfinedInstall, wanted: Mapping[str, str], before: datetime | None = None
    ) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._ask(install, _INDEX, {"wanted": wanted}, before))
        return found

    def _ask(
        self,
        install: ConfinedInstall,
        script: str,
        question: Mapping[str, Any],
        before: datetime | None,
    ) -> str:
        known = {"index": self.registry.url, "cert": self._certificate}
        asked = {**question, **known, "before": before.timestamp() if before else None}
        argv = (self._python.path, "-I", "-c", script, json.dumps(asked))
        return install.run(argv, {}, code=(self._code, *self._python.code))

    def _resolved(
        self,
        install: ConfinedInstall,
        wanted: Sequence[str],
        without: Iterable[str],
        *,
        pre: bool = False,
        flags: Sequence[str] = (),
    ) -> list[_Installed]:
        report, passed = install.folder / "report.json", install.folder / "constraints.txt"
        passed.write_text("".join(f"{one}\n" for one in sorted(without)))
        flags = (
            *("--dry-run", "--ignore-installed", f"--report={report}", f"--constraint={passed}"),
            *(("--pre",) if pre else ()),
            *flags,
        )
        self._run(install, "install", *flags, *wanted)
        data = json.loads(read_named(report, DEFINITION_FILE_BYTES))
        found = [_of_report(entry) for entry in data["install"]]
        self._urls |= {one.sha256: one.url for one in found if not one.url.startswith("file:")}
        return found

    def install(self, install: ConfinedInstall, pinned: PinnedPackages) -> Path:
        """Install a pinned tree; the folder that holds it."""
        if pinned.made_for != self._python.made_for:
            version = pinned.made_for.split("-")[1]
            self._python = next(_others(version), self._python)
        if pinned.made_for != self._python.made_for:
            raise ImportRefused(
                "its packages",
                f"are wheels for {pinned.made_for}, and this is {self._python.made_for}",
                hint="resolve them for this machine: toolkeep update NAME",
            )
        tree = install.folder / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / PYTHON).symlink_to(self._python.path)
        home = Path(self._python.path).parent
        (tree / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
        try:
            if not self._urls:  # nothing was resolved before
                self._admit_hosts(install, next(iter(pinned.tree)))
            for name, entry in pinned.tree.items():
                if "source" in entry and name not in self._built:
                    self._rebuild(install, name, entry)
            self._install_pins(install, pinned.tree, tree / self._python.packages)
        except ProgramFailed as failed:
            raise failed.refusal("its packages") from None
        return tree

    def _install_pins(
        self, install: ConfinedInstall, pins: Mapping[str, Mapping[str, Any]], target: Path
    ) -> None:
        wanted = install.folder / "requirements.txt"
        lines = [
            f"{name}{self._place(entry)} --hash=sha256:{_hex(entry['integrity'])}\n"
            for name, entry in pins.items()
        ]
        wanted.write_text("".join(lines))
        flags = ("--require-hashes", "--no-deps", f"--target={target}", f"--requirement={wanted}")
        self._run(install, "install", *flags)

    def _place(self, entry: Mapping[str, Any]) -> str:
        url = self._urls.get(entry["integrity"])
        return f" @ {url}" if url else f"=={entry['version']}"

    def _run(self, install: ConfinedInstall, command: str, *words: str) -> None:
        certificate = (f"--cert={self._certificate}",) if self._certificate else ()
        flags = (
            *_QUIET,
            *certificate,
            f"--index-url={self.registry.url}",
            f"--cache-dir={install.folder}/cache",
            f"--find-links={_wheels(install)}",
        )
        if self.registry.url.startswith("http://"):
            flags = (*flags, f"--trusted-host={self.registry.url.split('/')[2]}")
        scratch = install.folder / "scratch"
        scratch.mkdir(exist_ok=True)
        argv = (self._python.path, "-I", self._pip, command, *flags, *words)
        code = (self._code, *self._python.code)
        install.run(argv, {"TMPDIR": str(scratch), "HOME": str(scratch)}, code=code)


def _find_pip() -> tuple[str, str]:
    """What to start, and what it consists of: pip of this environment, or in the wheel that Python brings."""
    spec = importlib.util.find_spec("pip")
    if spec is not None and spec.origin:
        folder = Path(os.path.realpath(spec.origin)).parent
        return str(folder), str(folder.parent)  # pip looks at what is installed beside it
    ensurepip = importlib.util.find_spec("ensurepip")
    bundled = (
        Path(os.path.realpath(ensurepip.origin)).parent / "_bundled"
        if ensurepip and ensurepip.origin
        else None
    )
    for wheel in sorted(bundled.glob("pip-*.whl")) if bundled else ():
        return f"{wheel}/pip", str(wheel)
    raise ImportRefused("pip", "is not there", hint=f"install it: {sys.executable} -m ensurepip")


def _of_report(entry: Mapping[str, Any]) -> _Installed:
    archive = entry["download_info"].get("archive_info") or {}
    digest = (archive.get("hashes") or {}).get("sha256", "")
    name, version = canonical_name(entry["metadata"]["name"]), entry["metadata"]["version"]
    if not digest:
        raise ImportRefused(f"'{name}'", "has no SHA-256 hash at the registry")
    sha256 = f"sha256-{base64.b64encode(bytes.fromhex(digest)).decode()}"
    return _Installed(name, version, sha256, entry["download_info"]["url"].partition("#")[0])


def canonical_name(name: str) -> str:
    """The one spelling of a package's name, without extras (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def _wheels(install: ConfinedInstall) -> Path:
    """Where wheels lie that were built from source."""
    folder = install.folder / "wheels"
    folder.mkdir(exist_ok=True)
    return folder


def _integrity(content: bytes) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(content).digest()).decode()}"


def _hex(integrity: str) -> str:
    return base64.b64decode(integrity.removeprefix("sha256-")).hex()
