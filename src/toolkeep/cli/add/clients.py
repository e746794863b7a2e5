"""An MCP server as a client's configuration has it: Claude, Cursor, VS Code, a project's `.mcp.json`."""

from pathlib import Path
from typing import Any

from toolkeep.errors import ImportRefused
from toolkeep.sources.files import read_data
from toolkeep.wording import visible


def server_of(path: Path, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The entry of a server, and the values of its variables, which are never written anywhere."""
    data = read_data(path)
    servers = next(
        (data[key] for key in ("mcpServers", "servers") if isinstance(data, dict) and key in data), None
    )
    if not isinstance(servers, dict) or not isinstance(servers.get(name), dict):
        known = ", ".join(map(visible, servers)) if isinstance(servers, dict) else "none"
        raise ImportRefused(str(path), f"knows no server '{name}'", hint=f"it knows: {known}")
    server = servers[name]
    if isinstance(server.get("url"), str):
        return _by_address(server)
    words = [server.get("command"), *(server.get("args") or ())]
    if not all(isinstance(word, str) and word for word in words):
        raise ImportRefused(str(path), f"says of '{name}' neither command nor url")
    given = _texts(server.get("env"))
    entry: dict[str, Any] = {"command": words}
    if given:
        entry["environment"] = {variable: f"{{secret:{variable}}}" for variable in given}
        entry["secrets"] = {variable: {"env": variable} for variable in given}
    return entry, given


def _by_address(server: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    given = _texts(server.get("headers"))
    entry: dict[str, Any] = {"url": server["url"]}
    if given:
        entry["headers"] = {header: f"{{secret:{header}}}" for header in given}
        entry["secrets"] = {header: {"env": _variable(header)} for header in given}
    return entry, given


def _variable(header: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in header.upper())


def _texts(found: Any) -> dict[str, str]:
    if not isinstance(found, dict):
        return {}
    return {str(key): value for key, value in found.items() if isinstance(value, str)}
