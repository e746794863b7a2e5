"""JSON Pointers (RFC 6901): split, join and resolve."""

import re
from collections.abc import Iterable
from typing import Any, Final

_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")

Place = tuple["Place", str | int] | None
"""A place in a value: the one around it and a step. It is small at any depth: pointers to many values below a
long key take gigabytes."""


def escaped(step: str) -> str:
    """Escape one reference token."""
    return step.replace("~", "~0").replace("/", "~1")


def pointer(steps: Iterable[str | int]) -> str:
    """Join reference tokens into a pointer."""
    return "".join(["/" + escaped(str(step)) for step in steps])


def pointer_at(place: Place) -> str:
    """The pointer to a place."""
    steps = []
    while place is not None:
        place, step = place
        steps.append(step)
    return pointer(reversed(steps))


def steps_of(pointer: str) -> list[str]:
    """Split a pointer into unescaped reference tokens."""
    steps = pointer.split("/")[1:]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps] if "~" in pointer else steps


def child(value: Any, step: str) -> Any:
    """The member or item of one token; raises KeyError."""
    if isinstance(value, dict):
        return value[step]
    if isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
        return value[int(step)]
    raise KeyError(step)


def look_up(value: Any, pointer: str) -> Any:
    """Resolve a pointer such as `/$defs/a`; raises KeyError."""
    for step in steps_of(pointer):
        value = child(value, step)
    return value


def referred(root: Any, reference: object) -> Any:
    """Resolve a local `$ref` such as `#/$defs/a`; raises KeyError if it is not local or dangles."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise KeyError(reference)
    return look_up(root, reference[1:])
