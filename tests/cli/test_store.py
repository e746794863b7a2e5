"""`toolkeep store`, and commands that meet a stored tool."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.plainly import data, run
from tests.storage.keeps import WEATHER
from toolkeep import open_keep


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_store_says_what_it_holds_and_moves() -> None:
    assert data("store", "status")["layout"] is None
    with open_keep() as keep:
        keep.create_definition(WEATHER)
        keep.update_definition("weather", {"version": "2.0.0"})
    assert data("store", "status") == {
        **data("store", "status"),
        "layout": "0003",
        "tools": ["weather"],
        "broken": [],
        "versions": 2,
    }
    assert data("store", "migrate")["layout"] == "0003"
    assert data("store", "status")["versions"] == 2
    run("store", "migrate", "--to", "base", status=2)
    run("store", "migrate", "--to", "base", "--yes")
    assert data("store", "status")["layout"] is None


def test_a_stored_tool_is_listed_shown_and_checked() -> None:
    with open_keep() as keep:
        keep.create_definition(WEATHER)
    assert [tool["name"] for tool in data("list") if tool["name"] == "weather"] == ["weather"]
    assert data("validate", "forecast", '{"town": "Ulm"}')["arguments"] == {"town": "Ulm", "days": 3}


def test_checking_a_stored_tool_does_not_load_what_writes() -> None:
    with open_keep() as keep:
        keep.create_definition(WEATHER)
    code = (
        "import sys; from toolkeep.cli.main import cli; "
        "cli(['validate', 'weather', '{\"town\": \"Ulm\"}'], standalone_mode=False); "
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert "Validation passed" in done.stdout
    assert not {"sqlalchemy", "alembic", "psycopg", "asyncio"} & set(done.stdout.split())
