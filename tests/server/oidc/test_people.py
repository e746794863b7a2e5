"""People who sign in to the page with a provider: the whole flow (IDN-2). Attacks are in `test_people_attacks`."""

import asyncio
import base64
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from tests.server.oidc.issuing import AUDIENCE, RSA, claims, documents, header, key_set, signed
from tests.server.talk import Client, served
from tests.server.web.test_app import Visitor
from toolkeep import Keep
from toolkeep.config.identity_settings import ClaimGrant, IdentitySettings, Issuer, PageSignIn
from toolkeep.storage.sqlite.sign_in_codes import MemorySignInCodes

ROLES = (
    ClaimGrant(claims={"groups": "admins"}, agent="staff", scopes=("admin",)),
    ClaimGrant(claims={"groups": "keepers"}, agent="staff", scopes=("approver",)),
    ClaimGrant(claims={"groups": "editors"}, agent="staff", scopes=("editor",)),
    ClaimGrant(claims={"groups": "staff"}, agent="staff", scopes=("viewer",)),
)
EVENT = "http://schemas.openid.net/event/backchannel-logout"
EVENTS = {EVENT: dict[str, str]()}


class Provider:
    """A provider on this machine that says what a test lets it say."""

    def __init__(self, url: str, pages: dict[str, Any], asked: list[str]) -> None:
        self.url, self.pages, self.asked = url, pages, asked
        metadata: dict[str, Any] = {"issuer": url, "jwks_uri": f"{url}/jwks"}
        metadata |= {"authorization_endpoint": f"{url}/authorize", "token_endpoint": f"{url}/token"}
        metadata |= {"code_challenge_methods_supported": ["S256"]}
        self.metadata = metadata | {"authorization_response_iss_parameter_supported": True}
        pages |= {"/.well-known/openid-configuration": self.metadata, "/jwks": key_set(RSA)}

    def settings(self, **more: Any) -> Issuer:
        page = PageSignIn(client_id="page", grants=ROLES, label="Login")
        host = self.url.removeprefix("http://")
        facts: dict[str, Any] = {"audience": AUDIENCE, "algorithm": "RS256", "host": host, "page": page}
        return Issuer(issuer=self.url, **facts | more)

    def token(self, head: Any = None, key: Any = RSA, **more: Any) -> str:
        now = int(time.time())
        usual = {
            "iss": self.url,
            "aud": "page",
            "sub": "ada",
            "client_id": None,
            "jti": None,
            "iat": now,
            "exp": now + 600,
        }
        return signed(header(typ="JWT") if head is None else head, claims(**usual | more), key)

    def logout(self, head: Any = None, **more: Any) -> str:
        usual = {"events": EVENTS, "sid": "s1", "jti": "1"}
        return self.token(header(typ="logout+jwt") if head is None else head, **usual | more)


class Browser(Visitor):
    """A browser that signs in with a provider."""

    provider: Provider
    asked: dict[str, str]
    attempt = ""
    attempt_key = ""

    async def begin(self, **more: str) -> Any:
        answer = await self.post("/ui/sign-in", {"begin": self.provider.url, **more})
        if answer.status == 200:
            self.attempt_key, url = answer.body.decode().split(" ")
            self.asked = {name: value[0] for name, value in parse_qs(urlsplit(url).query).items()}
            self.attempt = answer.headers["set-cookie"].partition(";")[0]
        return answer

    async def finish(self, id_claims: Any = (), token: str = "", **answer: str | None) -> Any:
        self.provider.pages["/token"] = {
            "id_token": token or self.provider.token(**{"nonce": self.asked["nonce"], **dict(id_claims)})
        }
        said = {"code": "c", "state": self.asked["state"], "iss": self.provider.url} | answer
        query = urlencode({name: value for name, value in said.items() if value is not None})
        return await self.pass_on(f"?{query}")

    async def pass_on(self, query: str) -> Any:
        fields = {"answer": query, "key": self.attempt_key}
        cookies = "; ".join(filter(None, (self.headers.get("cookie"), self.attempt)))
        answer = await self.post("/ui/sign-in", fields, cookie=cookies)
        if answer.status == 200:
            self.key = answer.body.decode()
            self.headers["cookie"] = answer.cookies[0].partition(";")[0]
        return answer


@asynccontextmanager
async def browsing(keep: Keep, provider: Provider, **more: Any) -> AsyncIterator[Browser]:
    codes = MemorySignInCodes()
    issuers = more.pop("issuers", None) or (provider.settings(**more),)
    identity = IdentitySettings(issuers=issuers)
    async with served(keep, codes=codes, identity=identity) as client:
        browser = Browser(client, codes)
        browser.provider = provider
        yield browser


def browse(keep: Keep, act: Callable[[Browser], Coroutine[Any, Any, Any]], **more: Any) -> Any:
    pages: dict[str, Any] = {}

    async def run(provider: Provider) -> Any:
        async with browsing(keep, provider, **more) as browser:
            return await act(browser)

    with documents(pages) as (url, asked):
        return asyncio.run(run(Provider(url, pages, asked)))


