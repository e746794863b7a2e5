"""Nothing is left in a project that the host would run, import or believe: each attempt, by two identities."""

import pytest

from tests.hostile.sandbox.arena import Case, cases, demand_containment


@pytest.mark.spec("SBX-5", "SBX-6")
@pytest.mark.parametrize("case", cases("project"))
def test_nothing_is_left_that_the_host_would_trust(case: Case) -> None:
    demand_containment(case)
