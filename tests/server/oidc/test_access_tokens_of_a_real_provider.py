"""Programs with access tokens of a real provider, which knows them beforehand (IDN-1)."""

import asyncio
import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.mcp_server.sign_in_rounds import LATER_SECONDS, World, identity, open_world
from tests.server.oidc.real_provider import Person
from toolkeep.server.oidc.provider_check import check_provider

BACK = "http://127.0.0.1:3030/callback"
VERIFIER = "v" * 43
AGENT = {
    "client_id": "agent",
    "token_endpoint_auth_method": "none",
    "application_type": "native",
    "grant_types": ["authorization_code", "refresh_token"],
    "redirect_uris": [BACK],
}
NIGHTLY = {
    "client_id": "nightly",
    "client_secret": "s3cret",
    "token_endpoint_auth_method": "client_secret_post",
    "grant_types": ["client_credentials"],
    "response_types": [],
    "redirect_uris": [],
}
CALL = "/v1/tools/add:call"
SUM = {"arguments": {"a": 2, "b": 3}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with open_world(tmp_path_factory.mktemp("office"), AGENT, NIGHTLY) as made:
        yield made


def tokens(world: World, **fields: str) -> Any:
    """The answer of the provider's token endpoint."""
    resource = f"{world.server.url}/mcp"
    _, body = world.person.ask(f"{world.provider.url}/token", {"resource": resource, **fields})
    return json.loads(body)


@pytest.mark.spec("IDN-1")
def test_a_service_account_calls_with_its_client_credentials(world: World) -> None:
    secret = {"client_id": "nightly", "client_secret": "s3cret"}
    made = tokens(world, grant_type="client_credentials", scope="call", **secret)
    answer = world.ask(CALL, SUM, made["access_token"])
    assert (answer["agent"], answer["value"]) == ("helper", 5)
    who = world.calls()[-1]
    assert who.pop("token_id")
    assert who == {"client": "nightly", "issuer": world.provider.url, "subject": "nightly"}


@pytest.mark.spec("IDN-1")
def test_what_the_provider_revokes_counts_until_its_token_expires(world: World) -> None:
    """Nobody asks the provider about each request: a revocation here is what counts at once."""
    resource = f"{world.server.url}/mcp"
    challenge = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()
    asked = {"client_id": "agent", "redirect_uri": BACK, "response_type": "code", "resource": resource}
    asked |= {"scope": "call", "code_challenge": challenge, "code_challenge_method": "S256"}
    answer = Person("ada").open(f"{world.provider.url}/auth?{urlencode(asked)}")
    code = parse_qs(urlsplit(answer).query)["code"][0]
    client = {"client_id": "agent"}
    sent = {"code": code, "redirect_uri": BACK, "code_verifier": VERIFIER}
    made = tokens(world, grant_type="authorization_code", **sent, **client)
    refresh = made["refresh_token"]
    world.person.ask(f"{world.provider.url}/token/revocation", {"token": refresh, **client})
    with pytest.raises(HTTPError, match="400"):
        tokens(world, grant_type="refresh_token", refresh_token=refresh, **client)
    assert world.ask(CALL, SUM, made["access_token"])["value"] == 5
    world.later(LATER_SECONDS)
    with pytest.raises(HTTPError, match="401"):
        world.ask(CALL, SUM, made["access_token"])


def test_the_doctor_finds_nothing_wrong_with_it(world: World) -> None:
    (issuer,) = identity(world.provider.url, world.server.url).issuers
    found = asyncio.run(check_provider(issuer, {"helper", "staff"}, has_others=False))
    assert {one.state for one in found} == {"good"}
    assert len(found) > 10
