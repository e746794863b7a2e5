"""Take back what built-in tools wrote to files, by call or by session (TLS-4).

What is taken back is what a person saw: `seen` of the preview covers every difference. It needs the scope
`admin`, since it shows and writes what any agent's call replaced, and what `admin_change` asks of a change:
the typed name, on the page also a sign-in younger than five minutes. Each call is taken back by a call of
`restore_file` as the caller's agent, which is decided, approved and recorded like any other.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from pathlib import PurePath
from typing import Annotated, Any, Final

import msgspec

from toolkeep.approval.approve import danger_reason
from toolkeep.approval.question import Question
from toolkeep.calls import ToolResult
from toolkeep.errors import Code, ToolkeepError
from toolkeep.host.clock import iso
from toolkeep.keep.keep import Keep
from toolkeep.keep.undo import RESTORE, plan_undo, undo
from toolkeep.limits import NAMED_CHARS
from toolkeep.server.api import approval_routes, call_routes
from toolkeep.server.api.admin_change import Confirmation, bearer_confirmation, check_confirmed
from toolkeep.server.api.open_calls import OpenCall
from toolkeep.server.api.session_routes import ANY_SESSION
from toolkeep.server.http.bearer_auth import Caller, check_scope
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_bytes, json_response, send_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope

Named = Annotated[str, msgspec.Meta(max_length=NAMED_CHARS)]


class UndoBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be taken back: one call, or the calls of a session."""

    call: Annotated[str, msgspec.Meta(max_length=64)] = ""
    session: Named = ""
    """A session or conversation, as its caller named it."""
    agent: Named = ""
    """The agent of the session; by default the token's."""
    seen: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """`seen` of the preview; without it, nothing is changed and the preview is given."""
    typed_name: Named = ""
    """`typed_name` of the preview, to confirm it."""


class UndoLine(msgspec.Struct, frozen=True, kw_only=True):
    """A write, and what taking it back would change or did."""

    call: str
    tool: str
    agent: str
    path: str
    at: str
    difference: str
    problem: str
    """Why it cannot be taken back, or was not."""
    undone_by: str
    """The call that took it back."""
    approval: str = ""
    """The question that a person has to answer first."""


class UndoView(msgspec.Struct, frozen=True, kw_only=True):
    """Writes that are taken back, the newest first."""

    lines: list[UndoLine]
    seen: str
    typed_name: str
    """What has to be typed; empty if nothing can be taken back."""
    is_done: bool = False
    """Whether this says what was done."""

    @property
    def is_waiting(self) -> bool:
        """Whether a person has to answer before it goes on."""
        return any(one.approval for one in self.lines)


def preview(keep: Keep, caller: Caller, said: UndoBody) -> UndoView:
    """What taking back would change. Nothing is changed."""
    check_scope(caller, (Scope.ADMIN,))
    agent = said.agent or caller.agent
    found = keep.replaced(call=said.call) if said.call else keep.replaced(session=said.session, agent=agent)
    if bool(said.call) == bool(said.session) or not found:
        raise not_found("write that can be taken back")
    lines = [
        UndoLine(
            call=step.replaced.call,
            tool=step.replaced.tool,
            agent=step.replaced.agent,
            path=step.replaced.path,
            at=iso(step.replaced.at),
            difference=step.difference,
            problem="" if step.replaced.undone_by else step.obstacle,
            undone_by=step.replaced.undone_by,
        )
        for step in plan_undo(found)
    ]
    is_possible = any(not (one.problem or one.undone_by) for one in lines)
    name = PurePath(found[0].path).name if said.call else said.session
    # With the hash of what each call left: a difference may show less than the whole file.
    left = [one.after_sha256 for one in found]
    return UndoView(
        lines=lines,
        seen=hashlib.sha256(msgspec.json.encode([lines, left])).hexdigest()[:32],
        typed_name=name if is_possible else "",
    )


Send = Callable[[UndoView], Awaitable[None]]


