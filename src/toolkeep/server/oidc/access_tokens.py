"""Access tokens (JWT) of issuers that the configuration names, as callers with an agent and scopes (IDN-1).

A token is checked in this order: its form and size; the issuer, by exact comparison; the pinned algorithm and
type; the key, by its id; the signature; then audience, times and subject; at last the grants of the
configuration, of which the first that matches says agent and scopes. Nothing else is taken from a token.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeGuard

import jiter
from joserfc import jws
from joserfc.errors import JoseError

from toolkeep.calls import Identity
from toolkeep.config.identity_settings import ClaimGrant, Issuer
from toolkeep.server.oidc.issuer_keys import IssuerKeys, Key
from toolkeep.server.oidc.refusals import What
from toolkeep.stores.api_tokens import Scope, Token, read_scopes
from toolkeep.text.display import echo_name

TOKEN_BYTES: Final = 8192
"""Real ones have up to 3 KB; with more, many groups are in them, and headers of proxies overflow."""
_HEADER_BYTES: Final = 512
"""In base64: an algorithm, a type and a key id take 100. The signature library takes no more."""
LEEWAY_SECONDS: Final = 30.0
"""By which clocks of two machines may differ that are set by NTP, with room."""
_REMEMBERED: Final = 10_000
"""Tokens that were verified, a few hundred bytes each; then all are verified anew."""
_NAME_CHARS: Final = 256
"""OpenID Connect allows a subject 255."""
_REFUSED_HEADERS: Final = ("crit", "jku", "jwk", "x5c", "x5u", "zip", "b64")
"""Nothing in a token says where its key comes from, or how it is to be read."""
_PRIMITIVES: Final = {"EdDSA": "Ed25519"}
"""By the earlier name: keys with the curve Ed448 do not count (`issuer_keys`)."""
_TYPES: Final = {"at+jwt": ("at+jwt", "application/at+jwt"), "JWT": ("jwt", "at+jwt", "application/at+jwt")}


Tell = Callable[[What, str, str], None]
"""Is told of what is refused: what it is, the issuer that it names, and why."""


class TokenInvalid(Exception):
    """A token does not count, and why: for the operator's log, never for its bearer."""


class _Read(NamedTuple):
    header: Mapping[str, Any]
    claims: Mapping[str, Any]


class _Verified(NamedTuple):
    token: Token
    issuer: str
    key_id: str
    key: Key


