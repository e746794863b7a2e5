"""Tokens over HTTP. No caller creates a token with more rights than its own; a token is shown once."""

import asyncio
from functools import partial
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from toolkeep.errors import Code
from toolkeep.host.clock import iso
from toolkeep.limits import TOKEN_DAYS
from toolkeep.server.api.common_parameters import ID
from toolkeep.server.http.bearer_auth import Caller
from toolkeep.server.http.problem_details import RequestRefused, not_found
from toolkeep.server.http.request import Request
from toolkeep.server.http.responses import Response, json_response
from toolkeep.server.http.route_table import ResponseSpec, Route
from toolkeep.server.service import Service
from toolkeep.stores.api_tokens import MadeToken, Scope, Token, Tokens, read_scopes
from toolkeep.stores.identity_revocations import Revocation


class TokenView(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token; never its secret."""

    id: str
    name: str
    agent: str
    scopes: list[str]
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None


class NewTokenView(msgspec.Struct, frozen=True, kw_only=True):
    """A token that was just made, shown this once."""

    token: str
    about: TokenView


class TokenBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make."""

    name: Annotated[str, Meta(min_length=1, max_length=64)]
    scopes: Annotated[list[str], Meta(min_length=1, max_length=32)]
    agent: Annotated[str, Meta(max_length=64)] = ""
    days: Annotated[float, Meta(gt=0, le=3650)] = TOKEN_DAYS


def view_of(token: Token) -> TokenView:
    """A token as JSON data; its secret is not known here."""
    return TokenView(
        id=token.id,
        name=token.name,
        agent=token.agent,
        scopes=[scope.value for scope in token.scopes],
        created_at=_iso(token.created_at) or "",
        expires_at=_iso(token.expires_at),
        last_used_at=_iso(token.last_used_at),
        revoked_at=_iso(token.revoked_at),
    )


async def list_tokens(tokens: Tokens, caller: Caller) -> list[TokenView]:
    """List the tokens of the caller's agent; all with `admin`."""
    held = await asyncio.to_thread(tokens.list)
    return [view_of(token) for token in held if _may_see(caller, token)]


async def make_token(tokens: Tokens, caller: Caller, body: TokenBody) -> NewTokenView:
    """Create a token with no more scopes, and for no other agent, than the caller has (no escalation)."""
    agent = body.agent or caller.agent
    is_admin = caller.has_scope(Scope.ADMIN)
    scopes = read_scopes(body.scopes)
    beyond = [scope for scope in scopes if not is_admin and scope not in caller.scopes]
    if beyond or (agent != caller.agent and not is_admin):
        raise RequestRefused(
            Code.SCOPE_MISSING,
            "a token cannot have a scope or agent that its creator lacks",
            hint="use a token with the scope admin",
        )
    made = await asyncio.to_thread(
        partial(tokens.make, body.name, scopes, agent=agent, days=body.days, ends_by=_latest_end(caller))
    )
    return _shown_once(made)


async def rotate_token(tokens: Tokens, caller: Caller, token_id: str) -> NewTokenView:
    """Replace a token; the old one is invalid at once."""
    held = await _changeable(tokens, caller, token_id)
    return _shown_once(await asyncio.to_thread(partial(tokens.rotate, held.id, ends_by=_latest_end(caller))))


async def revoke_token(tokens: Tokens, caller: Caller, token_id: str) -> TokenView:
    """Revoke a token."""
    held = await _changeable(tokens, caller, token_id)
    return view_of(await asyncio.to_thread(tokens.revoke, held.id))


def _latest_end(caller: Caller) -> float | None:
    """The latest expiry of a token that the caller creates.

    A longer one would let a thief of a short-lived token stay after it expires.
    """
    return None if caller.has_scope(Scope.ADMIN) else caller.expires_at


async def _changeable(tokens: Tokens, caller: Caller, token_id: str) -> Token:
    """A token that the caller may revoke or replace: one with no more scopes than its own."""
    held = await _find(tokens, caller, token_id)
    if not caller.has_scope(Scope.ADMIN) and not set(held.scopes) <= set(caller.scopes):
        raise RequestRefused(Code.SCOPE_MISSING, "the token has scopes that you do not have")
    return held


async def _find(tokens: Tokens, caller: Caller, token_id: str) -> Token:
    held = await asyncio.to_thread(tokens.list)
    found = next((token for token in held if token.id == token_id and _may_see(caller, token)), None)
    if found is None:
        raise not_found("token")
    return found


def _may_see(caller: Caller, token: Token) -> bool:
    return caller.has_scope(Scope.ADMIN) or token.agent == caller.agent


def _shown_once(made: MadeToken) -> NewTokenView:
    return NewTokenView(token=made.text, about=view_of(made.token))


class RevocationView(msgspec.Struct, frozen=True, kw_only=True):
    """What of an identity provider does not count."""

    id: str
    issuer: str
    subject: str
    """Everything of this subject; empty for one token or session."""
    token_id: str
    """The token with this `jti`; else empty."""
    session: str
    """The session at the provider that ended; empty for all, or if it is no logout."""
    issued_by: str | None
    """For a logout: only what was issued up to then."""
    revoked_at: str


class RevokeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A subject or a token of an identity provider."""

    issuer: Annotated[str, Meta(min_length=1, max_length=1024)]
    subject: Annotated[str, Meta(max_length=256)] = ""
    token_id: Annotated[str, Meta(max_length=256)] = ""


def revocation_view(one: Revocation) -> RevocationView:
    """A revocation as JSON data."""
    return RevocationView(
        id=one.id,
        issuer=one.issuer,
        subject=one.subject,
        token_id=one.token_id,
        session=one.session,
        issued_by=_iso(one.issued_by),
        revoked_at=iso(one.made_at),
    )


async def list_revocations(tokens: Tokens) -> list[RevocationView]:
    """List what of identity providers does not count, oldest first."""
    return [revocation_view(one) for one in await asyncio.to_thread(tokens.revocations)]


async def revoke_identity(service: Service, body: RevokeBody) -> RevocationView:
    """Refuse a subject or a token of an identity provider from now on, on every server."""
    revoke = partial(
        service.tokens.revoke_identity, body.issuer, subject=body.subject, token_id=body.token_id
    )
    made = await asyncio.to_thread(revoke)
    service.authenticator.forget()
    return revocation_view(made)


async def restore_identity(service: Service, revocation_id: str) -> RevocationView:
    """Let it count again."""
    restored = await asyncio.to_thread(service.tokens.restore, revocation_id)
    service.authenticator.forget()
    return revocation_view(restored)


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)


async def _mine(service: Service, request: Request) -> Response:
    return json_response(view_of(request.caller))


async def _list(service: Service, request: Request) -> Response:
    return json_response(await list_tokens(service.tokens, request.caller))


async def _make(service: Service, request: Request) -> Response:
    body = await request.read(TokenBody)
    return json_response(await make_token(service.tokens, request.caller, body), 201)


async def _rotate(service: Service, request: Request) -> Response:
    new = await rotate_token(service.tokens, request.caller, request.names["id"])
    service.authenticator.forget()
    return json_response(new, 201)


async def _revoke(service: Service, request: Request) -> Response:
    view = await revoke_token(service.tokens, request.caller, request.names["id"])
    service.authenticator.forget()
    return json_response(view)


async def _list_revocations(service: Service, request: Request) -> Response:
    return json_response(await list_revocations(service.tokens))


async def _revoke_identity(service: Service, request: Request) -> Response:
    return json_response(await revoke_identity(service, await request.read(RevokeBody)), 201)


async def _restore_identity(service: Service, request: Request) -> Response:
    return json_response(await restore_identity(service, request.names["id"]))


ROUTES: Final = (
    Route(
        method="GET",
        path="/v1/token",
        name="showToken",
        about="The token of this request.",
        handler=_mine,
        scopes=tuple(Scope),
        tag="tokens",
        gives={200: ResponseSpec(about="The token, without its secret.", kind=TokenView)},
    ),
    Route(
        method="GET",
        path="/v1/tokens",
        name="listTokens",
        about="The tokens of the token's agent; with admin, all.",
        handler=_list,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        gives={200: ResponseSpec(about="The tokens, without their secrets.", kind=list[TokenView])},
    ),
    Route(
        method="POST",
        path="/v1/tokens",
        name="makeToken",
        about="Create a token with at most its creator's scopes; it is shown once.",
        handler=_make,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        body=TokenBody,
        gives={201: ResponseSpec(about="The token.", kind=NewTokenView)},
        problems=(409, 422),
    ),
    Route(
        method="POST",
        path="/v1/tokens/{id}:rotate",
        name="rotateToken",
        about="Rotate a token; the old one is revoked at once.",
        handler=_rotate,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        parameters=(ID,),
        gives={201: ResponseSpec(about="The new token.", kind=NewTokenView)},
        problems=(404, 409, 422),
    ),
    Route(
        method="POST",
        path="/v1/tokens/{id}:revoke",
        name="revokeToken",
        about="Revoke a token.",
        handler=_revoke,
        scopes=(Scope.TOKENS,),
        tag="tokens",
        parameters=(ID,),
        gives={200: ResponseSpec(about="It is out.", kind=TokenView)},
        problems=(404, 409, 422),
    ),
    Route(
        method="GET",
        path="/v1/revocations",
        name="listRevocations",
        about="Subjects, tokens and sessions of identity providers that do not count.",
        handler=_list_revocations,
        scopes=(Scope.ADMIN,),
        tag="tokens",
        gives={200: ResponseSpec(about="The revocations, oldest first.", kind=list[RevocationView])},
    ),
    Route(
        method="POST",
        path="/v1/revocations",
        name="revokeIdentity",
        about="Refuse a subject of an identity provider, or one of its tokens, from now on.",
        handler=_revoke_identity,
        scopes=(Scope.ADMIN,),
        tag="tokens",
        body=RevokeBody,
        gives={201: ResponseSpec(about="It is revoked.", kind=RevocationView)},
        problems=(409, 422),
    ),
    Route(
        method="POST",
        path="/v1/revocations/{id}:restore",
        name="restoreIdentity",
        about="Let a revoked subject or token count again.",
        handler=_restore_identity,
        scopes=(Scope.ADMIN,),
        tag="tokens",
        parameters=(ID,),
        gives={200: ResponseSpec(about="It counts again.", kind=RevocationView)},
        problems=(404, 409, 422),
    ),
)
