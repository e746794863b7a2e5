"""`toolkeep add mcp`: add an MCP server to the configuration as an upstream, after showing the change."""

import os
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import click

from toolkeep.cli.approval_prompt import can_ask
from toolkeep.cli.config_edit import Addition, check_agreed, check_name, propose, write_addition
from toolkeep.cli.danger_dialogue import ask_dangers, original_of, read_dangers, reading_tools
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.upstream_access import access_for, add_oauth, keep_sign_in, list_server_tools
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.tool_names import kind_of
from toolkeep.definitions.vocabulary import CallKind
from toolkeep.errors import ImportRefused
from toolkeep.keep.open import check_accepted, offered_by_project, project_folder
from toolkeep.mcp_client.item_import import import_items
from toolkeep.mcp_client.pinned_tools import PinnedTools
from toolkeep.mcp_client.tool_import import ImportOptions, import_listing
from toolkeep.mcp_client.upstream_provider import capabilities_of, target_of
from toolkeep.mcp_protocol.versions import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from toolkeep.registry.admit import check_definition
from toolkeep.registry.coerce import Offer
from toolkeep.sources.definition_files import read_data
from toolkeep.text.display import counted, visible

_SYSTEM = "/usr/local/bin:/usr/bin:/bin"
"""Where every shell looks for programs."""
_SECRET = re.compile(r"\{secret:([^{}]+)\}")


