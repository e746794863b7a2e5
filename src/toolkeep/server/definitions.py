"""Custom definitions over HTTP: created, changed and deleted in the store, for every agent of the keep.

Who may write definitions decides what agents are offered; what runs on this machine, only `admin` decides.
"""

import asyncio
from typing import Any

import msgspec

from toolkeep.errors import Code, DefinitionError, Problem, ToolkeepError
from toolkeep.keep import Keep
from toolkeep.server.answers import names_tag
from toolkeep.server.auth import Caller
from toolkeep.server.problems import RequestRefused
from toolkeep.server.tools import ToolView, find_tool, show_tool, tag_of_tool
from toolkeep.tokens import Scope


class DefinitionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a definition could be kept."""

    success: bool
    problems: list[dict[str, str]]


async def create_definition(keep: Keep, caller: Caller, data: dict[str, Any]) -> ToolView:
    """Keep a new definition."""
    made = await asyncio.to_thread(
        keep.create_definition, data, by=caller.agent, may_run=caller.has_scope(Scope.ADMIN)
    )
    return show_tool(keep, _as_author(caller), made.name)


async def update_definition(
    keep: Keep, caller: Caller, name: str, changes: dict[str, Any], *, condition: str
) -> ToolView:
    """Change a definition, if it still is the one that `condition` (If-Match) names."""
    revision = await asyncio.to_thread(_revision, keep, caller, name, condition)
    updated = await asyncio.to_thread(
        keep.update_definition,
        name,
        changes,
        by=caller.agent,
        revision=revision,
        may_run=caller.has_scope(Scope.ADMIN),
    )
    return show_tool(keep, _as_author(caller), updated.name)


async def delete_definition(keep: Keep, caller: Caller, name: str, *, condition: str) -> None:
    """Let go of a definition, if it still is the one that `condition` names."""
    revision = await asyncio.to_thread(_revision, keep, caller, name, condition)
    await asyncio.to_thread(keep.delete_definition, name, by=caller.agent, revision=revision)


async def check_definition(keep: Keep, caller: Caller, data: dict[str, Any]) -> DefinitionReport:
    """What would be wrong with a definition; nothing is kept."""
    may_run = caller.has_scope(Scope.ADMIN)
    try:
        await asyncio.to_thread(keep.check_definition, data, may_run=may_run)
    except DefinitionError as error:
        return _report(*error.problems)
    except ToolkeepError as error:
        if error.code in (Code.STORE_UNAVAILABLE, Code.STATE_UNUSABLE, Code.FEATURE_CLOSED):
            raise
        return _report(Problem(field="name", code=error.code, message=error.message, mend=error.hint))
    return _report()


def _report(*problems: Problem) -> DefinitionReport:
    return DefinitionReport(success=not problems, problems=[one.to_dict() for one in problems])


def _revision(keep: Keep, caller: Caller, name: str, condition: str) -> int | None:
    """The stored revision that a change is made against; raises where it is not what the client saw."""
    tool = find_tool(keep, caller, name)
    if not condition:
        raise RequestRefused(
            Code.CHANGED_MEANWHILE,
            "a change must say what it changes",
            hint="send the tag of the tool as If-Match",
            status=428,
        )
    if tool.is_built_in or tool.provider != "store":
        return None  # refused in the words of the store
    stored = keep.definition_versions(tool.name)[0]
    is_current = stored.definition.hash == keep.versions(tool.name)[0].definition_hash
    if not is_current or not names_tag(condition, tag_of_tool(keep, tool)):
        raise RequestRefused(
            Code.CHANGED_MEANWHILE, "the tool is another than when it was read", hint="read it again"
        )
    return stored.revision


def _as_author(caller: Caller) -> Caller:
    """Who has just written a definition may see it this once, also if policies hide it from the agent."""
    return msgspec.structs.replace(caller, scopes=(Scope.ADMIN,))
