"""`toolkeep add openapi`: add an OpenAPI document to the configuration as an upstream, after a preview."""

import asyncio
import re
from pathlib import Path
from typing import Any

import click

from toolkeep.cli.config_edit import Addition, propose, write_addition
from toolkeep.cli.options import common, print_json, project, say, say_done
from toolkeep.cli.progress import progress
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import FileUnreadable, ImportRefused
from toolkeep.keep.open import offered_by_project, project_folder
from toolkeep.limits import DEFINITION_FILE_BYTES
from toolkeep.registry.admit import check_definition
from toolkeep.sources.openapi.document import Document, read_document
from toolkeep.sources.openapi.operation_import import (
    Import,
    ImportOptions,
    import_document,
    server_urls,
    wrong_with_url,
)
from toolkeep.sources.openapi.split_documents import bundle
from toolkeep.text.display import counted, visible


@click.command("openapi")
@click.argument("source", metavar="FILE_OR_URL")
@click.option("--name", help="Name of the upstream; taken from the document by default.")
@click.option("--url", help="Base URL of calls; the document's only server by default.")
@click.option("--yes", is_flag=True, help="Write without asking.")
@project
@common
def command(
    source: str, name: str | None, url: str | None, *, yes: bool, project: Path | None, as_json: bool
) -> None:
    """Import the operations of the OpenAPI document FILE_OR_URL, 3.0 or 3.1.

    The document is copied beside .agent/config.yml, so that it changes only when you change it. Nothing of it
    is called before `toolkeep accept`.
    """
    root = project_folder(project)
    raw = _fetched(source) if re.match(r"https?://", source) else bundle(Path(source), _read(Path(source)))
    document = read_document(raw, source)
    chosen = name or _name_for(document, source)
    wishes = ImportOptions(name=chosen, url=url or _only_server(document, source))
    if wrong := wrong_with_url(wishes.url):
        raise ImportRefused(visible(wishes.url), wrong, hint="name another with --url https://…")
    imports = import_document(document, wishes, _taken(root))
    usable = [made for made in imports if made.offer and not _problem(made)]
    if not usable:
        reason = next((made.reason or _problem(made) for made in imports), "it describes no operations")
        raise ImportRefused(source, f"no operation can be imported: {reason}")
    addition = propose(root, chosen, _entry(wishes, imports, chosen), _file_name(chosen, raw), raw)
    if not as_json:
        _show(imports, addition)
        if wishes.url.startswith("http:") and any(made.secrets for made in imports):
            say("! secrets would be sent unencrypted; choose an https address with --url", err=True)
    write_addition(addition, is_agreed=yes, as_json=as_json)
    data = {"upstream": chosen, "path": str(addition.path), "tools": [made.name for made in usable]}
    if as_json:
        print_json({**data, "refused": {made.operation: made.reason for made in imports if made.reason}})
        return
    say_done(f"added '{visible(chosen)}' with {counted(len(usable), 'tool')}")
    say("  To use them, accept the configuration: toolkeep accept")
    offered = [made.offer.tool for made in usable if made.offer]
    tools = [tool for tool in offered if isinstance(tool, ToolDefinition)]
    needed = " and ".join(sorted({str(one) for tool in tools for one in tool.capabilities}))
    say(f"  An agent that calls them needs {needed}, in agents: of config.yml")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(DEFINITION_FILE_BYTES + 1)
    except OSError as error:
        raise FileUnreadable(str(path), error.strerror or "cannot be opened") from error


def _fetched(url: str) -> bytes:
    """Download the document under the network rules of tools: the host that was typed, limited bytes.

    A URL that redirects to an internal address is refused (SSRF).
    """
    from toolkeep.definitions.constraints import NetworkBounds
    from toolkeep.limits import REDIRECTS
    from toolkeep.network.allowlist import HostAllowlist
    from toolkeep.network.budget import Budget
    from toolkeep.network.errors import NetworkError
    from toolkeep.network.fetch import fetch
    from toolkeep.network.hosts import HostRefused, HostScope, read_url
    from toolkeep.network.http_endpoint import Request

    try:
        scope = HostScope.of(read_url(url), is_named=True)
        reach = HostAllowlist(reads=(scope,))
        most = NetworkBounds(max_requests=REDIRECTS + 1, max_bytes=DEFINITION_FILE_BYTES + 1_000_000)
        with progress("Downloading the document"):
            answer = asyncio.run(
                fetch(Request(method="GET", url=url), reach, Budget(most), DEFINITION_FILE_BYTES)
            )
    except HostRefused as refused:
        raise ImportRefused(visible(url), f"cannot be used: {refused.reason}") from None
    except NetworkError as error:
        raise ImportRefused(visible(url), error.reason, hint=error.remedy) from None
    if answer.status != 200:
        raise ImportRefused(visible(url), f"answered with status {answer.status}")
    return answer.body


def _name_for(document: Document, source: str) -> str:
    wanted = document.title or Path(source).stem
    name = re.sub(r"[^a-z0-9]+", "_", wanted.lower()).strip("_")[:32].strip("_")
    return name if re.match("[a-z]", name) else f"api_{name}".rstrip("_")


def _only_server(document: Document, source: str) -> str:
    urls = list(dict.fromkeys(url.rstrip("/") for url in server_urls(document)))
    if len(urls) != 1:
        listed = ", ".join(visible(url) for url in urls[:5]) or "none"
        raise ImportRefused(source, f"it names these servers: {listed}", hint="choose one with --url")
    return urls[0]


def _taken(root: Path) -> list[str]:
    return [tool.name for tool in offered_by_project(root).keep.tools()]


def _problem(made: Import) -> str:
    """Why a definition would be refused at registration."""
    if made.offer is None:
        return made.reason
    problems, _ = check_definition(made.offer.tool)  # type: ignore[arg-type]  # ours is a definition
    return str(problems[0]) if problems else ""


def _entry(wishes: ImportOptions, imports: list[Import], name: str) -> dict[str, Any]:
    """The configuration entry."""
    secrets = dict.fromkeys(secret for made in imports for secret in made.secrets)
    entry: dict[str, Any] = {"openapi": "", "url": wishes.url}
    if secrets:
        entry["secrets"] = {secret: {"env": _variable(name, secret)} for secret in secrets}
    return entry


def _variable(name: str, secret: str) -> str:
    return re.sub(r"[^A-Z0-9]+", "_", f"{name}_{secret}".upper()).strip("_")


def _file_name(name: str, raw: bytes) -> str:
    return f"{name}.openapi.{'json' if raw.lstrip()[:1] == b'{' else 'yml'}"


def _show(imports: list[Import], addition: Addition) -> None:
    for made in imports:
        reason = made.reason or _problem(made)
        if reason:
            say(f"  - {visible(made.operation)}: {visible(reason)}")
        else:
            held = (
                f" (needs review: {visible(made.offer.suspicion)})"
                if made.offer and made.offer.suspicion
                else ""
            )
            say(f"  + {visible(made.operation)}: {made.name}{held}")
    say("")
    for line in addition.difference:
        say(line)
