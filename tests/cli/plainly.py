"""Commands run in a folder of the test's own, with their whole output."""

import json
from typing import Any

from click.testing import CliRunner, Result

from toolkeep.cli.main import cli


def run(*words: str, status: int = 0) -> Result:
    """What a command says, which must end with this status."""
    result = CliRunner().invoke(cli, list(words))
    assert result.exit_code == status, result.output
    return result


def data(*words: str) -> Any:
    """What a command says in JSON."""
    return json.loads(run(*words, "--json").stdout)
