"""Hostile MCP servers by their address, in an internet of our own."""

import pytest

from tests.network.inside import mcp_hostile
from tests.network.world import run_inside, scenarios


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    return run_inside(mcp_hostile)


@pytest.mark.spec("MCP-2", "SBX-4")
@pytest.mark.parametrize("name", scenarios(mcp_hostile))
def test_in_an_internet_of_our_own(name: str, results: dict[str, str]) -> None:
    assert results[name] == "", results[name]
