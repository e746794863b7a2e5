"""Imports the tools of one MCP server: lists them, shows the change of the configuration, and writes it."""

from pathlib import Path
from typing import Any

import msgspec

from toolkeep.cli.approval_prompt import can_ask
from toolkeep.cli.config_edit import Addition, propose, write_addition
from toolkeep.cli.danger_dialogue import ask_dangers, original_of, read_dangers, reading_tools
from toolkeep.cli.options import say
from toolkeep.cli.upstream_access import access_for, keep_sign_in, list_server_tools, store_secrets
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.definitions.tool_names import kind_of
from toolkeep.definitions.vocabulary import CallKind
from toolkeep.errors import ImportRefused
from toolkeep.keep.open import offered_by_project
from toolkeep.mcp_client.item_import import import_items
from toolkeep.mcp_client.packages.pinned_packages import PinnedPackages
from toolkeep.mcp_client.pinned_tools import PinnedTools
from toolkeep.mcp_client.tool_import import ImportOptions, import_listing
from toolkeep.mcp_client.upstream_provider import capabilities_of, target_of
from toolkeep.registry.admit import check_definition
from toolkeep.registry.coerce import Offer
from toolkeep.text.display import visible


class ImportChoices(msgspec.Struct, frozen=True, kw_only=True):
    """What a person chose for an import."""

    dangers: tuple[str, ...] = ()
    is_signed_in: bool = False
    is_there: bool = False
    """Whether the server is in the configuration already, and is listed again."""
    is_agreed: bool = False
    as_json: bool = False


def import_server(
    root: Path,
    name: str,
    entry: dict[str, Any],
    given: dict[str, str],
    packages: PinnedPackages | None,
    choices: ImportChoices,
) -> dict[str, Any]:
    """Import a server by its configuration entry; what was imported, as JSON data.

    `given` are its credentials, which are stored.
    """
    as_json = choices.as_json
    access = access_for(root, name, entry, given, is_signed_in=choices.is_signed_in)
    listing = list_server_tools(root, name, entry, given, access, packages)
    wishes = ImportOptions(
        name=name,
        capabilities=capabilities_of(entry),
        prompts=tuple(entry.get("prompts") or ()),
        resources=tuple(entry.get("resources") or ()),
        completions=tuple(entry.get("completions") or ()),
        subscriptions=tuple(entry.get("subscriptions") or ()),
        target=target_of(entry, str(root / ".agent")),
    )
    taken = [] if choices.is_there else _taken(root)
    offers = [*import_listing(listing, wishes, taken), *import_items(listing, wishes, taken)]
    usable = [offer for offer in offers if not _problem(offer)]
    if not usable:
        why = next(iter(map(_problem, offers)), "it lists none")
        raise ImportRefused(f"'{name}'", f"nothing of it can be imported: {why}")
    reading = reading_tools(listing.tools, usable)
    if not as_json:
        _show(offers, reading)
    found = {"danger": read_dangers(choices.dangers, usable)}
    if not (choices.is_there or choices.is_agreed or as_json or choices.dangers) and can_ask():
        found = ask_dangers(usable, reading)
    entry |= {key: said for key, said in found.items() if said}
    addition = _addition(root, name, entry, listing, is_there=choices.is_there)
    is_new = not (choices.is_there and _is_kept(addition))
    if not as_json:
        say("", *addition.difference)
    if is_new:
        write_addition(addition, is_agreed=choices.is_agreed, as_json=as_json)
    keep_sign_in(root, name, access)
    # Last: a server of this name may be there already, with credentials of its own.
    if given:
        store_secrets(root, name, given)
    refused = {str(offer.name): why for offer in offers if (why := _problem(offer))}
    told = {"upstream": name, "path": str(addition.path), "tools": [offer.name for offer in usable]}
    return {**told, "refused": refused, "is_new": is_new}


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
