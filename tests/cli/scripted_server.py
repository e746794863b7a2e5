"""A small MCP server in a project, for the tests of `toolkeep add mcp`."""

import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SERVER = """
import json, os, socket, subprocess, sys

base = os.path.dirname(os.path.abspath(__file__))
{body}

for line in sys.stdin:
    asked = json.loads(line)
    results = {{
        "initialize": {{"protocolVersion": "2025-11-25", "capabilities": {{}}, "serverInfo": {{"name": "s"}}}},
        "tools/list": {{"tools": json.loads({tools!r})}},
    }}
    if asked.get("method") == "tools/call":
        arguments = asked["params"]["arguments"]
{call}
        results["tools/call"] = {{"content": [{{"type": "text", "text": "done"}}]}}
    if asked.get("method") in results:
        print(json.dumps({{"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}}), flush=True)
"""


def tool(name: str, **annotations: bool) -> dict[str, Any]:
    return {
        "name": name,
        "description": "One.",
        "inputSchema": {"type": "object"},
        "annotations": annotations,
    }


def write_server(
    project: Path,
    body: str = "",
    tools: Sequence[dict[str, Any]] = (tool("read_notes", readOnlyHint=True),),
    call: str = "",
) -> Path:
    """A project with server.py, which runs the body, knows its folder as `base`, and then lists the tools.

    A call of any of them runs `call`, which knows its `arguments`.
    """
    project.mkdir(exist_ok=True)
    call = textwrap.indent(textwrap.dedent(call), " " * 8)
    text = _SERVER.format(body=textwrap.dedent(body), call=call, tools=json.dumps(list(tools)))
    (project / "server.py").write_text(text)
    return project
