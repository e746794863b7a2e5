"""Nobody is reached, and nobody is let in: each attempt, at each level that promises it, by two identities."""

import pytest

from tests.hostile.sandbox.arena import Case, cases, demand_containment


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize("case", cases("network"))
def test_nobody_is_reached(case: Case) -> None:
    demand_containment(case)
