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


@pytest.mark.parametrize(
    ("words", "needed", "more"),
    [
        (["validate", "agent_hello_world", '{"name": "Ada"}'], "toolkeep.validation.validate", ()),
        (
            ["list"],
            "toolkeep.cli.tables",
            ("jsonschema_rs", "socket", "toolkeep.validation.compile", "toolkeep.sandbox.plan"),
        ),
    ],
)
def test_commands_load_nothing_that_they_do_not_need(
    words: list[str], needed: str, more: tuple[str, ...]
) -> None:
    code = (
        "import sys, atexit; from toolkeep.__main__ import main; "
        f"sys.argv = ['toolkeep', *{words}]; "
        "atexit.register(lambda: print(' '.join(sys.modules), file=sys.stderr)); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    heavy = {
        "pydantic", "yaml", "docstring_parser", "rapidfuzz", "asyncio", "sqlite3", "sqlalchemy", "psycopg",
        "cryptography", "cedarpy", "opentelemetry", "fractions", "click.shell_completion",
        "toolkeep.validation.explain_refusal", "toolkeep.network.hosts", "toolkeep.compat.definition_diff",
        "toolkeep.definitions.injection_scan", "toolkeep.policy.authorize",
        "toolkeep.keep.pipeline", "toolkeep.config.read",
        "nats", "toolkeep.fleet.dispatcher", "toolkeep.fleet_worker",
    }  # fmt: skip
    assert heavy.union(more).isdisjoint(done.stderr.split())
    assert needed in done.stderr.split()


def test_what_a_command_loads_is_no_longer_looked_through_for_garbage() -> None:
    code = (
        "import gc, sys, atexit; from toolkeep.__main__ import main; "
        "sys.argv = ['toolkeep', 'validate', 'agent_hello_world', '{\"name\": \"Ada\"}']; "
        "atexit.register(lambda: print(gc.isenabled(), gc.get_freeze_count() > 1000, file=sys.stderr)); main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stderr.split() == ["True", "True"]
