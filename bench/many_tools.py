"""How long does a client wait for the first page of thousands of tools? Prints a table.

python bench/many_tools.py [--tools N] [--rounds N] [--data DIR]

2,500 real definitions, in a project's configuration and as the tools of upstream MCP servers. Each round
starts `toolkeep mcp` and `toolkeep serve` anew, the first one without what earlier starts left. See
bench/README.md.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

from measures.home import empty_home
from measures.statistics import median
from tables import print_notes, print_table
from workloads.real import RealTool, read_admitted_tools

ROOT = Path(__file__).resolve().parent.parent
TOOLKEEP = [sys.executable, "-m", "toolkeep"]
LISTED_TOOLS = 1_250
VERSION = "2025-11-25"
INITIALIZE = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "b", "version": "1"}}
SERVER = """
import json, sys
from pathlib import Path
tools = json.loads(Path(sys.argv[1]).read_text())
for line in sys.stdin:
    asked = json.loads(line)
    about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s"}}
    results = {"initialize": about, "tools/list": {"tools": tools}}
    if asked.get("method") in results:
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results[asked["method"]]}
        print(json.dumps(answer), flush=True)
"""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", type=int, default=2_500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    options = parser.parse_args()
    with empty_home() as home:
        projects = {
            "a configuration": configured(
                home / "configured", read_admitted_tools(options.data, options.tools, by_hand=True)
            ),
            "upstreams": imported(home / "imported", read_admitted_tools(options.data, options.tools)),
        }
        rows = []
        for source, project in projects.items():
            for name, ask in {"mcp": ask_stdio, "serve": ask_http}.items():
                forget_starts(home)
                cold, *warm = (ask(project) for _ in range(options.rounds + 1))
                for when, measured in (("cold", [cold]), ("warm", warm)):
                    numbers = [
                        f"{median([one.wall_s for one in measured]):.2f}",
                        f"{median([one.work_s for one in measured]):.2f}",
                        f"{median([one.peak_mb for one in measured]):.0f}",
                    ]
                    rows.append([source, f"toolkeep {name}", when, *numbers, str(measured[0].tools)])
    heads = ["from", "by", "start", "s", "processor s", "peak MB", "tools on the page"]
    print_table(f"{options.tools} tools: until the first page of tools/list is there", heads, rows)
    print_notes(
        [
            "cold: the first start; warm: medians of later ones.",
            "processor s, peak MB: of the server, until it has answered.",
        ]
    )


def configured(project: Path, tools: list[RealTool]) -> Path:
    """A project that names the tools in its configuration."""
    run = {"run": {"command": ["/bin/true"]}}
    named = [
        {
            "name": one.name,
            "version": "1.0.0",
            "description": one.description,
            "parameters": one.schema,
            **run,
        }
        for one in tools
    ]
    write(
        project / ".agent" / "config.yml",
        json.dumps({"tool_registry": {"custom_tools": named}}, ensure_ascii=False),
    )
    return accepted(project)


def imported(project: Path, tools: list[RealTool]) -> Path:
    """A project that has imported the tools from servers, each with no more than one may list."""
    write(project / "server.py", SERVER)
    for start in range(0, len(tools), LISTED_TOOLS):
        part = tools[start : start + LISTED_TOOLS]
        listed = [
            {
                "name": one.name,
                "description": one.description,
                "inputSchema": {"type": "object", **one.schema},
            }
            for one in part
        ]
        write(project / f"tools_{start}.json", json.dumps(listed))
        command = [sys.executable, "./server.py", f"./tools_{start}.json"]
        said("add", "mcp", f"many_{start}", "--yes", "--code", ".", "--", *command, cwd=project)
    return accepted(project)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def said(*words: str, cwd: Path) -> str:
    """What a command prints."""
    done = subprocess.run([*TOOLKEEP, *words], cwd=cwd, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def accepted(project: Path) -> Path:
    """The project, accepted."""
    found = re.search(r'"hash": "([0-9a-f]{64})"', said("accept", "--json", cwd=project))
    if found is not None:
        said("accept", "--hash", found[1], cwd=project)
    return project


class Answered(NamedTuple):
    """What a server took until its first page of tools was there."""

    wall_s: float
    work_s: float
    peak_mb: float
    tools: int


def answered(server: "subprocess.Popen[Any]", began: float, page: Any) -> Answered:
    """The figures of a server that has just answered."""
    wall_s = time.perf_counter() - began
    process = Path("/proc") / str(server.pid)
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    work_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    peak = next(line for line in (process / "status").read_text().splitlines() if line.startswith("VmHWM"))
    return Answered(wall_s, work_s, int(peak.split()[1]) / 1024, len(page["result"]["tools"]))


def forget_starts(home: Path) -> None:
    """Remove what earlier starts left for later ones."""
    for name in ("admitted", "parsed"):
        for folder in home.glob(f".local/state/toolkeep/*/{name}"):
            shutil.rmtree(folder)


def ask_stdio(project: Path) -> Answered:
    """By `toolkeep mcp`."""
    began = time.perf_counter()
    with subprocess.Popen(
        [*TOOLKEEP, "mcp"],
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        for message in messages():
            server.stdin.write(json.dumps(message).encode() + b"\n")
        server.stdin.flush()
        page = next(data for line in server.stdout if (data := json.loads(line)).get("id") == 2)
        result = answered(server, began, page)
        server.stdin.close()
    return result


def messages() -> list[dict[str, Any]]:
    """What a client sends first."""
    asked = [("initialize", 1, INITIALIZE), ("notifications/initialized", None, {}), ("tools/list", 2, {})]
    return [
        {"jsonrpc": "2.0", "method": method, "params": params, **({"id": number} if number else {})}
        for method, number, params in asked
    ]


def ask_http(project: Path) -> Answered:
    """By `toolkeep serve`, with a token."""
    made = said("token", "make", "bench", "--agent", "local", "--scope", "mcp", "--json", cwd=project)
    token = next(word for word in re.findall(r'"([^"]+)"', made) if word.startswith("tk"))
    began = time.perf_counter()
    with subprocess.Popen(
        [*TOOLKEEP, "serve", "--port", "0", "--no-page"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    ) as server:
        assert server.stdout is not None
        try:
            url = next(found[0] for line in server.stdout if (found := re.findall(r"http://[^\s,/]+", line)))
            headers = {
                "Authorization": f"Bearer {token}",
                "Content-Type": "application/json",
                "Accept": "application/json, text/event-stream",
                "MCP-Protocol-Version": VERSION,
            }
            for message in messages():
                body = json.dumps(message).encode()
                request = urllib.request.Request(f"{url}/mcp", body, headers)
                with urllib.request.urlopen(request) as answer:
                    text = answer.read().decode()
                    if session := answer.headers.get("Mcp-Session-Id"):
                        headers["Mcp-Session-Id"] = session
            page = json.loads(text[text.index("{") : text.rindex("}") + 1])
            return answered(server, began, page)
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
