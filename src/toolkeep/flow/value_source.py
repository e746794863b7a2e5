"""Finds the result that brought a value, for the person who is asked about it (FLO-7).

It decides nothing: a value that is found nowhere is asked about just the same.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from toolkeep.flow.session_state import Earlier, SessionState
from toolkeep.json_values.pointers import Place, pointer_at
from toolkeep.json_values.reading import read_canonical
from toolkeep.limits import KIB

_SEARCHED_BYTES: Final = 256 * KIB
"""Of one result; a longer one is not searched."""
_AROUND: Final = 40
"""Characters of an excerpt on each side of the value."""

BodyOf = Callable[[str], bytes]


class Source(NamedTuple):
    """Where a value stands: the tool, the place in its result, and what stands around it."""

    tool: str
    pointer: str
    excerpt: str


def find_source(session: SessionState, value: Any, body_of: BodyOf) -> Source | None:
    """The newest result of a session that holds a value; `body_of` gives a result by its hash."""
    wanted = (value if isinstance(value, str) else str(value)).lower().strip()
    for earlier in reversed(session.earlier):
        found = _in_result(earlier, wanted, body_of) if wanted else None
        if found is not None:
            return found
    return None


def _in_result(earlier: Earlier, wanted: str, body_of: BodyOf) -> Source | None:
    try:
        body = body_of(earlier.result_hash.hex())
        result = read_canonical(body) if len(body) <= _SEARCHED_BYTES else None
    except (KeyError, OSError, ValueError):  # not kept, or not JSON
        return None
    waiting: list[tuple[Place, Any]] = [(None, result)]
    while waiting:
        at, here = waiting.pop()
        if isinstance(here, dict):
            waiting.extend(((at, key), inside) for key, inside in here.items())
        elif isinstance(here, list):
            waiting.extend(((at, number), inside) for number, inside in enumerate(here))
        elif here is not None and not isinstance(here, bool):
            text = here if isinstance(here, str) else str(here)
            # Not folded, which changes lengths: the excerpt is cut by the place that was found.
            start = text.lower().find(wanted)
            if start >= 0:
                return Source(earlier.tool, pointer_at(at), _excerpt(text, start, start + len(wanted)))
    return None


def _excerpt(text: str, start: int, end: int) -> str:
    """What stands around a value, with marks where it is cut."""
    first, last = max(0, start - _AROUND), end + _AROUND
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
