"""Hostile sign-ins and logouts of people: each is refused, signs nobody in or out, and is recorded (IDN-2).

Hostile access tokens are in `tests/server/oidc/test_access_tokens.py`. Each attack names the reason that the
log gives, so a table with the wrong guard would show.
"""

import asyncio
import base64
import hashlib
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from msgspec.structs import replace

from tests.server.oidc.issuing import AUDIENCE, OTHER, RSA, claims, documents, header, part, signed
from tests.server.oidc.issuing import signed_by_secret as by_secret
from tests.server.oidc.test_people import EVENT, ROLES, Browser, Provider, browse, browsing
from tests.server.talk import Response, until
from toolkeep import Keep
from toolkeep.config.identity_settings import PageSignIn
from toolkeep.errors import TokenRefused
from toolkeep.server.oidc import people
from toolkeep.server.oidc.issuer_documents import IssuerDocuments
from toolkeep.server.web.app import PageApp

Act = Callable[[Browser], Awaitable[Response]]
NOW = time.time()
ADMIN = {"groups": ["admins"]}
EVIL = "https://evil.example"


class Attack(NamedTuple):
    act: Act
    reason: str


async def sign_in(browser: Browser, token: str) -> Response:
    return cast("Response", await browser.finish(token=token))


def id_token(**lie: Any) -> Act:
    """An answer with an ID token of an admin that is wrong in one thing."""

    async def act(browser: Browser) -> Response:
        await browser.begin(**({"fresh": "1"} if lie.get("auth_time") else {}))
        token = browser.provider.token(**{"nonce": browser.asked["nonce"], **ADMIN, **lie})
        return await sign_in(browser, token)

    return act


def in_place_of_it(make: Callable[[Browser], str]) -> Act:
    """An answer with another token than the provider would make."""

    async def act(browser: Browser) -> Response:
        await browser.begin()
        return await sign_in(browser, make(browser))

    return act


def whole_claims(browser: Browser, **more: Any) -> dict[str, Any]:
    now = int(time.time())
    usual = {"iss": browser.provider.url, "aud": "page", "sub": "ada", "iat": now, "exp": now + 600}
    return {**usual, "nonce": browser.asked["nonce"], **ADMIN, **more}


def unsigned(browser: Browser) -> str:
    head = {"alg": "none", "typ": "JWT", "kid": "rsa"}
    return f"{part(head)}.{part(whole_claims(browser))}.x"


def by_public_key(browser: Browser) -> str:
    """The public key as the secret of an HMAC (algorithm confusion)."""
    return by_secret(header(alg="HS256", typ="JWT"), RSA.as_pem(private=False))


def with_a_claim_twice(browser: Browser) -> str:
    body = json.dumps(whole_claims(browser, groups=[]))[:-1] + ', "groups": ["admins"]}'
    return signed(header(typ="JWT"), body.encode())


def answer(**lie: Any) -> Act:
    """An answer of the provider with other parameters."""

    async def act(browser: Browser) -> Response:
        await browser.begin()
        return cast("Response", await browser.finish(ADMIN, **lie))

    return act


def query(text: str) -> Act:
    """An answer as this text, with the state in place of `{0}`."""

    async def act(browser: Browser) -> Response:
        await browser.begin()
        return cast("Response", await browser.pass_on(text.format(browser.asked["state"])))

    return act


def token_endpoint(page: Any) -> Act:
    """A token endpoint that answers with this page."""

    async def act(browser: Browser) -> Response:
        await browser.begin()
        browser.provider.pages["/token"] = page
        said = {"code": "c", "state": browser.asked["state"], "iss": browser.provider.url}
        return cast("Response", await browser.pass_on(f"?{urlencode(said)}"))

    return act


def metadata(**lie: Any) -> Act:
    """A provider whose metadata says otherwise."""

    async def act(browser: Browser) -> Response:
        browser.provider.metadata |= lie
        return cast("Response", await browser.begin())

    return act


def begun_by(**headers: str) -> Act:
    """A page of somebody else begins a sign-in in this browser."""

    async def act(browser: Browser) -> Response:
        return await browser.post("/ui/sign-in", {"begin": browser.provider.url}, **headers)

    return act


