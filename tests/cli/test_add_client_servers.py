"""`toolkeep add mcp --from`: a client's whole file, each server with its own verdict."""

import json
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.config.projects import accept
from tests.mcp_client.packages.registries import SERVER_PY, greeted, invoke, project

__all__ = ["project"]

pytestmark = pytest.mark.spec("MCP-3")

KEY = "kept-out-of-the-project-0123456789"


def test_a_clients_servers_are_added_each_with_its_verdict(project: Path) -> None:
    program = project.parent / "server.py"
    program.write_text(
        SERVER_PY.replace("sys.argv[1]", '__import__("os").environ["API_KEY"][:4]') + "main()\n"
    )
    servers: dict[str, Any] = {
        "hello": {"command": sys.executable, "args": [str(program)], "env": {"API_KEY": KEY, "MODE": "fast"}},
        "box": {"command": "docker", "args": ["run", "-i", "x"]},
        "toolkeep": {"command": "toolkeep", "args": ["mcp"]},
    }
    file = project.parent / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    assert invoke(project, "add", "mcp", "--from", str(file)).exit_code == 1  # nobody agreed
    done = invoke(project, "add", "mcp", "--from", str(file), "--yes")
    assert done.exit_code == 1  # one of them failed
    assert "added 'hello' with 1 tool" in done.stdout
    assert "'box' was not added: docker: its containers are started by a daemon" in done.stderr
    assert "'toolkeep' is left out" in done.stdout
    written = "".join(path.read_text() for path in (project / ".agent").iterdir())
    assert (KEY in written + done.output, "MODE" in written) == (False, True)
    kept = project.parent / "state" / "secrets" / "hello" / "API_KEY"
    assert (kept.read_text(), stat.S_IMODE(kept.stat().st_mode)) == (f"{KEY}\n", 0o600)
    again = {"mcpServers": {"hello": {**servers["hello"], "env": {"API_KEY": "another"}}}}
    file.write_text(json.dumps(again))
    assert "exists already" in invoke(project, "add", "mcp", "--from", str(file), "--yes").stderr
    assert kept.read_text() == f"{KEY}\n"
    accept(project)
    assert greeted(project) == "hello kept"
    for option in (["--capability", "fs.read:."], ["--observe"]):
        refused = invoke(project, "add", "mcp", "--from", str(file), *option, "--yes")
        assert (refused.exit_code, f"{option[0]}: for one server" in refused.stderr) == (2, True)
    # One of them by its name, with options of its own: the same.
    for words in (("hello", str(file)), ("hello", "--from", str(file))):
        assert invoke(project, "remove", "hello", "--yes").exit_code == 0
        assert not kept.exists()
        assert invoke(project, "add", "mcp", *words).exit_code == 1  # nobody agreed
        done = invoke(project, "add", "mcp", *words, "--danger", "greet=low", "--yes")
        assert (done.exit_code, kept.read_text()) == (0, "another\n")
    assert 'secrets:\n      "API_KEY": {stored: "API_KEY"}' in (project / ".agent/config.yml").read_text()
    assert "has no server 'box'" in invoke(project, "add", "mcp", "box", str(file)).stderr
