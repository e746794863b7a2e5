"""Every attempt, at every level that promises to stop it, as an ordinary user and as root (SBX-5).

A test passes if the host saw nothing get out of the sandbox, and the same attempt with nothing around it did
get out, in the same run.
"""

import pytest

from tests.hostile.sandbox.arena import KINDS, Case, cases, demand_containment
from tests.hostile.sandbox.expected import BEYOND_GUARANTEES, LEVELS, NOT_PROMISED, STOPPED_AT
from tests.hostile.sandbox.host import declared
from toolkeep.sandbox.levels import PROMISES, Guarantee, Isolation

pytestmark = pytest.mark.spec("SBX-5")


@pytest.mark.parametrize("case", cases("files_read"))
def test_nothing_is_read_that_was_not_granted(case: Case) -> None:
    demand_containment("files_read", case)


@pytest.mark.parametrize("case", cases("files_write"))
def test_nothing_is_changed_that_was_not_granted(case: Case) -> None:
    demand_containment("files_write", case)


@pytest.mark.parametrize("case", cases("network"))
def test_nobody_is_reached(case: Case) -> None:
    demand_containment("network", case)


@pytest.mark.parametrize("case", cases("processes"))
def test_no_process_is_touched_or_left(case: Case) -> None:
    demand_containment("processes", case)


@pytest.mark.parametrize("case", cases("kernel"))
def test_nothing_is_gained_from_the_kernel(case: Case) -> None:
    demand_containment("kernel", case)


@pytest.mark.parametrize("case", cases("results"))
def test_no_reply_harms_the_host(case: Case) -> None:
    demand_containment("results", case)


# --- the table -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_the_table_expects_what_the_level_promises(level: Isolation) -> None:
    expected = {promise for promise, levels in STOPPED_AT.items() if level in levels}
    assert expected - BEYOND_GUARANTEES == {guarantee.value for guarantee in PROMISES[level]}


def test_every_promise_is_attacked() -> None:
    attacked = {attempt.breaks for kind in KINDS for attempt in declared(kind).values()}
    assert attacked == {guarantee.value for guarantee in Guarantee} | BEYOND_GUARANTEES


def test_every_level_says_what_it_does_not_promise() -> None:
    assert set(NOT_PROMISED) == set(LEVELS)
    assert all(NOT_PROMISED.values())
