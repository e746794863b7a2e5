"""Detects that this process is a worker importing a tool.

There, a definition is built only if something reads it, because the host has checked it. `Keep` and
`open_keep` are stand-ins: a script imports them beside its tools, and uses them below its main guard. A
script without that guard is stopped: it would open a keep and call its own tool at import time, which starts
a worker that imports the script again, without end.

`sandbox/guest/load.py` holds the flag; it is found by the module name that the worker runs it under.
"""

import sys
from collections.abc import Callable
from types import new_class
from typing import Any, Final

GUEST_LOADER: Final = "_toolkeep_inside.load"
"""The module of a worker that imports tools, under the name that it runs it by."""


def is_importing() -> bool:
    """Whether a worker is importing a tool."""
    return _running_import() is not None


def note_keep() -> None:
    """Record that a keep was opened: if the import fails, that explains it."""
    if (found := _running_import()) is not None:
        found.has_opened_keep = True


def refuse_calls() -> None:
    """Raise `CalledAtImport` while a tool is being imported."""
    if is_importing():
        from toolkeep.errors import CalledAtImport

        raise CalledAtImport


class StandIn(type):
    """A public class or function that is imported on first use. A class itself, for use in annotations."""

    import_real: Callable[[], Any]

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> Any:
        """A new stand-in, or the subclass of what one stands for."""
        if not bases:
            return super().__new__(cls, name, bases, namespace)
        real = [base.import_real() if isinstance(base, StandIn) else base for base in bases]
        return new_class(name, tuple(real), exec_body=lambda body: body.update(namespace))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        return cls.import_real()(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        """Its attributes."""
        return getattr(cls.import_real(), name)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.import_real())

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.import_real())


def _running_import() -> Any:
    found = getattr(sys.modules.get(GUEST_LOADER), "Import", None)
    return found if getattr(found, "is_running", False) else None
