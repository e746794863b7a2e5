"""Changes of several tools at once: enable, disable, accept, set danger; previewed, then made (WEB-2).

The preview says what would change for each tool. A change is made only if its preview is still true: `seen`
names it. Accepting and setting danger are put in force, with a confirmation and a record for each tool.
"""

import asyncio
import hashlib
import time
from typing import Annotated, Final, Literal

import msgspec

from toolkeep.calls import RegisteredTool
from toolkeep.definitions.vocabulary import Danger
from toolkeep.errors import Code, ToolkeepError
from toolkeep.keep.keep import Keep
from toolkeep.server.api import review_routes, tool_routes
from toolkeep.server.api.admin_change import (
    Change,
    Confirmation,
    bearer_confirmation,
    check_confirmed,
    record_change,
)
from toolkeep.server.http.bearer_auth import Caller, check_scope
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope
from toolkeep.text.display import counted

MOST: Final = 200
"""Tools of one change: more than a person reviews at once."""
Action = Literal["enable", "disable", "accept", "danger"]
Level = Literal["own", "safe", "low", "medium", "high", "critical"]


class BulkBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of several tools."""

    names: Annotated[
        list[Annotated[str, msgspec.Meta(max_length=256)]], msgspec.Meta(min_length=1, max_length=MOST)
    ]
    action: Action
    danger: Level = "own"
    """For the action `danger`; `own` is that of the definition."""
    seen: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """`seen` of the preview; without it, nothing is changed and the preview is given."""
    typed_name: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """`typed_name` of the preview, to confirm what is put in force."""


class BulkLine(msgspec.Struct, frozen=True, kw_only=True):
    """What a change does to one tool."""

    tool: str
    before: str
    after: str
    difference: list[str] = []
    """Of a definition that would be accepted."""
    hash: str = ""
    """Of that definition."""
    problem: str = ""
    """Why nothing changes."""


class BulkView(msgspec.Struct, frozen=True, kw_only=True):
    """A change of several tools."""

    lines: list[BulkLine]
    seen: str
    typed_name: str
    """What has to be typed; empty if nothing."""
    is_done: bool = False


def preview(keep: Keep, caller: Caller, said: BulkBody) -> BulkView:
    """What a change would do. Nothing is changed."""
    check_scope(caller, (_scope(said.action),))
    lines = [_line(keep, caller, name, said) for name in dict.fromkeys(said.names)]
    changing = [one.tool for one in lines if not one.problem]
    typed = ""
    if said.action in ("accept", "danger") and changing:
        typed = changing[0] if len(changing) == 1 else counted(len(changing), "tool")
    seen = hashlib.sha256(msgspec.json.encode([said.action, lines])).hexdigest()[:32]
    return BulkView(lines=lines, seen=seen, typed_name=typed)


def _scope(action: Action) -> Scope:
    return Scope.ADMIN if action in ("accept", "danger") else Scope.TOOLS_WRITE


def _line(keep: Keep, caller: Caller, name: str, said: BulkBody) -> BulkLine:
    tool = tool_routes.find_tool(keep, caller, name)
    if said.action == "accept":
        return _acceptance(keep, caller, tool)
    if said.action == "danger":
        return _danger(tool, said.danger)
    after = "enabled" if said.action == "enable" else "disabled"
    problem = "" if tool.state.value != after else f"it is {after} already"
    if tool.state.value == "quarantined":
        problem = "it is in quarantine"
    return BulkLine(tool=tool.name, before=tool.state.value, after=after, problem=problem)


def _acceptance(keep: Keep, caller: Caller, tool: RegisteredTool) -> BulkLine:
    review = review_routes.pending_review(keep, caller, tool.name)
    if review is None:
        problem = "no changed definition awaits acceptance"
        return BulkLine(tool=tool.name, before=tool.version, after=tool.version, problem=problem)
    return BulkLine(
        tool=tool.name,
        before=review.version or "never accepted",
        after=review.next_version,
        difference=list(review.lines()),
        hash=review.hash,
    )


def _danger(tool: RegisteredTool, level: Level) -> BulkLine:
    own = (tool.own or tool.definition).danger_level.value
    after = own if level == "own" else level
    problem = "" if after != tool.danger.value else f"it is {after} already"
    if tool.state.value == "quarantined":
        problem = "it is in quarantine"
    return BulkLine(tool=tool.name, before=tool.danger.value, after=after, problem=problem)


async def change_tools(keep: Keep, said: Confirmation, body: BulkBody) -> BulkView:
    """Preview a change, or make it if its preview is still true; raises if it is not confirmed."""
    shown = await asyncio.to_thread(preview, keep, said.caller, body)
    if not body.seen:
        return shown
    if body.seen != shown.seen:
        raise RequestRefused(
            Code.CHANGED_MEANWHILE, "a tool changed since the preview", hint="preview it again"
        )
    if shown.typed_name:
        check_confirmed(said, shown.typed_name, time.time())
    lines = [one if one.problem else await _changed(keep, said, body, one) for one in shown.lines]
    return msgspec.structs.replace(shown, lines=lines, is_done=True)


async def _changed(keep: Keep, said: Confirmation, body: BulkBody, line: BulkLine) -> BulkLine:
    try:
        await _change(keep, said, body, line)
    except ToolkeepError as error:
        return msgspec.structs.replace(line, problem=error.message)
    return line


async def _change(keep: Keep, said: Confirmation, body: BulkBody, line: BulkLine) -> None:
    name = line.tool
    if body.action in ("enable", "disable"):
        enabled = body.action == "enable"
        await asyncio.to_thread(tool_routes.switch_tool, keep, said.caller, name, enabled=enabled)
    elif body.action == "danger":
        level = None if body.danger == "own" else Danger(body.danger)
        change = Change(what="danger", name=name, difference=f"-danger: {line.before}\n+danger: {line.after}")
        await record_change(keep, said, change, lambda: keep.set_danger(name, level))
    else:
        change = Change(what="tool accepted", name=name, difference="\n".join(line.difference))
        await record_change(keep, said, change, lambda: keep.accept(name, definition_hash=line.hash))


async def _bulk(service: Service, request: Request) -> Response:
    body = await request.read(BulkBody)
    said = bearer_confirmation(request.caller, body.typed_name)
    return json_response(await change_tools(service.keep, said, body))


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/tools:change",
        name="changeTools",
        about="Enable, disable, accept or set the danger of several tools: preview it, then make it.",
        handler=_bulk,
        scopes=(Scope.TOOLS_WRITE,),
        tag="tools",
        body=BulkBody,
        gives={200: ResponseSpec(about="What would change, or did.", kind=BulkView)},
        problems=(404, 412),
    ),
)
