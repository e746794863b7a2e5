"""Specification of a persistent process (`run.process`): validated, and resolved to local paths.

Nothing is started here. Secrets go into the environment and nowhere else: the command line of a process is
visible to other users.
"""

import math
import os
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

import msgspec

from toolkeep.execution.program_lookup import absolute, find_program, installed_with
from toolkeep.limits import DEFAULT_PROCESS_IDLE_SECONDS, PROCESS_IDLE_SECONDS
from toolkeep.sandbox.persistent_process import Program
from toolkeep.text.display import echo_name

_KEYS: Final = ("argv", "environment", "code", "idle_s", "between_calls")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(r"\{secret:([^{}]+)\}")
_OURS: Final = re.compile(r"LD_.*|(https?|HTTPS?)_(proxy|PROXY)|GCONV_PATH|GLIBC_TUNABLES")
"""Variables that decide what is loaded (LD_PRELOAD and the like), and the egress proxy."""

_LOOKED_BYTES: Final = 4096
"""Bytes of a file that show whether it is text: a null byte is in the header of every database."""
_SQLITE: Final = b"SQLite format 3\0"
_CODE_MAGIC: Final = (b"#!", b"\x7fELF", b"PK", b"\0asm", b"\xca\xfe\xba\xbe", b"MZ", b"\x1bLua")
"""Scripts, binaries, zip archives (Java, Python), WASM, Java classes, .NET and Lua."""
_CODE_SUFFIXES: Final = frozenset(
    """
    .py .pyc .pyz .pyw .js .mjs .cjs .jsx .ts .mts .cts .tsx .node .wasm .so .jar .class .rb .pl .php .lua
    .luac .sh .bash .zsh .fish .ps1 .exe .dll .r .jl .ex .exs .erl .beam .clj .groovy .kts .scala .go .rs
    """.split()
)
"""Also of files that are empty, or written by a compiler in a format of its own."""
_DATABASES: Final = frozenset((".db", ".db3", ".sqlite", ".sqlite3", ".duckdb"))
"""Of files that may be empty: a database that is not filled yet."""
_TEXT_DATA: Final = frozenset((".csv", ".tsv", ".jsonl", ".ndjson", ".log", ".txt", ".md"))
"""Text that no interpreter takes for a script, nor a program for its settings."""


class IdlePolicy(StrEnum):
    """What a program's processes do while no call runs (SBX-2)."""

    RUNNING = "running"
    STOPPED = "stopped"


class ProcessSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a persistent process is configured."""

    argv: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    """Values in which `{secret:NAME}` is substituted."""
    code: tuple[str, ...] = ()
    """Files and folders that it consists of: readable, whatever the agent holds."""
    idle_s: float = DEFAULT_PROCESS_IDLE_SECONDS
    between_calls: IdlePolicy = IdlePolicy.RUNNING

    @classmethod
    def read(cls, target: Any) -> "ProcessSpec":
        """Parse a list of words, or an object with `argv`; ValueError says what is wrong."""
        fields = {"argv": target} if isinstance(target, list) else target
        if not isinstance(fields, Mapping):
            raise ValueError("is neither a list of texts nor an object with argv")
        if unknown := set(map(str, fields)) - set(_KEYS):
            raise ValueError(f"has the unknown key {echo_name(min(unknown))}; there are {', '.join(_KEYS)}")
        argv = _texts(fields.get("argv"), "argv")
        if not argv or not argv[0].strip():
            raise ValueError("has no argv: a list of texts that begins with a program")
        return cls(
            argv=argv,
            environment=_read_environment(fields.get("environment")),
            code=_texts(fields.get("code"), "code"),
            idle_s=_read_idle(fields.get("idle_s", DEFAULT_PROCESS_IDLE_SECONDS)),
            between_calls=_read_between_calls(fields.get("between_calls", IdlePolicy.RUNNING)),
        )

    def program(self, base: str, secret: Callable[[str], str]) -> Program:
        """The program to start; ValueError if it is missing. Raises whatever `secret` raises."""
        path = find_program(self.argv[0], base)
        words = (absolute(word, base) for word in self.argv[1:])
        return Program(path=path, argv=(path, *words), environment=_filled(self.environment, secret))

    def shown(self, base: str) -> tuple[str, ...]:
        """Real paths of everything that it consists of; ValueError names what is missing."""
        program = find_program(self.argv[0], base)
        found = dict.fromkeys(installed_with(program))
        for path in self._files(base):
            if not self._is_data(path, base, program):
                found.update(dict.fromkeys(installed_with(path)))
        for name in self.code:
            path = os.path.realpath(absolute(name, base))
            if not os.path.lexists(path):
                raise ValueError(f"its code '{echo_name(name)}' is not there")
            found[path] = None
        return tuple(found)

    def data(self, base: str) -> tuple[str, ...]:
        """Real paths of the data files that its arguments name: readable, and writable where granted."""
        program = find_program(self.argv[0], base)
        return tuple(
            os.path.realpath(path) for path in self._files(base) if self._is_data(path, base, program)
        )

    def code_words(self, base: str) -> tuple[str, ...]:
        """Its program and the arguments that name code, as absolute paths, symlinks kept."""
        program = find_program(self.argv[0], base)
        return (program, *(path for path in self._files(base) if not self._is_data(path, base, program)))

    def _files(self, base: str) -> list[str]:
        # Only files: a folder is what a program works on, and must be granted.
        words = (absolute(word, base) for word in self.argv[1:])
        return [path for path in words if path.startswith("/") and os.path.isfile(path)]

    def _is_data(self, path: str, base: str, program: str) -> bool:
        """Whether an argument names data, such as a database, and nothing that could be run.

        Code must be known: a program that may write its own code would be another one at its next start,
        for whichever agent starts it. So a file counts as code in doubt. Settings count as code too, since
        many name programs.
        """
        real = os.path.realpath(path)
        if os.access(real, os.X_OK) or _has_suffix(path, _CODE_SUFFIXES) or _has_suffix(real, _CODE_SUFFIXES):
            return False
        beginning = _beginning(real)
        if not beginning:
            return _has_suffix(path, _DATABASES)
        if beginning.startswith(_SQLITE):
            return True
        is_interpreter = not _beginning(os.path.realpath(program)).startswith(b"#!")
        # `python x`, `node x`: what stands right behind an interpreter is run, whatever it looks like.
        if is_interpreter and path == absolute(self.argv[1], base):
            return False
        if beginning.startswith(_CODE_MAGIC):
            return False
        return b"\0" in beginning or _has_suffix(path, _TEXT_DATA)


def _has_suffix(path: str, suffixes: frozenset[str]) -> bool:
    return os.path.splitext(path)[1].lower() in suffixes


def _beginning(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_LOOKED_BYTES)
    except OSError:
        return b"#!"  # Code, in doubt.


def _texts(value: Any, name: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(word, str) and "\0" not in word for word in value):
        raise ValueError(f"has a {name} that is not a list of strings")
    return tuple(value)


def _read_environment(value: Any) -> tuple[tuple[str, str], ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise ValueError("has an environment that is not an object of strings")
    for name, text in value.items():
        if not isinstance(name, str) or not _VARIABLE.fullmatch(name):
            raise ValueError("has an environment with a name that no variable can have")
        # LD_PRELOAD would inject code into the program, and a proxy variable would cut it off from the egress
        # proxy.
        if _OURS.fullmatch(name):
            raise ValueError(f"sets the variable {name}, which is not a tool's to set")
        if not isinstance(text, str) or "\0" in text:
            raise ValueError(f"has an environment whose {name} is not a string")
    return tuple(value.items())


def _read_idle(value: Any) -> float:
    least, most = PROCESS_IDLE_SECONDS
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not least <= value <= most:
        raise ValueError(f"has an idle_s that is not a number from {least:g} to {most:g}")
    return float(value)


def _read_between_calls(value: Any) -> IdlePolicy:
    try:
        return IdlePolicy(value)
    except ValueError:
        raise ValueError("has a between_calls that is neither running nor stopped") from None


def _filled(
    environment: tuple[tuple[str, str], ...], secret: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    filled = tuple((name, _SECRET.sub(lambda place: secret(place[1]), text)) for name, text in environment)
    for name, text in filled:
        if "\0" in text:
            raise ValueError(f"its secret for {name} contains a null character")
    return filled
