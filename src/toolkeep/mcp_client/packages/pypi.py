"""Resolves and installs Python packages with pip, confined and from wheels alone, which run no code.

pip checks each wheel against its hash, and keeps wheels from writing outside their folder. What it leaves is
checked again when the tree is kept.
"""

import base64
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

_INDEX: Final = """
import concurrent.futures, datetime, html.parser, http.client, json, ssl, sys, time
import urllib.parse, urllib.request
index, wanted, cert, before = json.loads(sys.argv[1])
context = ssl.create_default_context(cafile=cert) if cert else None
accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
class Links(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(dict(attributes))
def is_young(when):
    then = datetime.datetime.fromisoformat(when)
    return (then if then.tzinfo else then.replace(tzinfo=datetime.UTC)).timestamp() > before
def tell(name):
    url, file = index.rstrip("/") + "/" + name + "/", wanted[name]
    request = urllib.request.Request(url, headers={"Accept": accept})
    for last in (False, False, True):
        try:
            with urllib.request.urlopen(request, context=context, timeout=60) as answer:
                body, kind, url = answer.read(1 << 26), answer.headers.get("Content-Type", ""), answer.url
            break
        except (OSError, http.client.HTTPException) as error:
            if last or 400 <= getattr(error, "code", 0) < 500:
                raise SystemExit(url + ": " + str(error))
            time.sleep(1)
    if "json" in kind:
        files = [(one["url"], one.get("upload-time")) for one in json.loads(body)["files"]]
    else:
        links = Links()
        links.found = []
        links.feed(body.decode(errors="replace"))
        files = [(one.get("href") or "", one.get("data-upload-time")) for one in links.found]
    parts = [(urllib.parse.urlsplit(urllib.parse.urljoin(url, where)), when) for where, when in files]
    named = [(where.path.rpartition("/")[2], when) for where, when in parts if where.path.endswith(".whl")]
    return name, {
        "hosts": sorted({where.scheme + "://" + where.netloc + "/" for where, _ in parts}),
        "uploaded": next((when for name, when in named if name == file), None),
        "young": sorted({name.split("-")[1] for name, when in named if before and when and is_young(when)}),
    }
with concurrent.futures.ThreadPoolExecutor(8) as threads:
    print(json.dumps(dict(threads.map(tell, wanted))))
"""
"""Asks an index (PEP 503, 691) from which hosts it serves files, when a file was uploaded (PEP 700), and for
the versions with wheels that were uploaded after a time."""


class _Installed(msgspec.Struct, frozen=True):
    """One package of pip's report."""

    name: str
    version: str
    sha256: str
    url: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


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

    def __init__(self) -> None:
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
        main = canonical_name(command.packages[0][0])
        # The index may serve files from another host, which only it may name.
        hosts = self._index(install, {main: ""})[main]["hosts"]
        urls = dict.fromkeys((self.registry.url, *hosts))
        install.registry = msgspec.structs.replace(self.registry, urls=tuple(urls))
        without: set[str] = set()
        found = self._resolved(install, command, without)
        young, tells_age = self._young(install, found, before, without)
        passed: list[_Installed] = []
        while young and len(passed) < _PASSED_OVER:
            passed += young
            try:
                found = self._resolved(install, command, without)
            except ProgramFailed:
                break
            young, tells_age = self._young(install, found, before, without)
        pinned = PinnedPackages.read(
            {
                "ecosystem": "pypi",
                "program": f"{self._python.packages}/bin/{command.program}",
                "tree": {one.name: {"version": one.version, "integrity": one.sha256} for one in found},
                "made_for": self._python.made_for,
            }
        )
        return Resolution(
            pinned=pinned,
            young=tuple(map(str, young)),
            passed_over=", ".join(map(str, passed)) if not young else "",
            tells_age=tells_age,
        )

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
        told = self._index(install, files, before.timestamp())
        young = [one for one in found if one.version in told[one.name]["young"]]
        without |= {f"{name}!={version}" for name, one in told.items() for version in one["young"]}
        return young, any(one["uploaded"] for one in told.values())

    def _index(
        self, install: ConfinedInstall, wanted: Mapping[str, str], before: float | None = None
    ) -> dict[str, Any]:
        question = json.dumps([self.registry.url, wanted, self._certificate, before])
        argv = (self._python.path, "-I", "-c", _INDEX, question)
        found: dict[str, Any] = json.loads(install.run(argv, {}, code=self._python.code))
        return found

    def _resolved(
        self, install: ConfinedInstall, command: PackageCommand, without: Iterable[str]
    ) -> list[_Installed]:
        report, passed = install.folder / "report.json", install.folder / "constraints.txt"
        passed.write_text("".join(f"{one}\n" for one in sorted(without)))
        wanted = [f"{name}{version}" for name, version in command.packages]
        flags = ("--dry-run", "--ignore-installed", f"--report={report}", f"--constraint={passed}")
        pre = ("--pre",) if command.allows_prereleases else ()
        self._run(install, "install", *flags, *pre, *wanted)
        data = json.loads(read_named(report, DEFINITION_FILE_BYTES))
        found = [_of_report(entry) for entry in data["install"]]
        self._urls = {one.sha256: one.url for one in found}
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
        wanted = install.folder / "requirements.txt"
        lines = [
            f"{name}{self._place(entry)} --hash=sha256:{_hex(entry['integrity'])}\n"
            for name, entry in pinned.tree.items()
        ]
        wanted.write_text("".join(lines))
        try:
            flags = (
                "--require-hashes",
                "--no-deps",
                f"--target={tree / self._python.packages}",
                f"--requirement={wanted}",
            )
            self._run(install, "install", *flags)
        except ProgramFailed as failed:
            raise failed.refusal("its packages") from None
        return tree

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
    sha256 = "sha256-" + base64.b64encode(bytes.fromhex(digest)).decode()
    return _Installed(name, version, sha256, entry["download_info"]["url"].partition("#")[0])


def canonical_name(name: str) -> str:
    """The one spelling of a package's name, without extras (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def _hex(integrity: str) -> str:
    return base64.b64decode(integrity.removeprefix("sha256-")).hex()
