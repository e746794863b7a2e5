"""The calls of one response of a model: their questions are put at once, before they run (FLO-7).

Calls are decided ahead only to find out which of them ask. Each is decided again in its turn.
"""

import logging
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolkeep.approval.question import Question
from toolkeep.keep.call_state import Foreseen
from toolkeep.keep.pipeline import Pipeline

log = logging.getLogger("toolkeep.approval")

_ROUNDS: Final = 3
"""How often all remaining calls are decided ahead. Results of earlier ones can open the session, and can make
it secret; after that, a call asks by itself."""


class ResponseCalls:
    """Several calls, each as the keyword arguments of `Keep.call` with its agent."""

    def __init__(self, pipeline: Pipeline, calls: Sequence[Mapping[str, Any]]) -> None:
        self._pipeline = pipeline
        self._calls = calls
        self._name = secrets.token_hex(8) if len(calls) > 1 else ""
        self._foreseen: dict[int, Foreseen] = {}
        self._rounds = _ROUNDS if len(calls) > 1 else 0

    def steps(self) -> list[range]:
        """Calls that may run side by side: one that may write is alone."""
        found, start = [], 0
        for at, call in enumerate(self._calls):
            if self._pipeline.may_write(call["name"]):
                found += [range(start, at), range(at, at + 1)]
                start = at + 1
        return [step for step in (*found, range(start, len(self._calls))) if step]

    def call(self, at: int) -> dict[str, Any]:
        """One call, for `Keep.call`."""
        call, foreseen = self._calls[at], self._foreseen.get(at)
        return {**call, "response": foreseen or call.get("response") or self._name}

    async def ask_ahead(self, step: range) -> None:
        """Put the questions of this step and all later ones, if this one asks anything new.

        Not sooner: what calls without a question bring may change what later ones ask.
        """
        questions = await self._questions(step) if self._rounds else []
        if questions:
            self._rounds -= 1
            questions += await self._questions(range(step.stop, len(self._calls)))
            await self._pipeline.asker.ask_ahead(questions)

    async def end(self) -> None:
        """Withdraw the questions of calls that were not made."""
        await self._pipeline.asker.forget_ahead(one.id for one in self._foreseen.values())

    async def _questions(self, wanted: range) -> list[Question]:
        found = []
        for at in wanted:
            try:
                if self._pipeline.may_ask(self._calls[at]):
                    found.append(await self._question(at))
            except Exception:  # the call itself meets it again, and says so
                log.debug("a call was not decided ahead", exc_info=True)
        return [one for one in found if one is not None]

    async def _question(self, at: int) -> Question | None:
        call, pipeline = self._calls[at], self._pipeline
        response = str(call.get("response") or self._name)
        foreseen = await pipeline.foresee(call, self._foreseen.get(at), response)
        self._foreseen[at] = foreseen
        try:
            if foreseen.permitted is None:
                return None
            sealed = pipeline.recorder.hashed(foreseen.permitted.checked).body
            return await pipeline.asker.question_of(foreseen.permitted, sealed)
        finally:
            await pipeline.let_go(foreseen)
