"""`git_push` to a real git server in an internet of our own."""

import pytest

from tests.network.inside import pushing
from tests.network.world import run_inside, scenarios


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(pushing)


@pytest.mark.spec("TLS-1", "TLS-3")
@pytest.mark.parametrize("name", scenarios(pushing))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    assert results[name] == "", results[name]