def answered_by(**headers: str) -> Act:
    """A page of somebody else passes an answer on in this browser."""

    async def act(browser: Browser) -> Response:
        await browser.begin()
        said = urlencode({"code": "c", "state": browser.asked["state"], "iss": browser.provider.url})
        fields = {"answer": f"?{said}", "key": browser.attempt_key}
        return await browser.post("/ui/sign-in", fields, cookie=browser.attempt, **headers)

    return act


def sealed(**changes: Any) -> Act:
    """An answer to an attempt that the server sealed, but with other content."""

    async def act(browser: Browser) -> Response:
        await browser.begin()
        name, _, cookie = browser.attempt.partition("=")
        page = cast("PageApp", browser.operator.app._mounts["/ui"])
        attempt = page.sessions.read_attempt(cookie)
        assert attempt is not None
        browser.attempt = f"{name}={page.sessions.seal_attempt(replace(attempt, **changes))}"
        return cast("Response", await browser.finish(ADMIN))

    return act


def carried(change: Callable[[Browser], None]) -> Act:
    """An answer in a browser that holds other things than the one that began."""

    async def act(browser: Browser) -> Response:
        await browser.begin()
        change(browser)
        return cast("Response", await browser.finish(ADMIN))

    return act


def lose_cookie(browser: Browser) -> None:
    browser.attempt = ""


def make_cookie_up(browser: Browser) -> None:
    browser.attempt = f"{browser.attempt.partition('=')[0]}={'A' * 200}"


def double_cookie(browser: Browser) -> None:
    browser.attempt = f"{browser.attempt}; {browser.attempt}"


def take_a_session_for_it(browser: Browser) -> None:
    page = cast("PageApp", browser.operator.app._mounts["/ui"])
    made = page.sessions.begin_operator()
    browser.attempt = f"{browser.attempt.partition('=')[0]}={made.cookie}"


def lose_key(browser: Browser) -> None:
    browser.attempt_key = ""


def take_another_key(browser: Browser) -> None:
    browser.attempt_key = "x" * 43


async def replayed(browser: Browser) -> Response:
    """The answer of a sign-in that was completed, in another browser that got hold of everything."""
    await browser.begin()
    attempt = browser.attempt
    await browser.finish(ADMIN)
    thief = Browser(browser.operator, browser.codes)
    thief.provider, thief.asked = browser.provider, browser.asked
    thief.attempt, thief.attempt_key = attempt, browser.attempt_key
    del browser.headers["cookie"]
    return cast("Response", await thief.finish(ADMIN))


async def taken_from_another(browser: Browser) -> Response:
    """A code of somebody else, whose ID token has the nonce of their browser (code injection)."""
    victim = Browser(browser.operator, browser.codes)
    victim.provider = browser.provider
    await victim.begin()
    await browser.begin()
    return cast("Response", await browser.finish({**ADMIN, "nonce": victim.asked["nonce"]}))


async def of_an_earlier_attempt(browser: Browser) -> Response:
    await browser.begin()
    earlier = browser.asked
    await browser.begin()
    browser.asked = {**browser.asked, "state": earlier["state"]}
    return cast("Response", await browser.finish(ADMIN))


async def an_unknown_provider(browser: Browser) -> Response:
    return await browser.post("/ui/sign-in", {"begin": EVIL})


NOBODY = "its ID token does not count: no grant of the configuration matches its claims"
CLIENT = "its ID token is for another client"
ATTEMPT = "its ID token belongs to another attempt"
BROWSER = "this browser did not begin it"
STATE = "the answer belongs to another attempt"
KEY = "another page began it"
LET_IN = "the provider did not let the person in"
PROVIDER = "the answer is from another provider"
SILENT = "the answer does not say which provider made it"
FOREIGN = "the request does not come from this page"
ENDPOINT = "its metadata names no authorization endpoint that may be used"


def wrong(reason: str) -> str:
    return f"its ID token does not count: {reason}"


