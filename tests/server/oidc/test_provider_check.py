"""What `toolkeep doctor --identity` finds wrong with a provider, and with what is said of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.server.oidc.issuing import EC, GRANTS, RSA, SMALL, documents, key_set
from tests.server.oidc.test_people import ROLES, Provider
from toolkeep.config.identity_settings import Issuer, PageSignIn
from toolkeep.server.oidc.provider_check import Finding, check_provider

pytestmark = pytest.mark.spec("IDN-1", "IDN-2")

AGENTS = ("nightly", "ada", "staff")
AUDIENCE = "https://keep.example.org/mcp"
METADATA = "/.well-known/openid-configuration"


def whole(provider: Provider) -> None:
    """What a provider says that lacks nothing."""
    provider.metadata |= {
        "response_types_supported": ["code"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "none"],
        "scopes_supported": ["openid"],
        "claims_supported": ["sub", "groups"],
        "backchannel_logout_supported": True,
        "backchannel_logout_session_supported": True,
    }


def check(
    lie: dict[str, Any] | None = None,
    *,
    pages: dict[str, Any] | None = None,
    has_others: bool = False,
    away_s: float = 0.0,
    **facts: Any,
) -> list[Finding]:
    """What is found, if the provider says something else."""
    import time

    served: dict[str, Any] = {}
    with documents(served) as (url, asked):
        provider = Provider(url, served, asked)
        whole(provider)
        provider.metadata |= lie or {}
        served |= pages or {}
        issuer = provider.settings(**{"audience": AUDIENCE, "grants": GRANTS, **facts})
        found = check_provider(issuer, AGENTS, has_others=has_others, clock=lambda: time.time() + away_s)
        return asyncio.run(found)


def not_good(found: list[Finding]) -> list[tuple[str, str]]:
    assert all(one.reason and one.remedy for one in found if one.state != "good")
    return [(one.name, one.state) for one in found if one.state != "good"]


def test_a_provider_that_lacks_nothing_is_good() -> None:
    assert [one.name for one in check()] == [
        "agents", "audience", "client secret", "metadata", "endpoints", "keys", "clock", "pkce", "code flow",
        "algorithm", "client authentication", "response issuer", "back-channel logout",
    ]  # fmt: skip
    assert not_good(check()) == []


LIES: dict[str, tuple[dict[str, Any], list[tuple[str, str]]]] = {
    "another issuer": ({"issuer": "https://evil.example"}, [("metadata", "wrong")]),
    "no keys": ({"jwks_uri": None}, [("endpoints", "wrong"), ("keys", "wrong")]),
    "keys over http": ({"jwks_uri": "http://evil.example/"}, [("endpoints", "wrong"), ("keys", "wrong")]),
    "no token endpoint": ({"token_endpoint": None}, [("endpoints", "wrong")]),
    "a sign-in over http": ({"authorization_endpoint": "http://login.example/"}, [("endpoints", "wrong")]),
    "no PKCE": ({"code_challenge_methods_supported": None}, [("pkce", "wrong")]),
    "PKCE in the clear": ({"code_challenge_methods_supported": ["plain"]}, [("pkce", "wrong")]),
    "no code flow": ({"response_types_supported": ["id_token"]}, [("code flow", "wrong")]),
    "another algorithm": (
        {"id_token_signing_alg_values_supported": ["ES256"]},
        [("algorithm", "wrong")],
    ),
    "no word of algorithms": ({"id_token_signing_alg_values_supported": None}, [("algorithm", "unsure")]),
    "no public clients": (
        {"token_endpoint_auth_methods_supported": ["client_secret_basic"]},
        [("client authentication", "wrong")],
    ),
    "no issuer in answers": (
        {"authorization_response_iss_parameter_supported": None},
        [("response issuer", "unsure")],
    ),
    "no logout": ({"backchannel_logout_supported": False}, [("back-channel logout", "unsure")]),
    "other claims": ({"claims_supported": ["sub"]}, [("claims", "unsure")]),
    "other scopes": ({"scopes_supported": ["profile"]}, [("scope", "unsure")]),
}


@pytest.mark.parametrize("lie", LIES)
def test_metadata_that_lacks_something_is_told(lie: str) -> None:
    said, found = LIES[lie]
    assert not_good(check(said)) == found


def test_with_two_providers_answers_must_name_theirs() -> None:
    lie = {"authorization_response_iss_parameter_supported": None}
    assert not_good(check(lie, has_others=True)) == [("response issuer", "wrong")]


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ({"/jwks": None}, "it answered with status 404"),
        ({"/jwks": {"keys": []}}, "none of its 0 keys can sign with RS256"),
        ({"/jwks": key_set(SMALL)}, "none of its 1 keys can sign with RS256"),
        ({"/jwks": key_set(EC, alg="ES256")}, "none of its 1 keys can sign with RS256; they are for ES256"),
        ({"/jwks": b"<html>"}, "it did not answer with a JSON object"),
    ],
    ids=["away", "none", "small", "of another algorithm", "no JSON"],
)
def test_keys_that_no_token_can_be_checked_with_are_told(pages: dict[str, Any], reason: str) -> None:
    found = check(pages=pages)
    assert [(one.state, one.reason) for one in found if one.name == "keys"] == [("wrong", reason)]


def test_a_provider_that_cannot_be_reached_is_told_with_what_to_do() -> None:
    found = check(pages={METADATA: None})
    assert not_good(found) == [("metadata", "wrong")]
    # Without `host`, a provider on this machine is refused, and the hint says so.
    (private,) = [one for one in check(host="") if one.name == "metadata"]
    assert private.state == "wrong"
    assert "set `host`" in private.remedy
    issuer = Issuer(issuer="https://localhost:9", audience=AUDIENCE, algorithm="RS256", grants=GRANTS)
    found = asyncio.run(check_provider(issuer, AGENTS, has_others=False))
    assert "set `host` (it resolves to " in found[-1].remedy


@pytest.mark.parametrize(("away_s", "state"), [(0, "good"), (20, "unsure"), (-45, "wrong"), (3600, "wrong")])
def test_a_clock_that_differs_is_told(away_s: float, state: str) -> None:
    assert [one.state for one in check(away_s=away_s) if one.name == "clock"] == [state]


def test_what_the_configuration_says_is_compared(tmp_path: Path) -> None:
    def page(**more: Any) -> PageSignIn:
        return PageSignIn(client_id="page", grants=ROLES, **more)

    secret = tmp_path / "secret"
    gone = not_good(check(page=page(client_secret_file=str(secret))))
    secret.write_text("\n")
    secret.chmod(0o600)
    empty = not_good(check(page=page(client_secret_file=str(secret))))
    secret.write_text("s3cret")
    good = not_good(check(page=page(client_secret_file=str(secret))))
    secret.chmod(0o644)
    seen = not_good(check(page=page(client_secret_file=str(secret))))
    assert (gone, empty, good, seen) == (
        *([("client secret", "wrong")],) * 2,
        [],
        [("client secret", "wrong")],
    )
    undeclared = [one for one in check(page=page(), grants=(*GRANTS,)) if one.name == "agents"]
    assert undeclared == [Finding("agents")]


@pytest.mark.parametrize(
    ("audience", "state"),
    [
        (AUDIENCE, "good"),
        ("http://127.0.0.1:8765/mcp", "good"),
        ("http://keep.example.org/mcp", "unsure"),
        ("https://keep.example.org/", "unsure"),
        ("toolkeep", "unsure"),
    ],
)
def test_an_audience_that_no_client_can_ask_for_is_told(audience: str, state: str) -> None:
    assert [one.state for one in check(audience=audience) if one.name == "audience"] == [state]


def test_an_agent_that_nobody_declared_is_told() -> None:
    issuer = Issuer(issuer="https://a.invalid", audience=AUDIENCE, algorithm="RS256", grants=GRANTS)
    found = asyncio.run(check_provider(issuer, ("ada",), has_others=False))
    assert found[0].reason == "no such agent is declared: nightly. Its calls are refused"


def test_scopes_that_no_token_would_name_are_told() -> None:
    found = not_good(check({"scopes_supported": ["openid"]}, limits_scopes=True))
    assert found == [("scopes", "unsure")]
    assert not_good(check({"scopes_supported": ["openid", "call"]}, limits_scopes=True)) == []


def test_keys_at_an_address_of_their_own_are_asked_for_too() -> None:
    served: dict[str, Any] = {"/own": key_set(RSA)}
    with documents(served) as (url, _):
        facts: dict[str, Any] = {"issuer": url, "audience": AUDIENCE, "algorithm": "RS256", "grants": GRANTS}
        issuer = Issuer(**facts, host=url.removeprefix("http://"), keys=f"{url}/own")
        found = asyncio.run(check_provider(issuer, AGENTS, has_others=False))
    assert [(one.name, one.state) for one in found[-2:]] == [("metadata", "wrong"), ("keys", "good")]
