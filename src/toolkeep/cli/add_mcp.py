"""`toolkeep add mcp`: add an MCP server to the configuration as an upstream, after showing the change."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from toolkeep.cli.add_client_servers import add_client_servers
from toolkeep.cli.client_config import read_client_server
from toolkeep.cli.config_edit import check_agreed, check_name
from toolkeep.cli.import_server import ImportChoices, import_server
from toolkeep.cli.observe import ask_for_grant
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.package_install import InstallOptions, install_pinned, package_options, resolved_packages
from toolkeep.cli.upstream_access import add_oauth, known_server
from toolkeep.definitions.tool_names import kind_of
from toolkeep.definitions.vocabulary import CallKind
from toolkeep.errors import ImportRefused
from toolkeep.keep.open import project_folder
from toolkeep.mcp_client.packages.runner_commands import read_command
from toolkeep.mcp_client.upstream_provider import capabilities_of
from toolkeep.mcp_protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from toolkeep.text.display import counted, visible

_SYSTEM = "/usr/local/bin:/usr/bin:/bin"
"""Where every shell looks for programs."""
_FOR_ALL = frozenset(("source", "allow_new", "allow_scripts", "yes", "project", "as_json", "log_level"))
"""Options that can be given for all servers of a client's file."""

_SECRET = re.compile(r"\{secret:([^{}]+)\}")