TOKENS: dict[str, Attack] = {
    "no nonce": Attack(id_token(nonce=None), ATTEMPT),
    "the nonce of another attempt": Attack(id_token(nonce="other"), ATTEMPT),
    "a nonce that is a list": Attack(id_token(nonce=["other"]), ATTEMPT),
    "for another client": Attack(id_token(aud="other"), CLIENT),
    "for the resource": Attack(id_token(aud=AUDIENCE), CLIENT),
    "for nobody": Attack(id_token(aud=None), CLIENT),
    "for several clients, given to another": Attack(id_token(aud=["page", "other"], azp="other"), CLIENT),
    "for several clients, given to who knows": Attack(id_token(aud=["page", "other"]), CLIENT),
    "given to another client": Attack(id_token(azp="other"), CLIENT),
    "from another provider": Attack(id_token(iss=EVIL), wrong("no issuer of the configuration made it")),
    "expired": Attack(id_token(iat=NOW - 900, exp=NOW - 300), wrong("it has expired")),
    "without an end": Attack(id_token(exp=None), wrong("its exp is no time")),
    "with an end that is a text": Attack(id_token(exp=str(NOW + 60)), wrong("its exp is no time")),
    "without a beginning": Attack(id_token(iat=None), wrong("its iat is no time")),
    "of tomorrow": Attack(id_token(iat=NOW + 86_400, exp=NOW + 90_000), wrong("it does not count yet")),
    "not yet": Attack(id_token(nbf=NOW + 86_400), wrong("it does not count yet")),
    "for a year": Attack(id_token(exp=NOW + 3e7), wrong("it lives longer than tokens of its issuer may")),
    "of nobody": Attack(id_token(sub=None), wrong("it names nobody")),
    "of a subject that is no text": Attack(id_token(sub=["ada"]), wrong("it names nobody")),
    "of a subject that is huge": Attack(id_token(sub="a" * 300), wrong("it names nobody")),
    "with another access token": Attack(
        id_token(at_hash="x" * 22), wrong("it belongs to another access token")
    ),
    "authenticated tomorrow": Attack(
        id_token(auth_time=NOW + 86_400), "its ID token says that the person authenticated in the future"
    ),
    "authenticated yesterday, when asked anew": Attack(
        id_token(auth_time=NOW - 86_400), "the provider did not ask the person to authenticate anew"
    ),
    "authenticated at a text": Attack(id_token(auth_time="now"), wrong("its auth_time is no time")),
    "of a session that is a list": Attack(
        id_token(sid=["s1"]), "its ID token names a session that is no name"
    ),
    "of a session that is huge": Attack(
        id_token(sid="s" * 300), "its ID token names a session that is no name"
    ),
    "an access token": Attack(id_token(head=header()), wrong("it is of another type")),
    "a logout token": Attack(id_token(head=header(typ="logout+jwt")), wrong("it is of another type")),
    "by another algorithm": Attack(
        id_token(head=header(typ="JWT", alg="RS512")), wrong("it is signed by another algorithm")
    ),
    "by a key elsewhere": Attack(
        id_token(head=header(typ="JWT", jku=f"{EVIL}/jwks"), key=OTHER),
        wrong("it says itself how it is to be checked"),
    ),
    "by a key that it brings": Attack(
        id_token(head=header(typ="JWT", jwk={"kty": "oct", "k": "YQ"})),
        wrong("it says itself how it is to be checked"),
    ),
    "by a key without a name": Attack(id_token(head=header(typ="JWT", kid=None)), wrong("it names no key")),
    "by another key of that id": Attack(id_token(key=OTHER), wrong("its signature is wrong")),
    "by an unknown key": Attack(
        id_token(head=header(typ="JWT", kid="other")), wrong("its issuer has no such key")
    ),
    "unsigned": Attack(in_place_of_it(unsigned), wrong("it is signed by another algorithm")),
    "by the public key as a secret": Attack(
        in_place_of_it(by_public_key), wrong("no issuer of the configuration made it")
    ),
    "with a claim twice": Attack(in_place_of_it(with_a_claim_twice), wrong("it cannot be read")),
    "encrypted": Attack(in_place_of_it(lambda _: "a.b.c.d.e"), wrong("it is no signed token")),
    "huge": Attack(in_place_of_it(lambda _: "a" * 9000), wrong("it is too large")),
}
GRANTING: dict[str, Any] = {
    "none": None,
    "an empty list": [],
    "of others": ["others"],
    "in one text": "keepers admins",
    "in one text with commas": "keepers,admins",
    "as keys": {"admins": True},
    "in other letters": ["Admins"],
    "with a space": ["admins "],
    "with a null": ["admins\0"],
    "a part of it": ["admin"],
    "a number": 7,
    "true": True,
    "nested": [["admins"]],
    "nested in an object": [{"name": "admins"}],
    "everything": ["*"],
    "hundreds of others": [str(number) for number in range(500)],
}
CLAIMS = {
    f"groups that are {name}": Attack(
        # What no grant names grants nothing.
        id_token(groups=groups, role="admin", roles=["admins"], scope="admin", agent="operator"),
        NOBODY,
    )
    for name, groups in GRANTING.items()
}
ANSWERS: dict[str, Attack] = {
    "a code that was used": Attack(replayed, "it was used before"),
    "a code of another person": Attack(taken_from_another, ATTEMPT),
    "the state of an earlier attempt": Attack(of_an_earlier_attempt, STATE),
    "an attempt of six minutes ago": Attack(sealed(began_at=NOW - 360), "it began too long ago"),
    "an attempt of tomorrow": Attack(sealed(began_at=NOW + 86_400), "it began too long ago"),
    "an attempt at a provider that is no more": Attack(
        sealed(issuer=EVIL), "people do not sign in with this provider"
    ),
    "another state": Attack(answer(state="x"), STATE),
    "no state": Attack(answer(state=None), STATE),
    "an empty state": Attack(answer(state=""), STATE),
    "two states": Attack(query("?state={0}&state={0}&code=c"), STATE),
    "many parameters": Attack(query("?state={0}&code=c&" + "&".join(["a=b"] * 40)), STATE),
    "no parameters": Attack(query(""), STATE),
    "another issuer (mix-up)": Attack(answer(iss=EVIL), PROVIDER),
    "a look-alike issuer": Attack(answer(iss="http://127.0.0.1/"), PROVIDER),
    "an empty issuer": Attack(answer(iss=""), PROVIDER),
    "no issuer, though it was promised": Attack(answer(iss=None), SILENT),
    "an error": Attack(answer(error="access_denied"), LET_IN),
    "no code": Attack(answer(code=None), LET_IN),
    "an empty code": Attack(answer(code=""), LET_IN),
    "a huge code": Attack(answer(code="x" * 5000), LET_IN),
    "no attempt (login CSRF)": Attack(carried(lose_cookie), BROWSER),
    "an attempt that was made up": Attack(carried(make_cookie_up), BROWSER),
    "an attempt twice": Attack(carried(double_cookie), BROWSER),
    "a session in place of an attempt": Attack(carried(take_a_session_for_it), BROWSER),
    "no key of the tab": Attack(carried(lose_key), KEY),
    "another key of the tab": Attack(carried(take_another_key), KEY),
    "passed on by another port": Attack(answered_by(origin="http://127.0.0.1:9999"), FOREIGN),
    "passed on by nobody": Attack(answered_by(origin=""), FOREIGN),
    "begun by another port": Attack(begun_by(origin="http://127.0.0.1:9999"), FOREIGN),
    "begun at a provider of the attacker": Attack(
        an_unknown_provider, "people do not sign in with this provider"
    ),
}
PROVIDERS: dict[str, Attack] = {
    "names another issuer": Attack(metadata(issuer=EVIL), "its metadata names another issuer"),
    "offers PKCE in the clear": Attack(
        metadata(code_challenge_methods_supported=["plain"]), "it does not offer PKCE with S256"
    ),
    "does not speak of PKCE": Attack(
        metadata(code_challenge_methods_supported=None), "it does not offer PKCE with S256"
    ),
    "has no authorization endpoint": Attack(metadata(authorization_endpoint=None), ENDPOINT),
    "leads to a script": Attack(metadata(authorization_endpoint="javascript:alert(1)"), ENDPOINT),
    "leads to a document": Attack(metadata(authorization_endpoint="data:text/html,hi"), ENDPOINT),
    "leads to plain http": Attack(metadata(authorization_endpoint="http://evil.example/a"), ENDPOINT),
    "leads to a name and password": Attack(
        metadata(authorization_endpoint="https://a:b@evil.example"), ENDPOINT
    ),
    "sends the code elsewhere": Attack(token_endpoint("/elsewhere"), "redirects more than 0 times"),
    "has no token endpoint": Attack(token_endpoint(None), "it answered with status 404"),
    "answers with a page": Attack(token_endpoint(b"<html>"), "it did not answer with a JSON object"),
    "answers with a list": Attack(
        token_endpoint([{"id_token": "x"}]), "it did not answer with a JSON object"
    ),
    "answers in two ways": Attack(
        token_endpoint(b'{"id_token": "a", "id_token": "b"}'), "it did not answer with a JSON object"
    ),
    "gives no ID token": Attack(token_endpoint({"access_token": "x"}), "the provider gave no ID token"),
    "gives a list of ID tokens": Attack(token_endpoint({"id_token": ["x"]}), "the provider gave no ID token"),
}
SIGN_INS = TOKENS | CLAIMS | ANSWERS | PROVIDERS


