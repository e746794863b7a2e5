"""Keys of issuers: fetched once for all who wait, at most once a minute, and from nowhere else (IDN-1)."""

import asyncio
from typing import Any

import pytest

from tests.server.oidc.issuing import ISSUER, OTHER, RSA, documents, issuer, key_set
from toolkeep.server.oidc.issuer_documents import IssuerDocuments, SharedMetadata
from toolkeep.server.oidc.issuer_keys import IssuerKeys, KeysUnavailable

METADATA = "/.well-known/openid-configuration"


class Source:
    """Gives key sets, and counts how often."""

    def __init__(self) -> None:
        self.asked = 0
        self.now = 1000.0
        self.answer: Any = key_set(RSA)
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self) -> dict[str, Any]:
        self.asked += 1
        await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return dict(self.answer)

    def keys(self) -> IssuerKeys:
        return IssuerKeys(issuer(), self, lambda: self.now)


@pytest.mark.spec("IDN-1")
def test_all_who_wait_share_one_fetch_and_unknown_keys_cause_one_a_minute() -> None:
    async def whole() -> list[int]:
        source = Source()
        keys, counts = source.keys(), []
        source.gate.clear()
        waiting = [asyncio.ensure_future(keys.find("rsa")) for _ in range(100)]
        await asyncio.sleep(0)
        source.gate.set()
        assert None not in await asyncio.gather(*waiting)
        counts.append(source.asked)
        for number in range(100):
            assert await keys.find(f"made up {number}") is None
        counts.append(source.asked)
        source.now += 61
        await keys.find("made up")
        counts.append(source.asked)
        return counts

    assert asyncio.run(whole()) == [1, 1, 2]


def test_old_keys_are_renewed_beside_requests_and_end_after_an_hour() -> None:
    async def whole() -> list[Any]:
        source = Source()
        keys = source.keys()
        await keys.find("rsa")
        source.gate.clear()
        source.now += 601
        during = await asyncio.wait_for(keys.find("rsa"), 1)  # does not wait for the issuer
        source.answer = KeysUnavailable("it is away")
        source.gate.set()
        await asyncio.sleep(0.01)
        after = keys.known("rsa")
        source.now += 3000
        over = await keys.find("rsa")
        source.now += 61
        source.answer = key_set(OTHER)
        rotated = await keys.find("rsa")
        return [during is not None, after is not None, over, rotated is not None, source.asked]

    assert asyncio.run(whole()) == [True, True, None, True, 4]


def keys_of(url: str, pages: dict[str, Any], **more: Any) -> dict[str, Any]:
    facts = {"issuer": url, "host": url.removeprefix("http://"), **more}
    return asyncio.run(IssuerDocuments(issuer(**facts)).keys())


def test_metadata_leads_to_the_keys() -> None:
    pages: dict[str, Any] = {"/jwks": key_set(RSA)}
    with documents(pages) as (url, asked):
        pages[METADATA] = {"issuer": url, "jwks_uri": f"{url}/jwks"}
        assert keys_of(url, pages) == key_set(RSA)
        assert keys_of(url, pages, keys=f"{url}/jwks") == key_set(RSA)
        assert asked == [METADATA, "/jwks", "/jwks"]


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ({"issuer": ISSUER, "jwks_uri": "{url}/jwks"}, "another issuer"),
        ({"issuer": "{url}"}, "no keys"),
        ({"issuer": "{url}", "jwks_uri": ["{url}/jwks"]}, "no keys"),
        ({"issuer": "{url}", "jwks_uri": "http://169.254.169.254/latest"}, "not https"),
        ({"issuer": "{url}", "jwks_uri": "https://169.254.169.254/latest"}, "169.254"),
        ({"issuer": "{url}", "jwks_uri": "https://localhost/jwks"}, "localhost"),
        ({"issuer": "{url}", "jwks_uri": "file:///etc/passwd"}, "URL"),
        (b'{"issuer": "a", "issuer": "b"}', "JSON object"),
        (b"[]", "JSON object"),
        (b"{" * 300_000, "bytes|large|JSON"),
        (None, "status 404"),
        ("{url}/elsewhere", "status 302|redirect"),
    ],
    ids=range(12),
)
def test_metadata_that_leads_elsewhere_is_refused(page: Any, reason: str) -> None:
    pages: dict[str, Any] = {}
    with documents(pages) as (url, _):
        if isinstance(page, dict):
            page = {name: v.replace("{url}", url) if isinstance(v, str) else v for name, v in page.items()}
        pages[METADATA] = page.replace("{url}", url) if isinstance(page, str) else page
        pages["/elsewhere"] = {"issuer": url, "jwks_uri": f"{url}/elsewhere", "keys": []}
        with pytest.raises(KeysUnavailable, match=reason):
            keys_of(url, pages)


@pytest.mark.parametrize(
    ("facts", "url", "may"),
    [
        ({"host": "login.corp=10.0.0.0/8"}, "https://login.corp/jwks", True),
        ({"host": "login.corp=10.0.0.0/8"}, "http://login.corp/jwks", False),  # anybody between could answer
        ({"host": "127.0.0.1:9000"}, "http://127.0.0.1:9000/jwks", False),
        (
            {"host": "127.0.0.1:9000", "keys": "http://127.0.0.1:9000/jwks"},
            "http://127.0.0.1:9000/jwks",
            True,
        ),
        ({"host": "127.0.0.1:9000", "issuer": "http://127.0.0.1:9000"}, "http://127.0.0.1:9000/jwks", True),
        ({"issuer": "http://127.0.0.1:9000"}, "http://127.0.0.1:9000/jwks", False),
    ],
)
def test_an_issuer_over_https_leads_to_https_alone(facts: dict[str, Any], url: str, *, may: bool) -> None:
    assert IssuerDocuments(issuer(**facts)).may_ask(url) is may


def test_metadata_is_asked_for_once_for_all_who_wait_and_not_again_at_once() -> None:
    pages: dict[str, Any] = {}

    async def whole(url: str, asked: list[str]) -> list[Any]:
        now, found = [0.0], list[Any]()
        documents = IssuerDocuments(issuer(issuer=url, host=url.removeprefix("http://")))
        shared = SharedMetadata(documents, lambda: now[0])

        async def ask() -> str:
            try:
                return str((await shared.now())["issuer"])
            except KeysUnavailable as error:
                return str(error)

        for moment in (0.0, 9.0, 11.0, 600.0, 612.0):
            now[0] = moment
            found.append((set(await asyncio.gather(*(ask() for _ in range(20)))), len(asked)))
            pages[METADATA] = {"issuer": url}
        return found

    with documents(pages) as (url, asked):
        away = {"it answered with status 404"}
        assert asyncio.run(whole(url, asked)) == [(away, 1), (away, 1), ({url}, 2), ({url}, 2), ({url}, 3)]


def test_a_loopback_issuer_is_reached_only_where_the_configuration_names_it() -> None:
    with documents({"/jwks": key_set(RSA)}) as (url, asked):
        with pytest.raises(KeysUnavailable):
            asyncio.run(IssuerDocuments(issuer(issuer=url, keys=f"{url}/jwks")).keys())
        assert asked == []
