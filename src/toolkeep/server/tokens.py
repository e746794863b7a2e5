"""Tokens over HTTP: nobody gives away more than they hold, and a token is shown once, to whoever made it."""

import asyncio
from functools import partial
from typing import Annotated

import msgspec
from msgspec import Meta

from toolkeep.clock import iso
from toolkeep.errors import Code
from toolkeep.limits import TOKEN_DAYS
from toolkeep.server.auth import Caller
from toolkeep.server.problems import RequestRefused, nothing_there
from toolkeep.tokens import MadeToken, Scope, Token, Tokens


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
    """A token as JSON data."""
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
    """The tokens of the caller's agent; with admin, all."""
    held = await asyncio.to_thread(tokens.list)
    return [view_of(token) for token in held if _may_see(caller, token)]


async def make_token(tokens: Tokens, caller: Caller, body: TokenBody) -> NewTokenView:
    """A new token, with no more than the caller holds."""
    agent = body.agent or caller.agent
    is_admin = caller.has_scope(Scope.ADMIN)
    beyond = [scope for scope in body.scopes if not is_admin and scope not in caller.scopes]
    if beyond or (agent != caller.agent and not is_admin):
        raise RequestRefused(
            Code.SCOPE_MISSING,
            "a token can be given no scope and no agent that its maker does not have",
            hint="with the scope admin it can",
        )
    made = await asyncio.to_thread(
        partial(tokens.make, body.name, body.scopes, agent=agent, days=body.days, ends_by=_latest_end(caller))
    )
    return _shown_once(made)


async def rotate_token(tokens: Tokens, caller: Caller, token_id: str) -> NewTokenView:
    """Another token in the place of one; the old one is out at once."""
    held = await _changeable(tokens, caller, token_id)
    return _shown_once(await asyncio.to_thread(partial(tokens.rotate, held.id, ends_by=_latest_end(caller))))


async def revoke_token(tokens: Tokens, caller: Caller, token_id: str) -> TokenView:
    """Let a token no longer count."""
    held = await _changeable(tokens, caller, token_id)
    return view_of(await asyncio.to_thread(tokens.revoke, held.id))


def _latest_end(caller: Caller) -> float | None:
    """Until when a token may count that the caller makes: with a longer one a stolen token would stay."""
    return None if caller.has_scope(Scope.ADMIN) else caller.expires_at


async def _changeable(tokens: Tokens, caller: Caller, token_id: str) -> Token:
    """A token that the caller may end or replace: one that holds no more than the caller does."""
    held = await _find(tokens, caller, token_id)
    if not caller.has_scope(Scope.ADMIN) and not set(held.scopes) <= set(caller.scopes):
        raise RequestRefused(Code.SCOPE_MISSING, "the token has scopes that you do not have")
    return held


async def _find(tokens: Tokens, caller: Caller, token_id: str) -> Token:
    held = await asyncio.to_thread(tokens.list)
    found = next((token for token in held if token.id == token_id and _may_see(caller, token)), None)
    if found is None:
        raise nothing_there("token")
    return found


def _may_see(caller: Caller, token: Token) -> bool:
    return caller.has_scope(Scope.ADMIN) or token.agent == caller.agent


def _shown_once(made: MadeToken) -> NewTokenView:
    return NewTokenView(token=made.text, about=view_of(made.token))


def _iso(seconds: float | None) -> str | None:
    return None if seconds is None else iso(seconds)
