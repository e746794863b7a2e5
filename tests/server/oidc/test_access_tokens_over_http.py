"""Callers with tokens of an issuer, over HTTP and MCP, on a served keep (IDN-1)."""

import time
from typing import Any

import pytest

from tests.mcp_server.talk import modern_request
from tests.server.oidc.issuing import AUDIENCE, GRANTS, RSA, claims, documents, key_set, signed
from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep
from toolkeep.config.identity_settings import ClaimGrant, IdentitySettings, Issuer


def settings(url: str, **more: Any) -> IdentitySettings:
    facts: dict[str, Any] = {
        "issuer": url,
        "audience": AUDIENCE,
        "algorithm": "RS256",
        "keys": f"{url}/jwks",
        "host": url.removeprefix("http://"),
        "grants": (*GRANTS, ClaimGrant(claims={"sub": "ghost"}, agent="ghost", scopes=("call",))),
    }
    return IdentitySettings(issuers=(Issuer(**facts | more),))


def token(url: str, **more: Any) -> dict[str, str]:
    now = time.time()
    return {"authorization": f"Bearer {signed(body=claims(iss=url, iat=now, exp=now + 600, **more))}"}


@pytest.mark.spec("IDN-1")
def test_a_program_calls_with_a_token_of_its_issuer(keep: Keep) -> None:
    keep.declare_agent("nightly")
    with documents({"/jwks": key_set(RSA)}) as (url, asked):

        async def act(client: Client) -> Any:
            body = {"arguments": {"a": 1, "b": 2}}
            made = [
                await client.post("/v1/tools/add:call", body, headers=token(url, jti=str(number)))
                for number in range(3)
            ]
            audit = await client.get("/v1/tokens", headers=token(url))
            ghost = await client.post(
                "/v1/tools/add:call", body, headers=token(url, sub="ghost", client_id="x")
            )
            late = token(url, nbf=time.time() + 600)
            refused = await client.post("/v1/tools/add:call", body, headers=late)
            asked_for, headers = modern_request("tools/list", headers=token(url))
            listed = await client.post("/mcp", asked_for, headers=headers)
            return made, audit, ghost, refused, listed

        made, audit, ghost, refused, listed = talk(keep, act, identity=settings(url))
    assert [(one.status, one.data["agent"], one.data["value"]) for one in made] == [(200, "nightly", 3)] * 3
    assert (audit.status, audit.headers["www-authenticate"]) == (
        403,
        'Bearer error="insufficient_scope", scope="tokens"',
    )
    assert (ghost.status, ghost.code) == (403, "ACODE-TSR-026")  # an agent that nobody declared
    assert refused.status == 401
    assert "resource_metadata=" in refused.headers["www-authenticate"]
    assert listed.status == 200
    assert asked == ["/jwks"]


def test_without_issuers_no_token_of_theirs_counts(keep: Keep) -> None:
    keep.declare_agent("nightly")

    async def act(client: Client) -> Any:
        body = {"arguments": {"a": 1, "b": 2}}
        return await client.post("/v1/tools/add:call", body, headers=token("https://login.example.org"))

    assert talk(keep, act).status == 401
