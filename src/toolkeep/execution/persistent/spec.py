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

from toolkeep.execution.program_lookup import absolute, find_program, installed_with, is_data
from toolkeep.limits import DEFAULT_PROCESS_IDLE_SECONDS, PROCESS_IDLE_SECONDS
from toolkeep.sandbox.persistent_process import Program
from toolkeep.text.display import echo_name

_KEYS: Final = ("argv", "environment", "code", "idle_s", "between_calls")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECRET: Final = re.compile(r"\{secret:([^{}]+)\}")
_OURS: Final = re.compile(r"LD_.*|(https?|HTTPS?)_(proxy|PROXY)|GCONV_PATH|GLIBC_TUNABLES")
"""Variables that decide what is loaded (LD_PRELOAD and the like), and the egress proxy."""


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
    packages: tuple[str, ...] = ()
    """Folders of its code that cannot change, whose programs it may start. No configuration names them."""
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
        found = dict.fromkeys(path for word in self.code_words(base) for path in installed_with(word))
        for name in self.code:
            path = os.path.realpath(absolute(name, base))
            if not os.path.lexists(path):
                raise ValueError(f"its code '{echo_name(name)}' is not there")
            found[path] = None
        return tuple(found)

    def code_words(self, base: str) -> tuple[str, ...]:
        """Its program and the arguments that name code, as absolute paths, symlinks kept."""
        files = self._files(base)
        return (find_program(self.argv[0], base), *(path for at, path in files if not is_data(path, at)))

    def data(self, base: str) -> tuple[str, ...]:
        """Real paths of the data that its arguments name: readable, and writable where granted."""
        return tuple(os.path.realpath(path) for at, path in self._files(base) if is_data(path, at))

    def _files(self, base: str) -> list[tuple[int, str]]:
        # Only files: a folder is what a program works on, and must be granted.
        words = ((at, absolute(word, base)) for at, word in enumerate(self.argv) if at)
        return [(at, path) for at, path in words if path.startswith("/") and os.path.isfile(path)]


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
