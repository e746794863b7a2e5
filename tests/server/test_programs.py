"""Persistent programs over HTTP and on the page: listed with their grant, for who may read the log of all agents."""

from pathlib import Path
from typing import Any

import pytest

from tests.execution.test_process import definition, source
from tests.server.page.test_app import Visitor, visit
from tests.server.talk import Client
from tests.server.test_app import talk
from toolkeep import open_keep


@pytest.mark.spec("SBX-2")
def test_programs_are_listed_with_their_grant_and_whether_they_run(tmp_path: Path) -> None:
    async def act(client: Client) -> Any:
        await client.as_agent("ada", "call").post(
            "/v1/tools/talk:call", {"arguments": {"path": str(tmp_path)}}
        )
        refused = await client.as_agent("ada", "call").get("/v1/programs")
        return refused.status, (await client.get("/v1/programs")).data

    with open_keep(project=tmp_path) as keep:
        keep.register(source(between_calls="stopped").tool(definition()))
        keep.declare_agent("ada", capabilities=[f"fs.read:{tmp_path}"])
        status, (program,) = talk(keep, act)
    assert program.pop("since")
    assert (status, program) == (
        403,
        {
            "name": "talk",
            "agent": "ada",
            "isolation": "strict",
            "grant": [f"fs.read:{tmp_path}"],
            "state": "stopped",
            "calls": 0,
        },
    )


@pytest.mark.spec("SBX-2")
def test_the_overview_shows_them(tmp_path: Path) -> None:
    with open_keep(project=tmp_path) as keep:
        keep.register(source().tool(definition()))
        keep.declare_agent("ada", capabilities=[f"fs.read:{tmp_path}"])

        async def act(visitor: Visitor) -> tuple[bool, str]:
            before = (await visitor.get("/ui/")).body.decode()
            await keep.call("talk", {"path": str(tmp_path)}, agent="ada")
            return "Persistent programs" in before, (await visitor.get("/ui/")).body.decode()

        was_shown, shown = visit(keep, act)
    assert not was_shown
    row = shown.partition("Persistent programs</h2>")[2].partition("</table>")[0]
    assert [text in row for text in ("talk", "ada", f"fs.read:{tmp_path}", "running")] == [True] * 4
