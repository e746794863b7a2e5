"""Whether this process is a worker that imports a tool: its file then defines things and does nothing else.

A script without a main guard would open a keep there and call its own tool, which starts a worker that
imports the script. `inside/load.py` says so, found by the name under which the worker runs it.
"""

import sys
from typing import Any, Final

from toolkeep.errors import CalledAtImport

_LOADING: Final = "_toolkeep_inside.load"


def note_keep() -> None:
    """Remember that a keep was opened: if the import fails, that is why."""
    if (found := _running_import()) is not None:
        found.has_opened_keep = True


def refuse_calls() -> None:
    """Raise `CalledAtImport` while a tool is imported."""
    if _running_import() is not None:
        raise CalledAtImport


def _running_import() -> Any:
    found = getattr(sys.modules.get(_LOADING), "Import", None)
    return found if getattr(found, "is_running", False) else None
