"""Access tokens of issuers: what counts, and every way in which one does not (IDN-1)."""

import asyncio
import json
import warnings
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet

from tests.server.oidc.issuing import (
    AUDIENCE,
    EC,
    ED,
    ISSUER,
    NOW,
    OTHER,
    RSA,
    SMALL,
    Told,
    access_tokens,
    claims,
    header,
    issuer,
    key_set,
    part,
    signed,
    signed_by_secret,
)
from toolkeep.server.oidc.access_tokens import AccessTokens, TokenInvalid
from toolkeep.server.oidc.issuer_keys import IssuerKeys, read_keys
from toolkeep.stores.api_tokens import Scope

PEM = RSA.as_pem(private=False)


def why(text: str, tokens: Told | None = None) -> str:
    """Why a token does not count: as its check says, and as it is told to be recorded."""
    tokens = tokens or access_tokens()
    with pytest.raises(TokenInvalid) as caught:
        asyncio.run(tokens.check(text))
    assert asyncio.run(tokens.recognize(text)) is None
    ((what, named, reason),) = tokens.told
    tokens.told.clear()
    assert (what, named in ("", ISSUER), reason) == ("access token", True, str(caught.value))
    return reason


@pytest.mark.spec("IDN-1")
def test_claims_map_to_an_agent_and_scopes() -> None:
    token = asyncio.run(access_tokens().check(signed()))
    assert (token.agent, token.scopes, token.name) == ("nightly", (Scope.CALL, Scope.MCP), "nightly")
    person = claims(sub="ada", client_id="page", groups=["staff", "approvers"])
    found = asyncio.run(access_tokens().check(signed(body=person)))
    assert (found.agent, Scope.APPROVE in found.scopes, Scope.CALL in found.scopes) == ("ada", True, False)
    # The same subject has the same id with each new token: rates and the state of flow stay.
    again = asyncio.run(access_tokens().check(signed(body=claims(jti="2", exp=NOW + 700))))
    assert again.id == token.id != found.id


@pytest.mark.parametrize(
    ("algorithm", "key"),
    [("PS256", RSA), ("ES256", EC), ("Ed25519", ED), ("EdDSA", ED), ("RS512", RSA)],
    ids=["PS256", "ES256", "Ed25519", "EdDSA", "RS512"],
)
def test_each_algorithm_counts_where_it_is_pinned_and_only_there(algorithm: str, key: Any) -> None:
    tokens = access_tokens(key_set(key), algorithm=algorithm)
    text = signed(header(alg=algorithm, kid=key.kid), key=key)
    assert asyncio.run(tokens.check(text)).agent == "nightly"
    forged = f"{text[:-8]}{text[-8:].swapcase()}"
    assert why(forged, tokens) == "its signature is wrong"
    assert "another algorithm" in why(text, access_tokens(key_set(key), algorithm="RS384"))


_HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "none": (header(alg="none"), "another algorithm"),
    "None": (header(alg="None"), "another algorithm"),
    "another of the same key": (header(alg="RS512"), "another algorithm"),
    "no algorithm": (header(alg=None), "another algorithm"),
    "an id token": (header(typ="JWT"), "no access token"),
    "a logout token": (header(typ="logout+jwt"), "no access token"),
    "no type": (header(typ=None), "no access token"),
    "a type that is no text": (header(typ=["at+jwt"]), "no access token"),
    "no key id": (header(kid=None), "names no key"),
    "an empty key id": (header(kid=""), "names no key"),
    "a key id that is no text": (header(kid=["rsa"]), "names no key"),
    "an unknown key": (header(kid="other"), "no such key"),
    "a key id that is a path": (header(kid="../../../dev/null"), "no such key"),
    "a key id that is SQL": (header(kid="' OR 1=1 --"), "no such key"),
    "jku": (header(jku="https://evil.example/jwks"), "says itself"),
    "x5u": (header(x5u="https://evil.example/x5u"), "says itself"),
    "jwk": (header(jwk=OTHER.as_dict(private=False) | {"alg": "RS256"}, kid="rsa"), "no signed token"),
    "small jwk": (header(jwk={"kty": "oct", "k": "YQ"}), "says itself"),
    "x5c": (header(x5c=["MIIB"]), "says itself"),
    "crit": (header(crit=["exp"]), "says itself"),
    "b64": (header(b64=False), "says itself"),
    "zip": (header(zip="DEF"), "says itself"),
}


