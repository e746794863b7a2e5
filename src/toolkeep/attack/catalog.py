"""All attempts, by kind."""

import importlib
import inspect
from pathlib import Path
from typing import Any, Final

from toolkeep.attack.attempts.declare import DECLARED, Attempt

KINDS: Final = ("files_read", "files_write", "network", "processes", "kernel", "results", "project")
"""One module each; what harms the host when it is imported has a module of its own for each attempt."""

ATTEMPTS: Final = Path(__file__).resolve().parent / "attempts"

COMPANIONS: Final = {
    "signal_another_call": ("processes", "wait_to_be_hit"),
    "set_flags_on_the_streams_of_another_call": ("processes", "wait_for_flags_on_streams"),
    "read_scratch_of_another_call": ("files_write", "sleep_with_a_secret"),
    "meet_another_call_on_loopback": ("network", "wait_on_loopback"),
}
"""Attempts that need another call beside them, and what that one does."""


def declared(kind: str) -> dict[str, Attempt]:
    """The attempts of a kind."""
    modules = [kind]
    if kind == "results":
        modules += sorted(path.stem for path in ATTEMPTS.glob("early_*.py"))
    for module in modules:
        _module(module)
    return DECLARED[kind]


def parameters(module: str, name: str) -> list[str]:
    """The baits that a function of a module asks for."""
    return list(inspect.signature(getattr(_module(module), name)).parameters)


def _module(name: str) -> Any:
    return importlib.import_module(f"toolkeep.attack.attempts.{name}")
