"""Sessions over HTTP: a trusted host begins them, and says what the user said (FLO-1, FLO-3)."""

import asyncio
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from toolkeep.errors import Code
from toolkeep.keep.keep import Keep
from toolkeep.limits import NAMED_CHARS
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import Scope

ANY_SESSION: Final = "http"
"""To whom the state of a caller belongs that may not begin sessions: to its agent, whatever id it sends."""


class SessionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A session to begin or to go on with, and what the user added to it."""

    session: Annotated[str, Meta(min_length=1, max_length=NAMED_CHARS)]
    said: Annotated[str, Meta(max_length=65_536)] = ""
    pasted: Annotated[str, Meta(max_length=1_048_576)] = ""
    anew: bool = False


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a session."""

    session: str
    agent: str
    opened: bool
    secret: bool


def state_owner(caller: Caller, session: str) -> str:
    """To whom the state of a call belongs: to the session of a trusted host, else to the caller's agent.

    Otherwise a caller would wash its state with a new session id, or with another token of its agent.
    """
    return f"session {session}" if session and caller.has_scope(Scope.SESSION) else ANY_SESSION


def note_shown(keep: Keep, caller: Caller, tool_name: str) -> None:
    """A result of another session is shown to a caller that can make calls: its own state falls with it.

    Otherwise a second token of the agent could carry over what a call of another session returned.
    """
    found, flow = keep.try_get(tool_name), keep.authorizer.flow
    if flow is None or not caller.has_scope(Scope.CALL):
        return
    session = flow.session_of(caller.agent, "", caller=ANY_SESSION)
    if found is None:
        flow.lose(session)
    else:
        flow.open(session, found)


async def put_session(keep: Keep, caller: Caller, body: SessionBody) -> SessionView:
    """Begin a session of the caller's agent, or add to it."""

    def put() -> SessionView:
        owner = state_owner(caller, body.session)
        session = keep.session(body.session, agent=caller.agent, said=body.said, caller=owner, anew=body.anew)
        session.pasted(body.pasted)
        return SessionView(
            session=session.id, agent=session.agent, opened=session.is_opened, secret=session.is_secret
        )

    try:
        return await asyncio.to_thread(put)  # it writes the state
    except RuntimeError as error:
        raise RequestRefused(Code.FEATURE_CLOSED, str(error), hint="set flow in the configuration") from None


async def _put(service: Service, request: Request) -> Response:
    body = await request.read(SessionBody)
    return json_response(await put_session(service.keep, request.caller, body))


ROUTES: Final = (
    Route(
        method="POST",
        path="/v1/sessions",
        name="putSession",
        about="Begin a session of the token's agent, or add what the user said or pasted.",
        handler=_put,
        scopes=(Scope.SESSION,),
        tag="sessions",
        body=SessionBody,
        gives={200: ResponseSpec(about="The state of the session.", kind=SessionView)},
        problems=(422,),
    ),
)
