"""What the suite expects of each level is what the level promises."""

import pytest

from toolkeep.escape_suite.attempt_catalog import KINDS, declared
from toolkeep.escape_suite.expected import LEVELS, NOT_PROMISED, STOPPED_AT
from toolkeep.sandbox.isolation_levels import PROMISES, Guarantee, Isolation

pytestmark = pytest.mark.spec("SBX-5")

BEYOND_GUARANTEES = {"bounded", "host-sound"}
"""What every level must stop, and no guarantee of the sandbox names."""


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
