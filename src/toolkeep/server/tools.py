"""The tools of a keep as the token's agent may know them: list, look, check, switch.

What is secret in a schema is shown to nobody, whatever their scopes (VAL-6).
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from toolkeep.calls import CheckedCall, Refusal, RegisteredTool
from toolkeep.definitions.declaration import declaration
from toolkeep.definitions.public import public_schema
from toolkeep.definitions.vocabulary import Category
from toolkeep.errors import DefinitionInvalid
from toolkeep.keep import Keep
from toolkeep.providers.lone import lone_definition
from toolkeep.providers.vendors import PROVIDERS
from toolkeep.registry.difference import changes_between
from toolkeep.server.answers import tag_of
from toolkeep.server.auth import Caller
from toolkeep.server.pagination import Page, cut, decode_cursor
from toolkeep.server.problems import nothing_there
from toolkeep.server.service import sees_as


class ToolSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A tool in a list."""

    name: str
    version: str
    description: str
    category: str
    risk: str
    danger: str
    state: str
    why: str
    provider: str
    source: str
    is_built_in: bool
    is_custom: bool
    requires_confirmation: bool
    definition_hash: str


class VersionView(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a tool, and how it differs from the one before it."""

    version: str
    state: str
    why: str
    definition_hash: str
    changes: list[dict[str, str]] = []


class ToolView(msgspec.Struct, frozen=True, kw_only=True):
    """One tool whole."""

    tool: ToolSummary
    signature: str
    definition: dict[str, Any]
    versions: list[VersionView]
    warnings: list[dict[str, str]]
    declaration: str
    """The line that declares its side effects, where none says what they are."""
    tag: str
    """The entity tag: what If-Match must say to change it."""


class ToolPage(Page, frozen=True, kw_only=True):
    """Some of the tools."""

    items: list[ToolSummary]


class Filters(msgspec.Struct, frozen=True, kw_only=True):
    """Which tools of a list are wanted."""

    category: str | None = None
    danger: str | None = None
    state: str | None = None
    source: str | None = None
    search: str | None = None


def summary(tool: RegisteredTool) -> ToolSummary:
    """What a list shows of a tool."""
    definition = tool.definition
    return ToolSummary(
        name=definition.name,
        version=definition.version,
        description=definition.description,
        category=definition.category.value,
        risk=definition.category.risk,
        danger=definition.danger_level.value,
        state=tool.state.value,
        why=tool.why,
        provider=tool.provider,
        source=definition.source.kind,
        is_built_in=tool.is_built_in,
        is_custom=tool.is_custom,
        requires_confirmation=definition.requires_confirmation,
        definition_hash=tool.definition_hash,
    )


def list_tools(
    keep: Keep, caller: Caller, filters: Filters, *, limit: int, cursor: str | None = None
) -> Page:
    """The tools that a caller may know of and that fit; by category, then by name, or the best first."""
    found = keep.tools(agent=sees_as(caller))
    if filters.search is not None:
        found = _searched(keep, caller, filters.search, found)
        place, after = _ranked(found), decode_cursor(cursor, int) if cursor else None
        fitting = [tool for tool in _fitting(found, filters) if after is None or place(tool) > after]
        return cut(fitting, limit, place, summary)
    start = decode_cursor(cursor, tuple[int, str]) if cursor else None
    fitting = [tool for tool in _fitting(found, filters) if start is None or _place(tool) > start]
    return cut(fitting, limit, _place, summary)


def _place(tool: RegisteredTool) -> tuple[int, str]:
    return tool.definition.category.number, tool.name


def _ranked(found: Sequence[RegisteredTool]) -> Callable[[RegisteredTool], int]:
    ranks = {id(tool): rank for rank, tool in enumerate(found)}
    return lambda tool: ranks[id(tool)]


def _searched(keep: Keep, caller: Caller, text: str, found: Sequence[RegisteredTool]) -> list[RegisteredTool]:
    """Those that answer by how well they fit; then all others that hold every word, or its beginning."""
    best = keep.search(text, limit=len(found), agent=sees_as(caller))
    words, known = text.casefold().split(), set(map(id, best))
    others = (tool for tool in found if id(tool) not in known)
    return best + [tool for tool in others if all(word in _words(tool) for word in words)]


def _words(tool: RegisteredTool) -> str:
    return f"{tool.name} {tool.definition.description}".casefold()


def _fitting(found: Iterable[RegisteredTool], filters: Filters) -> list[RegisteredTool]:
    wanted = None if filters.category is None else Category.read(filters.category)
    return [
        tool
        for tool in found
        if (wanted is None or tool.definition.category is wanted)
        and (filters.danger is None or tool.definition.danger_level.value == filters.danger)
        and (filters.state is None or tool.state.value == filters.state)
        and (filters.source is None or tool.definition.source.kind == filters.source)
    ]


def find_tool(keep: Keep, caller: Caller, name: str) -> RegisteredTool:
    """The tool, or one `name@version`, if the caller may know of it; else raises as if it were not there."""
    agent = sees_as(caller)
    found = keep.try_get(name) if agent is None else keep.look_up(name, agent=agent)
    if found is None:
        raise nothing_there("tool")
    return found


def show_tool(keep: Keep, caller: Caller, name: str) -> ToolView:
    """One tool whole."""
    tool = find_tool(keep, caller, name)
    return ToolView(
        tool=summary(tool),
        signature=tool.arguments.hint(tool.name),
        definition=public_definition(tool),
        versions=versions_of(keep, caller, tool),
        warnings=[warning.to_dict() for warning in tool.warnings],
        declaration=declaration(tool.definition, tool.runner) if tool.is_undeclared else "",
        tag=tag_of_tool(keep, tool),
    )


def list_versions(keep: Keep, caller: Caller, name: str) -> list[VersionView]:
    """Every version of a tool, newest first, each with how it differs from the one before."""
    return versions_of(keep, caller, find_tool(keep, caller, name))


def versions_of(keep: Keep, caller: Caller, tool: RegisteredTool) -> list[VersionView]:
    """The versions of a tool that the caller may know of."""
    agent = sees_as(caller)
    family = keep.versions(tool.name)
    if agent is not None:
        family = tuple(
            held for held in family if keep.look_up(f"{held.name}@{held.version}", agent=agent) is held
        )
    older: tuple[RegisteredTool | None, ...] = (*family[1:], None)
    return [_version(held, before) for held, before in zip(family, older, strict=True)]


def _version(tool: RegisteredTool, before: RegisteredTool | None) -> VersionView:
    changes = [] if before is None else changes_between(before.definition, tool.definition)
    return VersionView(
        version=tool.version,
        state=tool.state.value,
        why=tool.why,
        definition_hash=tool.definition_hash,
        changes=[
            {"field": one.field, "what": one.what, "weight": one.weight.name.lower()} for one in changes
        ],
    )


def public_definition(tool: RegisteredTool) -> dict[str, Any]:
    """A definition without what is secret in it."""
    definition = tool.definition
    parameters = public_schema(definition.parameters, is_sensitive=definition.sensitive)
    return {**definition.to_dict(), "parameters": parameters}


def tag_of_tool(keep: Keep, tool: RegisteredTool) -> str:
    """Changes whenever a version of the tool, or its state, does."""
    family = keep.versions(tool.name)
    return tag_of(*(f"{held.definition_hash} {held.state.value} {held.why}" for held in family))


def provider_forms(keep: Keep, caller: Caller, name: str) -> dict[str, Any]:
    """A tool as models are told of it, by provider; one that cannot be told of it is not among them."""
    definition = find_tool(keep, caller, name).definition
    forms = {}
    for provider in PROVIDERS:
        with contextlib.suppress(DefinitionInvalid):
            forms[provider] = lone_definition(definition, provider)
    return forms


def check_call(
    keep: Keep, caller: Caller, name: str, arguments: bytes, conversation: str = ""
) -> CheckedCall | Refusal:
    """Whether a call fits, without running it."""
    return keep.try_validate_arguments(name, arguments, agent=caller.agent, conversation=conversation)


def switch_tool(keep: Keep, caller: Caller, name: str, *, enabled: bool) -> ToolView:
    """Let a tool answer, or not; remembered for the next start too."""
    tool = find_tool(keep, caller, name)
    change = keep.enable if enabled else keep.disable
    change(name if "@" in name else tool.name, remember=True)
    return show_tool(keep, caller, name)