@pytest.mark.parametrize("name", _HEADERS)
def test_a_header_that_says_otherwise_is_refused(name: str) -> None:
    head, reason = _HEADERS[name]
    assert reason in why(signed(head, algorithm="RS256"))


_CLAIMS: dict[str, tuple[dict[str, Any], str]] = {
    "another issuer": (claims(iss="https://evil.example"), "no issuer"),
    "a look-alike issuer": (claims(iss=f"{ISSUER}/"), "no issuer"),
    "an issuer in capitals": (claims(iss=ISSUER.upper()), "no issuer"),
    "no issuer": (claims(iss=None), "no issuer"),
    "an issuer that is a list": (claims(iss=[ISSUER]), "no issuer"),
    "another audience": (claims(aud="https://other.example/mcp"), "another resource"),
    "a longer audience": (claims(aud=f"{AUDIENCE}/more"), "another resource"),
    "a shorter audience": (claims(aud="https://keep.example.org"), "another resource"),
    "no audience": (claims(aud=None), "another resource"),
    "an empty audience": (claims(aud=[]), "another resource"),
    "an audience within a list within a list": (claims(aud=[[AUDIENCE]]), "another resource"),
    "an audience as a key": (claims(aud={AUDIENCE: True}), "another resource"),
    "bound to a key of its client": (claims(cnf={"jkt": "0ZcOCORZNYy"}), "bound to a key"),
    "expired": (claims(iat=NOW - 700, exp=NOW - 31), "expired"),
    "no expiry": (claims(exp=None), "exp is no time"),
    "an expiry as text": (claims(exp=str(NOW + 60)), "exp is no time"),
    "an expiry that is true": (claims(exp=True), "exp is no time"),
    "an expiry beyond time": (claims(exp=1e300), "exp is no time"),
    "a negative expiry": (claims(exp=-1), "exp is no time"),
    "made in the future": (claims(iat=NOW + 31, exp=NOW + 100), "not count yet"),
    "made never": (claims(iat=None), "iat is no time"),
    "not yet": (claims(nbf=NOW + 31), "not count yet"),
    "not before a text": (claims(nbf="now"), "nbf is no time"),
    "for a year": (claims(exp=NOW + 365 * 86_400), "lives longer"),
    "no subject": (claims(sub=None), "names nobody"),
    "an empty subject": (claims(sub=""), "names nobody"),
    "a subject that is a number": (claims(sub=7), "names nobody"),
    "a subject that is long": (claims(sub="a" * 257), "names nobody"),
    "a subject with a null": (claims(sub="nightly\0x"), "names nobody"),
    "a client that is a list": (claims(client_id=["nightly"], azp="nightly"), "no name"),
    "nobody's client": (claims(client_id="other"), "no grant"),
    "a client of another name": (claims(client_id="Nightly"), "no grant"),
    "a part of a grant": (claims(sub="ada", client_id="x"), "no grant"),
    "a group as a part of a text": (claims(sub="ada", client_id="x", groups="approvers,staff"), "no grant"),
    "another's group": (claims(sub="bob", client_id="x", groups=["approvers"]), "no grant"),
    "an agent of its own choice": (claims(client_id="x", agent="operator", scope="admin"), "no grant"),
}


@pytest.mark.parametrize("name", _CLAIMS)
def test_claims_that_do_not_fit_are_refused(name: str) -> None:
    body, reason = _CLAIMS[name]
    assert reason in why(signed(body=body))


def _swapped(text: str, number: int, data: Any) -> str:
    parts = text.split(".")
    parts[number] = data if isinstance(data, str) else part(data)
    return ".".join(parts)


