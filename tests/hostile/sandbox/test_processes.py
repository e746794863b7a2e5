"""No process is touched, none outlives its call, and none takes more than its share: each attempt, at each level that promises it, by two identities."""

import pytest

from tests.hostile.sandbox.arena import Case, cases, demand_containment


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize("case", cases("processes"))
def test_no_process_is_touched_or_left(case: Case) -> None:
    demand_containment(case)
