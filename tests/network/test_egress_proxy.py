"""The way out of a worker, in an internet of our own: what gets through, and what does not."""

import pytest

from tests.network.inside import egress
from tests.network.world import run_inside, scenarios


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(egress)


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize("name", scenarios(egress))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    assert results[name] == "", results[name]