_TEXTS: dict[str, tuple[str, str]] = {
    "signed by somebody else": (signed(key=OTHER), "signature"),
    "signed by nobody": (_swapped(signed(), 2, ""), "signature"),
    "other claims": (_swapped(signed(), 1, claims(sub="root")), "signature"),
    "another header": (_swapped(signed(), 0, header(cty="x")), "signature"),
    "the public key as a secret": (signed_by_secret(header(), PEM), "signature"),
    "HMAC": (signed_by_secret(header(alg="HS256"), PEM), "another algorithm"),
    "two parts": (".".join(signed().split(".")[:2]), "no signed token"),
    "five parts, encrypted": (f"{signed()}.a.b", "no signed token"),
    "empty": ("..", "cannot be read"),
    "padded": (_swapped(signed(), 1, part(claims()) + "="), "cannot be read"),
    "another alphabet": (_swapped(signed(), 1, "e30+"), "cannot be read"),
    "loose bits": (_swapped(signed(), 1, "e31"), "cannot be read"),
    "a claim twice": (
        _swapped(signed(), 1, b'{"iss":"https://login.example.org","iss":"https://login.example.org"}'),
        "cannot be read",
    ),
    "a header twice": (_swapped(signed(), 0, b'{"alg":"RS256","alg":"none"}'), "cannot be read"),
    "a list of claims": (signed(body=[claims()]), "cannot be read"),
    "claims that are a text": (signed(body="claims"), "cannot be read"),
    "no JSON": (_swapped(signed(), 1, b"\xff\xfe"), "cannot be read"),
    "infinite": (_swapped(signed(), 1, b'{"exp":Infinity}'), "cannot be read"),
    "deeply nested": (_swapped(signed(), 1, b"[" * 5000), "cannot be read"),
    "huge": (signed(body=claims(x="a" * 9000)), "too large"),
    "a huge header": (signed(header(x="a" * 600)), "no signed token"),
}


@pytest.mark.parametrize("name", _TEXTS)
def test_what_is_no_token_of_the_issuer_is_refused(name: str) -> None:
    text, reason = _TEXTS[name]
    assert reason in why(text)


_KEYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "a small key": (key_set(SMALL, kid="rsa"), {}),
    "a key for encryption": (key_set(RSA, use="enc"), {}),
    "a key of another algorithm": (key_set(RSA, alg="PS256"), {}),
    "a key that signs alone": (key_set(RSA, key_ops=["sign"]), {}),
    "one id twice": (key_set(RSA, OTHER), {}),
    "a private key": ({"keys": [RSA.as_dict(private=True) | {"kid": "rsa"}]}, {}),
    "a shared secret": ({"keys": [{"kty": "oct", "k": "YWJj", "kid": "rsa"}]}, {}),
    "a key of another kind": (key_set(EC, kid="rsa"), {}),
    "another curve": (key_set(ECKey.generate_key("P-384", {"kid": "rsa"})), {"algorithm": "ES256"}),
    "too many": ({"keys": [*key_set(RSA)["keys"], *({"kid": str(one)} for one in range(100))]}, {}),
    "no list": ({"keys": {"rsa": {}}}, {}),
    "nothing": ({}, {}),
    "parts that are missing": ({"keys": [{"kty": "RSA", "kid": "rsa", "n": "AQAB"}]}, {}),
    "what is no key": ({"keys": [7, None, [], {"kid": []}]}, {}),
}


@pytest.mark.parametrize("name", _KEYS)
def test_a_key_that_may_not_sign_here_does_not_count(name: str) -> None:
    document, facts = _KEYS[name]
    text = signed(header(alg=facts.get("algorithm", "RS256")), key=RSA, algorithm="RS256")
    assert "no such key" in why(text, access_tokens(document, **facts))


def _usual(**more: Any) -> str:
    return signed(header(**more))


_ACCEPTED: dict[str, tuple[str, Any]] = {
    "no expiry": (signed(body=claims(exp=None)), RSA),
    "expired": (signed(body=claims(iat=NOW - 700, exp=NOW - 600)), RSA),
    "not yet": (signed(body=claims(nbf=NOW + 600)), RSA),
    "no audience": (signed(body=claims(aud=None)), RSA),
    "another audience": (signed(body=claims(aud="https://other.example")), RSA),
    "no issuer": (signed(body=claims(iss=None)), RSA),
    "no claims at all": (signed(body={}), RSA),
    "a claim twice": (signed(body=json.dumps(claims())[:-1].encode() + b', "sub": "root"}'), RSA),
    "a header twice": (
        signed(b'{"alg":"RS256","typ":"JWT","typ":"at+jwt","kid":"rsa"}', algorithm="RS256"),
        RSA,
    ),
    "an infinite number": (signed(body=json.dumps(claims())[:-1].encode() + b', "x": Infinity}'), RSA),
    "another type": (_usual(typ="logout+jwt"), RSA),
    "no type": (_usual(typ=None), RSA),
    "no key id": (_usual(kid=None), RSA),
    "another key id": (_usual(kid="other"), RSA),
    "a key elsewhere": (_usual(jku="https://evil.example/jwks"), RSA),
    "a certificate elsewhere": (_usual(x5u="https://evil.example/x5u"), RSA),
    "a certificate that it brings": (_usual(x5c=["MIIB"]), RSA),
    "a key that it brings": (_usual(jwk={"kty": "oct", "k": "YQ"}), RSA),
    "a small key": (signed(header(kid="small"), key=SMALL), SMALL),
}


