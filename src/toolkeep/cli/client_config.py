"""Reads the configuration file of an MCP client: its servers, and which of their values are credentials.

Supported are Claude Desktop, Claude Code, Cursor, Windsurf and Gemini (`mcpServers`), VS Code (`servers`),
opencode (`mcp`) and Codex (`mcp_servers`, TOML). The file may come from anybody: nothing of it is run here.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from toolkeep.errors import FileUnreadable, ImportRefused
from toolkeep.host.files import read_named
from toolkeep.limits import CONFIG_FILE_BYTES
from toolkeep.sources.definition_files import data_of
from toolkeep.text.display import echo_name, visible

_LISTS: Final = ("mcpServers", "servers", "mcp_servers", "mcp")
_SECRET_NAME: Final = re.compile(
    r"key|token|secret|passw|passphrase|credential|auth|cookie|session|private|signature|(^|_)(pat|pin|dsn|pwd)(_|$)",
    re.IGNORECASE,
)
_SECRET_VALUE: Final = re.compile(
    r"(?:sk|pk|rk|gh[pousr]|github_pat|glpat|xox[a-z]|AKIA|eyJ)[-_A-Za-z0-9]{12,}.*"  # keys by their prefix
    r"|[A-Za-z]+://[^/\s:@]*:[^/\s@]+@.*"  # a password in an address
    r"|(?=\S*\d)(?=\S*[A-Za-z])[A-Za-z0-9_+=-]{24,}",  # long, letters and digits: nobody's ordinary word
    re.DOTALL,
)
_PLAIN_HEADERS: Final = frozenset(("accept", "content-type", "user-agent"))
_OPEN_VALUE: Final = re.compile(r"\$\{|\{env:|\$env:")
"""A value that the client would ask for or fill in."""


class ClientServer(msgspec.Struct, frozen=True, kw_only=True):
    """One server of a client's configuration."""

    name: str
    """As an upstream is called."""
    entry: dict[str, Any] = {}
    """Its configuration entry, with `{secret:NAME}` in the place of each credential."""
    secrets: dict[str, str] = {}
    """The credentials, by name."""
    problem: str = ""
    """Why it cannot be added."""
    is_own: bool = False
    """Whether it is toolkeep itself."""


def read_client_servers(path: Path) -> list[ClientServer]:
    """The servers of a client's file; raises `FileUnreadable`, or `ImportRefused` if it lists none."""
    raw = read_named(path, CONFIG_FILE_BYTES)
    try:
        data = tomllib.loads(raw.decode()) if path.suffix == ".toml" else data_of(raw, path)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise FileUnreadable(str(path), "is not valid TOML") from error
    found = next(
        (data[key] for key in _LISTS if isinstance(data, dict) and isinstance(data.get(key), dict)), None
    )
    if not found:
        hint = "it has neither mcpServers, servers, mcp nor mcp_servers"
        raise ImportRefused(visible(str(path)), "lists no MCP servers", hint=hint)
    return [_server(str(name), said) for name, said in found.items()]


def read_client_server(path: Path, name: str) -> ClientServer:
    """One server of a client's file; raises `ImportRefused` if it is not there or cannot be added."""
    servers = read_client_servers(path)
    for server in servers:
        if server.name == name and server.problem:
            raise ImportRefused(f"'{name}'", server.problem)
        if server.name == name:
            return server
    known = ", ".join(server.name for server in servers)
    raise ImportRefused(visible(str(path)), f"has no server '{name}'", hint=f"it has: {known}")


def _server(name: str, said: Any) -> ClientServer:
    plain = re.sub(r"[^a-z0-9_-]+", "_", name.lower()).strip("_-")[:32]
    if not isinstance(said, dict):
        return ClientServer(name=plain or "server", problem="its entry is no object")
    if not plain or not plain[0].isalpha():
        plain = f"server_{plain}"[:32]
    if said.get("disabled") is True or said.get("enabled") is False:
        return ClientServer(name=plain, problem="is disabled in the client")
    url = next((said[key] for key in ("url", "httpUrl", "serverUrl") if isinstance(said.get(key), str)), "")
    try:
        return _by_url(plain, url, said) if url else _by_command(plain, said)
    except ValueError as error:
        return ClientServer(name=plain, problem=str(error))


