"""Tokens over HTTP: nobody gives away more than they hold."""

from typing import Any

import pytest

from tests.server.talk import Client
from tests.server.test_asgi_app import talk
from toolkeep import Keep
from toolkeep.host.clock import iso


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"name": "mine", "scopes": ["call"]}, 201),
        ({"name": "mine", "scopes": ["call", "tokens"], "agent": "ada"}, 201),
        ({"name": "mine", "scopes": ["approve"]}, 403),
        ({"name": "mine", "scopes": ["viewer"]}, 403),
        ({"name": "mine", "scopes": ["admin"]}, 403),
        ({"name": "mine", "scopes": ["call"], "agent": "bob"}, 403),
        ({"name": "mine", "scopes": ["call"], "days": 99999}, 400),
        ({"name": "mine", "scopes": []}, 400),
    ],
)
def test_a_token_gives_no_more_than_its_maker_holds(keep: Keep, body: Any, status: int) -> None:
    response = talk(keep, lambda client: client.as_agent("ada", "tokens", "call").post("/v1/tokens", body))
    assert response.status == status, response.body
    if status == 201:
        assert response.data["about"]["agent"] == "ada"


def test_a_token_is_made_used_rotated_and_revoked(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        made = (
            await client.post("/v1/tokens", {"name": "ci", "scopes": ["tools:read"], "agent": "ada"})
        ).data
        ci = Client(client.app, client.tokens, made["token"])
        mine = (await ci.get("/v1/token")).data
        new = (await client.post(f"/v1/tokens/{made['about']['id']}:rotate")).data
        later = Client(client.app, client.tokens, new["token"])
        old = [(await ci.get("/v1/tools")).status, (await later.get("/v1/tools")).status]
        await client.post(f"/v1/tokens/{new['about']['id']}:revoke")
        return mine, old, (await later.get("/v1/tools")).status, await client.get("/v1/tokens")

    mine, old, revoked, listed = talk(keep, act)
    assert (mine["agent"], mine["scopes"]) == ("ada", ["tools:read"])
    assert (old, revoked) == ([401, 200], 401)
    assert "tk_" not in listed.body.decode()


def test_nobody_sees_or_ends_anothers_tokens(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        ada, bob = client.as_agent("ada", "tokens"), client.as_agent("bob", "tokens")
        mine = (await ada.get("/v1/token")).data["id"]
        seen = {one["agent"] for one in (await bob.get("/v1/tokens")).data}
        tried = [(await bob.post(f"/v1/tokens/{mine}:{verb}")).status for verb in ("revoke", "rotate")]
        weak = client.as_agent("ada", "tokens")
        strong = (await client.as_agent("ada", "admin").get("/v1/token")).data["id"]
        climbed = (await weak.post(f"/v1/tokens/{strong}:rotate")).status
        return seen, tried, climbed

    assert talk(keep, act) == ({"bob"}, [404, 404], 403)


def test_a_token_makes_none_that_outlives_it(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        own = client.tokens.make("short", ["tokens", "call"], agent="ada", days=1)
        short = Client(client.app, client.tokens, own.text)
        made = (await short.post("/v1/tokens", {"name": "long", "scopes": ["call"], "days": 3650})).data
        long = client.tokens.make("long", ["call"], agent="ada", days=100).token
        rotated = (await short.post(f"/v1/tokens/{long.id}:rotate")).data
        endless = client.tokens.make("endless", ["call"], agent="ada", days=None).token
        ended = (await short.post(f"/v1/tokens/{endless.id}:rotate")).data
        return own.token.expires_at, [one["about"]["expires_at"] for one in (made, rotated, ended)]

    end, ends = talk(keep, act)
    assert ends == [iso(end)] * 3


def test_a_token_does_not_end_or_replace_one_with_more_scopes(keep: Keep) -> None:
    async def act(client: Client) -> Any:
        weak = client.as_agent("ada", "tokens", "call")
        strong = client.tokens.make("strong", ["approve"], agent="ada").token
        tried = [(await weak.post(f"/v1/tokens/{strong.id}:{verb}")).status for verb in ("revoke", "rotate")]
        equal = client.tokens.make("equal", ["call"], agent="ada").token
        return tried, (await weak.post(f"/v1/tokens/{equal.id}:revoke")).status

    assert talk(keep, act) == ([403, 403], 200)
