"""Runs the escape suite for `toolkeep doctor --attack`, and reports its results."""

import contextlib
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import click

from toolkeep.cli.options import is_terminal, say
from toolkeep.escape_suite.attempt_catalog import KINDS
from toolkeep.escape_suite.expected import LEVELS, NOT_PROMISED
from toolkeep.escape_suite.suite import Run, Tell, attack, count_runs
from toolkeep.escape_suite.verdicts import Outcome, Verdict, judge
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.kernel_probe import Findings


@dataclass(frozen=True, slots=True)
class Attacked:
    """Results of the suite for the levels that this machine supports."""

    levels: tuple[Isolation, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def is_contained(self) -> bool:
        """Whether every level is available and every attempt that must fail failed."""
        return self.levels == LEVELS and not any(verdict.is_failure for verdict in self.verdicts)

    def of(self, level: Isolation, kind: str, *outcomes: Outcome) -> list[Verdict]:
        """Verdicts on a level and kind; of all outcomes if none is given."""
        return [
            verdict
            for verdict in self.verdicts
            if (verdict.level, verdict.kind) == (level, kind) and verdict.outcome in (outcomes or Outcome)
        ]


def attack_here(findings: Findings) -> Attacked:
    """Attack every level that this machine supports."""
    levels = tuple(level for level in LEVELS if findings.is_available(level))
    who = "root" if os.geteuid() == 0 else "ordinary"
    if not levels:
        return Attacked((), ())
    with _progress(count_runs(levels, who)) as tell:
        return Attacked(levels, judge(attack(levels, tell), levels, who))


@contextlib.contextmanager
def _progress(length: int) -> Iterator[Tell]:
    """A progress bar on a terminal."""
    if not is_terminal(sys.stderr):
        yield lambda _: None
        return
    lock = threading.Lock()
    with click.progressbar(length=length, label="Running escape attempts", file=sys.stderr) as bar:

        def tell(_: Run) -> None:
            with lock:
                bar.update(1)

        yield tell


# --- as data -------------------------------------------------------------------------------------


def as_data(found: Attacked) -> dict[str, Any]:
    """The results as JSON data."""
    return {"contained": found.is_contained, "levels": [_level_data(found, level) for level in LEVELS]}


def _level_data(found: Attacked, level: Isolation) -> dict[str, Any]:
    kinds = [_kind_data(found, level, kind) for kind in KINDS if found.of(level, kind)]
    return {
        "name": level.value,
        "attacked": level in found.levels,
        "kinds": kinds,
        "not_promised": list(NOT_PROMISED[level]),
    }


def _kind_data(found: Attacked, level: Isolation, kind: str) -> dict[str, Any]:
    return {
        "name": kind,
        "attempts": len(found.of(level, kind)),
        "contained": len(found.of(level, kind, Outcome.CONTAINED)),
        **{
            outcome.value.replace(" ", "_"): [
                {"attempt": verdict.attempt, "reason": verdict.reason}
                for verdict in found.of(level, kind, outcome)
            ]
            for outcome in (Outcome.GOT_OUT, Outcome.NOT_RUN, Outcome.NOT_SHOWN)
        },
    }


# --- for a person --------------------------------------------------------------------------------


def print_attack(found: Attacked) -> None:
    """The results as text."""
    say("", "Escape attempts")
    problems = {verdict.reason if verdict.outcome is Outcome.NOT_RUN else "" for verdict in found.verdicts}
    if len(problems) == 1 and "" not in problems:  # one reason for all: printed once
        say(f" none could be run: {problems.pop()}", label="  ✗", color="red")
        return
    for level in LEVELS:
        _print_level(found, level)
    absent = {v.attempt: v.reason for v in found.verdicts if v.outcome is Outcome.NOT_SHOWN}
    if absent:
        say("", "Inconclusive: these fail without the sandbox too")
        for attempt, reason in absent.items():
            say(f"      {attempt}: {reason}")


def _print_level(found: Attacked, level: Isolation) -> None:
    if level not in found.levels:
        say(f" {level}: not available here, so not tested", label="  ✗", color="red")
        return
    is_good = not any(verdict.is_failure for verdict in found.verdicts if verdict.level is level)
    say(f" {level}", label="  ✓" if is_good else "  ✗", color="green" if is_good else "red")
    for kind in KINDS:
        if verdicts := found.of(level, kind):
            say(f"      {kind}: {_counts(verdicts)}")
            for line in _failures(found, level, kind):
                say(f" {line}", label="        ✗", color="red")


def _counts(verdicts: Sequence[Verdict]) -> str:
    counts = Counter(verdict.outcome for verdict in verdicts)
    rest = [f"{counts[outcome]} {outcome}" for outcome in Outcome if outcome in counts]
    if counts.keys() == {Outcome.CONTAINED}:
        return f"all {len(verdicts)} contained"
    return f"{', '.join(rest)}, of {len(verdicts)}"


def _failures(found: Attacked, level: Isolation, kind: str) -> Iterator[str]:
    for verdict in found.of(level, kind, Outcome.GOT_OUT):
        yield f"{verdict.attempt} escaped: {verdict.reason}"
    for reason, count in Counter(v.reason for v in found.of(level, kind, Outcome.NOT_RUN)).items():
        first = next(v for v in found.of(level, kind, Outcome.NOT_RUN) if v.reason == reason)
        others = f" and {count - 1} more" if count > 1 else ""
        yield f"{first.attempt}{others} could not be run: {reason}"
