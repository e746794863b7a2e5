"""Catalog of all escape attempts, by kind."""

import importlib
import inspect
from pathlib import Path
from typing import Any, Final

from toolkeep.escape_suite.attempts.declare import DECLARED, Attempt

KINDS: Final = ("files_read", "files_write", "network", "processes", "kernel", "results", "project")
"""One module each; attempts that attack at import time have a module of their own."""

ATTEMPTS: Final = Path(__file__).resolve().parent / "attempts"

CONCURRENT_CALLS: Final = {
    "signal_another_call": ("processes", "wait_to_be_hit"),
    "answer_for_another_call": ("processes", "wait_to_be_answered_for"),
    "set_flags_on_the_streams_of_another_call": ("processes", "wait_for_flags_on_streams"),
    "read_scratch_of_another_call": ("files_write", "sleep_with_a_secret"),
    "meet_another_call_on_loopback": ("network", "wait_on_loopback"),
}
"""Attempts that need a second, concurrent call, and what that one does."""


def declared(kind: str) -> dict[str, Attempt]:
    """The attempts of a kind."""
    modules = [kind]
    if kind == "results":
        modules += sorted(path.stem for path in ATTEMPTS.glob("early_*.py"))
    for module in modules:
        _module(module)
    return DECLARED[kind]


def parameters(module: str, name: str) -> list[str]:
    """Baits that a function asks for, by parameter name."""
    return list(inspect.signature(getattr(_module(module), name)).parameters)


def _module(name: str) -> Any:
    return importlib.import_module(f"toolkeep.escape_suite.attempts.{name}")
