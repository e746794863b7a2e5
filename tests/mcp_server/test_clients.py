"""Real clients against the real server: each finds the tools and calls them, over HTTP and over stdio."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_server import sign_in_rounds
from tests.mcp_server.balanced import served
from tests.mcp_server.client_rounds import CELLS, judged, round_of
from tests.mcp_server.environments import node_with_packages, python_of
from tests.mcp_server.talk import HANDSHAKE, MODERN

SCRIPTS = Path(__file__).resolve().parent / "clients"
PROGRESS = [0, 50, 100]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("served"), "plain") as url:
        yield url


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """How a client starts the keep of a project."""
    project = tmp_path / "project"
    project.mkdir()
    return [sys.executable, "-m", "toolkeep", "mcp", "--project", str(project)]


def run(environment: str, script: str, url: str, command: list[str]) -> Any:
    words = [str(python_of(environment)), "-W", "ignore", str(SCRIPTS / script), url, *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.spec("MCP-1", "MCP-3")
def test_the_official_client_in_both_eras(url: str, command: list[str]) -> None:
    found = run("mcp", "official.py", url, command)
    versions = {"legacy": HANDSHAKE, "auto": MODERN}
    for mode, version in versions.items():
        http = found["http"][mode]
        assert "greet" in http.pop("tools")
        assert http == {
            "version": version,
            "called": "Hello, Ada!",
            "refused": True,
            "progress": PROGRESS,
            "asked": "Hello, Ada!",
            "picture": "image/png",
            "resource": "This is the content of the static text resource.",
            "prompt": "This is a simple prompt for testing.",
        }
        assert found["stdio"][mode]["version"] == version
        assert "Ada" in found["stdio"][mode]["called"]


@pytest.mark.spec("MCP-3", "MCP-4", "POL-4")
@pytest.mark.parametrize(("name", "is_http"), [("mcp 1", True), ("mcp 2", False)])
def test_an_official_client_fills_every_cell_of_the_table(name: str, is_http: bool, tmp_path: Path) -> None:
    """The other libraries take longer, or fill fewer: `scripts/soak`."""
    found = round_of(name, tmp_path, is_http=is_http)
    assert judged(found) == dict.fromkeys(CELLS, "yes"), found


@pytest.mark.spec("IDN-1")
@pytest.mark.parametrize("name", ["mcp 2", "@modelcontextprotocol/sdk", "@modelcontextprotocol/inspector"])
def test_a_client_signs_in_by_itself_with_a_real_provider(name: str, tmp_path: Path) -> None:
    """And refreshes, steps up and is refused, as `docs/clients.md` says; other clients in `scripts/soak`."""
    assert sign_in_rounds.round_of(name, tmp_path) == sign_in_rounds.expected(name)


@pytest.mark.spec("MCP-3")
def test_langchain(url: str, command: list[str]) -> None:
    found = run("langchain", "langchain_client.py", url, command)
    assert {"greet", "agent_hello_world"} <= set(found["tools"])
    assert found["called"] == "Hello, Ada!"
    assert "Ada" in found["stdio"]


@pytest.mark.spec("MCP-3")
def test_the_fastmcp_client(url: str, command: list[str]) -> None:
    found = run("mcp", "fastmcp_client.py", url, command)
    assert found["called"] == "Hello, Ada!"
    assert "Did you mean 'name'?" in found["refused"]
    assert "Ada" in found["stdio"]


@pytest.mark.spec("MCP-3")
def test_an_agent_of_pydantic_ai(url: str, command: list[str]) -> None:
    found = run("pydantic-ai", "pydantic_ai_agent.py", url, command)
    assert "Hello, a!" in found["http"]
    assert "agent_hello_world" in found["stdio"]


@pytest.mark.spec("MCP-3")
def test_the_inspectors_command_line(url: str, command: list[str], tmp_path: Path) -> None:
    node, packages = node_with_packages()
    inspector = [str(node), str(packages / ".bin" / "mcp-inspector"), "--cli"]

    def inspect(*words: str) -> Any:
        done = subprocess.run(
            [*inspector, *words], capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return json.loads(done.stdout)

    listed = inspect(url, "--transport", "http", "--method", "tools/list")
    assert "greet" in {tool["name"] for tool in listed["tools"]}
    called = inspect(
        url,
        "--transport",
        "http",
        "--method",
        "tools/call",
        "--tool-name",
        "greet",
        "--tool-arg",
        "name=Ada",
    )
    assert called["content"][0]["text"] == "Hello, Ada!"
    over_stdio = inspect(*command, "--method", "tools/list")
    assert "agent_hello_world" in {tool["name"] for tool in over_stdio["tools"]}