@pytest.mark.parametrize("name", _ACCEPTED)
def test_what_the_library_accepts_by_default_is_refused_here(name: str) -> None:
    """Each of them passes `joserfc.jwt.decode`: the library is used for signatures alone."""
    text, key = _ACCEPTED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert jwt.decode(text, key, algorithms=["RS256"]).claims is not None
    assert why(text, access_tokens(key_set(key)))


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("a small key", key_set(SMALL)),
        ("a private key", {"keys": [RSA.as_dict(private=True)]}),
        ("keys without an id", {"keys": [RSA.as_dict(private=False) | {"kid": None}]}),
        ("one id twice", key_set(RSA, OTHER)),
        ("a shared secret", {"keys": [{"kty": "oct", "k": "YWJj", "kid": "rsa"}]}),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_key_sets_the_library_accepts_by_default_do_not_count_here(name: str, document: Any) -> None:
    listed = [{n: v for n, v in one.items() if v is not None} for one in document["keys"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert len(KeySet.import_key_set({"keys": listed}).keys) == len(listed), name
    assert read_keys(document, "RS256") == {}


@pytest.mark.parametrize(("bits", "exponent"), [(16_384, 65_537), (4096, (1 << 4000) + 1), (2040, 65_537)])
def test_a_key_that_costs_time_or_is_weak_does_not_count(bits: int, exponent: int) -> None:
    numbers = {"n": (1 << (bits - 1)) + 1, "e": exponent}
    parts = {name: part(one.to_bytes((one.bit_length() + 7) // 8, "big")) for name, one in numbers.items()}
    assert read_keys({"keys": [{"kty": "RSA", "kid": "rsa", **parts}]}, "RS256") == {}


def test_a_small_key_does_not_count_whatever_a_library_says_of_it() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert read_keys(key_set(SMALL), "RS256") == {}
        assert list(read_keys(key_set(RSA), "RS256")) == ["rsa"]


def test_a_scope_counts_only_if_the_token_names_it_where_that_is_set() -> None:
    tokens = access_tokens(limits_scopes=True)
    some = asyncio.run(tokens.check(signed(body=claims(scope="openid call admin"))))
    none = asyncio.run(tokens.check(signed(body=claims(scope=["call"]))))
    assert (some.scopes, none.scopes) == ((Scope.CALL,), ())


def test_a_withdrawn_key_ends_tokens_that_were_verified_before_within_minutes() -> None:
    served, text = [key_set(RSA)], signed()

    async def fetch() -> dict[str, Any]:
        return served[0]

    async def whole() -> list[Any]:
        elapsed, said = [0.0], list[Any]()
        tokens = AccessTokens(
            {ISSUER: (issuer(), IssuerKeys(issuer(), fetch, lambda: elapsed[0]))},
            lambda *_: None,
            lambda: NOW,
        )
        for moment in (0.0, 599.0, 601.0, 601.0):
            elapsed[0] = moment
            said.append(await tokens.recognize(text) is not None)
            served[0] = key_set(OTHER)
            await asyncio.sleep(0)  # the fetch runs beside the requests
        return said

    assert asyncio.run(whole()) == [True, True, True, False]


def test_a_token_that_was_verified_before_ends_in_time_and_with_its_key() -> None:
    now, served = [NOW], [key_set(RSA)]
    text = signed()

    async def fetch() -> dict[str, Any]:
        return served[0]

    async def whole() -> list[Any]:
        elapsed = [0.0]
        keys = IssuerKeys(issuer(), fetch, lambda: elapsed[0])
        tokens = AccessTokens({ISSUER: (issuer(), keys)}, lambda *_: None, lambda: now[0])
        said: list[Any] = [(await tokens.check(text)).agent, (await tokens.check(text)).agent]
        elapsed[0] = 61.0
        await keys.find("made up")  # the same keys, fetched again
        said.append((await tokens.check(text)).agent)
        now[0] = NOW + 631
        said.append(await tokens.recognize(text))
        now[0] = NOW
        said.append((await tokens.check(text)).agent)
        served[0], elapsed[0] = key_set(OTHER), 122.0
        await keys.find("made up")
        said.append(await tokens.recognize(text))
        return said

    assert asyncio.run(whole()) == ["nightly", "nightly", "nightly", None, "nightly", None]