@click.command("mcp", context_settings={"ignore_unknown_options": False})
@click.argument("name", required=False)
@click.argument("server", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND… | URL | FILE")
@click.option(
    "--from",
    "source",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="Add every server of an MCP client's configuration, or NAME of it.",
)
@click.option(
    "--capability",
    "capabilities",
    multiple=True,
    help="What it may access, such as fs.read:./docs; repeatable.",
)
@click.option(
    "--prompts", multiple=True, metavar="PATTERN", help="Prompts to pass on, '*' for all; repeatable."
)
@click.option(
    "--resources",
    multiple=True,
    metavar="PATTERN",
    help="Resources to pass on, by URI, such as 'docs://*'; repeatable.",
)
@click.option(
    "--completions",
    multiple=True,
    metavar="PATTERN",
    help="Complete arguments, such as 'prompt:*' and 'resource:docs://*'; repeatable.",
)
@click.option(
    "--subscriptions",
    multiple=True,
    metavar="PATTERN",
    help="Resources to subscribe to, by URI; repeatable.",
)
@click.option("--code", multiple=True, help="A folder or file of its program; repeatable.")
@click.option(
    "--env", "variables", multiple=True, help="A variable as NAME=TEXT, or NAME to copy yours; repeatable."
)
@click.option(
    "--header", "headers", multiple=True, help="A header 'NAME: TEXT'; {secret:KEY} is replaced; repeatable."
)
@click.option(
    "--protocol",
    type=click.Choice([*HANDSHAKE_VERSIONS, *MODERN_VERSIONS]),
    help="The MCP version that it speaks.",
)
@click.option(
    "--start-timeout",
    type=click.FloatRange(1, 600),
    metavar="SECONDS",
    help="How long it may take to start and list its tools.  [default: 30]",
)
@click.option("--sign-in", is_flag=True, help="Sign in with OAuth; the address to open is printed.")
@click.option("--client-id", help="OAuth client id, for servers without dynamic registration.")
@click.option("--client-secret", metavar="VARIABLE", help="Variable that holds the OAuth client secret.")
@click.option("--issuer", help="Accept only this OAuth authorization server.")
@package_options
@click.option(
    "--danger", "dangers", multiple=True, metavar="TOOL=LEVEL", help="Danger of one of its tools; repeatable."
)
@click.option("--observe", is_flag=True, help="Run it in a throw-away sandbox first, and propose a grant.")
@click.option(
    "--call",
    "calls",
    multiple=True,
    metavar="TOOL=JSON",
    help="With --observe: make this call there too, so that the grant covers it; repeatable.",
)
@click.option("--refresh", is_flag=True, help="List the tools of an added server again.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@project
@common
def command(
    name: str | None,
    server: tuple[str, ...],
    source: Path | None,
    capabilities: tuple[str, ...],
    prompts: tuple[str, ...],
    resources: tuple[str, ...],
    completions: tuple[str, ...],
    subscriptions: tuple[str, ...],
    code: tuple[str, ...],
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    protocol: str | None,
    start_timeout: float | None,
    client_id: str | None,
    client_secret: str | None,
    issuer: str | None,
    allow_scripts: tuple[str, ...],
    dangers: tuple[str, ...],
    calls: tuple[str, ...],
    *,
    allow_new: bool,
    sign_in: bool,
    observe: bool,
    refresh: bool,
    yes: bool,
    project: Path | None,
    as_json: bool,
) -> None:
    """Import the tools of an MCP server under NAME.

    The server is a program and its arguments after --, an address, or the configuration file of a client
    that has a server of that name, as --from; it is shown before anything of it is started. A program
    is started in the sandbox, reaches what --capability grants and nothing else, and is asked for its tools.
    What npx, uvx, pipx run or bunx would download is installed once, confined, and runs from there. The list
    is kept beside .agent/config.yml. Nothing is called before `toolkeep accept`.

    With --from and no NAME, all servers of a client's file are added, each with its own verdict. Credentials
    in their variables and headers are stored in the state folder, and not in the project.
    """
    if calls and not observe:
        raise click.UsageError("--call needs --observe: elsewhere a call would have effects.")
    root = project_folder(project)
    options = InstallOptions(allow_new=allow_new, allow_scripts=allow_scripts, as_json=as_json)
    if name is None:
        if source is None:
            raise click.UsageError("Missing argument 'NAME'.")
        _check_for_all(click.get_current_context())
        _add_all(add_client_servers(root, source, options, is_agreed=yes), as_json=as_json)
        return
    check_name(name)
    choices = ImportChoices(
        dangers=dangers, is_signed_in=sign_in, is_there=refresh, is_agreed=yes, as_json=as_json
    )
    if refresh:
        entry, known = known_server(root, name)
        told = import_server(root, name, entry, {}, install_pinned(root, known.packages), choices)
    else:
        file = source or _client_file(server)
        entry, given = _described(root, name, file or server, capabilities, code, variables, headers)
        entry |= {"protocol": protocol} if protocol else {}
        lists = {
            "prompts": prompts,
            "resources": resources,
            "completions": completions,
            "subscriptions": subscriptions,
        }
        entry |= {key: list(patterns) for key, patterns in lists.items() if patterns}
        entry |= {"start_timeout_s": start_timeout} if start_timeout else {}
        add_oauth(entry, client_id, client_secret, issuer, is_signed_in=sign_in)
        if file is not None:
            _agree(entry, is_agreed=yes, as_json=as_json)
        with resolved_packages(root, entry, options) as packages:
            if observe:
                ask_for_grant(root, name, entry, packages, calls, is_asked=not yes, as_json=as_json)
            told = import_server(root, name, entry, given, packages, choices)
    is_new = told.pop("is_new")
    if as_json:
        print_json(told)
        return
    kinds = [kind_of(str(tool)) for tool in told["tools"]]
    count = ", ".join(counted(kinds.count(kind), kind.value) for kind in CallKind if kind in kinds)
    if not is_new:
        say_done(f"'{name}' lists the same as before: {count}")
        return
    say_done(f"added '{name}' with {count}")
    say("  To use them, accept the configuration: toolkeep accept")
    passed_on = [
        f"mcp.{kind.value}s:{name}" for kind in CallKind if kind in kinds and kind is not CallKind.TOOL
    ]
    if needed := " and ".join([*map(str, capabilities_of(entry)), *passed_on]):
        say(f"  An agent that calls them needs {needed}, in agents: of config.yml")


def _check_for_all(context: click.Context) -> None:
    """Refuse options of one server: granted to all of a file, a capability would reach servers unseen."""
    given = [
        option.opts[0]
        for option in context.command.params
        if option.name not in _FOR_ALL
        and context.get_parameter_source(str(option.name)) is click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(f"{', '.join(given)}: for one server of the file; give its NAME too.")


def _add_all(verdicts: dict[str, Any], *, as_json: bool) -> None:
    """Say what became of the servers of a file; exit status 1 if one could not be added."""
    if as_json:
        print_json({"servers": verdicts})
    elif any(verdict["added"] for verdict in verdicts.values()):
        say("  To use them, accept the configuration: toolkeep accept")
    if not all(verdict["added"] or verdict.get("is_own") for verdict in verdicts.values()):
        sys.exit(1)


def _program(word: str, root: Path) -> str:
    """The program as the configuration names it, so that it is found without this shell's PATH.

    In the project by its path from there, which can be committed; of the system as it was typed.
    """
    found = shutil.which(word)
    if found is None or "/" in word or shutil.which(word, path=_SYSTEM) == found:
        return word
    path = Path(os.path.abspath(found))  # noqa: PTH100 -- keeps links: they lead Python to its environment
    return f"./{path.relative_to(root)}" if path.is_relative_to(root) else str(path)


def _described(
    root: Path,
    name: str,
    server: Path | tuple[str, ...],
    capabilities: tuple[str, ...],
    code: tuple[str, ...],
    variables: tuple[str, ...],
    headers: tuple[str, ...],
) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration entry, and the credentials from a client's file, which are stored."""
    entry: dict[str, Any]
    given: dict[str, str] = {}
    if not server:
        raise ImportRefused(f"'{name}'", "no server was given", hint="give -- COMMAND, a URL or a file")
    if isinstance(server, Path):
        found = read_client_server(server, name)
        entry, given = dict(found.entry), found.secrets
    elif len(server) == 1 and re.match(r"https?://", server[0]):
        entry = {"url": server[0]}
    else:
        is_installed = read_command(server) is not None
        entry = {"command": [server[0] if is_installed else _program(server[0], root), *server[1:]]}
    secrets = dict(entry.pop("secrets", {}))
    for variable in variables:
        key, is_text, text = variable.partition("=")
        entry.setdefault("environment", {})[key] = text if is_text else f"{{secret:{key}}}"
        if not is_text:
            secrets[key] = {"env": key}
    for header in headers:
        key, _, text = header.partition(":")
        entry.setdefault("headers", {})[key.strip()] = text.strip()
        for secret in _SECRET.findall(text):
            secrets[secret] = {"env": re.sub(r"[^A-Z0-9]+", "_", secret.upper())}
    more = {"capabilities": list(capabilities), "code": list(code), "secrets": secrets}
    return {**entry, **{key: value for key, value in more.items() if value}}, given


def _client_file(server: tuple[str, ...]) -> Path | None:
    is_file = len(server) == 1 and server[0].endswith((".json", ".toml")) and "://" not in server[0]
    return Path(server[0]) if is_file else None


def _agree(entry: dict[str, Any], *, is_agreed: bool, as_json: bool) -> None:
    """Ask before starting what the person did not type: the file may come from anybody."""
    if is_agreed:
        return
    whom = (
        f"It would connect to {entry['url']}"
        if "url" in entry
        else f"It would run {shlex.join(entry['command'])}"
    )
    if not as_json:
        say(visible(whom))
    check_agreed("List its tools?", as_json=as_json)
