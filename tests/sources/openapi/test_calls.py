"""Calls of imported operations arrive as their document wants them, and hostile answers are refused."""

import pytest

from tests.network.inside import openapi_calls
from tests.network.world import run_inside, scenarios


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(openapi_calls)


@pytest.mark.parametrize("name", scenarios(openapi_calls))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    assert results[name] == "", results[name]