class AccessTokens:
    """Recognizes the access tokens of all issuers."""

    def __init__(
        self,
        keys: Mapping[str, tuple[Issuer, IssuerKeys]],
        tell: Tell,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`keys` are those of the issuers by their names."""
        self._issuers = keys
        self._tell = tell
        self._clock = clock
        self._known: dict[bytes, _Verified] = {}

    async def recognize(self, text: str) -> Token | None:
        """The caller that a token names; None if it does not count."""
        try:
            return await self.check(text)
        except TokenInvalid as error:
            self._tell("access token", self.named_issuer(text), str(error))
            return None

    def refuse(self, token: Token) -> None:
        """Tell that a token was revoked here."""
        issuer = token.identity.issuer if token.identity else ""
        self._tell("access token", issuer, "it was revoked here, or its subject logged out")

    def named_issuer(self, text: str) -> str:
        """The issuer of the configuration that a token names, whoever wrote it; empty if it names none."""
        try:
            named = _read(text).claims.get("iss")
        except TokenInvalid:
            return ""
        return named if isinstance(named, str) and named in self._issuers else ""

    async def check(self, text: str) -> Token:
        """The caller that a token names; raises `TokenInvalid`."""
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        known = self._known.get(digest)
        if known is not None and self._still_counts(known):
            return known.token
        self._known.pop(digest, None)
        verified = await self._verify(text)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[digest] = verified
        return verified.token

    def _still_counts(self, verified: _Verified) -> bool:
        """Whether what was verified before counts now: it has not expired, and its key is still published."""
        _, keys = self._issuers[verified.issuer]
        return verified.token.is_live(self._clock()) and keys.has(verified.key_id, verified.key)

    async def verified_claims(self, text: str, types: tuple[str, ...]) -> tuple[Issuer, Mapping[str, Any]]:
        """Issuer and claims of a token of another type; raises `TokenInvalid`.

        Its signature and times are checked; whom it is for, and what it is about, is not.
        """
        issuer, claims, _, _ = await self._signed(text, types)
        _check_times(claims, issuer, self._clock())
        return issuer, claims

    async def _verify(self, text: str) -> _Verified:
        issuer, claims, key_id, key = await self._signed(text, None)
        expires_at, issued_at = _check_times(claims, issuer, self._clock())
        if not is_for(claims, issuer.audience):
            raise TokenInvalid("it is for another resource")
        # It counts only with a proof by its client's key (DPoP, mTLS). Nothing here checks one: in the hands
        # of a thief it would be as good as a bearer token.
        if "cnf" in claims:
            raise TokenInvalid("it is bound to a key of its client")
        subject, client = subject_of(claims)
        agent, scopes = granted(claims, issuer.grants)
        if issuer.limits_scopes:
            named = claims.get("scope")
            said = named.split(" ") if isinstance(named, str) else ()
            scopes = tuple(scope for scope in scopes if scope.value in said)
        # The same for every token of a subject: a new one brings no new rate limit and no clean session.
        identity = hashlib.sha256("\0".join((issuer.issuer, subject, client)).encode()).hexdigest()[:16]
        token = Token(
            id=identity,
            name=echo_name(subject),
            scopes=scopes,
            agent=agent,
            created_at=issued_at,
            expires_at=expires_at,
            identity=Identity(
                client=client, issuer=issuer.issuer, subject=subject, token_id=_token_id(claims)
            ),
        )
        return _Verified(token, issuer.issuer, key_id, key)

    async def _signed(
        self, text: str, types: tuple[str, ...] | None
    ) -> tuple[Issuer, Mapping[str, Any], str, Key]:
        """Issuer, claims and key of a token whose signature is right; without types, of an access token."""
        header, claims = _read(text)
        named = claims.get("iss")
        found = self._issuers.get(named) if isinstance(named, str) else None
        if found is None:
            raise TokenInvalid("no issuer of the configuration made it")
        issuer, keys = found
        key_id = _check_header(header, issuer, _TYPES[issuer.token_type] if types is None else types)
        key = await keys.find(key_id)
        if key is None:
            raise TokenInvalid("its issuer has no such key")
        if not _is_signed(text, key, issuer.algorithm):
            raise TokenInvalid("its signature is wrong")
        return issuer, claims, key_id, key


def _read(text: str) -> _Read:
    """Header and claims, which anybody may have written."""
    if len(text) > TOKEN_BYTES:
        raise TokenInvalid("it is too large")
    parts = text.split(".")
    if len(parts) != 3 or len(parts[0]) > _HEADER_BYTES:
        raise TokenInvalid("it is no signed token")
    return _Read(_object(parts[0]), _object(parts[1]))


def _is_signed(text: str, key: Key, algorithm: str) -> bool:
    # The primitive alone: header and claims were read above, once and strictly.
    primitive = jws.JWSRegistry.algorithms[_PRIMITIVES.get(algorithm, algorithm)]
    signed, _, signature = text.rpartition(".")
    try:
        primitive.check_key(key)
        return primitive.verify(signed.encode(), _decoded(signature), key)
    except (JoseError, ValueError):
        return False


def _object(part: str) -> dict[str, Any]:
    try:
        data = jiter.from_json(_decoded(part), allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise TokenInvalid("it cannot be read") from error
    if not isinstance(data, dict):
        raise TokenInvalid("it cannot be read")
    return data


def _decoded(part: str) -> bytes:
    """The bytes of a part; raises `ValueError`."""
    raw = base64.b64decode(part + "=" * (-len(part) % 4), altchars=b"-_", validate=True)
    # One spelling for each: what is signed and what is read must be the same.
    if base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != part:
        raise ValueError("another spelling")
    return raw


def _check_header(header: Mapping[str, Any], issuer: Issuer, types: tuple[str, ...]) -> str:
    """The id of its key."""
    if header.get("alg") != issuer.algorithm:
        raise TokenInvalid("it is signed by another algorithm")
    if any(name in header for name in _REFUSED_HEADERS):
        raise TokenInvalid("it says itself how it is to be checked")
    kind = header.get("typ", "")
    if not isinstance(kind, str) or kind.lower() not in types:
        raise TokenInvalid("it is no access token" if "at+jwt" in types else "it is of another type")
    key_id = header.get("kid")
    if not isinstance(key_id, str) or not key_id:
        raise TokenInvalid("it names no key")
    return key_id


def _check_times(claims: Mapping[str, Any], issuer: Issuer, now: float) -> tuple[float, float]:
    """When it ends, and when it was made."""
    expires_at, issued_at = number_of(claims, "exp"), number_of(claims, "iat")
    if now >= expires_at + LEEWAY_SECONDS:
        raise TokenInvalid("it has expired")
    if issued_at > now + LEEWAY_SECONDS or number_of(claims, "nbf", issued_at) > now + LEEWAY_SECONDS:
        raise TokenInvalid("it does not count yet")
    if expires_at - issued_at > issuer.max_hours * 3600:
        raise TokenInvalid("it lives longer than tokens of its issuer may")
    return expires_at + LEEWAY_SECONDS, issued_at


def number_of(claims: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A claim that is a time; raises `TokenInvalid`."""
    value = claims.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e11:
        raise TokenInvalid(f"its {name} is no time")
    return float(value)


def is_for(claims: Mapping[str, Any], wanted: str) -> bool:
    """Whether `aud` names an audience."""
    audience = claims.get("aud")
    named = [audience] if isinstance(audience, str) else audience
    return isinstance(named, list) and wanted in named


def subject_of(claims: Mapping[str, Any]) -> tuple[str, str]:
    """Whom it names, and the client that it was given to."""
    subject = claims.get("sub")
    if not isinstance(subject, str) or not subject or not is_name(subject):
        raise TokenInvalid("it names nobody")
    client = claims.get("client_id", claims.get("azp", ""))
    if not is_name(client):
        raise TokenInvalid("its client is no name")
    return subject, client


def is_name(value: Any) -> TypeGuard[str]:
    """Whether a claim may be a name or id; an empty one is none."""
    return isinstance(value, str) and len(value) <= _NAME_CHARS and "\0" not in value


def _token_id(claims: Mapping[str, Any]) -> str:
    token_id = claims.get("jti", "")
    if not is_name(token_id):
        raise TokenInvalid("its id is no name")
    return token_id


def granted(claims: Mapping[str, Any], grants: Sequence[ClaimGrant]) -> tuple[str, tuple[Scope, ...]]:
    """Agent and scopes of the first grant that matches."""
    for grant in grants:
        if all(_matches(claims.get(name), wanted) for name, wanted in grant.claims.items()):
            return grant.agent, read_scopes(grant.scopes)
    raise TokenInvalid("no grant of the configuration matches its claims")


def _matches(claim: Any, wanted: str) -> bool:
    return claim == wanted or (isinstance(claim, list) and wanted in claim)
