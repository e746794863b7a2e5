"""Declares escape attempts: which guarantee each breaks, and how the host would notice.

Parameters of the function name the baits that the host creates (see `baits.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Function = Callable[..., Any]


@dataclass(frozen=True)
class Attempt:
    """One escape attempt."""

    name: str
    module: str
    function: Function
    breaks: str
    """The guarantee that would be broken, or `bounded` or `host-sound` (SBX-1)."""
    shows: str
    """The sign that the unconfined control must show: see `signs.py` and `unconfined_host.py`."""
    only_for: str = ""
    """`root` or `ordinary` if the control can work for only one of them."""
    needs: str = ""
    """What a kernel may lack; then the control cannot work and the attempt is reported as not shown."""
    may_spawn: bool = True
    """Whether strict grants it processes: a wider grant makes a stronger test."""
    deadline_s: float = 10.0
    may_be_refused: bool = False
    """Whether refusing to start a worker counts as containment."""
    calls: int = 1
    """Number of consecutive calls before the host checks."""
    output_bytes: int = 1 << 20
    """Output limit."""
    endings: tuple[str, ...] = ()
    """Allowed endings of the call; empty for any."""


DECLARED: Final[dict[str, dict[str, Attempt]]] = {}
"""All attempts, by kind and name."""


WORKER_PIDS: Final = (1, 2)
"""Process ids of a worker and of a template, which tell them from an unconfined control."""


def is_inside(module: str) -> bool:
    """Whether a module is imported to act, by a worker or control, not for its declarations."""
    return module.startswith("attempts.")


def attempt(breaks: str, shows: str, **more: Any) -> Callable[[Function], Function]:
    """Declare an attempt."""

    def declare(function: Function) -> Function:
        module = function.__module__.rpartition(".")[2]
        kind = "results" if module.startswith("early_") else module
        name = function.__name__
        made = Attempt(name=name, module=module, function=function, breaks=breaks, shows=shows, **more)
        DECLARED.setdefault(kind, {})[name] = made
        return function

    return declare