@click.command("mcp", context_settings={"ignore_unknown_options": False})
@click.argument("name")
@click.argument("server", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND… | URL | FILE")
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
@click.option(
    "--danger", "dangers", multiple=True, metavar="TOOL=LEVEL", help="Danger of one of its tools; repeatable."
)
@click.option("--refresh", is_flag=True, help="List the tools of an added server again.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@project
@common
def command(
    name: str,
    server: tuple[str, ...],
    capabilities: tuple[str, ...],
    prompts: tuple[str, ...],
    resources: tuple[str, ...],
    code: tuple[str, ...],
    variables: tuple[str, ...],
    headers: tuple[str, ...],
    protocol: str | None,
    start_timeout: float | None,
    client_id: str | None,
    client_secret: str | None,
    issuer: str | None,
    dangers: tuple[str, ...],
    *,
    sign_in: bool,
    refresh: bool,
    yes: bool,
    project: Path | None,
    as_json: bool,
) -> None:
    """Import the tools of an MCP server under NAME.

    The server is a program and its arguments after --, an address, or the configuration file of a client
    that knows a server of that name (mcpServers), which is shown before anything of it is started. A program
    is started in the sandbox, reaches what --capability grants and nothing else, and is asked for its tools.
    The list is kept beside .agent/config.yml. Nothing is called before `toolkeep accept`.
    """
    root = project_folder(project)
    check_name(name)
    if refresh:
        entry = _known(root, name)
        given: dict[str, str] = {}
    else:
        entry, given = _described(root, name, server, capabilities, code, variables, headers)
        entry |= {"protocol": protocol} if protocol else {}
        lists = {"prompts": list(prompts), "resources": list(resources)}
        entry |= {key: patterns for key, patterns in lists.items() if patterns}
        entry |= {"start_timeout_s": start_timeout} if start_timeout else {}
        add_oauth(entry, client_id, client_secret, issuer, is_signed_in=sign_in)
        if _is_from_file(server):
            _agree(entry, is_agreed=yes, as_json=as_json)
    access = access_for(root, name, entry, given, is_signed_in=sign_in)
    listing = list_server_tools(root, name, entry, given, access)
    wishes = ImportOptions(
        name=name,
        capabilities=capabilities_of(entry),
        prompts=tuple(entry.get("prompts") or ()),
        resources=tuple(entry.get("resources") or ()),
        target=target_of(entry, str(root / ".agent")),
    )
    taken = [] if refresh else _taken(root)
    offers = [*import_listing(listing, wishes, taken), *import_items(listing, wishes, taken)]
    usable = [offer for offer in offers if not _problem(offer)]
    if not usable:
        why = next(iter(map(_problem, offers)), "it lists none")
        raise ImportRefused(f"'{name}'", f"nothing of it can be imported: {why}")
    reading = reading_tools(listing.tools, usable)
    if not as_json:
        _show(offers, reading)
    found = read_dangers(dangers, usable)
    if not (refresh or yes or as_json or dangers) and can_ask():
        found = ask_dangers(usable, reading)
    entry |= {"danger": found} if found else {}
    addition = _addition(root, name, entry, listing, is_there=refresh)
    is_new = not (refresh and _is_kept(addition))
    if not as_json:
        say("", *addition.difference)
    if is_new:
        write_addition(addition, is_agreed=yes, as_json=as_json)
    keep_sign_in(root, name, access)
    if as_json:
        refused = {str(offer.name): why for offer in offers if (why := _problem(offer))}
        told = {"upstream": name, "path": str(addition.path), "tools": [offer.name for offer in usable]}
        print_json({**told, "refused": refused})
        return
    kinds = [kind_of(str(offer.name)) for offer in usable]
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
    server: tuple[str, ...],
    capabilities: tuple[str, ...],
    code: tuple[str, ...],
    variables: tuple[str, ...],
    headers: tuple[str, ...],
) -> tuple[dict[str, Any], dict[str, str]]:
    """The configuration entry, and secrets from a client's file, used only for this listing."""
    given: dict[str, str] = {}
    if not server:
        raise ImportRefused(f"'{name}'", "no server was given", hint="give -- COMMAND, a URL or a file")
    if len(server) == 1 and re.match(r"https?://", server[0]):
        entry: dict[str, Any] = {"url": server[0]}
    elif _is_from_file(server):
        entry, given = _read_client_config(Path(server[0]), name)
    else:
        entry = {"command": [_program(server[0], root), *server[1:]]}
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


def _read_client_config(path: Path, name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The entry of a server in a client's configuration (`mcpServers`), and its secret values.

    The values are never written: the entry names environment variables in their place, since
    `.agent/config.yml` is committed.
    """
    data = read_data(path)
    servers = next(
        (data[key] for key in ("mcpServers", "servers") if isinstance(data, dict) and key in data), None
    )
    if not isinstance(servers, dict) or not isinstance(servers.get(name), dict):
        known = ", ".join(map(visible, servers)) if isinstance(servers, dict) else "none"
        raise ImportRefused(str(path), f"has no server '{name}'", hint=f"it has: {known}")
    server = servers[name]
    if isinstance(server.get("url"), str):
        return _from_url(server)
    words = [server.get("command"), *(server.get("args") or ())]
    if not all(isinstance(word, str) and word for word in words):
        raise ImportRefused(str(path), f"has neither command nor url for '{name}'")
    given = _texts(server.get("env"))
    entry: dict[str, Any] = {"command": words}
    if given:
        entry["environment"] = {variable: f"{{secret:{variable}}}" for variable in given}
        entry["secrets"] = {variable: {"env": variable} for variable in given}
    return entry, given


def _from_url(server: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
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


def _is_from_file(server: tuple[str, ...]) -> bool:
    return len(server) == 1 and server[0].endswith(".json") and not re.match(r"https?://", server[0])


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


def _known(root: Path, name: str) -> dict[str, Any]:
    """The entry of an accepted server: one that a clone brings along is never started."""
    from toolkeep.mcp_client.upstream_provider import McpProvider

    offered = offered_by_project(root)
    for provider in offered.providers:
        if isinstance(provider, McpProvider) and provider.origin == f"mcp:{name}":
            check_accepted(offered.settings, f"would start or contact '{name}'")
            return dict(provider.entry)
    raise ImportRefused(f"'{name}'", "is not an MCP server of this project", hint="add it without --refresh")


def _taken(root: Path) -> list[str]:
    return offered_by_project(root).keep.registered_names()


def _addition(
    root: Path, name: str, entry: dict[str, Any], listing: PinnedTools, *, is_there: bool
) -> Addition:
    file_name, content = f"{name}.mcp.json", listing.to_bytes()
    if not is_there:
        return propose(root, name, entry, file_name, content, kind="mcp")
    path = root / ".agent" / "config.yml"
    text = path.read_text()
    return Addition(
        path=path, before=text, after=text, document=path.parent / str(entry["mcp"]), content=content
    )


def _is_kept(addition: Addition) -> bool:
    """Whether the server lists what is stored already."""
    try:
        return addition.document.read_bytes() == addition.content
    except OSError:
        return False


def _problem(offer: Offer) -> str:
    if isinstance(offer.tool, Exception):
        return str(getattr(offer.tool, "problems", [offer.tool])[0])
    problems, _ = check_definition(offer.tool) if isinstance(offer.tool, ToolDefinition) else ((), ())
    return f"{problems[0].field} {problems[0].message}" if problems else ""


def _show(offers: list[Offer], reading: set[str]) -> None:
    for offer in offers:
        if why := _problem(offer):
            say(f"  - {visible(str(offer.name))}: {visible(why)}")
        else:
            held = f" (needs review: {visible(offer.suspicion)})" if offer.suspicion else ""
            reads = " (reads, it says)" if original_of(offer) in reading else ""
            say(f"  + {visible(str(offer.name))}{reads}{held}{_renamed(offer)}")


def _renamed(offer: Offer) -> str:
    """The URI of a resource; the server's own name of a tool, where it could not be kept."""
    original = original_of(offer)
    if kind_of(original) is CallKind.RESOURCE:
        return f" ({visible(original.partition(':')[2])})"
    return "" if original == offer.name else f" (renamed: the server calls it {visible(original)})"
