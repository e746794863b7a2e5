"""A program that stays contains what a worker does: each attempt at strict, after a call that was answered."""

import pytest

from tests.hostile.sandbox.arena import demand_resident_containment, resident_cases
from toolkeep.attack.attempts.declare import Attempt


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize(("kind", "attempt"), resident_cases())
def test_what_stays_lets_nothing_out(kind: str, attempt: Attempt) -> None:
    demand_resident_containment(kind, attempt)
