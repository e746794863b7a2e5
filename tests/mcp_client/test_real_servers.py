"""Real MCP servers of others, confined: imported by the command, called through a keep."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client.servers import add, call_all, opened
from tests.mcp_server.environments import node_with_packages, python_of
from tests.mcp_server.talk import lines, until
from tests.tools.test_git import new_repository
from toolkeep import ToolResult
from toolkeep.mcp_server.dispatch import McpServer

HERE = Path(__file__).resolve().parent

pytestmark = pytest.mark.spec("MCP-2", "SBX-3")


@pytest.fixture(scope="module")
def node() -> tuple[str, Path]:
    program, modules = node_with_packages(HERE / "node", "node-servers")
    return str(program), modules / "@modelcontextprotocol"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "project"
    (folder / "docs").mkdir(parents=True)
    (folder / "docs" / "a.txt").write_text("granted")
    (folder / "secret.txt").write_text("not granted")
    for above in (folder, *folder.parents[:3]):
        above.chmod(0o755)
    return folder


def test_the_filesystem_server_reads_its_granted_folder_and_nothing_else_though_it_would(
    node: tuple[str, Path], project: Path
) -> None:
    program, packages = node
    docs = project / "docs"
    # It is told that it may serve the whole project: its own check is out of the way.
    server = (program, str(packages / "server-filesystem" / "dist" / "index.js"), str(project), str(docs))
    said = add(project, "files", "--capability", f"fs.read:{docs}", "--", *server)
    assert "files_read_file" in said  # a built-in tool has the name already
    results = call_all(
        project,
        [
            ("read_text_file", {"path": str(docs / "a.txt")}),
            ("read_text_file", {"path": str(project / "secret.txt")}),
            ("files_write_file", {"path": str(docs / "new.txt"), "content": "x"}),
        ],
        f"fs.read:{docs}",
    )
    assert [result.status for result in results] == ["ok", "error", "error"]
    assert (results[0].value, results[0].isolation) == ({"content": "granted"}, "strict")
    assert "not granted" not in results[1].text
    assert not (docs / "new.txt").exists()


def test_the_memory_server_keeps_the_memories_of_agents_apart(node: tuple[str, Path], project: Path) -> None:
    program, packages = node
    server = (program, str(packages / "server-memory" / "dist" / "index.js"))
    add(project, "memory", "--env", "MEMORY_FILE_PATH=/box/scratch/memory.jsonl", "--", *server)
    entity = {"name": "Dune", "entityType": "book", "observations": ["is long"]}

    async def main() -> list[ToolResult]:
        async with opened(project) as keep:
            for agent in ("ada", "bob"):
                keep.declare_agent(agent)
            created = await keep.call("create_entities", {"entities": [entity]}, agent="ada")
            return [created, *[await keep.call("read_graph", {}, agent=agent) for agent in ("ada", "bob")]]

    created, of_ada, of_bob = asyncio.run(main())
    assert created.ok, created.text
    assert ("Dune" in of_ada.text, "Dune" in of_bob.text) == (True, False)


def test_the_everything_server_is_imported_and_called(node: tuple[str, Path], project: Path) -> None:
    program, packages = node
    server = (program, str(packages / "server-everything" / "dist" / "index.js"), "stdio")
    add(project, "all", "--", *server)
    echo, total = call_all(project, [("echo", {"message": "hello"}), ("get-sum", {"a": 2, "b": 3})])
    assert echo.text == "Echo: hello", echo.text
    assert "5" in total.text, total.text


@pytest.mark.spec("MCP-4")
def test_the_everything_server_completes_arguments_and_tells_of_updates(
    node: tuple[str, Path], project: Path
) -> None:
    program, packages = node
    server = (program, str(packages / "server-everything" / "dist" / "index.js"), "stdio")
    kinds = ("prompts", "resources", "completions", "subscriptions")
    add(project, "all", *(word for kind in kinds for word in (f"--{kind}", "*")), "--", *server)
    uri = "toolkeep:all/demo://resource/dynamic/text/1"

    async def main() -> Any:
        async with opened(project) as keep:
            keep.declare_agent("mcp-local", capabilities=[f"mcp.{kind}:all" for kind in kinds])
            async with lines(McpServer(keep)) as client:
                await client.handshake()
                asked = {
                    "ref": {"type": "ref/prompt", "name": "completable-prompt"},
                    "argument": {"name": "name", "value": "C"},
                    "context": {"arguments": {"department": "Engineering"}},
                }
                completed = await client.ask("completion/complete", asked)
                await client.ask("resources/subscribe", {"uri": uri})
                await client.call("toggle-subscriber-updates")
                updated = {"method": "notifications/resources/updated", "params": {"uri": uri}}
                await until(lambda: {"jsonrpc": "2.0", **updated} in client.heard)
                return completed["result"]["completion"]["values"]

    assert asyncio.run(main()) == ["Charlie"]


def test_the_git_server_serves_a_repository(project: Path) -> None:
    server = python_of("git-server").parent / "mcp-server-git"
    repository = new_repository(project / "repository")
    words = ("git", "--capability", f"fs.read:{repository}", "--capability", "process.spawn:/usr/bin/git")
    add(project, *words, "--", str(server), "--repository", str(repository))
    held = (f"fs.read:{repository}", "process.spawn:/usr/bin/git")
    (log,) = call_all(project, [("git_git_log", {"repo_path": str(repository)})], *held)
    assert "The first" in log.text, log.text


def test_nothing_of_a_server_is_left(node: tuple[str, Path]) -> None:
    _, packages = node  # the program also runs clients, in tests beside this one
    left = subprocess.run(["pgrep", "-f", str(packages)], capture_output=True, text=True, check=False)
    assert left.stdout == ""
