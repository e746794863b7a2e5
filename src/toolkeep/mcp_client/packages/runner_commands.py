"""Recognizes the commands that MCP servers document: npx, uvx, pipx run, bunx and their kin.

Input: the words of a command. Output: the packages and the program to install once, None for an ordinary
program, or `ImportRefused` for what could never work in the sandbox. Nothing is run here.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Final, Literal, NamedTuple

import msgspec

from toolkeep.errors import ImportRefused
from toolkeep.text.display import echo_name

Ecosystem = Literal["npm", "pypi"]


class PackageCommand(msgspec.Struct, frozen=True, kw_only=True):
    """What a package runner would download and start."""

    ecosystem: Ecosystem
    packages: tuple[tuple[str, str], ...]
    """Name and wanted version of each; the first brings the program. An empty version means the newest."""
    program: str = ""
    """Name of the program; empty for the one that the package itself decides on."""
    arguments: tuple[str, ...] = ()
    python: str = ""
    """Version of Python that it asks for, such as 3.12."""
    allows_prereleases: bool = False


class _Runner(NamedTuple):
    """A package runner: its flags, before the first word that is none."""

    ecosystem: Ecosystem
    package_flags: tuple[str, ...]
    """Take the package that brings the program."""
    more_flags: tuple[str, ...] = ()
    """Take a further package."""
    ignored_flags: tuple[str, ...] = ()
    ignored_with_value: tuple[str, ...] = ()


_NPX: Final = _Runner(
    "npm",
    ("-p", "--package"),
    ignored_flags=("-y", "--yes", "-q", "--quiet", "-s", "--silent", "--prefer-offline", "--bun"),
)
_UVX: Final = _Runner(
    "pypi",
    ("--from",),
    ("--with", "-w"),
    ("-q", "--quiet", "--isolated", "--no-cache", "-n", "--refresh", "--no-progress", "--native-tls"),
    ("--python", "-p", "--prerelease"),
)
_PIPX: Final = _Runner("pypi", ("--spec",), (), ("-q", "--quiet", "--no-cache", "--verbose"), ("--python",))

_RUNNERS: Final[Mapping[tuple[str, ...], _Runner]] = {
    ("npx",): _NPX,
    ("npm", "exec"): _NPX,
    ("npm", "x"): _NPX,
    ("pnpm", "dlx"): _NPX,
    ("pnpx",): _NPX,
    ("yarn", "dlx"): _NPX,
    ("bunx",): _NPX,
    ("bun", "x"): _NPX,
    ("uvx",): _UVX,
    ("uv", "tool", "run"): _UVX,
    ("pipx", "run"): _PIPX,
}

_DAEMON: Final = (
    "its containers are started by a daemon outside the sandbox, as root, with whatever the command asks for",
    "use the package in the image (npx, uvx), or start the container yourself and add its address instead",
)
_ROOT: Final = ("nothing in the sandbox becomes root", "give the command without it")
_SHELL: Final = (
    "a line for a shell starts other programs, and downloads what it likes, where nobody can check it",
    "give the program itself and its arguments after --",
)
_REFUSED: Final[Mapping[tuple[str, ...], tuple[str, str]]] = {
    **{(name,): _DAEMON for name in ("docker", "podman", "nerdctl", "docker-compose", "docker-mcp")},
    **{(name,): _ROOT for name in ("sudo", "doas", "su", "pkexec", "run0")},
    **{(name, "-c"): _SHELL for name in ("sh", "bash", "dash", "zsh", "fish", "ksh", "ash")},
    ("env",): (
        "the program behind it would not be found in the sandbox",
        "give the program itself, and its variables with --env",
    ),
    ("uv", "run"): (
        "uv downloads packages whenever it starts, which the sandbox does not let it",
        "make the environment yourself and name its Python: .venv/bin/python server.py",
    ),
    **dict.fromkeys(
        (("npm", "run"), ("npm", "start"), ("pnpm", "run"), ("yarn", "run"), ("bun", "run")),
        ("a package manager's script may start anything", "give the program itself and its arguments"),
    ),
    **{
        (name,): ("runs on Windows only", "give the program itself") for name in ("cmd", "powershell", "pwsh")
    },
}

_NPM_NAME: Final = re.compile(r"(?:@[a-z0-9~-][a-z0-9._~-]*/)?[a-zA-Z0-9~-][a-zA-Z0-9._~-]*")
_NPM_VERSION: Final = re.compile(r"[0-9A-Za-z^~<>=*. |+-]{1,100}")
_PYPI_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9._, -]*\])?")
_PYPI_VERSION: Final = re.compile(r"(?:===?|~=|!=|<=?|>=?)[ ]*[0-9A-Za-z.*+!_, <>=~-]{1,100}")
_PROGRAM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def read_command(words: tuple[str, ...]) -> PackageCommand | None:
    """The packages of a command; None for an ordinary program. Raises `ImportRefused`."""
    if not words:
        return None
    if words[0].lower() in ("cmd", "cmd.exe") and len(words) > 2 and words[1].lower() == "/c":
        words = words[2:]  # as files for Windows write it
    named = (PurePath(words[0]).name.removesuffix(".cmd").removesuffix(".exe"), *words[1:])
    for start, (reason, hint) in _REFUSED.items():
        if _begins(named, start):
            raise ImportRefused(" ".join(start), reason, hint=hint)
    for start, runner in _RUNNERS.items():
        if _begins(named, start):
            return _Reading(runner, start, named[len(start) :]).command()
    return None


def _begins(words: tuple[str, ...], start: tuple[str, ...]) -> bool:
    """Whether a command begins so; flags may stand before a subcommand (`uv --directory D run`)."""
    if words[0] != start[0]:
        return False
    if len(start) == 1:
        return True
    if start[1].startswith("-"):  # a shell's -c, also as -lc
        return any(re.fullmatch(r"-[a-z]*c", word) for word in words[1:])
    return words[1 : len(start)] == start[1:] or (
        start == ("uv", "run") and "run" in words[1:] and words[1] != "tool"
    )


class _Reading:
    """Parses the words after the name of a runner."""

    def __init__(self, runner: _Runner, start: tuple[str, ...], words: tuple[str, ...]) -> None:
        self._runner = runner
        # Without the arguments, which may hold a key.
        self._shown = " ".join(start)
        self._rest = list(words)

    def command(self) -> PackageCommand:
        first: list[str] = []
        more: list[str] = []
        python, allows_prereleases = "", False
        for flag, value in self._flags():
            if flag in self._runner.package_flags:
                first.append(value)
            elif flag in self._runner.more_flags:
                more += value.split(",")
            elif flag in ("--python", "-p"):
                python = self._python(value)
            elif flag == "--prerelease":
                allows_prereleases = value == "allow"
        if len(first) > 1:
            raise self._refused("names several packages for one program", "name the one that brings it")
        if not self._rest:
            raise self._refused("names no program", "give the command as the server documents it")
        program, *arguments = self._rest
        # `npx X` names a package, `npx -p P X` a program of P.
        if first and not _PROGRAM.fullmatch(program):
            raise self._refused(f"names the program {echo_name(program)}", "give its plain name")
        wanted = (first[0] if first else program, *more)
        packages = tuple(self._package(text) for text in wanted)
        named = program if first else ("" if self._runner.ecosystem == "npm" else _plain(packages[0][0]))
        return PackageCommand(
            ecosystem=self._runner.ecosystem,
            packages=packages,
            program=named,
            arguments=tuple(arguments),
            python=python,
            allows_prereleases=allows_prereleases,
        )

    def _flags(self) -> Iterator[tuple[str, str]]:
        """Take the runner's own flags off the words."""
        runner = self._runner
        valued = (*runner.package_flags, *runner.more_flags, *runner.ignored_with_value)
        while self._rest and self._rest[0].startswith("-"):
            word = self._rest.pop(0)
            flag, equals, value = word.partition("=")
            if word == "--":
                break
            if flag in valued:
                if not equals and not self._rest:
                    raise self._refused(f"has {flag} without a value", "give the whole command")
                yield flag, value if equals else self._rest.pop(0)
            elif flag not in runner.ignored_flags:
                reason = f"has {echo_name(flag)}, which cannot be resolved into a lock"
                raise self._refused(
                    reason, "leave it out, or install the server yourself and give its program"
                )

    def _package(self, text: str) -> tuple[str, str]:
        name, version = _split_npm(text) if self._runner.ecosystem == "npm" else _split_pypi(text)
        is_npm = self._runner.ecosystem == "npm"
        pattern, versions = (_NPM_NAME, _NPM_VERSION) if is_npm else (_PYPI_NAME, _PYPI_VERSION)
        if pattern.fullmatch(name) and (not version or versions.fullmatch(version)):
            return name, version
        # A repository, an archive or a folder has no hash that a registry vouches for.
        raise self._refused(
            f"takes {echo_name(text)}, which is no package of a registry",
            "name a package and its version, or install the server yourself and give its program after --",
        )

    def _python(self, wanted: str) -> str:
        version = wanted.removeprefix("python").removeprefix("cpython@").strip()
        if re.fullmatch(r"3\.\d{1,2}", version):
            return version
        if version in ("3", ""):
            return ""
        raise self._refused(f"asks for Python {echo_name(wanted)}", "ask for a version, such as 3.12")

    def _refused(self, reason: str, hint: str) -> ImportRefused:
        return ImportRefused(self._shown, reason, hint=hint)


def _split_npm(text: str) -> tuple[str, str]:
    name, at, version = text[1:].partition("@")
    return text[:1] + name, version if at else ""


def _split_pypi(text: str) -> tuple[str, str]:
    """`X@1.2` is uv's form; `X==1.2` everybody's."""
    found = re.match(r"[^=<>~!@]*", text)
    name = found.group() if found else ""
    rest = text[len(name) :].strip()
    if rest.startswith("@"):
        version = rest[1:].strip()
        # `name @ git+https://…` is a direct reference.
        is_plain = re.fullmatch(r"[0-9][0-9A-Za-z.+!]*|latest", version)
        return (name.strip(), "" if version == "latest" else f"=={version}") if is_plain else (text, "")
    return name.strip(), rest


def _plain(name: str) -> str:
    """A package's name without extras."""
    return name.partition("[")[0]
