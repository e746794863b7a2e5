"""`toolkeep store`, and commands that meet a stored tool."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.plainly import data, run
from tests.storage.keeps import WEATHER
from toolkeep import open_keep
from toolkeep.cli.approval_prompt import person


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


def put(definition: dict[str, Any], *words: str, status: int = 0) -> Result:
    Path("weather.json").write_text(json.dumps(definition))
    return run("store", "put", "weather.json", *words, status=status)


def digest(asked: Result) -> str:
    return asked.stderr.split("--hash ")[1].split()[0]


def versions() -> list[str]:
    with open_keep() as keep:
        return [one.version for one in keep.versions("weather")]


@pytest.mark.spec("WEB-2")
def test_a_definition_of_a_file_is_stored_changed_and_deleted_by_the_hash_of_what_was_shown() -> None:
    assert put(WEATHER, "--dry-run").stdout == "✓ weather 1.0.0 could be stored\n"
    asked = put(WEATHER, status=1)
    assert '+ "version": "1.0.0",\n' in asked.stderr
    assert versions() == []
    assert (
        "the hash is another one"
        in put({**WEATHER, "danger": "safe"}, "--hash", digest(asked), status=1).stderr
    )
    assert put(WEATHER, "--hash", digest(asked)).stdout == "✓ weather 1.0.0 is stored\n"
    assert "nothing would change" in put(WEATHER, status=1).stderr
    changed = {key: value for key, value in WEATHER.items() if key != "metadata"} | {"danger": "low"}
    refused = put(changed, "--dry-run", status=1).stderr
    assert "1.0.0 is not higher" in refused
    assert "say to 2.0.0" in refused
    asked = put({**changed, "version": "1.1.0"}, status=1)
    assert '+ "danger": "low"' in asked.stderr
    assert json.loads(put({**changed, "version": "1.1.0"}, "--hash", digest(asked), "--json").stdout) == {
        "success": True, "tool": "weather", "version": "1.1.0", "stored": True}  # fmt: skip
    assert versions() == ["1.1.0", "1.0.0"]
    shown = [one["changes"] for one in data("show", "weather")["versions"]]
    assert (shown[1], any("danger" in one for one in shown[0])) == ([], True)
    assert f"    1.1.0 {shown[0][0]}\n" in run("show", "weather").stdout
    asked = run("store", "drop", "weather", status=1)
    assert versions() == ["1.1.0", "1.0.0"]
    assert run("store", "drop", "weather", "--hash", digest(asked)).stdout == "✓ weather is deleted\n"
    assert versions() == []


def test_fewer_approvals_are_recorded_with_the_person() -> None:
    cautious = {**WEATHER, "danger": "high"}
    put(cautious, "--hash", digest(put(cautious, status=1)))
    bold = {**WEATHER, "danger": "safe", "version": "2.0.0"}
    put(bold, "--hash", digest(put(bold, status=1)))
    (record,) = (one for one in data("audit", "list") if one["type"] == "OperatorChange")
    (shown,) = data("audit", "show", str(record["index"]))
    assert [shown[key] for key in ("what", "name", "way", "person", "difference")] == [
        "danger", "weather", "terminal", f"operator:{person()}", "-danger: high\n+danger: safe"]  # fmt: skip


def test_what_may_not_be_stored_is_said_and_nothing_is_asked() -> None:
    assert (
        "is not a type of JSON Schema" in put({**WEATHER, "parameters": {"type": "strang"}}, status=1).stderr
    )
    assert "cannot be overwritten" in put({**WEATHER, "name": "read_file"}, status=1).stderr
    assert "is not kept in the store" in run("store", "drop", "read_file", status=1).stderr
    run("store", "drop", "nobody", status=1)
    Path("list.json").write_text("[]")
    assert "holds no definition" in run("store", "put", "list.json", status=1).stderr
