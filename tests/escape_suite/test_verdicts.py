"""What counts as contained, and what does not."""

import pytest

from toolkeep.escape_suite.attempt_catalog import KINDS, declared
from toolkeep.escape_suite.expected import LEVELS
from toolkeep.escape_suite.suite import CONTROL, KindRuns, Run, count_runs
from toolkeep.escape_suite.verdicts import Outcome, Verdict, judge
from toolkeep.sandbox.isolation_levels import Isolation

NAME = "read_ssh_key"
WORKED = Run(NAME, CONTROL, ("leaked",), "", "KEY")
FAILED = Run(NAME, CONTROL, (), "", "null")


def strict(*seen: str, ending: str = "raised", said: str = "") -> Run:
    return Run(NAME, "strict", seen, ending, said)


def verdict(*runs: Run, problem: str = "") -> tuple[Outcome, str]:
    found = judge([KindRuns("files_read", runs, problem)], [Isolation.STRICT], "ordinary")
    (one,) = [verdict for verdict in found if verdict.attempt == NAME]
    return one.outcome, one.reason


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((WORKED, strict()), (Outcome.CONTAINED, "")),
        ((WORKED, strict("leaked")), (Outcome.GOT_OUT, "a secret was read")),
        ((FAILED, strict("leaked", "hit")), (Outcome.GOT_OUT, "a secret was read, another process was touched")),
        ((FAILED, strict()), (Outcome.NOT_SHOWN, "it does nothing here")),
        ((WORKED, strict(ending="unstarted", said="no worker")), (Outcome.NOT_RUN, "no worker")),
        ((WORKED, strict(ending="unloaded", said="no module")), (Outcome.NOT_RUN, "no module")),
        ((WORKED,), (Outcome.NOT_RUN, "the host did not come to it")),
        ((), (Outcome.NOT_RUN, "the host did not come to it")),
    ],
)  # fmt: skip
def test_an_attempt_is_contained_if_it_ran_and_only_its_control_got_out(
    runs: tuple[Run, ...], expected: tuple[Outcome, str]
) -> None:
    assert verdict(*runs) == expected


def test_what_did_not_run_says_why_the_host_ended() -> None:
    assert verdict(problem="it fell over") == (Outcome.NOT_RUN, "it fell over")


@pytest.mark.parametrize("outcome", Outcome)
def test_a_failure_is_what_got_out_or_was_not_tried(outcome: Outcome) -> None:
    made = Verdict(NAME, "files_read", Isolation.STRICT, outcome)
    assert made.is_failure == (outcome in (Outcome.GOT_OUT, Outcome.NOT_RUN))


def test_all_runs_are_counted_beforehand() -> None:
    attempts = [
        attempt for kind in KINDS for attempt in declared(kind).values() if attempt.only_for != "root"
    ]
    verdicts = judge([KindRuns(kind, ()) for kind in KINDS], LEVELS, "ordinary")
    assert count_runs(LEVELS, "ordinary") == len(attempts) + len(verdicts)
