"""How an attempt says what it breaks and how one would know.

A parameter of the function is a bait that the host lays out under that name (see `baits.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

Function = Callable[..., Any]


@dataclass(frozen=True)
class Attempt:
    """One way out."""

    name: str
    module: str
    function: Function
    breaks: str
    """The promise that would be broken: a guarantee of a level, or `bounded` or `host-sound` (SBX-1)."""
    shows: str
    """The verdict that the unconfined control must get: see `signs.py` and `naive.py`."""
    only_for: str = ""
    """`root` or `ordinary` where the control can work for one of them alone."""
    needs: str = ""
    """What a kernel may lack; then the control cannot work and the attempt is named as not shown."""
    may_spawn: bool = True
    """Whether strict grants it processes: the more it may do, the more the attempt shows."""
    deadline_s: float = 10.0
    may_be_refused: bool = False
    """Whether the attempt has failed where the sandbox refuses to start a worker for it."""
    calls: int = 1
    """How often it is called, one after the other, before the host looks."""
    output_bytes: int = 1 << 20
    """How much it may answer."""
    endings: tuple[str, ...] = ()
    """The endings of a call that are sound; any where empty."""


DECLARED: Final[dict[str, dict[str, Attempt]]] = {}
"""All attempts, by kind and name."""


def is_inside(module: str) -> bool:
    """Whether a module is imported to act: by a worker or a control, and not for its declarations."""
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
