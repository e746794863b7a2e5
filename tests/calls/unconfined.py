"""Calls tools on a machine that cannot confine them: unconfined.py PROJECT. Prints what became of each, as JSON."""

import asyncio
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.cli.upstreams import accept, toolkeep
from toolkeep import open_keep
from toolkeep.approval.question import Answer, Question
from toolkeep.cli.main import cli
from toolkeep.sandbox.launch import interpreter

UPSTREAM = Path(__file__).resolve().parents[1] / "mcp_client" / "upstream.py"
CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("read_file", {"path": "notes"}),
    ("read_file", {"path": "/etc/hostname"}),
    ("shout", {"text": "hi"}),
    ("variables", {}),
    ("talk", {}),
    ("talk", {}),
    ("echo", {"text": "hello"}),
    ("list_directory", {"path": "."}),
    ("whisper", {"text": "hi"}),
    ("linger", {"path": "started"}),
    ("run_command", {"command": "/usr/bin/ls"}),
)


async def agree(_: Question) -> Answer:
    return Answer(verdict="approve", approver="ada", way="test")


async def call_all(project: Path) -> dict[str, Any]:
    async with open_keep(project=project, approver=agree) as keep:
        found: list[Any] = []
        recorded: dict[str, Any] = {}
        for name, arguments in CALLS:
            given = {"path": str(project / "started")} if name == "linger" else arguments
            result = await keep.call(name, given)
            found.append(
                [name, result.status, result.isolation, result.enforced, result.value or result.text]
            )
            for record in keep.record.records_of(result.call_id):
                if "enforced" in record:
                    recorded[name] = [record["isolation"], record["enforced"]]
        programs = [[one.name, one.isolation] for one in keep.persistent_programs()]
    return {"calls": found, "programs": programs, "recorded": recorded}


def state_of(pid: str) -> str:
    """Whether a process is there; a zombie is not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return "gone"
    return "gone" if status == "Z" else status


def main(project: Path) -> dict[str, Any]:
    os.environ["SECRET_OF_THE_HOST"] = "do not tell"
    words = ["--project", str(project), "--yes", "--", interpreter(), "-IS", str(UPSTREAM)]
    added = CliRunner().invoke(cli, ["add", "mcp", "server", *words])
    assert added.exit_code == 0, added.output
    assert accept(project).exit_code == 0
    with contextlib.chdir(project):
        said = asyncio.run(call_all(project))
    listed = toolkeep(project, "list").output.splitlines()[-1]
    return {**said, "listed": listed, "lingering": state_of((project / "started").read_text())}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1])), default=str))
