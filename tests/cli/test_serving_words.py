"""What `toolkeep serve` tells whoever started it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolkeep.cli.main import cli
from toolkeep.keep.open import open_state
from toolkeep.storage.running_servers import running_servers


def test_it_works_in_the_project_and_says_where_it_serves_in_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worked_in: list[Path] = []
    listed: list[list[str]] = []

    def serve(*_: object, begun: Callable[[], None]) -> None:
        worked_in.append(Path.cwd())
        state = open_state(tmp_path)
        listed.append(running_servers(state.folder) if state else [])
        begun()

    monkeypatch.setattr(
        "toolkeep.server.run_server.serve", lambda *given: serve(*given[:-1], begun=given[-1])
    )
    done = CliRunner().invoke(cli, ["serve", "--port", "0", "--json", "--project", str(tmp_path)])
    assert (done.exit_code, worked_in) == (0, [tmp_path])
    said = json.loads(*done.stdout.splitlines())
    assert (list(said), listed) == (["address"], [[said["address"]]])
    assert not list(Path.home().rglob("servers/*"))
