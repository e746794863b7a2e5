"""`toolkeep add mcp --from`: add every server of an MCP client's configuration, each with its own verdict."""

import shlex
from pathlib import Path
from typing import Any

from toolkeep.cli.client_config import ClientServer, read_client_servers
from toolkeep.cli.config_edit import check_agreed
from toolkeep.cli.import_server import ImportChoices, import_server
from toolkeep.cli.options import say, say_done, say_failed
from toolkeep.cli.package_install import InstallOptions, resolved_packages
from toolkeep.errors import ToolkeepError
from toolkeep.text.display import counted


def add_client_servers(root: Path, path: Path, options: InstallOptions, *, is_agreed: bool) -> dict[str, Any]:
    """Add the servers of a file; what became of each.

    Credentials go into the state of the keep. A server that cannot be added does not keep the others out.
    """
    servers = read_client_servers(path)
    if not options.as_json:
        for server in servers:
            say(f"  {server.name}: {_shown(server)}")
    # The file may come from anybody.
    if not is_agreed:
        check_agreed("Start or ask these servers, and add them?", as_json=options.as_json)
    return {server.name: _added(root, server, options) for server in servers}


def _shown(server: ClientServer) -> str:
    if server.problem:
        return server.problem
    what = server.entry.get("url") or shlex.join(server.entry["command"])
    stored = f"; {counted(len(server.secrets), 'credential')} to be stored" if server.secrets else ""
    return f"{what}{stored}"


def _added(root: Path, server: ClientServer, options: InstallOptions) -> dict[str, Any]:
    if server.problem:
        return _verdict(server, server.problem, options)
    try:
        choices = ImportChoices(is_agreed=True, as_json=options.as_json)
        with resolved_packages(root, server.entry, options) as packages:
            told = import_server(root, server.name, dict(server.entry), server.secrets, packages, choices)
    except ToolkeepError as error:
        return _verdict(server, error.message, options, error.hint)
    if not options.as_json:
        say_done(f"added '{server.name}' with {counted(len(told['tools']), 'tool')}")
    return {"added": True, **told}


def _verdict(server: ClientServer, problem: str, options: InstallOptions, hint: str = "") -> dict[str, Any]:
    if not options.as_json and server.is_own:
        say(f"  '{server.name}' is left out: it {problem}")
    elif not options.as_json:
        more = [f"  hint: {hint}"] if hint else []
        first, *rest = problem.split("\n")
        say_failed(f"'{server.name}' was not added: {first}", *rest, *more, err=True)
    return {"added": False, "problem": problem, "hint": hint, "is_own": server.is_own}
