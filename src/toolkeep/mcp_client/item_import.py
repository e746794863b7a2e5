"""Imports the prompts and resources of an MCP server as offers, where a person lets them through (MCP-4).

So are completion of arguments and subscription to resources, with one offer each for a server.

Each becomes a definition of its own kind, with a name that no tool can have, such as `prompt:review`. So it
is sanitized, scanned, pinned, validated, authorized, approved, limited and recorded as tools are, and no
model is offered it as a tool. The texts of a server lie where tools have theirs: titles and descriptions in
the schema of the parameters. URIs are names at their server; nothing here opens one.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any, Final

from toolkeep.config.settings import Run
from toolkeep.definitions.capability import Capability
from toolkeep.definitions.constraints import Constraints
from toolkeep.definitions.imported import import_definition
from toolkeep.definitions.tool_names import choose_names, with_kind
from toolkeep.definitions.vocabulary import CallKind, Category, Danger
from toolkeep.errors import DefinitionError
from toolkeep.json_values.canonical import canonical_hash
from toolkeep.limits import DESCRIPTION_CHARS
from toolkeep.mcp_client.pinned_tools import Entry, ListName, PinnedTools, described, fingerprint, identity
from toolkeep.mcp_client.tool_import import TOOL_BYTES, ImportOptions, in_words, refused_offer
from toolkeep.mcp_protocol.jsonrpc import encode
from toolkeep.mcp_protocol.resource_uris import (
    OWN_URI_CHARS,
    has_dot_segments,
    template_pattern,
    wrong_with_template,
    wrong_with_uri,
)
from toolkeep.registry.coerce import Offer
from toolkeep.text.display import shorten

ITEMS: Final = 1_000
"""Maximum number of prompts, and of resources with templates, that one server passes on. Each is a
definition, which a keep compiles when it opens."""

_ARGUMENTS: Final = 100
"""Maximum number of arguments of one prompt; real ones have at most ten."""
SUBSCRIBED_SECONDS: Final = 600.0
"""Length of one subscription call: the longest that a definition may state."""
_KINDS: Final[dict[ListName, CallKind]] = {
    "prompts": CallKind.PROMPT,
    "resources": CallKind.RESOURCE,
    "templates": CallKind.RESOURCE,
}
_TEXT: Final = {"type": "string", "maxLength": OWN_URI_CHARS}
_COMPLETION: Final[tuple[str, dict[str, Any]]] = (
    "Complete an argument of a prompt or resource template of the MCP server '{}'.",
    {
        "type": "object",
        "properties": {
            "of": {**_TEXT, "description": "`prompt:NAME` or `resource:TEMPLATE`, as the server calls it."},
            "argument": {**_TEXT, "description": "The name of the argument."},
            "value": {**_TEXT, "description": "Its text so far."},
            "arguments": {
                "type": "object",
                "additionalProperties": _TEXT,
                "maxProperties": _ARGUMENTS,
                "description": "Arguments that are known already.",
            },
        },
        "required": ["of", "argument", "value"],
    },
)
_SUBSCRIPTION: Final[tuple[str, dict[str, Any]]] = (
    "Hear when a resource of the MCP server '{}' changes.",
    {
        "type": "object",
        "properties": {"uri": {**_TEXT, "description": "The URI at the server."}},
        "required": ["uri"],
    },
)
_MIME_TYPE: Final = re.compile(r"[a-zA-Z0-9!#$&^_.+-]{1,64}/[a-zA-Z0-9!#$&^_.+-]{1,64}")


class _Unusable(Exception):
    """Why an entry cannot be imported."""


def import_items(listing: PinnedTools, wishes: ImportOptions, taken: Iterable[str] = ()) -> list[Offer]:
    """One offer per prompt, resource and template that a pattern of the person matches."""
    taken = list(taken)
    prompts = _entries(listing.prompts, "prompts", wishes.prompts)
    resources = _entries(listing.resources, "resources", wishes.resources)
    templates = _entries(listing.templates, "templates", wishes.resources)
    return [
        *_offers(CallKind.PROMPT, prompts, wishes, taken),
        *_offers(CallKind.RESOURCE, [*resources, *templates], wishes, taken),
        *_companion(CallKind.COMPLETION, [*prompts, *templates], wishes),
        *_companion(CallKind.SUBSCRIPTION, [*resources, *templates], wishes),
    ]


def _companion(
    kind: CallKind, entries: Iterable[tuple[ListName, Entry]], wishes: ImportOptions
) -> Iterator[Offer]:
    """The offer to complete arguments, or to subscribe, if a pattern matches an entry that is passed on."""
    is_completion = kind is CallKind.COMPLETION
    patterns = wishes.completions if is_completion else wishes.subscriptions
    items: dict[ListName, dict[str, str]] = {}
    for of, entry in entries:
        original = identity(entry, of)
        known = with_kind(_KINDS[of], original) if is_completion else original
        if any(fnmatchcase(known, pattern) for pattern in patterns):
            items.setdefault(of, {})[original] = fingerprint(entry, of)
    if not items:
        return
    about = _COMPLETION if is_completion else _SUBSCRIPTION
    data = {"name": wishes.name, "description": about[0].format(wishes.name), "parameters": about[1]}
    name = with_kind(kind, wishes.name)
    imported = import_definition(data, kind="mcp", origin=wishes.name, name=name)
    definition = imported.definition.replace(
        **_ours(kind, wishes.name, wishes),
        # The client's server subscribes again when it ends: so the decision is made anew.
        constraints=Constraints() if is_completion else Constraints(max_execution_time_s=SUBSCRIBED_SECONDS),
        metadata={"server": canonical_hash(dict(wishes.identity))},
    )
    target = {**wishes.target, "upstream": wishes.name, "tool": wishes.name, "items": items}
    yield Offer(tool=definition, name=name, runner=Run(kind="mcp", target=target))


def _ours(kind: CallKind, original: str, wishes: ImportOptions) -> dict[str, Any]:
    """What a person decided, and no server."""
    return {
        "category": Category.EXTERNAL_API,
        # Held by the agent beside what its server may reach: nothing is passed on to an agent by default.
        "capabilities": (Capability(f"mcp.{kind.value}s", wishes.name), *wishes.capabilities),
        "danger": _danger(kind, original, wishes),
    }


def _entries(entries: Iterable[Entry], of: ListName, patterns: Iterable[str]) -> list[tuple[ListName, Entry]]:
    return [(of, entry) for entry in matching(entries, of, patterns)]


def matching(entries: Iterable[Entry], of: ListName, patterns: Iterable[str]) -> tuple[Entry, ...]:
    """The entries of a list that a pattern matches, reduced to what is pinned."""
    held = tuple(patterns)
    return tuple(
        described(one, of)
        for one in entries
        if any(fnmatchcase(identity(one, of), pattern) for pattern in held)
    )


def _offers(
    kind: CallKind, entries: list[tuple[ListName, Entry]], wishes: ImportOptions, taken: list[str]
) -> Iterator[Offer]:
    prefix = with_kind(kind, "")
    others = [name.removeprefix(prefix) for name in taken if name.startswith(prefix)]
    originals = [identity(entry, of) for of, entry in entries[:ITEMS]]
    names = choose_names(originals, upstream=wishes.name, taken=others)
    seen: set[str] = set()
    for (of, entry), original in zip(entries, originals, strict=False):
        name = with_kind(kind, names[original])
        # Two under one name: which one a call reaches would be the server's choice.
        if original in seen:
            yield refused_offer(name, "is listed twice by its server", f"leave it out, with `{kind.value}s`")
            continue
        seen.add(original)
        try:
            yield _offer(kind, of, entry, name, wishes)
        except (_Unusable, DefinitionError, ValueError) as error:
            yield refused_offer(name, in_words(error), f"leave it out, with `{kind.value}s`")
    if len(entries) > ITEMS:
        fix = f"narrow the patterns of `{kind.value}s`"
        yield refused_offer(
            f"{prefix}{wishes.name}", f"{len(entries)} match, at most {ITEMS} are passed on", fix
        )


def _offer(kind: CallKind, of: ListName, entry: Entry, name: str, wishes: ImportOptions) -> Offer:
    if len(encode(described(entry, of))) > TOOL_BYTES:
        raise _Unusable(f"is described in more than {TOOL_BYTES} bytes")
    pin, original = fingerprint(entry, of), identity(entry, of)
    if not pin:
        raise _Unusable("is described in numbers that cannot be compared")
    parameters = _SCHEMAS[of](entry)
    data = {"name": original, "description": _text(entry, "description"), "parameters": parameters}
    imported = import_definition(data, kind="mcp", origin=wishes.name, name=name)
    mime_type = entry.get("mimeType")
    definition = imported.definition.replace(
        **_ours(kind, original, wishes),
        metadata={
            "server": canonical_hash(dict(wishes.identity)),
            **({"mime_type": mime_type} if _is_mime_type(mime_type) else {}),
        },
    )
    return Offer(
        tool=definition,
        name=name,
        runner=Run(
            kind="mcp",
            target={**wishes.target, "upstream": wishes.name, "list": of, "tool": original, "pin": pin},
        ),
        removed=imported.removed,
        warnings=imported.warnings,
    )


def _danger(kind: CallKind, original: str, wishes: ImportOptions) -> Danger:
    """As a person said, by the first pattern that matches; else as for an imported tool."""
    said = (danger for key, danger in wishes.dangers.items() if fnmatchcase(with_kind(kind, original), key))
    return next(said, Danger.MEDIUM)


def _prompt_schema(entry: Entry) -> dict[str, Any]:
    """Prompts take texts by name (2025-11-25, Prompts)."""
    if not identity(entry, "prompts"):
        raise _Unusable("has no name")
    listed = entry.get("arguments")
    listed = [] if listed is None else listed
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise _Unusable("has arguments that are not a list of objects")
    names = [one.get("name") for one in listed]
    if (
        len(names) > _ARGUMENTS
        or len(set(map(str, names))) < len(names)
        or not all(_is_text(n) for n in names)
    ):
        raise _Unusable(f"has unnamed arguments, two of one name, or more than {_ARGUMENTS}")
    properties = {one["name"]: {"type": "string", **_texts(one, "title", "description")} for one in listed}
    required = [one["name"] for one in listed if one.get("required") is True]
    schema = {"type": "object", **_texts(entry, "title"), "properties": properties}
    return {**schema, "required": required} if required else schema


def _resource_schema(entry: Entry) -> dict[str, Any]:
    uri = entry.get("uri")
    if wrong := wrong_with_uri(uri):
        raise _Unusable(wrong)
    return _uri_schema(entry, str(uri), {"const": uri})


def _template_schema(entry: Entry) -> dict[str, Any]:
    template = entry.get("uriTemplate")
    if wrong := wrong_with_template(template):
        raise _Unusable(wrong)
    pattern = template_pattern(str(template))
    return _uri_schema(entry, str(template), {"pattern": pattern, "maxLength": OWN_URI_CHARS})


def _uri_schema(entry: Entry, uri: str, rule: dict[str, Any]) -> dict[str, Any]:
    """One argument, the URI, as policies and records see it; its description is the URI or the template."""
    if has_dot_segments(uri):
        raise _Unusable("has a URI with the path segment . or ..")
    name = {"title": _text(entry, "name")} if _is_text(entry.get("name")) else {}
    about = {"type": "string", **rule, **name, "description": uri}
    return {"type": "object", **_texts(entry, "title"), "properties": {"uri": about}, "required": ["uri"]}


_SCHEMAS: Final[dict[ListName, Callable[[Entry], dict[str, Any]]]] = {
    "prompts": _prompt_schema,
    "resources": _resource_schema,
    "templates": _template_schema,
}


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_mime_type(value: object) -> bool:
    return isinstance(value, str) and _MIME_TYPE.fullmatch(value) is not None


def _text(entry: Entry, key: str) -> str:
    words = entry.get(key)
    return shorten(words, DESCRIPTION_CHARS) if isinstance(words, str) else ""


def _texts(entry: Entry, *keys: str) -> dict[str, str]:
    return {key: words for key in keys if (words := _text(entry, key))}