def _by_command(name: str, said: Mapping[str, Any]) -> ClientServer:
    command, more = said.get("command"), said.get("args") or []
    first = command if isinstance(command, list) else [command]
    words = [*first, *more] if isinstance(more, list) else []
    if not words or not all(isinstance(word, str) and word for word in words):
        raise ValueError("has neither command nor url")
    if _is_toolkeep(words):
        return ClientServer(name=name, is_own=True, problem="is toolkeep itself")
    _check_words(words)
    given = _texts(said.get("env") or said.get("environment"))
    hidden = {key: text for key, text in given.items() if _is_secret(key, text)}
    variables = {"environment": _written(given, hidden)} if given else {}
    return _with_secrets(name, {"command": words, **variables}, hidden)


def _by_url(name: str, url: str, said: Mapping[str, Any]) -> ClientServer:
    if _OPEN_VALUE.search(url) or _SECRET_VALUE.fullmatch(url) or "?" in url:
        raise ValueError("its address holds a credential or a query; add it by hand, with --header")
    if variable := said.get("bearer_token_env_var"):
        headers = {"Authorization": "Bearer {secret:token}"}
        secrets = {"token": {"env": str(variable)}}
        return ClientServer(name=name, entry={"url": url, "headers": headers, "secrets": secrets})
    given = _texts(said.get("headers") or said.get("http_headers"))
    hidden = {key: text for key, text in given.items() if key.lower() not in _PLAIN_HEADERS}
    sent = {"headers": _written(given, hidden)} if given else {}
    return _with_secrets(name, {"url": url, **sent}, hidden)


def _written(given: Mapping[str, str], hidden: Mapping[str, str]) -> dict[str, str]:
    """Variables or headers as the configuration has them."""
    return {key: f"{{secret:{key}}}" if key in hidden else text for key, text in given.items()}


def _with_secrets(name: str, entry: dict[str, Any], hidden: dict[str, str]) -> ClientServer:
    if hidden:
        entry["secrets"] = {key: {"stored": key} for key in hidden}
    return ClientServer(name=name, entry=entry, secrets=hidden)


def _texts(found: Any) -> dict[str, str]:
    """Variables or headers; ValueError for a value that only the client could fill in."""
    if not isinstance(found, dict):
        return {}
    texts = {str(key): value for key, value in found.items() if isinstance(value, str)}
    for key, text in texts.items():
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", key):
            raise ValueError(f"{echo_name(key)} is no name for a variable or header")
        if _OPEN_VALUE.search(text):
            raise ValueError(f"{echo_name(key)} is filled in by the client; add this server by hand")
    return texts


def _is_secret(key: str, text: str) -> bool:
    return bool(text) and bool(_SECRET_NAME.search(key) or _SECRET_VALUE.fullmatch(text))


def _check_words(words: list[str]) -> None:
    """Raise ValueError for a credential on the command line, which would be written into the project."""
    flag = ""
    for word in words[1:]:
        name, equals, value = word.partition("=")
        is_flag = word.startswith("-")
        if (is_flag and equals and _SECRET_NAME.search(name)) or (not is_flag and _SECRET_NAME.search(flag)):
            where = echo_name(name if equals else flag)
            raise ValueError(f"{where} holds a credential; pass it as a variable instead")
        if _SECRET_VALUE.fullmatch(value if equals else word):
            raise ValueError("an argument holds a credential; pass it as a variable instead")
        if _OPEN_VALUE.search(word):
            raise ValueError("an argument is filled in by the client; add it by hand")
        flag = word if is_flag and not equals else ""


def _is_toolkeep(words: list[str]) -> bool:
    """Whether a command starts toolkeep: a keep that imports itself would call itself."""
    names = [Path(word).name for word in words[:6]]
    return "toolkeep" in names and "mcp" in words
