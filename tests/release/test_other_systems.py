"""What works without isolation and without what only Linux has: calls in process, MCP, the server and its page."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_demo import asked, demo

ELSEWHERE = str(Path(__file__).resolve().parent / "elsewhere.py")
CALL = """
import json
from toolkeep import Keep, tool

@tool(side_effects=["None"])
def price(copies: int) -> int:
    "Tell a price."
    return 3 * copies

with Keep() as keep:
    keep.register(price)
    results = [keep.call_sync("price", {"copies": copies}) for copies in (2, "2")]
    results.append(keep.call_sync("read_file", {"path": "x"}))
print(json.dumps([[result.status, result.isolation] for result in results]))
"""
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def on(platform: str, *words: str, said: str = "", at: Path) -> str:
    """What the command says on another system."""
    command = [sys.executable, ELSEWHERE, platform, *words]
    done = subprocess.run(command, input=said, cwd=at, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


@pytest.mark.spec("SBX-1")
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_a_call_in_process_works_and_what_needs_isolation_is_refused(platform: str, tmp_path: Path) -> None:
    results = json.loads(on(platform, "-c", CALL, at=tmp_path))
    assert results == [["ok", "none"], ["error", ""], ["error", ""]]


@pytest.mark.spec("SBX-1")
def test_mcp_over_stdio_works(tmp_path: Path) -> None:
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": {}},
    ]
    said = "".join(f"{json.dumps(message)}\n" for message in messages)
    answers: dict[int, Any] = {}
    for line in on("darwin", "mcp", said=said, at=tmp_path).splitlines():
        answer = json.loads(line)
        answers[answer.get("id", 0)] = answer.get("result")
    assert "agent_hello_world" in {tool["name"] for tool in answers[2]["tools"]}


@pytest.mark.spec("SBX-1", "CLI-1")
def test_the_demo_with_server_and_page_works_and_says_the_cure(tmp_path: Path) -> None:
    with demo(tmp_path / "home", sys.executable, ELSEWHERE, "darwin") as running:
        page = running.said["link"].partition("#")[0]
        server = page.removesuffix("/ui/sign-in")
        assert "Sign in" in asked(page)
        token = running.command("token", "make", "me", "-s", "admin", "--agent", "operator")["token"]
        (waiting,) = json.loads(asked(f"{server}/v1/approvals", token=token))["items"]
        assert waiting["tool"] == "refund"
    assert running.process.returncode == 0
    assert (
        "isolation needs Linux, and this is macOS. Cure: run toolkeep in a Linux container" in running.heard()
    )
