"""Routes of tokens."""

from typing import Final

from toolkeep.server import tokens
from toolkeep.server.answers import Answer, answer
from toolkeep.server.request import Request
from toolkeep.server.routes.common import ID
from toolkeep.server.routing import Given, Route
from toolkeep.server.service import Service
from toolkeep.tokens import Scope


async def _mine(service: Service, request: Request) -> Answer:
    return answer(tokens.view_of(request.caller))


async def _list(service: Service, request: Request) -> Answer:
    return answer(await tokens.list_tokens(service.tokens, request.caller))


async def _make(service: Service, request: Request) -> Answer:
    body = await request.read(tokens.TokenBody)
    return answer(await tokens.make_token(service.tokens, request.caller, body), 201)


async def _rotate(service: Service, request: Request) -> Answer:
    new = await tokens.rotate_token(service.tokens, request.caller, request.names["id"])
    service.recognizer.forget()
    return answer(new, 201)


async def _revoke(service: Service, request: Request) -> Answer:
    view = await tokens.revoke_token(service.tokens, request.caller, request.names["id"])
    service.recognizer.forget()
    return answer(view)


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/token",
        name="showToken",
        about="What the server knows of the token that the request came with.",
        handler=_mine,
        scopes=tuple(Scope),
        tag="tokens",
        gives={200: Given(about="The token, without its secret.", kind=tokens.TokenView)},
    ),
    Route(
        method="GET",
        path="/v1/tokens",
        name="listTokens",
        about="The tokens of the token's agent; with admin, all.",
        handler=_list,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        gives={200: Given(about="The tokens, without their secrets.", kind=list[tokens.TokenView])},
    ),
    Route(
        method="POST",
        path="/v1/tokens",
        name="makeToken",
        about="A new token with no more than its maker holds; it is shown this once.",
        handler=_make,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        body=tokens.TokenBody,
        gives={201: Given(about="The token.", kind=tokens.NewTokenView)},
        problems=(409, 422),
    ),
    Route(
        method="POST",
        path="/v1/tokens/{id}:rotate",
        name="rotateToken",
        about="Another token in the place of one, which is out at once.",
        handler=_rotate,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        parameters=(ID,),
        gives={201: Given(about="The new token.", kind=tokens.NewTokenView)},
        problems=(404, 409, 422),
    ),
    Route(
        method="POST",
        path="/v1/tokens/{id}:revoke",
        name="revokeToken",
        about="Let a token no longer count.",
        handler=_revoke,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        parameters=(ID,),
        gives={200: Given(about="It is out.", kind=tokens.TokenView)},
        problems=(404, 409, 422),
    ),
)
