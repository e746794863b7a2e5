"""What an agent holds, changed by a person: withdraw it and restore it; previewed, then made (WEB-2).

The preview says for which tools the answer would change. A change is made only if its preview is still true:
`seen` names it. It is put in force, with a confirmation and a record, and lives in the state.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Final, Literal

import msgspec

from toolkeep.errors import Code
from toolkeep.keep.agent_access import Access, access_of
from toolkeep.keep.keep import Keep
from toolkeep.policy.policy_settings import Grant
from toolkeep.server.api import agent_routes
from toolkeep.server.api.admin_change import Change, Confirmation, bearer_confirmation, put_in_force
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope

_LINES: Final = 200
"""Tools that a preview names; the number of all is told."""
Action = Literal["withdraw", "restore"]


class GrantBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of what an agent holds."""

    agent: Annotated[str, msgspec.Meta(max_length=64)]
    action: Action
    capability: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    """A capability such as `fs.write:./out`, its kind, or a permission; empty for everything."""
    seen: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """`seen` of the preview; without it, nothing is changed and the preview is given."""
    typed_name: Annotated[str, msgspec.Meta(max_length=256)] = ""
    """The name of the agent, to confirm."""


class AccessChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a change does to the calls of one tool."""

    tool: str
    before: Access
    after: Access


class GrantView(msgspec.Struct, frozen=True, kw_only=True):
    """A change of what an agent holds."""

    agent: str
    action: Action
    capability: str
    difference: list[str]
    """What the agent holds no more, after `-`, and what it holds again, after `+`."""
    lines: list[AccessChange]
    """The tools that change from allowed, ask or deny to another of them; at most 200."""
    changing: int
    """How many tools change."""
    seen: str
    typed_name: str
    """What has to be typed; empty if nothing would change."""
    is_done: bool = False


def preview(keep: Keep, caller: Caller, said: GrantBody) -> GrantView:
    """What a change would do. Nothing is changed."""
    if said.agent not in agent_routes.visible_agents(keep, caller):
        raise not_found("agent")
    try:
        after = keep.grant_after(said.agent, said.capability, restored=said.action == "restore")
    except ValueError as error:
        raise RequestRefused(Code.REQUEST_INVALID, str(error)) from None
    before = keep.agents.get(said.agent)
    difference = list(_difference(before, after))
    lines = _changes(keep, said.agent, after) if difference else []
    seen = hashlib.sha256(msgspec.json.encode([said.agent, said.action, said.capability, difference, lines]))
    return GrantView(
        agent=said.agent,
        action=said.action,
        capability=said.capability,
        difference=difference,
        lines=lines[:_LINES],
        changing=len(lines),
        seen=seen.hexdigest()[:32],
        typed_name=said.agent if difference else "",
    )


def _difference(before: Grant | None, after: Grant | None) -> Iterator[str]:
    """What changes, line by line; that an agent may call tools at all is a line of its own."""
    old, new = _holdings(before), _holdings(after)
    yield from (f"-{one}" for one in old if one not in new)
    yield from (f"+{one}" for one in new if one not in old)


def _holdings(grant: Grant | None) -> list[str]:
    return [] if grant is None else ["calls of tools", *map(str, grant.capabilities), *grant.permissions]


def _changes(keep: Keep, agent: str, after: Grant | None) -> list[AccessChange]:
    tried = keep.authorizer.holding(agent, after)
    problems = keep.authorizer.problem(), tried.problem()
    found = []
    for tool in keep.tools():
        before, now = (
            access_of(keep, agent, tool, problems[0]),
            access_of(keep, agent, tool, problems[1], tried),
        )
        if before.verdict != now.verdict:
            found.append(AccessChange(tool=tool.name, before=before, after=now))
    return found


async def change_grant(keep: Keep, said: Confirmation, body: GrantBody) -> GrantView:
    """Preview a change, or make it if its preview is still true; raises if it is not confirmed."""
    shown = await asyncio.to_thread(preview, keep, said.caller, body)
    if body.seen and body.seen != shown.seen:
        raise RequestRefused(
            Code.CHANGED_MEANWHILE, "the agent or a tool changed since the preview", hint="preview it again"
        )
    if not body.seen or not shown.difference:
        return shown
    change, make = grant_change(keep, body.agent, body.action, body.capability)
    await put_in_force(keep, said, change, make)
    return msgspec.structs.replace(shown, is_done=True)


def grant_change(
    keep: Keep, agent: str, action: Action, capability: str
) -> tuple[Change, Callable[[], None]]:
    """A change for the log, and what makes it; raises ValueError if the agent holds no such thing."""
    after = keep.grant_after(agent, capability, restored=action == "restore")
    difference = [f"{action}: {capability or 'everything'}", *_difference(keep.agents.get(agent), after)]
    make = keep.withdraw if action == "withdraw" else keep.restore
    return Change(what="grant", name=agent, difference="\n".join(difference)), partial(
        make, agent, capability
    )


async def _change(service: Service, request: Request) -> Response:
    body = await request.read(GrantBody)
    said = bearer_confirmation(request.caller, body.typed_name)
    return json_response(await change_grant(service.keep, said, body))


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/agents:change",
        name="changeAgent",
        about="Withdraw what an agent holds, or restore it: preview it, then make it.",
        handler=_change,
        scopes=(Scope.ADMIN,),
        tag="policies",
        body=GrantBody,
        gives={200: ResponseSpec(about="What would change, or did.", kind=GrantView)},
        problems=(404, 412),
    ),
)
