"""toolkeep: `Keep.call`, with everything that guards it and its record on disk."""

import contextlib
import functools
import tempfile
from collections.abc import AsyncIterator
from typing import Any, Literal

import toolkeep
from rivals.caller import Prepare
from toolkeep.calls import ToolResult
from workloads.calls import Work

Variant = Literal["no effects", "undeclared", "cached", "keyed", "refused", "memory", "memory, undeclared"]

_DECLARED: dict[Variant, dict[str, Any]] = {
    "no effects": {"side_effects": ["None"]},
    "memory": {"side_effects": ["None"]},
    "cached": {"side_effects": ["None"], "determinism": "pure"},
}
_AGENTS = 5_000
"""Refusals go to so many agents in turn: after twenty in a row an agent gets no details."""


class ToolkeepCalls:
    """One kind of call. Where effects are undeclared, the intent is durable before the tool runs."""

    package = "toolkeep"

    def __init__(self, variant: Variant) -> None:
        self._variant = variant
        self.name = f"toolkeep, {variant}"
        where = "Keep()" if variant.startswith("memory") else "open_keep(project=…)"
        self.timed = f"{where}.call(name, text), {_ABOUT[variant]}"

    @contextlib.asynccontextmanager
    async def open(self, work: Work) -> AsyncIterator[Prepare]:
        with tempfile.TemporaryDirectory() as project, self._keep(project) as keep:
            keep.register(toolkeep.tool(**_DECLARED.get(self._variant, {}))(work.function))
            call = functools.partial(keep.call, work.name)
            match self._variant:
                case "cached":
                    yield lambda _: functools.partial(call, work.sample)
                case "keyed":
                    yield lambda number: functools.partial(
                        call, work.text(number), idempotency_key=f"key {number}"
                    )
                case "refused":
                    yield lambda number: functools.partial(
                        call, work.bad_text(number), agent=f"agent {number % _AGENTS}"
                    )
                case _:
                    yield lambda number: functools.partial(call, work.text(number))

    def is_expected(self, answer: ToolResult) -> bool:
        if self._variant == "refused":
            return answer.code is toolkeep.Code.WRONG_TYPE and answer.leaf is not None
        return answer.ok and answer.value == "done" and answer.leaf is not None

    def _keep(self, project: str) -> toolkeep.Keep:
        if self._variant.startswith("memory"):
            return toolkeep.Keep()
        return toolkeep.open_keep(project=project, built_in=False)


_ABOUT: dict[Variant, str] = {
    "no effects": "a tool with side_effects=['None']: one durable group, after the tool",
    "undeclared": "a tool that declares no effects: one durable group before it, one after it",
    "cached": "a pure tool and always the same arguments",
    "keyed": "undeclared, each call with an idempotency key of its own",
    "refused": "one argument of the wrong type",
    "memory": "no effects, nothing on disk",
    "memory, undeclared": "undeclared, nothing on disk",
}
VARIANTS: tuple[Variant, ...] = tuple(_ABOUT)
