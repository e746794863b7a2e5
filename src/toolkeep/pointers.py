"""JSON Pointers (RFC 6901): the steps to a place, the pointer of steps, and what one leads to."""

import re
from collections.abc import Iterable
from typing import Any, Final

_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")


def escaped(step: str) -> str:
    """One step as a pointer writes it."""
    return step.replace("~", "~0").replace("/", "~1")


def pointer(steps: Iterable[str | int]) -> str:
    """The pointer of a place."""
    return "".join(["/" + escaped(str(step)) for step in steps])


def steps_of(pointer: str) -> list[str]:
    """The steps that a pointer consists of."""
    steps = pointer.split("/")[1:]
    return [step.replace("~1", "/").replace("~0", "~") for step in steps] if "~" in pointer else steps


def child(value: Any, step: str) -> Any:
    """The member or item that a step leads to; KeyError where there is none."""
    if isinstance(value, dict):
        return value[step]
    if isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
        return value[int(step)]
    raise KeyError(step)


def look_up(value: Any, pointer: str) -> Any:
    """What a pointer such as `/$defs/a` leads to; KeyError where it leads nowhere."""
    for step in steps_of(pointer):
        value = child(value, step)
    return value


def referred(root: Any, reference: object) -> Any:
    """What a local reference such as `#/$defs/a` leads to; KeyError where it is none, or leads nowhere."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        raise KeyError(reference)
    return look_up(root, reference[1:])
