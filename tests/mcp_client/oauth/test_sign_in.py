"""Signing in to MCP servers, in an internet of our own."""

import pytest

from tests.network.inside import mcp_sign_in
from tests.network.world import run_inside, scenarios


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(mcp_sign_in)


@pytest.mark.spec("MCP-2", "SBX-4")
@pytest.mark.parametrize("name", scenarios(mcp_sign_in))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    assert results[name] == "", results[name]
