"""The client scenarios of the official conformance suite, in an internet of our own."""

import pytest

from tests.mcp_server.environments import node_with_packages
from tests.network.inside import mcp_conformance
from tests.network.world import run_inside, scenarios


@pytest.fixture(scope="module")
def results() -> dict[str, str]:
    node_with_packages()  # made out here: inside there is no way to whoever has the packages
    return run_inside(mcp_conformance, seconds=600)


@pytest.mark.spec("MCP-2")
@pytest.mark.parametrize("revision", scenarios(mcp_conformance))
def test_every_scenario_that_a_revision_requires_of_a_client_passes(
    revision: str, results: dict[str, str]
) -> None:
    assert results[revision] == "", results[revision]
