"""The servers of MCP clients' files: what is read of each, and which values are credentials."""

import json
from pathlib import Path
from typing import Any

import pytest

from toolkeep.cli.client_config import ClientServer, read_client_servers
from toolkeep.errors import ImportRefused

pytestmark = pytest.mark.spec("MCP-3")

KEY = "sk-" + "a1" * 16


def read(folder: Path, data: Any, name: str = "mcp.json") -> dict[str, ClientServer]:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return {server.name: server for server in read_client_servers(path)}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("mcp.json", {"mcpServers": {"a": {"command": "npx", "args": ["-y", "x"], "env": {"LOG": "info"}}}}),
        ("mcp.json", {"servers": {"a": {"type": "stdio", "command": "npx", "args": ["-y", "x"], "env": {"LOG": "info"}}}}),
        ("opencode.json", {"mcp": {"a": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"LOG": "info"}}}}),
        ("config.toml", '[mcp_servers.a]\ncommand = "npx"\nargs = ["-y", "x"]\nenv = { LOG = "info" }\n'),
    ],
)  # fmt: skip
def test_the_file_of_each_client_is_read(tmp_path: Path, name: str, data: Any) -> None:
    entry = {"command": ["npx", "-y", "x"], "environment": {"LOG": "info"}}
    assert read(tmp_path, data, name) == {"a": ClientServer(name="a", entry=entry)}


def test_credentials_are_kept_apart_from_what_is_written(tmp_path: Path) -> None:
    variables = {
        "API_KEY": "short",
        "MODE": "fast",
        "DATABASE": "postgres://ada:pw@db.example/x",
        "OTHER": KEY,
    }
    found = read(
        tmp_path,
        {
            "mcpServers": {
                "My Server": {"command": "x", "env": variables},
                "web": {"url": "https://x.example/mcp", "headers": {"Accept": "a", "X-Thing": "b"}},
            }
        },
    )
    assert found["my_server"].secrets == {key: variables[key] for key in ("API_KEY", "DATABASE", "OTHER")}
    assert found["my_server"].entry["environment"] == {
        "API_KEY": "{secret:API_KEY}", "MODE": "fast", "DATABASE": "{secret:DATABASE}", "OTHER": "{secret:OTHER}",
    }  # fmt: skip
    assert found["my_server"].entry["secrets"]["API_KEY"] == {"stored": "API_KEY"}
    assert found["web"].entry["headers"] == {"Accept": "a", "X-Thing": "{secret:X-Thing}"}
    assert found["web"].secrets == {"X-Thing": "b"}


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ({"command": "toolkeep", "args": ["mcp"]}, "is toolkeep itself"),
        ({"command": "/x/bin/python", "args": ["-m", "toolkeep", "mcp"]}, "is toolkeep itself"),
        ({"command": "x", "disabled": True}, "is disabled"),
        ({"command": "x", "env": {"A": "${input:key}"}}, "is filled in by the client"),
        ({"command": "x", "args": ["--api-key", "abc"]}, "--api-key holds a credential"),
        ({"command": "x", "args": ["--token=abc"]}, "--token holds a credential"),
        ({"command": "x", "args": [KEY]}, "an argument holds a credential"),
        ({"command": "x", "args": ["postgres://a:b@c/d"]}, "an argument holds a credential"),
        ({"url": "https://x.example/mcp?key=1"}, "its address holds a credential"),
        ({"args": []}, "has neither command nor url"),
        ("x", "is no object"),
    ],
)
def test_what_cannot_be_added_says_why(tmp_path: Path, said: Any, problem: str) -> None:
    server = read(tmp_path, {"mcpServers": {"a": said}})["a"]
    assert problem in server.problem
    assert KEY not in server.problem


def test_a_file_without_servers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportRefused):
        read(tmp_path, {"theme": "dark"})
