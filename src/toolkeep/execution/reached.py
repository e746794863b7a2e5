"""What confined runners need of a call's places: arguments with real paths, and what is never writable."""

import json
import os
from collections.abc import Iterator
from typing import Any, Final

from toolkeep.calls import RecordedCall
from toolkeep.limits import PROTECTED_ENTRIES

_PROTECTED: Final = frozenset((".agent", ".git", "toolkeep.lock"))
"""What no tool may write (POL-7); a folder that holds one of them is not granted for writing as a whole."""


def resolved_arguments(call: RecordedCall) -> dict[str, Any]:
    """The arguments, with paths as they were resolved: what runs the tool has another working folder."""
    arguments: dict[str, Any] = json.loads(json.dumps(call.checked.arguments))
    for one in call.approved.permitted.touched:
        if one.kind.startswith("fs.") and one.pointer:
            *way, last = (part.replace("~1", "/").replace("~0", "~") for part in one.pointer.split("/")[1:])
            holder: Any = arguments
            for part in way:
                holder = holder[int(part)] if isinstance(holder, list) else holder[part]
            holder[int(last) if isinstance(holder, list) else last] = one.shown
    return arguments


def check_unprotected(place: str) -> None:
    """Refuse, with a `ValueError`, to grant a folder for writing that holds what no tool may write."""
    for number, name in enumerate(_names_below(place)):
        if name in _PROTECTED:
            raise ValueError(f"its folder holds '{name}', which no tool may write; grant a folder below it")
        if number > PROTECTED_ENTRIES:
            raise ValueError("its folder holds too much to look through; grant a folder below it")


def _names_below(place: str) -> Iterator[str]:
    for _, folders, files in os.walk(place):
        yield from (*folders, *files)
