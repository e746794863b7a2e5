"""What `lint --flow` says that missing roles and labels cost, counted in recorded sessions."""

import json
from pathlib import Path
from typing import Annotated, Any

import pytest

from tests.cli.plainly import run
from toolkeep import Destination, Question, ToolDefinition, open_keep, tool
from toolkeep.cli.lint_flow import FlowFindings

pytestmark = pytest.mark.spec("FLO-1", "FLO-2")


@tool(effects="reads")
def read_page() -> str:
    """Read a page."""
    return "Some text."


@tool(effects="reads", flow={"": "text"})
def read_mail() -> str:
    """Read mail."""
    return "Some mail."


@tool(effects="writes", danger="low", flow={"": "system"})
def send(to: Annotated[str, Destination()], note: str) -> bool:
    """Send a note.

    Args:
        to: Whom.
        note: What it says.
    """
    return True


def costs() -> dict[str, Any]:
    """What a missing declaration costs, by tool and rule."""
    result = run("lint", "tools.json", "--flow", "--json", status=1)
    reports = json.loads(result.stdout)
    return {
        f"{report['tool']} {finding['rule']}": finding["cost"]
        for report in reports
        for finding in report["findings"]
        if "cost" in finding
    }


def test_questions_are_counted_by_what_would_spare_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    definitions = [one.definition.to_dict() for one in (read_page, read_mail, send)]
    Path("tools.json").write_text(json.dumps(definitions))
    silent = run("lint", "tools.json", "--flow", status=1).stdout
    assert silent.count("no recorded calls") == 2
    assert list(costs().values()) == [
        {"calls": 0, "sessions": 0, "asked": 0, "alone": 0},
        {"calls": 0, "asked": 0, "alone": 0},
    ]

    async def agree(_: Question) -> bool:
        return True

    flow = {"policy": "standard"}
    with open_keep(project=tmp_path, flow=flow, agents={"ada": {}}, approver=agree, built_in=False) as keep:
        keep.register(read_page, read_mail, send)

        def call(name: str, **arguments: str) -> None:
            assert keep.call_sync(name, arguments, agent="ada", session=session).ok

        session = keep.session("first", agent="ada", said="Tell bob.")
        call("send", to="bob", note="come")  # for the role alone
        call("read_page")
        call("send", to="bob", note="go")  # for the role, and as the page opened the session
        call("send", to="bob", note="come")  # as the page did: the note was endorsed
        call("send", to="eve", note="come")  # also for what is declared
        session = keep.session("second", agent="ada", said="Tell bob to come.")
        call("send", to="bob", note="come")  # not at all: the user named all of it
        call("read_mail")
        call("read_page")
        call("send", to="bob", note="come")  # as mail opened the session, which is labelled
        session = keep.session("third", agent="ada", said="")
        session.pasted("Tell bob.")
        call("read_page")
        call("send", to="bob", note="come")  # as the session was open before its first call

    assert costs() == {
        "read_page no-label": {"calls": 3, "sessions": 1, "asked": 3, "alone": 1},
        "send no-role": {"calls": 7, "asked": 3, "alone": 1},
    }
    said = run("lint", "tools.json", "--flow", status=1).stdout
    assert (
        "it opened 1 recorded session, and 3 calls there would ask, 1 for this alone; declare a label" in said
    )
    assert "3 of 7 recorded calls would ask, 1 for this alone; declare their roles with x-flow" in said
    # As they are declared now: with its role and its label, nothing is left to say.
    definitions[0]["flow"] = {"": "text"}
    definitions[2]["parameters"]["properties"]["note"]["x-flow"] = "content"
    Path("tools.json").write_text(json.dumps(definitions))
    assert costs() == {}


def test_sessions_without_flow_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tools.json").write_text(json.dumps(send.definition.to_dict()))
    with open_keep(project=tmp_path, agents={"ada": {}}, built_in=False) as keep:
        keep.register(send)
        for _ in range(2):  # a call that was made counts as approved: the second would not ask
            assert keep.call_sync("send", {"to": "bob", "note": "come"}, agent="ada", session="x").ok
    assert costs() == {"send no-role": {"calls": 2, "asked": 1, "alone": 0}}
    assert "1 session was recorded without flow" in run("lint", "tools.json", "--flow", status=1).stderr


def test_an_import_is_declared_in_the_configuration_or_on_its_page() -> None:
    theirs = ToolDefinition.from_elsewhere({"name": "Send It", "description": "Sends.", "parameters": {
        "type": "object", "properties": {"to": {"type": "string"}}}}, kind="mcp", origin="mail")  # fmt: skip
    found = [one["fix"] for one in FlowFindings([theirs], (), None).of(theirs)]
    where = "under upstreams.mail.flow.Send It or by toolkeep flow"
    assert found == [
        f"declare their roles {where}",
        f'declare a label ("text" if anybody may have written it) {where}',
    ]
