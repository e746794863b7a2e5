"""Callers with tokens of an issuer, over HTTP and MCP, on a served keep (IDN-1)."""

import time
from typing import Any

import pytest

from tests.mcp_server.talk import modern_request
from tests.server.conftest import begun
from tests.server.oidc.issuing import AUDIENCE, GRANTS, RSA, claims, documents, key_set, signed
from tests.server.talk import Client, until
from tests.server.test_asgi_app import talk
from toolkeep import Keep
from toolkeep.config.identity_settings import ClaimGrant, IdentitySettings, Issuer
from toolkeep.events import IdentityRefused


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
    assert (audit.status, audit.headers["www-authenticate"].partition(", resource_metadata=")[0]) == (
        403,
        'Bearer error="insufficient_scope", scope="call mcp tokens"',
    )
    assert (ghost.status, ghost.code) == (403, "ACODE-TSR-026")  # an agent that nobody declared
    assert refused.status == 401
    assert "resource_metadata=" in refused.headers["www-authenticate"]
    assert listed.status == 200
    assert asked == ["/jwks"]


@pytest.mark.spec("IDN-1")
def test_what_is_revoked_here_is_refused_at_once_and_what_is_restored_counts_again(keep: Keep) -> None:
    keep.declare_agent("nightly")
    body = {"arguments": {"a": 1}}
    with documents({"/jwks": key_set(RSA)}) as (url, _):

        async def act(client: Client) -> Any:
            first, second = token(url, jti="1"), token(url, jti="2")

            async def both() -> list[int]:
                return [
                    (await client.post("/v1/tools/add:call", body, headers=one)).status
                    for one in (first, second)
                ]

            found: list[Any] = [await both()]
            for revoked in ({"token_id": "1"}, {"subject": "nightly"}):
                made = await client.post("/v1/revocations", {"issuer": url, **revoked})
                other = await client.post("/v1/revocations", {"issuer": f"{url}/other", **revoked})
                found += [made.status, await both()]
                listed = (await client.get("/v1/revocations")).data
                assert {one["id"] for one in listed} == {made.data["id"], other.data["id"]}
                for one in listed:
                    await client.post(f"/v1/revocations/{one['id']}:restore")
            client.tokens.revoke_identity(url, subject="nightly")  # in another process
            client.app.service.authenticator.clock = lambda: time.monotonic() + 1
            found.append(await both())
            refused = [
                (await client.post("/v1/revocations", {"issuer": url, **more})).status
                for more in ({}, {"subject": "x", "token_id": "y"})
            ]
            weak = client.as_agent("ada", "tokens")
            refused.append((await weak.post("/v1/revocations", {"issuer": url, "subject": "x"})).status)
            return found, refused

        found, refused = talk(keep, act, identity=settings(url))
    assert found == [[200, 200], 201, [401, 200], 201, [401, 401], [401, 401]]
    assert refused == [422, 422, 403]


@pytest.mark.spec("IDN-1")
def test_refused_tokens_are_recorded_once_for_each_reason_and_then_counted(keep: Keep) -> None:
    keep.declare_agent("nightly")
    body, told = {"arguments": {"a": 1}}, list[IdentityRefused]()
    keep.subscribe(lambda event: told.append(event) if isinstance(event, IdentityRefused) else None)
    with documents({"/jwks": key_set(RSA)}) as (url, _):

        async def act(client: Client) -> Any:
            async def refused(**lie: Any) -> int:
                headers = lie.pop("headers", None) or token(url, **lie)
                return (await client.post("/v1/tools/add:call", body, headers=headers)).status

            found = [await refused(aud="other", jti=str(number)) for number in range(5)]
            found.append(await refused(headers=token("https://evil.example")))
            await client.post("/v1/revocations", {"issuer": url, "subject": "nightly"})
            return [*found, await refused()]

        assert talk(keep, act, identity=settings(url)) == [401] * 7
    counted = [
        (url, "it is for another resource", 1),
        ("", "no issuer of the configuration made it", 1),
        (url, "it was revoked here, or its subject logged out", 1),
        (url, "it is for another resource", 4),
    ]
    assert [(one.issuer, one.reason, one.count) for one in told] == counted
    records = [entry.record for entry in keep.record.log.read_back()]
    recorded = [one for one in records[::-1] if one["type"] == "IdentityRefused"]
    assert [(one["issuer"], one["reason"], one["count"]) for one in recorded] == counted
    assert {one["what"] for one in recorded} == {"access token"}


def test_a_stream_ends_when_its_subject_is_revoked(keep: Keep) -> None:
    keep.declare_agent("nightly")
    with documents({"/jwks": key_set(RSA)}) as (url, _):

        async def act(client: Client) -> Any:
            body = {"arguments": {"label": "x"}}
            call = client.begin("POST", "/v1/tools/wait_for_ever:call", body, headers=token(url))
            await until(lambda: begun)
            await client.post("/v1/revocations", {"issuer": url, "subject": "nightly"})
            return await call.answered()

        assert talk(keep, act, identity=settings(url)).status == 401


@pytest.mark.spec("IDN-1")
def test_the_log_names_the_subject_of_a_call_and_of_its_approver_who_are_never_the_same(keep: Keep) -> None:
    keep.declare_agent("nightly")
    people = (
        ClaimGrant(claims={"sub": "nightly"}, agent="nightly", scopes=("call",)),
        ClaimGrant(claims={"groups": "keepers"}, agent="keepers", scopes=("approver",)),
    )
    with documents({"/jwks": key_set(RSA)}) as (url, _):

        async def act(client: Client) -> Any:
            body = {"arguments": {"text": "hi"}}
            answers, keeper = [], {"client_id": "page", "groups": ["keepers"]}
            for verdict, approvers in (("approve", ("nightly", "ada")), ("deny", ("bob",))):
                made = await client.post("/v1/tools/send_note:call", body, headers=token(url, client_id=None))
                for sub in approvers:
                    # The same subject with a token that grants another agent: an agent cannot tell them apart.
                    who = token(url, sub=sub, aud=[AUDIENCE, "x"], **keeper)
                    place = f"/v1/approvals/{made.data['approval']}:decide"
                    answers.append((await client.post(place, {"verdict": verdict}, headers=who)).status)
                await until(lambda: not client.app.service.calls.in_flight)
            return answers, [entry.record for entry in keep.record.log.read_back()]

        identity = settings(url, grants=people[::-1])
        answers, records = talk(keep, act, identity=identity)
    assert answers == [409, 200, 200]
    invoked = [one["identity"] for one in records if one["type"] == "ToolInvoked"]
    assert invoked == [{"issuer": url, "subject": "nightly", "token_id": "1"}] * 2
    approvers = [(one["identity"]["subject"], one["way"]) for one in records if one["type"] == "Approval"]
    assert sorted(approvers) == [("ada", "http"), ("bob", "refused")]


def test_without_issuers_no_token_of_theirs_counts(keep: Keep) -> None:
    keep.declare_agent("nightly")

    async def act(client: Client) -> Any:
        body = {"arguments": {"a": 1, "b": 2}}
        return await client.post("/v1/tools/add:call", body, headers=token("https://login.example.org"))

    assert talk(keep, act).status == 401