def refusals(keep: Keep) -> list[tuple[Any, ...]]:
    """What, from whom and why: of each refusal in the signed log."""
    records = [entry.record for entry in keep.record.log.read_back()]
    return [
        (one["what"], one["issuer"], one["reason"], one["count"])
        for one in records
        if one["type"] == "IdentityRefused"
    ]


@pytest.mark.spec("IDN-2")
@pytest.mark.parametrize("name", SIGN_INS)
def test_a_hostile_sign_in_is_refused_and_recorded(keep: Keep, name: str) -> None:
    act, reason = SIGN_INS[name]

    async def attack(browser: Browser) -> Any:
        refused = await act(browser)
        # Whatever was sent: no session begins, and the provider's word is not repeated.
        cookies = [one for one in refused.cookies if "sign-in" not in one]
        return refused.status, cookies, (await browser.get("/ui/")).status, browser.provider.url

    status, cookies, page, url = browse(keep, attack)
    assert (status, cookies, page) == (403 if reason == FOREIGN else 401, [], 303)
    issuer = "" if reason in (FOREIGN, BROWSER) or "do not sign in" in reason else url
    ((what, named, why, count),) = refusals(keep)
    assert (what, named, count) == ("sign-in", issuer, 1)
    assert why.endswith(reason)


@pytest.mark.parametrize("origin", [EVIL, "null"])
@pytest.mark.parametrize("act", [begun_by, answered_by])
def test_a_page_elsewhere_does_not_reach_the_sign_in(
    keep: Keep, act: Callable[..., Act], origin: str
) -> None:
    async def attack(browser: Browser) -> Any:
        return (await act(origin=origin)(browser)).status, (await browser.get("/ui/")).status

    assert browse(keep, attack) == (403, 303)


