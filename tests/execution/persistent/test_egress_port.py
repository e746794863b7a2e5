"""Confined workers reach the hosts of their call, through the keep, and nobody else."""

import pytest

from tests.network.inside import workers
from tests.network.world import run_inside, scenarios


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(workers)


@pytest.mark.spec("SBX-4")
@pytest.mark.parametrize("name", scenarios(workers))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    assert results[name] == "", results[name]
