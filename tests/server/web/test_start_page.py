"""The first steps on the page: a token that is shown once, in the configuration of a client."""

import html
import json
import re
from typing import Any

import pytest

from tests.server.web.test_app import Visitor, visit
from toolkeep import Keep


def entries(page: str) -> dict[str, Any]:
    """The configurations that a page shows."""
    found = re.findall(r'<pre class="code" id="entry-([a-z-]+)"[^>]*>(.*?)</pre>', page, re.DOTALL)
    return {client: html.unescape(text) for client, text in found}


@pytest.mark.spec("WEB-2")
def test_a_configuration_holds_a_token_of_its_agent_that_is_shown_once(keep: Keep) -> None:
    async def act(visitor: Visitor) -> Any:
        before = (await visitor.get("/ui/")).body.decode()
        made = await visitor.post("/ui/start:connect", {"client": "cursor", "agent": "ada"})
        after = (await visitor.get("/ui/start")).body.decode()
        (token,) = [one for one in visitor.operator.tokens.list() if one.name == "cursor"]
        return before, made.body.decode(), after, token

    before, made, after, token = visit(keep, act)
    assert json.loads(entries(before)["cursor"])["mcpServers"]["toolkeep"]["headers"] == {
        "Authorization": "Bearer TOKEN"
    }
    assert (token.agent, [scope.value for scope in token.scopes]) == ("ada", ["mcp"])
    assert all(
        f"tk_{token.id}_" in text for client, text in entries(made).items() if client != "claude-desktop"
    )
    assert "tk_" not in before + after


@pytest.mark.spec("WEB-2")
@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({"client": "cursor", "agent": "nobody"}, 404),
        ({"client": "emacs", "agent": "ada"}, 404),
        ({"client": "claude-desktop", "agent": "ada"}, 200),  # starts a program, and needs none
    ],
)
def test_no_token_is_made_that_no_client_needs(keep: Keep, said: dict[str, str], status: int) -> None:
    async def act(visitor: Visitor) -> tuple[int, int]:
        before = len(visitor.operator.tokens.list())
        answer = await visitor.post("/ui/start:connect", said)
        return answer.status, len(visitor.operator.tokens.list()) - before

    assert visit(keep, act) == (status, 0)


@pytest.mark.spec("WEB-2")
def test_the_overview_shows_no_configuration_once_a_client_has_connected(keep: Keep) -> None:
    async def act(visitor: Visitor) -> list[str]:
        before = (await visitor.get("/ui/")).body.decode()
        await visitor.operator.as_agent("ada", "mcp").get("/v1/token")
        return [before, *[(await visitor.get(path)).body.decode() for path in ("/ui/", "/ui/start")]]

    before, after, start = visit(keep, act)
    assert [bool(entries(page)) for page in (before, after, start)] == [True, False, True]
    assert "Connect another client" in after


@pytest.mark.spec("WEB-2")
def test_who_may_make_no_tokens_sees_the_steps_alone(keep: Keep) -> None:
    async def act(visitor: Visitor) -> tuple[str, int]:
        token = visitor.operator.tokens.make("reader", ["audit:read"], agent="ada").text
        await visitor.sign_in(token=token)
        await visitor.open_tab()
        shown = (await visitor.get("/ui/start")).body.decode()
        return shown, (await visitor.post("/ui/start:connect", {"client": "cursor", "agent": "ada"})).status

    shown, status = visit(keep, act, signed_in=False)
    assert ("Connect a client" in shown, entries(shown), status) == (True, {}, 403)
