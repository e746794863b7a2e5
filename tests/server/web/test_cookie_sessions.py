"""Sessions of the page: sealed in their cookies, the same on all servers, ended everywhere."""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.storage.cluster import Cluster
from toolkeep.config.settings import DatabaseSettings
from toolkeep.errors import StoreUnavailable
from toolkeep.limits import SESSION_HOURS
from toolkeep.server.http.bearer_auth import BearerAuth
from toolkeep.server.oidc.person import Attempt
from toolkeep.server.web.cookie_sessions import COOKIE, Sessions
from toolkeep.storage.postgres.shared_state import SharedState
from toolkeep.stores.api_tokens import MemoryTokens, Tokens

pytestmark = pytest.mark.spec("WEB-2")


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def sessions(**given: Any) -> tuple[Sessions, Tokens]:
    tokens = Tokens(MemoryTokens())
    return Sessions(BearerAuth(tokens), **given), tokens


def test_a_cookie_counts_on_every_server_with_the_key_until_it_ends() -> None:
    clock = Clock()
    one, tokens = sessions(key=b"k" * 32, clock=clock)
    other, _ = sessions(key=b"k" * 32, clock=clock)
    stranger, _ = sessions()

    async def visit() -> None:
        begun = one.begin_operator()
        found = await other.find(begun.cookie)
        assert found is not None
        assert (found.caller.agent, found.approver.agent) == ("operator", "operator:page")
        assert await stranger.find(begun.cookie) is None
        tab = one.open_tab(found, begun.key)
        assert tab is not None
        assert other.is_tab(found, tab)
        assert one.open_tab(found, begun.key[:-1]) is None
        second = await one.find(one.begin_operator().cookie)
        assert second is not None
        assert not one.is_tab(second, tab)  # of another session
        assert not stranger.is_tab(found, tab)
        assert not one.is_tab(found, tab[:-1] + ("A" if tab[-1] != "A" else "B"))
        for at in range(0, len(begun.cookie) - 1, 7):  # some bits of the last character say nothing
            changed = begun.cookie[:at] + ("A" if begun.cookie[at] != "A" else "B") + begun.cookie[at + 1 :]
            assert await one.find(changed) is None
        text = tokens.make("page", ["call"], agent="ada").text
        bearer = await one.begin_bearer(text)
        assert bearer is not None
        assert COOKIE.fullmatch(bearer.cookie)
        assert text[4:20] not in bearer.cookie
        clock.now += SESSION_HOURS * 3600 - 1
        assert await one.find(begun.cookie) is not None
        clock.now += 1
        assert await one.find(begun.cookie) is None

    asyncio.run(visit())


@contextlib.contextmanager
def server(url: str, folder: Path) -> Iterator[SharedState]:
    settings = DatabaseSettings(url=url, key="the same on both servers", is_single=True)
    with contextlib.closing(SharedState(settings, lambda: b"", folder)) as shared:
        yield shared


ATTEMPT = Attempt(
    issuer="https://login.example.org",
    state="s" * 43,
    nonce="n",
    verifier="v",
    redirect_uri="https://keep.example.org/ui/sign-in",
    key_hash=b"k",
    began_at=0.0,
    is_fresh=False,
)


@pytest.mark.spec("SCL-2")
def test_a_link_works_once_on_any_server_and_a_sign_out_counts_on_all(
    postgres: Cluster, tmp_path: Path
) -> None:
    url = postgres.clean()
    with server(url, tmp_path / "1") as first, server(url, tmp_path / "2") as second:
        code = first.sign_in_codes().make()
        assert [shared.sign_in_codes().use(code) for shared in (second, first)] == [True, False]
        one, other = (
            sessions(key=shared.page_key(), signed_out=shared.signed_out())[0] for shared in (first, second)
        )

        async def sign_out() -> None:
            cookie = one.begin_operator().cookie
            found = await one.find(cookie)
            assert found is not None
            assert await other.find(cookie) is not None
            await one.end(found)
            assert await one.find(cookie) is None
            assert await other.find(cookie) is None

        asyncio.run(sign_out())

        async def answer_twice() -> list[bool]:
            cookie = one.seal_attempt(ATTEMPT)
            attempts = [sessions.read_attempt(cookie) for sessions in (one, other)]
            assert attempts == [ATTEMPT, ATTEMPT]
            return [await one.use(ATTEMPT), await other.is_used(ATTEMPT), await other.use(ATTEMPT)]

        assert asyncio.run(answer_twice()) == [True, True, False]

        cookie = one.begin_operator().cookie
        postgres.stop()
        try:
            with pytest.raises(StoreUnavailable):  # who has signed out elsewhere is not known
                asyncio.run(one.find(cookie))
        finally:
            postgres.start()
