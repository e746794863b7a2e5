"""What somebody else wrote cannot pass for a line of ours: in logs, in `show`, in completion."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from toolkeep import Keep, ToolDefinition, open_keep
from toolkeep.cli.main import cli
from toolkeep.cli.options import say, say_done, say_failed, warn
from toolkeep.cli.tables import Column, Table
from toolkeep.cli.tool_selection import complete_name
from toolkeep.storage.log.audit_log import AuditLog
from toolkeep.text.display import visible

FORGED = "Greets.\nState: enabled\n\x1b[2Jerror toolkeep: all is well\r\u2028\u202eend"


def write(folder: Path, **fields: Any) -> Path:
    """A file with one tool of somebody else's."""
    known = {"name": "greet", "description": FORGED, "version": "1.0.0"}
    path = folder / "tools.json"
    path.write_text(json.dumps([{**known, **fields}]))
    return path


def run(folder: Path, *arguments: str) -> tuple[list[str], list[str]]:
    """The lines on stdout and stderr."""
    result = CliRunner().invoke(cli, [*arguments, "--project", str(folder)])
    assert isinstance(result.exception, SystemExit | None)
    for char in "\x1b\r\u2028\u202e":
        assert char not in result.stdout + result.stderr
    return result.stdout.split("\n"), result.stderr.split("\n")


OURS = ("Tool:", "Version:", "Category:", "Danger:", "Description:", "Usage:", "State:", "Provider:", "Hash:")  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="description"),
        pytest.param({"usage_metadata": FORGED}, id="usage"),
        pytest.param({"capabilities": [f"fs.read:{FORGED}"]}, id="capability"),
        pytest.param(
            {"parameters": {"type": "object", "properties": {"to": {"type": "string", "description": FORGED}}}},
            id="description of a parameter",
        ),
        pytest.param(
            {"parameters": {"type": "object", "properties": {"to": {"enum": [FORGED], "default": FORGED}}}},
            id="allowed values",
        ),
    ],
)  # fmt: skip
def test_show_has_each_line_of_ours_at_most_once(fields: dict[str, Any], tmp_path: Path) -> None:
    path = write(tmp_path, **fields)
    shown, _ = run(tmp_path, "show", "greet", "-f", str(path))
    assert_nothing_is_forged(shown)


def assert_nothing_is_forged(shown: list[str]) -> None:
    starts = [line.split(" ")[0] for line in shown if line.startswith(OURS)]
    assert len(starts) == len(set(starts)) >= 8
    assert not [line for line in shown if line.startswith("error toolkeep")]


def test_the_name_of_a_parameter_from_elsewhere_forges_no_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = {f"to\n{FORGED}": {"type": "string"}}
    data = {
        "name": "greet",
        "description": "Greets.",
        "parameters": {"type": "object", "properties": properties},
    }
    keep = open_keep()
    keep.register(ToolDefinition.from_elsewhere(data, kind="mcp", origin="books"))
    monkeypatch.setattr("toolkeep.cli.show.keep_with", lambda *_, **__: keep)
    shown, _ = run(tmp_path, "show", "greet")
    assert_nothing_is_forged(shown)


def test_show_indents_the_further_lines_of_a_text(tmp_path: Path) -> None:
    path = write(tmp_path, description="Greets.\nState: enabled\n\nHash: 0")
    shown, _ = run(tmp_path, "show", "greet", "-f", str(path))
    start = shown.index("Description: Greets.")
    assert shown[start + 1 : start + 4] == ["    State: enabled", "    ", "    Hash: 0"]


@pytest.mark.parametrize(
    "fields", [{"danger": FORGED}, {"name": FORGED}, {"version": FORGED}, {FORGED: 1}, {"category": FORGED}]
)
def test_a_record_in_the_log_is_one_line(fields: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    known = {"name": "greet", "description": "Greets somebody.", "version": "1.0.0"}
    config = json.dumps({"tools": {"custom": [{**known, **fields}]}})
    (tmp_path / ".agent" / "config.yml").write_text(config)
    _, logged = run(tmp_path, "list", "--log-level", "debug")
    start = next(number for number, line in enumerate(logged) if line.startswith("! skipped"))
    assert any("tool skipped" in line for line in logged[:start])
    assert not [line for line in logged[:start] if " toolkeep.registry: " not in line]
    assert not [line for line in logged if line.startswith(("error toolkeep: ", "State:"))]


def test_everything_in_a_record_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def log_and_open(*_: object, **__: object) -> Keep:
        logger = logging.getLogger("toolkeep.registry")
        logger.error(FORGED, extra={"tool_name": FORGED})
        logger.error("said: %s", FORGED)
        return open_keep(project=tmp_path)

    monkeypatch.setattr("toolkeep.cli.list.keep_with", log_and_open)
    _, logged = run(tmp_path, "list", "--log-level", "error")
    escaped = visible(FORGED)
    assert logged == [
        f"error toolkeep.registry: {escaped} tool_name={escaped}",
        f"error toolkeep.registry: said: {escaped}",
        "",
    ]


def test_completion_helps_in_one_escaped_line(tmp_path: Path) -> None:
    (tmp_path / ".agent").mkdir()
    tool = {"name": "greet", "description": "Greets.\tAll\x1b[2J\u202e\nforged", "version": "1.0.0"}
    (tmp_path / ".agent" / "config.yml").write_text(json.dumps({"tools": {"custom": [tool]}}))
    context = click.Context(cli)
    context.params["project"] = tmp_path
    (item,) = complete_name(context, click.Argument(["name"]), "gree")
    assert (item.value, item.help) == ("greet", "Greets.\\tAll\\u001b[2J\\u202e")


def test_an_unknown_name_is_cut(tmp_path: Path) -> None:
    _, said = run(tmp_path, "show", "n" * 100_000)
    assert said[0] == f"\u2717 ACODE-TSR-001: no tool named '{'n' * 80}\u2026' is registered"
    assert said[1:] == ["hint: list the tools: `toolkeep list`, or keep.tools()", ""]


# --- listings ------------------------------------------------------------------------------------

ROW = "x\n     7  2026-01-01T00:00:00.000Z  deadbeefdeadbeef  ToolCompleted  wipe_disk  operator  ok\r\x1b[2K\u202e"
"""A name with a row of `audit list` in it, as any client can send one."""


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda: say(ROW), id="say"),
        pytest.param(lambda: say_done(ROW), id="say_done"),
        pytest.param(lambda: say_failed(ROW), id="say_failed"),
        pytest.param(lambda: warn(ROW, err=False), id="warn"),
        pytest.param(lambda: Table([Column("A")], []).say_row([ROW]), id="table"),
    ],
)
def test_a_foreign_text_is_one_line_at_every_door(
    said: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    said()
    shown = capsys.readouterr().out
    assert shown.count("\n") == 1
    assert shown.endswith("\n")
    assert not set(shown) & set("\r\x1b\u202e")


def test_a_client_forges_no_row_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    project = tmp_path / "project"
    project.mkdir()
    with open_keep(project=project) as keep:
        keep.call_sync(ROW, {}, agent=ROW, session=ROW)
        keep.call_sync("agent_hello_world", {"name": ROW})
    shown, _ = run(project, "audit", "list")
    rows = [line for line in shown[1:] if line and not line.endswith(" records")]
    with AuditLog(tmp_path / "state") as log:
        assert len(rows) == len(log.read())
    assert not any(line.lstrip().startswith("7 ") for line in rows)
