"""No reply harms the host: each attempt, at each level that promises it, by two identities."""

import pytest

from tests.hostile.sandbox.arena import Case, cases, demand_containment


@pytest.mark.spec("SBX-5")
@pytest.mark.parametrize("case", cases("results"))
def test_no_reply_harms_the_host(case: Case) -> None:
    demand_containment(case)