def not_this(reason: str) -> str:
    return f"the logout token does not count: {reason}"


LOGOUTS: dict[str, tuple[dict[str, Any], str]] = {
    "with a nonce": ({"nonce": "n"}, "it has a nonce"),
    "without events": ({"events": None}, "it is no logout"),
    "of another event": ({"events": {"https://example.org": {}}}, "it is no logout"),
    "with an event that is no object": ({"events": {EVENT: True}}, "it is no logout"),
    "with events that are a list": ({"events": [EVENT]}, "it is no logout"),
    "of nobody": ({"sub": None, "sid": None}, "it names neither a subject nor a session"),
    "of a subject that is no text": ({"sub": {"a": 1}}, "its names are none"),
    "of a subject that is huge": ({"sub": "a" * 300}, "its names are none"),
    "of a session that is no text": ({"sid": 7}, "its names are none"),
    "of a session that is huge": ({"sid": "s" * 300}, "its names are none"),
    "without an id": ({"jti": None}, "it has no id"),
    "with an id that is no text": ({"jti": 1}, "its names are none"),
    "without an end": ({"exp": None}, "its exp is no time"),
    "without a beginning": ({"iat": None}, "its iat is no time"),
    "of an hour ago": ({"iat": NOW - 3600, "exp": NOW + 3600}, "it is too old"),
    "of tomorrow": ({"iat": NOW + 86_400, "exp": NOW + 90_000}, "it does not count yet"),
    "expired": ({"iat": NOW - 100, "exp": NOW - 60}, "it has expired"),
    "for another client": ({"aud": "other"}, "it is for another client"),
    "for the resource": ({"aud": AUDIENCE}, "it is for another client"),
    "from another issuer": ({"iss": EVIL}, "no issuer of the configuration made it"),
    "as an ID token": ({"head": header(typ="JWT")}, "it is of another type"),
    "as an access token": ({"head": header()}, "it is of another type"),
    "without a type": ({"head": header(typ=None)}, "it is of another type"),
    "by another algorithm": (
        {"head": header(typ="logout+jwt", alg="RS512")},
        "it is signed by another algorithm",
    ),
    "by another key": ({"key": OTHER}, "its signature is wrong"),
    "by a key elsewhere": (
        {"head": header(typ="logout+jwt", x5u=f"{EVIL}/x5u"), "key": OTHER},
        "it says itself how it is to be checked",
    ),
}


