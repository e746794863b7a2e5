"""Custom definitions over HTTP: create, update, delete, and check without storing.

A token with the scope for writing tools decides what agents are offered. Only `admin` may store a definition
that runs something on this machine: otherwise a token that describes tools could execute code on the host.
An update by which fewer calls need approval is put in force like a lower danger (`admin_change`).
"""

import asyncio
from functools import partial
from typing import Any, Final

import msgspec

from toolkeep.compat.definition_diff import field_changes
from toolkeep.compat.strictness import fewer_approvals
from toolkeep.definitions.tool import ToolDefinition
from toolkeep.errors import (
    Code,
    DefinitionError,
    DuplicateTool,
    Problem,
    StoreConflict,
    ToolkeepError,
    UnknownTool,
)
from toolkeep.keep.keep import Keep
from toolkeep.registry.custom_definitions import with_changes
from toolkeep.registry.tool_provider import STORE
from toolkeep.server.api.admin_change import Change, Confirmation, bearer_confirmation, put_in_force
from toolkeep.server.api.common_parameters import MATCH, NAME, TAG
from toolkeep.server.api.tool_routes import (
    ToolView,
    change_views,
    find_tool,
    holds_secrets,
    public_changes,
    show_tool,
    tag_of_tool,
    visible_tool,
)
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response, names_tag
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope
from toolkeep.stores.definitions import StoredDefinition


class DefinitionReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a definition could be kept, and what it would change."""

    success: bool
    problems: list[dict[str, str]]
    replaces: str = ""
    """The version of the stored definition that it would follow; empty if none of its name is stored."""
    changes: list[dict[str, str]] = []
    """What differs from that one, as in the versions of a tool."""
    asks_less: bool = False
    """Whether fewer calls would need approval, which a person confirms."""


async def create_definition(keep: Keep, caller: Caller, data: dict[str, Any]) -> ToolView:
    """Store a new definition."""
    made = await asyncio.to_thread(
        keep.create_definition, data, by=caller.agent, may_run=caller.has_scope(Scope.ADMIN)
    )
    return show_tool(keep, _as_author(caller), made.name)


async def update_definition(
    keep: Keep, said: Confirmation, name: str, changes: dict[str, Any], *, condition: str
) -> ToolView:
    """Update a definition if it is still the one that `condition` (If-Match) names."""
    caller = said.caller
    stored = await asyncio.to_thread(_stored, keep, caller, name, condition)
    update = partial(
        keep.update_definition,
        name,
        changes,
        by=caller.agent,
        revision=stored.revision if stored is not None else None,
        may_run=caller.has_scope(Scope.ADMIN),
    )
    # The update is of this revision, so what is compared here is what changes.
    fewer = await asyncio.to_thread(_fewer_approvals, stored, changes) if stored is not None else []
    if stored is not None and fewer:
        change = Change(what="danger", name=stored.name, difference="\n".join(fewer))
        updated = await put_in_force(keep, said, change, update)
    else:
        updated = await asyncio.to_thread(update)
    return show_tool(keep, _as_author(caller), updated.name)


async def put_definition(keep: Keep, said: Confirmation, data: dict[str, Any], *, condition: str) -> ToolView:
    """Store a whole definition: a new one, or with `condition` in place of the one that it names."""
    if not condition:
        return await create_definition(keep, said.caller, data)
    name = str(data.get("name", ""))
    changes = whole_changes(keep.definition_versions(name)[0], data)
    return await update_definition(keep, said, name, changes, condition=condition)


def whole_changes(stored: StoredDefinition, data: dict[str, Any]) -> dict[str, Any]:
    """The changes by which a stored definition becomes this one; what it leaves out is reset."""
    return {**dict.fromkeys(stored.definition.to_dict(), None), "run": None, **data}


def may_see_whole(caller: Caller, definition: ToolDefinition, *, is_run: bool) -> bool:
    """Whether the caller may see a stored definition whole, to change it.

    Otherwise a token that only describes tools would read the commands of this machine and secret values.
    """
    is_open = not is_run and not holds_secrets(definition)
    return caller.has_scope(Scope.TOOLS_WRITE if is_open else Scope.ADMIN)


async def delete_definition(keep: Keep, caller: Caller, name: str, *, condition: str) -> None:
    """Delete a definition if it is still the one that `condition` names."""
    stored = await asyncio.to_thread(_stored, keep, caller, name, condition)
    revision = stored.revision if stored is not None else None
    await asyncio.to_thread(keep.delete_definition, name, by=caller.agent, revision=revision)


async def check_definition(keep: Keep, caller: Caller, data: dict[str, Any]) -> DefinitionReport:
    """Report what is wrong with a definition, without storing it."""
    return await asyncio.to_thread(_checked, keep, caller, data)


def _report(*problems: Problem) -> DefinitionReport:
    return DefinitionReport(success=not problems, problems=[one.to_dict() for one in problems])


def _checked(keep: Keep, caller: Caller, data: dict[str, Any]) -> DefinitionReport:
    stored = _stored_under(keep, data.get("name"))
    try:
        if stored is not None and visible_tool(keep, caller, stored.name) is None:
            # Before anything is compared: an answer that depends on it would tell what is stored.
            raise DuplicateTool(str(data["name"]), held_by=STORE, hint="give yours another name")
        keep.check_definition(data, may_run=caller.has_scope(Scope.ADMIN))
    except DefinitionError as error:
        return _report(*error.problems)
    except ToolkeepError as error:
        if error.code in (Code.STORE_UNAVAILABLE, Code.STATE_UNUSABLE, Code.FEATURE_CLOSED):
            raise
        field = error.field if isinstance(error, StoreConflict) else "name"
        return _report(Problem(field=field, code=error.code, message=error.message, fix=error.hint))
    return _report() if stored is None else _compared(stored, data)


def _stored_under(keep: Keep, name: object) -> StoredDefinition | None:
    """The stored definition of a name or an alias."""
    try:
        return keep.definition_versions(name)[0] if isinstance(name, str) else None
    except UnknownTool:
        return None


def _compared(stored: StoredDefinition, data: dict[str, Any]) -> DefinitionReport:
    """The report on a valid definition that would follow a stored one."""
    whole = whole_changes(stored, data)
    new, run = with_changes(stored, whole)
    changes = list(public_changes(stored.definition, new))
    if run != stored.run:
        changes += field_changes("run", stored.run, run)
    return DefinitionReport(
        success=True,
        problems=[],
        replaces=stored.definition.version,
        changes=change_views(changes),
        asks_less=bool(_fewer_approvals(stored, whole)),
    )


def _fewer_approvals(stored: StoredDefinition, changes: dict[str, Any]) -> list[str]:
    """The lines of the difference by which fewer calls need approval."""
    new, _ = with_changes(stored, changes)
    return [
        f"{sign}{one.field}: {value}"
        for one in fewer_approvals(stored.definition, new)
        for sign, value in (("-", one.before), ("+", one.after))
    ]


def _stored(keep: Keep, caller: Caller, name: str, condition: str) -> StoredDefinition | None:
    """The stored definition to change; raises unless `condition` names it.

    Without it, two editors would overwrite each other, and a change could apply to a definition nobody saw.
    """
    tool = find_tool(keep, caller, name)
    if not condition:
        raise RequestRefused(
            Code.REQUEST_INVALID,
            "the header If-Match is missing: a change names the version that it changes",
            hint=f"GET /v1/tools/{tool.name}, and send its ETag as `If-Match`",
            status=428,
        )
    if tool.is_built_in or tool.provider != "store":
        return None  # the store refuses it with its own message
    stored = keep.definition_versions(tool.name)[0]
    is_current = stored.definition.hash == keep.versions(tool.name)[0].definition_hash
    if not is_current or not names_tag(condition, tag_of_tool(keep, tool)):
        raise RequestRefused(
            Code.CHANGED_MEANWHILE, "the tool has changed since you read it", hint="read it again"
        )
    return stored


def _as_author(caller: Caller) -> Caller:
    """The caller with `admin`, to show an author the definition just written even if policies hide it."""
    return msgspec.structs.replace(caller, scopes=(Scope.ADMIN,))


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition as a configuration file would say it; docs/defining.md has every field."""

    name: str
    description: str
    version: str = "1.0.0"


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a definition with their new values; null takes one back to its default."""

    version: str | None = None
    typed_name: str | None = None
    """The name of the tool, to confirm a change by which fewer calls need approval."""


async def _create(service: Service, request: Request) -> Response:
    data = await request.read(dict[str, Any])
    view = await create_definition(service.keep, request.caller, data)
    place = (b"location", f"/v1/tools/{view.tool.name}".encode())
    return json_response(view, 201, [place, (b"etag", view.tag.encode())])


async def _update(service: Service, request: Request) -> Response:
    changes = await request.read(dict[str, Any])
    said = bearer_confirmation(request.caller, str(changes.pop("typed_name", "")))
    view = await update_definition(
        service.keep, said, request.names["name"], changes, condition=request.header("If-Match")
    )
    return json_response(view, 200, [(b"etag", view.tag.encode())])


async def _delete(service: Service, request: Request) -> Response:
    condition = request.header("If-Match")
    await delete_definition(service.keep, request.caller, request.names["name"], condition=condition)
    return Response(204)


async def _check(service: Service, request: Request) -> Response:
    data = await request.read(dict[str, Any])
    return json_response(await check_definition(service.keep, request.caller, data))


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/tools",
        name="createTool",
        about="Create a custom definition. Only the scope admin may set what runs it.",
        handler=_create,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        body=Definition,
        gives={
            201: ResponseSpec(
                about="It is kept.",
                kind=ToolView,
                headers=(("Location", "Where it is."), *TAG),
            ),
        },
        problems=(409, 422),
    ),
    Route(
        method="PATCH",
        path="/v1/tools/{name}",
        name="updateTool",
        about="Change fields of a custom definition; all but `enabled` need a higher version.",
        handler=_update,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME, MATCH),
        body=Changes,
        gives={200: ResponseSpec(about="It is changed.", kind=ToolView, headers=TAG)},
        problems=(404, 409, 412, 422, 428),
    ),
    Route(
        method="DELETE",
        path="/v1/tools/{name}",
        name="deleteTool",
        about="Delete a custom definition, with all of its versions.",
        handler=_delete,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        parameters=(NAME, MATCH),
        gives={204: ResponseSpec(about="It is gone.")},
        problems=(404, 409, 412, 428),
    ),
    Route(
        method="POST",
        path="/v1/tools:check",
        name="checkTool",
        about="Validate a custom definition without storing it, and say what it would change.",
        handler=_check,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        body=dict[str, Any],
        gives={200: ResponseSpec(about="All problems.", kind=DefinitionReport)},
    ),
)
