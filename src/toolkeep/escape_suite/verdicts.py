"""Verdicts of the escape suite: per level and kind, what was contained and what was not."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toolkeep.escape_suite.attempt_catalog import declared
from toolkeep.escape_suite.attempts.declare import Attempt
from toolkeep.escape_suite.confined_persistent import PERSISTENT, applies_to_persistent
from toolkeep.escape_suite.expected import levels_of
from toolkeep.escape_suite.signs import MEANINGS
from toolkeep.escape_suite.suite import CONTROL, KindRuns, Run
from toolkeep.sandbox.isolation_levels import Isolation

_WITHOUT_A_START: Final = frozenset({"unstarted", "unloaded"})
"""Endings of calls in which the attempt itself did not run."""


class Outcome(StrEnum):
    """Result of one attempt at one level."""

    CONTAINED = "contained"
    GOT_OUT = "escaped"
    NOT_SHOWN = "not shown"
    """Nothing escaped, but nothing did without the sandbox either: this machine lacks what it attacks."""
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One attempt at one level."""

    attempt: str
    kind: str
    level: Isolation
    outcome: Outcome
    reason: str = ""
    """What escaped, what is missing, or why it did not run."""

    @property
    def is_failure(self) -> bool:
        """Whether a guarantee was broken, or could not be tested (fail closed)."""
        return self.outcome in (Outcome.GOT_OUT, Outcome.NOT_RUN)


def judge(kinds: Sequence[KindRuns], levels: Collection[Isolation], who: str) -> tuple[Verdict, ...]:
    """A verdict per attempt and level that guarantees to stop it."""
    return tuple(verdict for runs in kinds for verdict in _of_kind(runs, levels, who))


def judge_persistent(kinds: Sequence[KindRuns], who: str) -> tuple[Verdict, ...]:
    """A verdict per attempt that a persistent process must contain like a worker, at strict."""
    return tuple(
        Verdict(attempt.name, runs.kind, Isolation.STRICT, *_outcome(attempt, runs, PERSISTENT))
        for runs in kinds
        for attempt in declared(runs.kind).values()
        if attempt.only_for in ("", who) and applies_to_persistent(attempt)
    )


def _of_kind(runs: KindRuns, levels: Collection[Isolation], who: str) -> Iterator[Verdict]:
    for attempt in declared(runs.kind).values():
        if attempt.only_for in ("", who):
            for level in levels_of(attempt):
                if level in levels:
                    outcome, reason = _outcome(attempt, runs, level)
                    yield Verdict(attempt.name, runs.kind, level, outcome, reason)


def _outcome(attempt: Attempt, runs: KindRuns, level: str) -> tuple[Outcome, str]:
    confined, control = runs.find(attempt.name, level), runs.find(attempt.name, CONTROL)
    if confined is None or control is None:
        return Outcome.NOT_RUN, runs.problem or "the host did not come to it"
    # An escape counts even if the control shows nothing.
    if confined.seen:
        return Outcome.GOT_OUT, ", ".join(MEANINGS.get(sign, sign) for sign in confined.seen)
    if not _has_run(attempt, confined):
        return Outcome.NOT_RUN, confined.said
    # A control that cannot escape proves nothing about the sandbox.
    if attempt.shows not in control.seen:
        return Outcome.NOT_SHOWN, f"needs {attempt.needs}" if attempt.needs else "it does nothing here"
    return Outcome.CONTAINED, ""


def _has_run(attempt: Attempt, run: Run) -> bool:
    """A worker that could not be started stops everything, and has shown nothing."""
    return run.ending not in _WITHOUT_A_START or attempt.may_be_refused or run.ending in attempt.endings
