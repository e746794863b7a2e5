"""What `toolkeep serve` tells whoever started it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from toolkeep.cli.main import cli
from toolkeep.keep.open import open_state
from toolkeep.server.asgi_app import KeepApp
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


def test_without_the_extra_it_serves_the_page_and_no_metrics(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served: list[bool] = []

    def serve(app: KeepApp, *given: Any) -> None:
        served.append(app.service.metrics is not None)
        given[-1]()

    monkeypatch.setattr("toolkeep.server.run_server.serve", serve)
    command = ["serve", "--port", "0", "--project", str(tmp_path)]
    CliRunner().invoke(cli, command, catch_exceptions=False)
    monkeypatch.setattr("toolkeep.cli.serve.find_spec", lambda _: None)
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert (done.exit_code, served) == (0, [True, False])
    assert done.stderr.index("sign in to the page") < done.stderr.index("Only programs that use the HTTP API")
    asked = CliRunner().invoke(cli, [*command, "--metrics"])
    assert (asked.exit_code, "pip install 'toolkeep[server]'" in asked.stderr) == (2, True)