@pytest.mark.spec("IDN-2")
def test_a_person_signs_in_with_the_role_of_their_claims(keep: Keep) -> None:
    async def act(browser: Browser) -> Any:
        begun = await browser.begin()
        first = browser.asked
        done = await browser.finish({"groups": ["staff", "keepers"], "sid": "s1"})
        pages = [(await browser.get(f"/ui/{page}")).status for page in ("approvals", "tokens")]
        return begun, first, done, pages

    begun, asked, done, pages = browse(keep, act)
    assert begun.headers["set-cookie"].split("; ")[1:] == [
        "Path=/ui/sign-in", "HttpOnly", "SameSite=Strict", "Max-Age=300",
    ]  # fmt: skip
    assert asked["redirect_uri"] == "http://127.0.0.1:8765/ui/sign-in"
    assert (asked["code_challenge_method"], asked["scope"], "prompt" in asked) == ("S256", "openid", False)
    assert done.status == 200
    assert pages == [200, 403]  # an approver, and no more


@pytest.mark.spec("IDN-2")
@pytest.mark.parametrize(
    ("group", "statuses"),
    [
        ("staff", [200, 403, 403, 403]),
        ("keepers", [200, 200, 403, 403]),
        ("editors", [200, 403, 200, 403]),
        ("admins", [200, 200, 200, 200]),
    ],
)
def test_each_role_opens_its_own_pages(keep: Keep, group: str, statuses: list[int]) -> None:
    async def act(browser: Browser) -> Any:
        await browser.begin()
        await browser.finish({"groups": [group]})
        pages = ("policies", "approvals", "definitions/new", "tokens")
        return [(await browser.get(f"/ui/{page}")).status for page in pages]

    assert browse(keep, act) == statuses


POLICY = '@id("mine")\npermit (principal, action, resource);'


def test_a_code_counts_once_in_the_browser_and_on_the_page_that_began(keep: Keep) -> None:
    async def act(browser: Browser) -> Any:
        await browser.begin()
        found = []
        victim = Browser(browser.operator, browser.codes)
        victim.provider, victim.asked = browser.provider, browser.asked
        found.append((await victim.finish({"groups": ["admins"]})).status)  # login CSRF: no attempt there
        victim.attempt = browser.attempt  # planted by another port of this host, which knows no key
        found.append((await victim.finish({"groups": ["admins"]})).status)
        await victim.begin()  # an attempt of its own does not take the answer to another
        victim.asked = browser.asked
        found.append((await victim.finish({"groups": ["admins"]})).status)
        found.append((await browser.finish({"groups": ["admins"]})).status)
        found.append((await browser.finish({"groups": ["admins"]})).status)  # replayed
        return found

    assert browse(keep, act) == [401, 401, 401, 200, 401]


def test_with_two_providers_an_answer_must_say_which_made_it(keep: Keep) -> None:
    pages: dict[str, Any] = {}

    async def run(provider: Provider, other: Provider) -> Any:
        del provider.metadata["authorization_response_iss_parameter_supported"]
        found = []
        for iss in (None, other.url, provider.url):
            issuers = (provider.settings(), other.settings())
            async with browsing(keep, provider, issuers=issuers) as browser:
                await browser.begin()
                found.append((await browser.finish({"groups": ["staff"]}, iss=iss)).status)
        return found

    more: dict[str, Any] = {}
    with documents(pages) as (url, asked), documents(more) as (other, also):
        assert asyncio.run(run(Provider(url, pages, asked), Provider(other, more, also))) == [401, 401, 200]


@pytest.mark.spec("IDN-2")
@pytest.mark.parametrize(
    ("age", "status"), [(None, 401), (3600, 401), (0, 200)], ids=["unknown", "an hour ago", "now"]
)
def test_a_fresh_sign_in_is_one_at_the_provider(keep: Keep, age: float | None, status: int) -> None:
    async def act(browser: Browser) -> Any:
        await browser.begin(fresh="1")
        assert (browser.asked["prompt"], browser.asked["max_age"]) == ("login", "0")
        said: dict[str, Any] = {"groups": ["admins"]}
        if age is not None:
            said["auth_time"] = int(time.time() - age)
        return (await browser.finish(said)).status

    assert browse(keep, act) == status


@pytest.mark.parametrize("age", [None, 600, 5])
def test_without_a_fresh_sign_in_nothing_is_put_in_force(keep: Keep, age: float | None) -> None:
    async def act(browser: Browser) -> Any:
        await browser.begin()
        said = {"groups": ["admins"]} | ({} if age is None else {"auth_time": int(time.time() - age)})
        await browser.finish(said)
        await browser.open_tab()
        fields = {"name": "mine", "text": POLICY, "typed_name": "mine"}
        return await browser.post("/ui/policies:put", fields, **{"hx-request": "true"})

    answer = browse(keep, act)
    assert (b"older than five minutes" in answer.body) is (age != 5)


