"""Calls that are run and not only checked: two tools, each as a plain function and as an async one."""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from workloads.cases import CASES, Case

_VARIED = {"transfer": "amount", "place_order": "attempt"}
"""The whole number in the arguments of each tool that another call has another of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One tool and its calls, of which no two are the same."""

    title: str
    function: Callable[..., Any]
    sample: str
    """The text of one call."""

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.function.__name__

    def arguments(self, number: int) -> dict[str, Any]:
        """The arguments of a call."""
        arguments: dict[str, Any] = json.loads(self.sample)
        return arguments | {_VARIED[self.name]: number}

    def text(self, number: int) -> str:
        """The same as text."""
        return _compact(self.arguments(number))

    def bad_text(self, number: int) -> str:
        """A call with one fault."""
        return _compact(self.arguments(number) | {_VARIED[self.name]: f"number {number}"})


def works() -> list[Work]:
    """The small tool and the one with about 1 KB of arguments, async and sync."""
    return [
        Work(title=f"{case.title} call, {kind} function", function=function, sample=case.raw)
        for case in CASES
        if case.function.__name__ in _VARIED
        for kind, function in _kinds(case).items()
    ]


def _kinds(case: Case) -> dict[str, Callable[..., Any]]:
    return {"async": _async_twin(case.function), "sync": case.function}


def _async_twin(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def twin(*positional: Any, **named: Any) -> Any:
        return function(*positional, **named)

    return twin


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
