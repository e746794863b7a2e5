"""The command's whole output, and that it starts fast enough to be used in a loop."""

import json
import subprocess
import sys

import pytest

from tests.cli.snapshots import CASES, FOLDER, Case, outcome


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_the_command_shows_exactly_this(case: Case) -> None:
    assert outcome(case) == (FOLDER / f"{case.name}.txt").read_text()


def test_every_snapshot_belongs_to_a_case() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {case.name for case in CASES}


def test_the_module_runs_as_a_program() -> None:
    call = [sys.executable, "-m", "toolkeep", "validate", "agent_hello_world", '{"name": "Ada"}', "--json"]
    done = subprocess.run(call, capture_output=True, check=True)
    assert json.loads(done.stdout) == {
        "success": True,
        "tool": "agent_hello_world",
        "arguments": {"name": "Ada"},
    }


def test_validate_loads_nothing_that_it_does_not_need() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from toolkeep.cli.main import cli; "
        "r = CliRunner().invoke(cli, ['validate', 'agent_hello_world', '{\"name\": \"Ada\"}']); "
        "assert r.exit_code == 0; print(' '.join(sys.modules))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, text=True
    ).stdout.split()
    for heavy in (
        "pydantic",
        "yaml",
        "docstring_parser",
        "rapidfuzz",
        "asyncio",
        "toolkeep.validation.explain",
    ):
        assert heavy not in loaded
