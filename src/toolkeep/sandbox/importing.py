"""Detects that this process is a worker importing a tool, to stop a script without a main guard.

Such a script would open a keep and call its own tool at import time, which starts a worker that imports the
script again, without end. `sandbox/guest/load.py` holds the flag; it is found by the module name that the
worker runs it under.
"""

import sys
from typing import Any, Final

from toolkeep.errors import CalledAtImport

_LOADING: Final = "_toolkeep_inside.load"


def note_keep() -> None:
    """Record that a keep was opened: if the import fails, that explains it."""
    if (found := _running_import()) is not None:
        found.has_opened_keep = True


def refuse_calls() -> None:
    """Raise `CalledAtImport` while a tool is being imported."""
    if _running_import() is not None:
        raise CalledAtImport


def _running_import() -> Any:
    found = getattr(sys.modules.get(_LOADING), "Import", None)
    return found if getattr(found, "is_running", False) else None
