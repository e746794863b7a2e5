"""No privilege is gained, and the odd corners of the kernel stay closed: each attempt, at each level that promises it, by two identities."""

import pytest

from tests.hostile.sandbox.arena import Case, cases, demand_containment


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize("case", cases("kernel"))
def test_nothing_is_gained_from_the_kernel(case: Case) -> None:
    demand_containment(case)
