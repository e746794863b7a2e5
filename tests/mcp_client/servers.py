"""Projects with an upstream MCP server, as `toolkeep add mcp` makes them."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.config.projects import accept
from toolkeep import Keep, ToolResult, open_keep
from toolkeep.approval.question import Answer, Question
from toolkeep.cli.main import cli


def agree(_: Question) -> Answer:
    return Answer(verdict="approve", approver="eve", way="program")


def add(project: Path, *words: str, is_accepted: bool = True) -> str:
    """Import a server; what the command says."""
    (project / ".agent").mkdir(exist_ok=True)
    done = CliRunner().invoke(cli, ["add", "mcp", "--yes", "--project", str(project), *words])
    assert done.exit_code == 0, done.output
    if is_accepted:
        accept(project)
    return done.output


def opened(project: Path, **more: Any) -> Keep:
    return open_keep(project=project, **{"approver": agree, **more})


def call_all(
    project: Path, calls: Sequence[tuple[str, Mapping[str, Any]]], *held: str, **more: Any
) -> list[ToolResult]:
    """The calls, one after the other, by an agent that holds this."""

    async def main() -> list[ToolResult]:
        async with opened(project, **more) as keep:
            keep.declare_agent("ada", capabilities=held)
            return [await keep.call(name, dict(arguments), agent="ada") for name, arguments in calls]

    return asyncio.run(main())


def listing(project: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project / ".agent" / f"{name}.mcp.json").read_text())
    return found
