"""Detects that this process is a worker importing a tool.

There, a definition is built only if something reads it, because the host has checked it. And a script without
a main guard is stopped: it would open a keep and call its own tool at import time, which starts a worker that
imports the script again, without end. `sandbox/guest/load.py` holds the flag; it is found by the module name
that the worker runs it under.
"""

import sys
from typing import Any, Final

_LOADING: Final = "_toolkeep_inside.load"


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


def _running_import() -> Any:
    found = getattr(sys.modules.get(_LOADING), "Import", None)
    return found if getattr(found, "is_running", False) else None
