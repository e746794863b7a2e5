"""Calls tools on a machine that cannot confine them: unconfined.py PROJECT. Prints what became of each, as JSON."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.cli.upstreams import accept, toolkeep
from toolkeep import open_keep
from toolkeep.cli.main import cli
from toolkeep.sandbox.zygote_process import interpreter

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
    ("linger", {}),
)


async def call_all(project: Path) -> dict[str, Any]:
    async with open_keep(project=project) as keep:
        names = {tool.definition.source.kind: tool.name for tool in keep.tools()}
        found = []
        for name, arguments in CALLS:
            result = await keep.call(names["mcp"] if name == "echo" else name, arguments)
            found.append([name, result.status, result.isolation, result.enforced, result.value or result.text])
        return {"calls": found, "programs": [[one.name, one.isolation] for one in keep.persistent_programs()]}


def main(project: Path) -> dict[str, Any]:
    os.environ["SECRET_OF_THE_HOST"] = "do not tell"
    words = ["--project", str(project), "--yes", "--", interpreter(), "-IS", str(UPSTREAM)]
    added = CliRunner().invoke(cli, ["add", "mcp", "server", *words])
    assert added.exit_code == 0, added.output
    assert accept(project).exit_code == 0
    said = asyncio.run(call_all(project))
    return {**said, "listed": toolkeep(project, "list").output.splitlines()[-1]}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1])), default=str))