@pytest.mark.spec("IDN-2")
def test_approvals_of_the_page_name_the_person_and_nobody_approves_for_themselves(keep: Keep) -> None:
    grants = (ClaimGrant(claims={"sub": "ada"}, agent="helper", scopes=("call",)),)
    keep.declare_agent("helper")

    async def act(browser: Browser) -> Any:
        bearer = browser.provider.token(header(), aud=AUDIENCE)
        call = Client(browser.operator.app, browser.operator.tokens, bearer)
        asked = (await call.call("send_note", {"text": "hi"})).data["approval"]
        found = []
        for sub in ("ada", "bob"):
            await browser.begin()
            await browser.finish({"groups": ["keepers"], "sub": sub})
            await browser.open_tab()
            said = {"answer": "approve:once"}
            found.append((await browser.post(f"/ui/approvals/{asked}:decide", said)).body)
        for _ in range(200):
            if not browser.operator.app.service.calls.in_flight:
                break
            await asyncio.sleep(0.02)
        return found, browser.provider.url, [one.record for one in keep.record.log.read_back()]

    found, url, records = browse(keep, act, grants=grants)
    assert b"on their own behalf" in found[0]
    (approval,) = [one for one in records if one["type"] == "Approval"]
    assert (approval["approver"], approval["way"]) == (f"bob ({url})", "page")
    assert approval["identity"] == {"client": "page", "issuer": url, "subject": "bob"}


@pytest.mark.spec("IDN-2")
def test_a_session_ends_with_the_id_token_by_revocation_and_by_logout(keep: Keep) -> None:
    async def act(browser: Browser) -> Any:
        async def signed_in(**more: Any) -> int:
            await browser.begin()
            await browser.finish({"groups": ["staff"], "sid": "s1", **more})
            return int((await browser.get("/ui/")).status)

        async def log_out(token: str) -> tuple[int, int]:
            raw = urlencode({"logout_token": token}).encode()
            kind = {"content-type": "application/x-www-form-urlencoded"}
            answer = await browser.client.post("/ui/back-channel-logout", raw=raw, headers=kind)
            return answer.status, (await browser.get("/ui/")).status

        now, provider = int(time.time()), browser.provider
        found: list[Any] = [await signed_in(), await signed_in(exp=now - 5)]
        await signed_in()
        found.append(await log_out(provider.logout(sid="other", sub=None)))
        token = provider.logout(jti="2")
        found += [await log_out(token), await log_out(token)]
        found.append(await signed_in(iat=now + 5))  # later than the logout, of the same session
        found.append(await log_out(provider.logout(jti="3", sid=None, iat=now + 6)))
        await signed_in(iat=now + 8)
        browser.operator.tokens.revoke_identity(provider.url, subject="ada")
        browser.operator.app.service.authenticator.forget()
        found.append((await browser.get("/ui/")).status)
        return found

    out, ok = 303, 200
    assert browse(keep, act) == [ok, out, (200, ok), (200, out), (400, out), ok, (200, out), out]


@pytest.mark.spec("IDN-2")
def test_access_tokens_from_before_a_logout_are_refused(keep: Keep) -> None:
    keep.declare_agent("helper")
    grants = (ClaimGrant(claims={"sub": "ada"}, agent="helper", scopes=("call",)),)

    async def act(browser: Browser) -> Any:
        now = int(time.time())
        kind = {"content-type": "application/x-www-form-urlencoded"}
        raw = urlencode({"logout_token": browser.provider.logout()}).encode()
        found = []
        for is_after in (False, True):
            if is_after:
                await browser.client.post("/ui/back-channel-logout", raw=raw, headers=kind)
            for issued_at in (now - 60, now + 10):
                bearer = browser.provider.token(header(), aud=AUDIENCE, iat=issued_at)
                call = Client(browser.operator.app, browser.operator.tokens, bearer)
                found.append((await call.call("add", {"a": 1})).status)
        return found

    assert browse(keep, act, grants=grants) == [200, 200, 401, 200]


def test_the_verifier_and_the_secret_of_the_client_go_to_the_provider_alone(
    keep: Keep, tmp_path: Any
) -> None:
    (tmp_path / "secret").write_text("s3cret:\n")
    page = PageSignIn(client_id="page", grants=ROLES, client_secret_file=str(tmp_path / "secret"))

    async def act(browser: Browser) -> Any:
        await browser.begin()
        await browser.finish({"groups": ["staff"]})
        (sent,) = (one for one in browser.provider.asked if one.startswith("/token"))
        return browser.asked, sent

    asked, sent = browse(keep, act, page=page)
    path, authorization, body = sent.split(" ", 2)
    verifier = parse_qs(body)["code_verifier"][0]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
    assert (path, challenge) == ("/token", asked["code_challenge"])
    assert base64.b64decode(authorization).decode() == "page:s3cret%3A"
    assert "client_id" not in body
