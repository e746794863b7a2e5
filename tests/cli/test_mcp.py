"""`toolkeep mcp`: what it refuses to start with; what it serves is in tests/mcp."""

import pytest
from click.testing import CliRunner

from toolkeep.cli.main import cli


@pytest.mark.parametrize("host", ["0.0.0.1", "192.168.0.1", "example.org"])
def test_it_serves_this_machine_only(host: str) -> None:
    done = CliRunner().invoke(cli, ["mcp", "--http", "0", "--host", host])
    assert (done.exit_code, "can be reached by others" in done.stderr) == (2, True)


def test_an_agent_that_nobody_declared_is_wrong_usage() -> None:
    done = CliRunner().invoke(cli, ["mcp", "--http", "0", "--agent", "stranger"])
    assert (done.exit_code, "'stranger' is not declared" in done.stderr) == (2, True)


@pytest.mark.parametrize("options", [["--wait", "-1"], ["--http", "70000"], ["--http", "x"]])
def test_impossible_options_are_wrong_usage(options: list[str]) -> None:
    assert CliRunner().invoke(cli, ["mcp", *options]).exit_code == 2
