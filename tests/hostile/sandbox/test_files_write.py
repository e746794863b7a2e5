"""Nothing is changed that was not granted, and nothing is left for others to trip over: each attempt, at each level that promises it, by two identities."""

import pytest

from tests.hostile.sandbox.arena import Case, cases, demand_containment


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize("case", cases("files_write"))
def test_nothing_is_changed_that_was_not_granted(case: Case) -> None:
    demand_containment(case)