class _Restorer:
    """Makes the calls of `restore_file`; the person who confirmed what they saw answers for it.

    As at the terminal, their confirmation answers a question that only the danger of the tool asks. What
    they were not shown (another reason, a second approval) waits in the inbox.
    """

    def __init__(self, service: Service, caller: Caller, approver: Caller, way: str) -> None:
        self._service = service
        self._caller = caller
        self.agent: Final = caller.agent
        self._approver = approver
        self._way = way
        self.on_waiting: Callable[[Question], Awaitable[None]]

    async def call(self, name: str, arguments: dict[str, Any], *, agent: str) -> ToolResult:  # noqa: ARG002 -- the caller's
        """Call a tool as over `/v1`."""
        body = call_routes.RawCall(arguments=msgspec.Raw(json_bytes(arguments)))
        return await call_routes.call_tool(self._service.keep, self._caller, name, body, asked=self._asked)

    async def _asked(self, question: Question) -> None:
        if not self._was_shown(question) or not await self._is_answered(question):
            await self.on_waiting(question)

    def _was_shown(self, question: Question) -> bool:
        tool = self._service.keep.try_get(RESTORE)
        is_of_danger = tool is not None and set(question.why) == {danger_reason(tool)}
        return is_of_danger and question.acts == 1 and not question.flow

    async def _is_answered(self, question: Question) -> bool:
        answer = approval_routes.DecideBody(verdict="approve")
        try:
            await approval_routes.decide(
                self._service.keep, self._approver, question.id, answer, way=self._way
            )
        except RequestRefused:  # such as by an agent for itself
            return False
        return True


async def take_back(
    service: Service, said: Confirmation, approver: Caller, body: UndoBody, send: Send
) -> UndoView | None:
    """Preview, or take back what the preview showed; raises if it is not confirmed.

    If a call waits for a person, `send` is told at once, and None is returned when it is over.
    """
    keep, caller = service.keep, said.caller
    shown = await asyncio.to_thread(preview, keep, caller, body)
    if not body.seen:
        return shown
    if body.seen != shown.seen:
        raise RequestRefused(
            Code.CHANGED_MEANWHILE, "a file or call changed since the preview", hint="preview it again"
        )
    check_confirmed(said, shown.typed_name, time.time())
    restorer = _Restorer(service, caller, approver, said.way)
    lines, waiting = list(shown.lines), list[OpenCall]()
    task = asyncio.current_task()
    for place, line in enumerate(shown.lines):
        if line.undone_by:
            continue
        if line.problem:
            break

        async def wait(question: Question, place: int = place, line: UndoLine = line) -> None:
            if task is None or waiting:
                return
            waiting.append(await service.calls.open(question, task, ANY_SESSION))
            lines[place] = msgspec.structs.replace(line, approval=question.id)
            await send(msgspec.structs.replace(shown, lines=lines, is_done=True))

        restorer.on_waiting = wait
        lines[place] = await _taken_back(service, restorer, line, waiting)
        # Only one question is put after the answer is sent: the rest is confirmed anew.
        if lines[place].problem or waiting:
            break
    return None if waiting else msgspec.structs.replace(shown, lines=lines, is_done=True)


async def _taken_back(
    service: Service, restorer: _Restorer, line: UndoLine, waiting: list[OpenCall]
) -> UndoLine:
    result: ToolResult | None = None
    try:
        with service.calls.counted():
            result = await undo(restorer, service.keep.record.replaced, line.call, agent=restorer.agent)
    except ToolkeepError as error:
        return msgspec.structs.replace(line, problem=error.message)
    finally:
        for one in waiting:
            await service.calls.end(one, result)
    if result.error is not None:
        return msgspec.structs.replace(line, problem=result.error.errors[0].message)
    return msgspec.structs.replace(line, undone_by=result.call_id)


async def _undo(service: Service, request: Request) -> Response | None:
    body = await request.read(UndoBody)

    async def send(view: UndoView) -> None:
        await send_response(request.send, json_response(view, 202))

    said = bearer_confirmation(request.caller, body.typed_name)
    view = await take_back(service, said, request.caller, body, send)
    return None if view is None else json_response(view)


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/calls:undo",
        name="undoCalls",
        about="Take back what a call, or the calls of a session, wrote to files: preview it, then make it.",
        handler=_undo,
        is_long=True,
        scopes=(Scope.ADMIN,),
        tag="calls",
        body=UndoBody,
        gives={
            200: ResponseSpec(about="What would change, or did.", kind=UndoView),
            202: ResponseSpec(about="A call of `restore_file` waits for a person.", kind=UndoView),
        },
        problems=(404, 409, 412),
    ),
)