async def log_out(browser: Browser, token: str) -> Response:
    raw = urlencode({"logout_token": token}).encode()
    kind = {"content-type": "application/x-www-form-urlencoded"}
    return await browser.client.post("/ui/back-channel-logout", raw=raw, headers=kind)


@pytest.mark.spec("IDN-2")
@pytest.mark.parametrize("name", LOGOUTS)
def test_a_forged_logout_ends_nothing_and_is_recorded(keep: Keep, name: str) -> None:
    lie, reason = LOGOUTS[name]

    async def attack(browser: Browser) -> Any:
        await browser.begin()
        await browser.finish({"groups": ["staff"], "sid": "s1"})
        said = await log_out(browser, browser.provider.logout(**lie))
        return said.status, (await browser.get("/ui/")).status, browser.provider.url

    status, page, url = browse(keep, attack)
    assert (status, page) == (400, 200)
    assert refusals(keep) == [("logout", "" if lie.get("iss") else url, not_this(reason), 1)]


def test_a_logout_that_is_repeated_is_refused_and_recorded(keep: Keep) -> None:
    async def attack(browser: Browser) -> Any:
        token = browser.provider.logout()
        return [(await log_out(browser, token)).status for _ in range(3)], browser.provider.url

    found, url = browse(keep, attack)
    assert found == [200, 400, 400]
    # The third is one of many by now: it is told within a minute, or at the end of the server.
    assert refusals(keep) == [("logout", url, not_this("it was used before"), 1)] * 2


