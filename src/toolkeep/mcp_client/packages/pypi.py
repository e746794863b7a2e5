"""Resolves and installs Python packages with pip, confined and from wheels alone, which run no code.

pip checks each wheel against its hash, and keeps wheels from writing outside their folder. What it leaves is
checked again when the tree is kept.
"""

import base64
import importlib.util
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
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
_VERSION: Final = f"{sys.version_info.major}.{sys.version_info.minor}"
_PACKAGES: Final = f"lib/python{_VERSION}/site-packages"
_MADE_FOR: Final = f"{sys.implementation.name}-{_VERSION}-{sys.platform}-{platform.machine()}"
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

_INDEX: Final = """
import html.parser, json, ssl, sys, urllib.parse, urllib.request
index, wanted, cert = json.loads(sys.argv[1])
context = ssl.create_default_context(cafile=cert) if cert else None
accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
class Links(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        if tag == "a":
            self.found.append(dict(attributes))
told = {}
for name, file in wanted.items():
    url = index.rstrip("/") + "/" + name + "/"
    request = urllib.request.Request(url, headers={"Accept": accept})
    with urllib.request.urlopen(request, context=context) as answer:
        body, kind, url = answer.read(1 << 26), answer.headers.get("Content-Type", ""), answer.url
    if "json" in kind:
        files = [(one["url"], one.get("upload-time")) for one in json.loads(body)["files"]]
    else:
        links = Links()
        links.found = []
        links.feed(body.decode(errors="replace"))
        files = [(one.get("href") or "", one.get("data-upload-time")) for one in links.found]
    parts = [(urllib.parse.urlsplit(urllib.parse.urljoin(url, where)), when) for where, when in files]
    told[name] = {
        "hosts": sorted({where.scheme + "://" + where.netloc + "/" for where, _ in parts}),
        "uploaded": next((when for where, when in parts if file and where.path.endswith("/" + file)), None),
    }
print(json.dumps(told))
"""
"""Asks an index (PEP 503, 691) from which hosts it serves files, and when a file was uploaded (PEP 700)."""


class _Installed(msgspec.Struct, frozen=True):
    """One package of pip's report."""

    name: str
    version: str
    sha256: str
    file: str

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"


class Pip:
    """pip of this interpreter, with its configured index."""

    def __init__(self) -> None:
        self._pip, self._code = _find_pip()
        self._python = os.path.realpath(getattr(sys, "_base_executable", sys.executable))
        url, self._certificate = self._settings()
        self.registry = Registry(urls=(without_credentials(url),), files=public_files(self._certificate))

    def _settings(self) -> tuple[str, str]:
        environment = {**os.environ, "PYTHONPATH": str(Path(self._pip).parent)}
        try:
            done = subprocess.run(  # noqa: S603 -- our own interpreter
                (self._python, "-c", _SETTINGS),
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

        Where no such versions will do, newer ones are taken, and said to be young.
        """
        main = canonical_name(command.packages[0][0])
        try:
            # The index may serve files from another host, which only it may name.
            hosts = self._index(install, {main: ""})[main]["hosts"]
            urls = dict.fromkeys((self.registry.url, *hosts))
            install.registry = msgspec.structs.replace(self.registry, urls=tuple(urls))
            found = self._resolved(install, command, ())
            young, tells_age = self._young(install, found, before)
            passed: list[_Installed] = []
            while young and len(passed) < _PASSED_OVER:
                passed += young
                try:
                    found = self._resolved(install, command, passed)
                except ProgramFailed:
                    break
                young, tells_age = self._young(install, found, before)
        except ProgramFailed as failed:
            raise failed.refusal(main) from None
        pinned = PinnedPackages.read(
            {
                "ecosystem": "pypi",
                "program": f"{_PACKAGES}/bin/{command.program}",
                "tree": {one.name: {"version": one.version, "integrity": one.sha256} for one in found},
                "made_for": _MADE_FOR,
            }
        )
        return Resolution(
            pinned=pinned,
            young=tuple(map(str, young)),
            passed_over=", ".join(map(str, passed)) if not young else "",
            tells_age=tells_age,
        )

    def _young(
        self, install: ConfinedInstall, found: Sequence[_Installed], before: datetime | None
    ) -> tuple[list[_Installed], bool]:
        """Which of these were uploaded later, and whether the index says so of any."""
        if before is None:
            return [], True
        told = self._index(install, {one.name: one.file for one in found})
        times = {one: when for one in found if (when := told[one.name]["uploaded"])}
        return [one for one, when in times.items() if _time(when) > before], bool(times)

    def _index(self, install: ConfinedInstall, wanted: Mapping[str, str]) -> dict[str, Any]:
        question = json.dumps([self.registry.url, wanted, self._certificate])
        found: dict[str, Any] = json.loads(install.run((self._python, "-I", "-c", _INDEX, question), {}))
        return found

    def _resolved(
        self, install: ConfinedInstall, command: PackageCommand, without: Sequence[_Installed]
    ) -> list[_Installed]:
        report, passed = install.folder / "report.json", install.folder / "constraints.txt"
        passed.write_text("".join(f"{one.name}!={one.version}\n" for one in without))
        wanted = [f"{name}{version}" for name, version in command.packages]
        flags = ("--dry-run", "--ignore-installed", f"--report={report}", f"--constraint={passed}")
        self._run(install, "install", *flags, *wanted)
        data = json.loads(read_named(report, DEFINITION_FILE_BYTES))
        return [_of_report(entry) for entry in data["install"]]

    def install(self, install: ConfinedInstall, pinned: PinnedPackages) -> Path:
        """Install a pinned tree; the folder that holds it."""
        if pinned.made_for != _MADE_FOR:
            raise ImportRefused(
                "its packages",
                f"are wheels for {pinned.made_for}, and this is {_MADE_FOR}",
                hint="resolve them for this machine: toolkeep update NAME",
            )
        tree = install.folder / "tree"
        (tree / "bin").mkdir(parents=True)
        (tree / PYTHON).symlink_to(self._python)
        home = Path(self._python).parent
        (tree / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
        wanted = install.folder / "requirements.txt"
        lines = [
            f"{name}=={entry['version']} --hash=sha256:{_hex(entry['integrity'])}\n"
            for name, entry in pinned.tree.items()
        ]
        wanted.write_text("".join(lines))
        try:
            flags = (
                "--require-hashes",
                "--no-deps",
                f"--target={tree / _PACKAGES}",
                f"--requirement={wanted}",
            )
            self._run(install, "install", *flags)
        except ProgramFailed as failed:
            raise failed.refusal("its packages") from None
        return tree

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
        argv = (self._python, "-I", self._pip, command, *flags, *words)
        install.run(argv, {"TMPDIR": str(scratch), "HOME": str(scratch)}, code=(self._code,))


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
    return _Installed(
        name, version, sha256, entry["download_info"]["url"].partition("#")[0].rpartition("/")[2]
    )


def canonical_name(name: str) -> str:
    """The one spelling of a package's name, without extras (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.partition("[")[0]).lower()


def _hex(integrity: str) -> str:
    return base64.b64decode(integrity.removeprefix("sha256-")).hex()


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)
