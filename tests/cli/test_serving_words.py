"""What `toolkeep serve` tells whoever started it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolkeep.cli.main import cli
from toolkeep.cli.serve import _link_command


@pytest.mark.parametrize(
    ("public", "command"),
    [
        ("http://127.0.0.1:8765", "toolkeep token link"),
        ("http://127.0.0.1:9000", "toolkeep token link --address http://127.0.0.1:9000"),
        ("https://keep.example.org", "toolkeep token link --address https://keep.example.org"),
    ],
)
def test_the_link_is_made_for_where_the_server_is(public: str, command: str) -> None:
    assert _link_command(public) == command


def test_it_works_in_the_project_and_says_where_it_serves_in_one_line_of_json(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    worked_in: list[Path] = []

    def serve(*_: object, begun: Callable[[], None]) -> None:
        worked_in.append(Path.cwd())
        begun()

    monkeypatch.setattr(
        "toolkeep.server.run_server.serve", lambda *given: serve(*given[:-1], begun=given[-1])
    )
    done = CliRunner().invoke(cli, ["serve", "--port", "0", "--json", "--project", str(tmp_path)])
    assert (done.exit_code, worked_in) == (0, [tmp_path])
    assert list(json.loads(*done.stdout.splitlines())) == ["address"]