def test_a_logout_that_could_not_be_stored_counts_when_it_comes_again(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise TokenRefused("there are already 10000 revocations", hint="")

    async def attack(browser: Browser) -> Any:
        await browser.begin()
        await browser.finish({"groups": ["staff"], "sid": "s1"})
        token, found = browser.provider.logout(), list[int]()
        with monkeypatch.context() as broken:
            broken.setattr(browser.operator.tokens, "log_out", full)
            found.append((await log_out(browser, token)).status)
        found += [(await log_out(browser, token)).status, (await browser.get("/ui/")).status]
        return found

    assert browse(keep, attack) == [400, 200, 303]


def test_an_answer_that_was_used_is_not_sent_to_the_provider_again(keep: Keep) -> None:
    async def attack(browser: Browser) -> Any:
        refused = await replayed(browser)
        return refused.status, [one.split(" ")[0] for one in browser.provider.asked if "/token" in one]

    assert browse(keep, attack) == (401, ["/token"])


def test_an_answer_that_comes_twice_at_once_signs_in_once(keep: Keep) -> None:
    async def attack(browser: Browser) -> Any:
        await browser.begin()
        said = await asyncio.gather(*(browser.finish(ADMIN) for _ in range(2)))
        return sorted(one.status for one in said)

    assert browse(keep, attack) == [200, 401]


def test_no_refused_sign_in_or_logout_keeps_a_later_one_from_counting(keep: Keep) -> None:
    async def attack(browser: Browser) -> Any:
        flood = Browser(browser.operator, browser.codes)
        flood.provider = browser.provider
        for _ in range(40):
            await flood.begin()
            await flood.finish({"groups": []})
            await log_out(flood, browser.provider.logout(aud="other"))
        await browser.begin()
        done = await browser.finish({"groups": ["staff"], "sid": "s1"})
        over = await log_out(browser, browser.provider.logout())
        return done.status, over.status, (await browser.get("/ui/")).status

    assert browse(keep, attack) == (200, 200, 303)


def test_a_slow_provider_takes_places_of_its_own_people_alone(
    keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(people, "_EXCHANGES", 2)
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    ask = IssuerDocuments.post_form

    async def run(slow: Provider, other: Provider) -> Any:
        gate, under_way = asyncio.Event(), list[str]()

        async def asked(self: IssuerDocuments, url: str, *more: Any) -> Any:
            if url.startswith(slow.url):
                under_way.append(url)
                await gate.wait()
            return await ask(self, url, *more)

        monkeypatch.setattr(IssuerDocuments, "post_form", asked)
        async with browsing(keep, slow, issuers=(slow.settings(), other.settings())) as browser:

            async def begun(provider: Provider) -> Browser:
                visitor = Browser(browser.operator, browser.codes)
                visitor.provider = provider
                await visitor.begin()
                return visitor

            visitors = [await begun(slow) for _ in range(3)]
            waiting = [asyncio.create_task(visitors[0].finish(ADMIN))]
            await until(lambda: len(under_way) == 1)
            waiting.append(asyncio.create_task(visitors[1].finish(ADMIN)))
            await until(lambda: len(under_way) == 2)
            found = [(await visitors[2].finish(ADMIN)).status]
            found.append((await (await begun(other)).finish(ADMIN)).status)
            gate.set()
            await asyncio.gather(*waiting)
            found.append((await (await begun(slow)).finish(ADMIN)).status)
            return found

    with documents(first) as (url, log), documents(second) as (other, also):
        found = asyncio.run(run(Provider(url, first, log), Provider(other, second, also)))
    assert found == [401, 200, 200]
    assert ("sign-in", url, "too many sign-ins are under way", 1) in refusals(keep)


def test_a_provider_cannot_speak_for_another(keep: Keep) -> None:
    """Both are set up; one answers with a token of the other, for the same client and nonce."""
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}

    async def run(provider: Provider, other: Provider) -> Any:
        async with browsing(keep, provider, issuers=(provider.settings(), other.settings())) as browser:
            await browser.begin()
            token = other.token(nonce=browser.asked["nonce"], **ADMIN)
            return (await browser.finish(token=token)).status, (await browser.get("/ui/")).status

    with documents(first) as (url, asked), documents(second) as (other, also):
        found = asyncio.run(run(Provider(url, first, asked), Provider(other, second, also)))
    assert found == (401, 303)
    assert refusals(keep) == [("sign-in", url, "its ID token is from another provider", 1)]


def test_a_key_that_two_providers_share_does_not_make_them_one(keep: Keep) -> None:
    """A provider whose keys are those of another cannot send logouts for its people."""
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}

    async def run(provider: Provider, other: Provider) -> Any:
        async with browsing(keep, provider, issuers=(provider.settings(), other.settings())) as browser:
            await browser.begin()
            await browser.finish({"groups": ["staff"], "sid": "s1"})
            said = await log_out(browser, other.logout())
            return said.status, (await browser.get("/ui/")).status

    with documents(first) as (url, asked), documents(second) as (other, also):
        assert asyncio.run(run(Provider(url, first, asked), Provider(other, second, also))) == (200, 200)


