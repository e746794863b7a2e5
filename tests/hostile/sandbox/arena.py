"""Runs the escape suite of the package once for each kind and identity, and keeps what it saw."""

import functools
import os
import shutil
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from toolkeep.escape_suite.attempt_catalog import KINDS, declared
from toolkeep.escape_suite.attempts.declare import Attempt
from toolkeep.escape_suite.baits import SETUID_PROGRAM
from toolkeep.escape_suite.confined import ALONE, TEMPLATED
from toolkeep.escape_suite.confined_persistent import PERSISTENT, applies_to_persistent
from toolkeep.escape_suite.expected import LEVELS, levels_of
from toolkeep.escape_suite.suite import KindRuns, new_folder, run_kind
from toolkeep.escape_suite.verdicts import Outcome, Verdict, judge, judge_persistent
from toolkeep.sandbox.isolation_levels import Isolation

IDENTITIES: Final = ("ordinary", "root")
ORDINARY: Final = 1_900_000_101
"""Who the ordinary host is if root runs these tests: nobody's id, so that its files and processes are ours."""


@dataclass(frozen=True)
class Case:
    """One attempt by one identity, at each level that promises to stop it."""

    attempt: Attempt
    kind: str
    identity: str


def cases(kind: str) -> list[Any]:
    """The parameters of the test of a kind."""
    return [
        pytest.param(Case(attempt, kind, identity), id=f"{attempt.name}-{identity}")
        for attempt in declared(kind).values()
        for identity in IDENTITIES
        if attempt.only_for in ("", identity)
    ]


def resident_cases() -> list[Any]:
    """The attempts that a program which stays must contain too."""
    return [
        pytest.param(kind, attempt, id=attempt.name)
        for kind in KINDS
        for attempt in declared(kind).values()
        if attempt.only_for in ("", "ordinary") and applies_to_persistent(attempt)
    ]


def demand_resident_containment(kind: str, attempt: Attempt) -> None:
    """Fail unless the attempt got nothing out of a program that stays, and its control did."""
    _demand(attempt, [_resident_verdicts(kind)[attempt.name]])


def demand_containment(case: Case) -> None:
    """Fail unless the attempt got nothing out, and its control did."""
    if case.identity == "root" and os.geteuid() != 0:
        pytest.skip("only root can be the host as root")
    found = _verdicts(case.kind, case.identity)
    _demand(case.attempt, [found[case.attempt.name, level] for level in levels_of(case.attempt)])


def _demand(attempt: Attempt, verdicts: Sequence[Verdict]) -> None:
    # What a machine does not have cannot be attacked on it.
    missing = [one for one in verdicts if one.outcome is Outcome.NOT_SHOWN and attempt.needs]
    got = {one.level: (one.outcome, one.reason) for one in verdicts if one not in missing}
    assert got == dict.fromkeys(got, (Outcome.CONTAINED, ""))
    if missing:
        pytest.skip(missing[0].reason)


@functools.cache
def _verdicts(kind: str, identity: str) -> dict[tuple[str, Isolation], Verdict]:
    runs = _started()[kind, identity].result()
    return {(verdict.attempt, verdict.level): verdict for verdict in judge([runs], LEVELS, identity)}


@functools.cache
def _resident_verdicts(kind: str) -> dict[str, Verdict]:
    runs = _started()[kind, "ordinary"].result()
    return {verdict.attempt: verdict for verdict in judge_persistent([runs], "ordinary")}


@functools.cache
def _started() -> dict[tuple[str, str], "Future[KindRuns]"]:
    """All hosts, some at a time: much of what they do is waiting."""
    threads = ThreadPoolExecutor(max_workers=4)
    identities = IDENTITIES if os.geteuid() == 0 else IDENTITIES[:1]
    return {
        (kind, identity): threads.submit(_host, kind, identity) for kind in KINDS for identity in identities
    }


def _host(kind: str, identity: str) -> KindRuns:
    folder = new_folder()
    # Each attempt in both kinds of workers, and by both identities, but not in all four combinations.
    levels = (*LEVELS, ALONE) if identity == "root" else (*LEVELS, TEMPLATED, PERSISTENT)
    if os.geteuid() != 0 or identity == "root":
        return run_kind(kind, folder, levels=levels)
    _prepare_for_ordinary(folder)
    become = str(Path(__file__).resolve().parent / "as_ordinary.py")
    return run_kind(kind, folder, levels=levels, launcher=(sys.executable, "-B", become, str(ORDINARY)))


def _prepare_for_ordinary(top: Path) -> None:
    """What only root can make: the folder's owner, and a setuid program of root's beside the code."""
    code = top / "code" / "attempts"
    code.mkdir(parents=True)
    program = code / SETUID_PROGRAM
    shutil.copy("/usr/bin/id", program)
    for path in (top, code.parent, code):
        os.chown(path, ORDINARY, ORDINARY)
    program.chmod(0o4755)
