"""`toolkeep drift`: what agents did that they never did before, until a person has seen it."""

import asyncio
from pathlib import Path

import click
import pytest

from tests.cli.dialogue import Dialogue
from tests.cli.plainly import data, run
from toolkeep import open_keep
from toolkeep.audit.record_kinds import AgentDrift, written

pytestmark = pytest.mark.spec("FLO-8", "CLI-1")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLKEEP_HOME", str(tmp_path / "state"))
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    drift = AgentDrift(
        agent="ada",
        count=7,
        kind="host",
        time="2026-11-01T10:00:00.000+00:00",
        tool="look_up",
        values=("a.example", "\x1b[2Jb.example"),
    )

    async def append() -> None:
        with open_keep() as keep:
            await keep.record.log.append_soon(written(drift))

    asyncio.run(append())


@pytest.mark.usefixtures("project")
def test_news_are_listed_and_taken_away_by_a_person_at_a_terminal() -> None:
    listed = run("drift").stdout
    assert "ada" in listed
    assert "and 5 more" in listed
    assert "\x1b[2J" not in listed
    assert [one["values"][0] for one in data("drift", "list")] == ["a.example"]
    assert "needs a terminal" in run("drift", "acknowledge", "ada", status=1).stderr
    assert [one["agent"] for one in data("drift", "list")] == ["ada"]
    with Dialogue(["drift", "acknowledge", "eve"], cwd=Path.cwd()) as dialogue:
        assert dialogue.end()[0] == 1
    with Dialogue(["drift", "acknowledge", "ada"], cwd=Path.cwd()) as dialogue:
        status, _ = dialogue.end()
        assert (status, "noted that you have seen what ada did" in click.unstyle(dialogue.shown)) == (0, True)
    assert run("drift").stdout == "Nothing new.\n"