@pytest.mark.parametrize(
    "more", ["redirect_uri", "next", "return_to", "state", "nonce", "scope", "client_id"]
)
def test_nothing_that_a_request_says_leads_the_browser_elsewhere(keep: Keep, more: str) -> None:
    async def act(browser: Browser) -> Any:
        said = await browser.begin(**{more: f"{EVIL}/{more}"})
        await browser.begin()
        done = await browser.finish({"groups": ["staff"]}, **{} if more == "state" else {more: EVIL})
        # The page goes to a fixed address: the answer has a key for it, and no place.
        return said.body.decode(), "location" in done.headers, EVIL.encode() in done.body

    body, has_place, is_named = browse(keep, act)
    asked = parse_qs(urlsplit(body.partition(" ")[2]).query)
    assert EVIL not in body
    assert asked["redirect_uri"] == ["http://127.0.0.1:8765/ui/sign-in"]
    assert (has_place, is_named) == (False, False)


def test_a_session_that_was_planted_ends_with_the_sign_in_and_an_attempt_is_no_session(keep: Keep) -> None:
    async def act(browser: Browser) -> Any:
        await browser.sign_in()  # as somebody who planted a session of their own in this browser
        planted = browser.headers.pop("cookie")
        await browser.begin()
        attempt = browser.attempt.partition("=")[2]
        name = planted.partition("=")[0]
        found = [(await browser.get("/ui/", cookie=f"{name}={attempt}")).status]
        browser.headers["cookie"] = planted
        await browser.finish({"groups": ["keepers"]})
        found += [
            (await browser.get("/ui/", cookie=one)).status for one in (planted, browser.headers["cookie"])
        ]
        return found

    assert browse(keep, act) == [303, 303, 200]


def test_an_id_token_counts_with_its_own_access_token(keep: Keep) -> None:
    async def act(browser: Browser) -> Any:
        found = []
        for given in ("abc", "another", None):
            await browser.begin()
            half = base64.urlsafe_b64encode(hashlib.sha256(b"abc").digest()[:16]).rstrip(b"=").decode()
            token = browser.provider.token(nonce=browser.asked["nonce"], at_hash=half, **ADMIN)
            browser.provider.pages["/token"] = {"id_token": token, "access_token": given}
            said = {"code": "c", "state": browser.asked["state"], "iss": browser.provider.url}
            found.append((await browser.pass_on(f"?{urlencode(said)}")).status)
        return found

    assert browse(keep, act) == [200, 401, 401]


def test_a_client_secret_is_no_key(keep: Keep, tmp_path: Any) -> None:
    """Some libraries take an ID token with an HMAC under the secret of the client."""
    (tmp_path / "secret").write_text("s3cret")
    page = PageSignIn(client_id="page", grants=ROLES, client_secret_file=str(tmp_path / "secret"))

    async def act(browser: Browser) -> Any:
        await browser.begin()
        head = {"alg": "HS256", "typ": "JWT", "kid": "rsa"}
        body = whole_claims(browser)
        signing = f"{part(head)}.{part(body)}"
        seal = base64.urlsafe_b64encode(hashlib.sha256(b"s3cret" + signing.encode()).digest()).decode()
        return (await sign_in(browser, f"{signing}.{seal.rstrip('=')}")).status

    assert browse(keep, act, page=page) == 401
    assert [one[2] for one in refusals(keep)] == [wrong("it is signed by another algorithm")]


def test_what_is_refused_says_nothing_of_its_own_in_the_log(keep: Keep) -> None:
    secret = "s3cret-of-the-provider"

    async def act(browser: Browser) -> Any:
        await browser.begin()
        await browser.finish({"groups": [secret], "sub": secret, "email": secret})
        await browser.begin()
        await browser.finish(ADMIN, error="access_denied", error_description=secret)
        return browser.provider.url

    browse(keep, act)
    assert len(refusals(keep)) == 2
    assert secret not in json.dumps([entry.record for entry in keep.record.log.read_back()])


def test_the_claims_of_the_example_count() -> None:
    """What is damaged in the attacks above is right before: else they would show nothing."""
    assert claims()["aud"] == AUDIENCE
    assert ADMIN["groups"][0] in ROLES[0].claims.values()
