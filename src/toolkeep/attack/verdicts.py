"""What the runs of the escape suite show: for each level and kind, what was contained and what was not."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from toolkeep.attack.attempts.declare import Attempt
from toolkeep.attack.catalog import declared
from toolkeep.attack.expected import levels_of
from toolkeep.attack.signs import MEANINGS
from toolkeep.attack.staying import RESIDENT, is_for_residents
from toolkeep.attack.suite import CONTROL, KindRuns, Run
from toolkeep.sandbox.levels import Isolation

_WITHOUT_A_START: Final = frozenset({"unstarted", "unloaded"})
"""Endings of calls in which the attempt itself did not run."""


class Outcome(StrEnum):
    """What one attempt came to at one level."""

    CONTAINED = "contained"
    GOT_OUT = "got out"
    NOT_SHOWN = "not shown"
    """Nothing got out, but nothing did without the sandbox either: this machine lacks what it attacks."""
    NOT_RUN = "not run"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One attempt at one level."""

    attempt: str
    kind: str
    level: Isolation
    outcome: Outcome
    reason: str = ""
    """What got out, what is lacking, or why it did not run."""

    @property
    def is_failure(self) -> bool:
        """Whether a promise was broken, or could not be put to the test."""
        return self.outcome in (Outcome.GOT_OUT, Outcome.NOT_RUN)


def judge(kinds: Sequence[KindRuns], levels: Collection[Isolation], who: str) -> tuple[Verdict, ...]:
    """A verdict for each attempt at each of these levels that promises to stop it."""
    return tuple(verdict for runs in kinds for verdict in _of_kind(runs, levels, who))


def judge_residents(kinds: Sequence[KindRuns], who: str) -> tuple[Verdict, ...]:
    """A verdict for each attempt that a program which stays must contain as a worker does, at strict."""
    return tuple(
        Verdict(attempt.name, runs.kind, Isolation.STRICT, *_outcome(attempt, runs, RESIDENT))
        for runs in kinds
        for attempt in declared(runs.kind).values()
        if attempt.only_for in ("", who) and is_for_residents(attempt)
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
    if confined.seen:
        return Outcome.GOT_OUT, ", ".join(MEANINGS.get(sign, sign) for sign in confined.seen)
    if not _has_run(attempt, confined):
        return Outcome.NOT_RUN, confined.said
    if attempt.shows not in control.seen:
        return Outcome.NOT_SHOWN, f"needs {attempt.needs}" if attempt.needs else "it does nothing here"
    return Outcome.CONTAINED, ""


def _has_run(attempt: Attempt, run: Run) -> bool:
    """A worker that could not be made stops everything, and has shown nothing."""
    return run.ending not in _WITHOUT_A_START or attempt.may_be_refused or run.ending in attempt.endings
