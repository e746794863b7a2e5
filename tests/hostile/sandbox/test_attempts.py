"""The escape suite: each attempt, at each level that promises to stop it, by two identities.

One file, so that one process of a parallel run starts the hosts, and each of them once.
"""

import pytest

from tests.hostile.sandbox.arena import (
    Case,
    cases,
    demand_containment,
    demand_resident_containment,
    resident_cases,
)
from toolkeep.escape_suite.attempts.declare import Attempt

pytestmark = pytest.mark.spec("SBX-5")


@pytest.mark.parametrize("case", cases("results"))
def test_no_reply_harms_the_host(case: Case) -> None:
    demand_containment(case)


@pytest.mark.parametrize("case", cases("processes"))
def test_no_process_is_touched_or_left(case: Case) -> None:
    demand_containment(case)


@pytest.mark.parametrize("case", cases("files_read"))
def test_nothing_is_read_that_was_not_granted(case: Case) -> None:
    demand_containment(case)


@pytest.mark.parametrize("case", cases("files_write"))
def test_nothing_is_changed_that_was_not_granted(case: Case) -> None:
    demand_containment(case)


@pytest.mark.parametrize("case", cases("kernel"))
def test_nothing_is_gained_from_the_kernel(case: Case) -> None:
    demand_containment(case)


@pytest.mark.parametrize("case", cases("network"))
def test_nobody_is_reached(case: Case) -> None:
    demand_containment(case)


@pytest.mark.spec("SBX-6")
@pytest.mark.parametrize("case", cases("project"))
def test_nothing_is_left_that_the_host_would_trust(case: Case) -> None:
    demand_containment(case)


@pytest.mark.parametrize(("kind", "attempt"), resident_cases())
def test_a_persistent_program_lets_nothing_out(kind: str, attempt: Attempt) -> None:
    """At strict, after a call that was answered."""
    demand_resident_containment(kind, attempt)
