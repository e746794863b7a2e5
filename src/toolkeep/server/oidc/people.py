"""People who sign in to the page by OpenID Connect: the code flow with PKCE, and back-channel logout (IDN-2).

An attempt is sealed in a cookie of the browser that began it. It holds `state`, `nonce` and the PKCE
verifier, so an answer counts in that browser alone, once, and for the provider that was asked. Roles come
from claims of the ID token, by grants of the configuration. Access tokens of the provider are not used, and
not stored.
"""

import base64
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec

from toolkeep.calls import Identity
from toolkeep.config.identity_settings import Issuer, PageSignIn
from toolkeep.limits import SIGN_IN_SECONDS
from toolkeep.server.oidc.access_tokens import (
    LEEWAY_SECONDS,
    AccessTokens,
    Tell,
    TokenInvalid,
    granted,
    is_for,
    is_name,
    number_of,
    subject_of,
)
from toolkeep.server.oidc.issuer_documents import IssuerDocuments, SharedMetadata
from toolkeep.server.oidc.issuer_keys import KeysUnavailable
from toolkeep.server.oidc.person import Attempt, Person, SignInInvalid
from toolkeep.server.oidc.refusals import What

_ANSWER_CHARS: Final = 4096
"""Of one parameter of an answer; codes of real providers have up to 1,500."""
_EXCHANGES: Final = 32
"""Codes that one provider is asked about at once: anybody can make some up, and it may be slow."""
_LOGOUTS: Final = 10_000
"""Logout tokens that are remembered; then all are forgotten. A repeated one only ends the same again."""
_LOGOUT_SECONDS: Final = 120.0
"""How old a logout token may be: as long as providers let them live."""
_LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"
_ID_TOKEN: Final = ("jwt", "")
_LOGOUT: Final = ("logout+jwt", "application/logout+jwt")


class Begun(msgspec.Struct, frozen=True):
    """What the browser gets for an attempt."""

    attempt: Attempt
    key: str
    url: str


class Logout(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider ended."""

    issuer: str
    subject: str
    session: str
    issued_by: float
    token_id: str


class _Provider:
    """One provider that people sign in with."""

    def __init__(self, issuer: Issuer, page: PageSignIn, documents: IssuerDocuments) -> None:
        self.issuer = issuer
        self.page = page
        self.documents = documents
        self._metadata = SharedMetadata(documents)
        self.exchanges = 0
        """Codes that it is asked about now."""

    async def metadata(self) -> dict[str, Any]:
        """Its metadata; raises `SignInInvalid`."""
        try:
            return await self._metadata.now()
        except KeysUnavailable as error:
            raise SignInInvalid(str(error)) from error


class PeopleSignIn:
    """The providers that people sign in with."""

    def __init__(
        self,
        tokens: AccessTokens,
        providers: Sequence[tuple[Issuer, IssuerDocuments]],
        tell: Tell,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`tokens` knows the keys of the providers."""
        self._tokens = tokens
        self._providers = {
            one.issuer: _Provider(one, one.page, documents)
            for one, documents in providers
            if one.page is not None
        }
        self._tell = tell
        self._clock = clock
        self._logouts: set[tuple[str, str]] = set()

    def refused(self, what: What, issuer: str, reason: str) -> None:
        """Tell of a sign-in or a logout that was refused."""
        self._tell(what, issuer if issuer in self._providers else "", reason)

    def choices(self) -> list[tuple[str, str]]:
        """The providers, each with the name that people are shown."""
        return [(name, one.page.label or _host(name)) for name, one in self._providers.items()]

    async def begin(self, issuer: str, redirect_uri: str, *, is_fresh: bool) -> Begun:
        """Begin a sign-in; raises `SignInInvalid`."""
        provider = self._provider(issuer)
        page, documents = provider.page, provider.documents
        metadata = await provider.metadata()
        endpoint = metadata.get("authorization_endpoint")
        if not isinstance(endpoint, str) or not documents.may_ask(endpoint):
            raise SignInInvalid("its metadata names no authorization endpoint that may be used")
        # Without it, a code that somebody else sees could be redeemed by them.
        if "S256" not in _listed(metadata, "code_challenge_methods_supported"):
            raise SignInInvalid("it does not offer PKCE with S256")
        key = secrets.token_urlsafe(32)
        attempt = Attempt(
            issuer=issuer,
            state=secrets.token_urlsafe(32),
            nonce=secrets.token_urlsafe(32),
            verifier=secrets.token_urlsafe(48),
            redirect_uri=redirect_uri,
            key_hash=_hash(key),
            began_at=self._clock(),
            is_fresh=is_fresh,
        )
        asked = {
            "response_type": "code",
            "client_id": page.client_id,
            "redirect_uri": redirect_uri,
            "scope": page.scope,
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": base64.urlsafe_b64encode(_hash(attempt.verifier)).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        if is_fresh:
            asked |= {"prompt": "login", "max_age": "0"}
        joint = "&" if "?" in endpoint else "?"
        return Begun(attempt, key, f"{endpoint}{joint}{urlencode(asked)}")

    async def finish(self, attempt: Attempt, key: str, answer: Mapping[str, str]) -> Person:
        """The person that the provider's answer names; raises `SignInInvalid`."""
        provider = self._provider(attempt.issuer)
        now = self._clock()
        if not 0 <= now - attempt.began_at < SIGN_IN_SECONDS:
            raise SignInInvalid("it began too long ago")
        if not hmac.compare_digest(_hash(key), attempt.key_hash):
            raise SignInInvalid("another page began it")
        if not hmac.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise SignInInvalid("the answer belongs to another attempt")
        metadata = await provider.metadata()
        self._check_issuer(answer, attempt, metadata)
        code = answer.get("code", "")
        if "error" in answer or not 0 < len(code) <= _ANSWER_CHARS:
            raise SignInInvalid("the provider did not let the person in")
        if provider.exchanges >= _EXCHANGES:
            raise SignInInvalid("too many sign-ins are under way")
        provider.exchanges += 1
        try:
            claims = await self._exchange(provider, metadata, attempt, code)
        finally:
            provider.exchanges -= 1
        return _person(provider.issuer, provider.page, attempt, claims, now)

    def _check_issuer(self, answer: Mapping[str, str], attempt: Attempt, metadata: Mapping[str, Any]) -> None:
        """Against mix-up: a code of one provider must not be sent to another (RFC 9207)."""
        said = answer.get("iss")
        promised = metadata.get("authorization_response_iss_parameter_supported") is True
        if said is None and (promised or len(self._providers) > 1):
            raise SignInInvalid("the answer does not say which provider made it")
        if said is not None and said != attempt.issuer:
            raise SignInInvalid("the answer is from another provider")

    async def _exchange(
        self, provider: _Provider, metadata: Mapping[str, Any], attempt: Attempt, code: str
    ) -> Mapping[str, Any]:
        """The claims of the ID token for a code."""
        page = provider.page
        endpoint = metadata.get("token_endpoint")
        if not isinstance(endpoint, str):
            raise SignInInvalid("its metadata names no token endpoint")
        fields = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        secret = _secret(page)
        headers = _basic(page.client_id, secret) if secret else {}
        try:
            said = await provider.documents.post_form(
                endpoint, fields if secret else {**fields, "client_id": page.client_id}, headers
            )
            text = said.get("id_token")
            if not isinstance(text, str):
                raise SignInInvalid("the provider gave no ID token")
            found, claims = await self._tokens.verified_claims(text, _ID_TOKEN)
            _check_access_token(claims, said.get("access_token"), found.algorithm)
        except KeysUnavailable as error:
            raise SignInInvalid(str(error)) from error
        except TokenInvalid as error:
            raise SignInInvalid(f"its ID token does not count: {error}") from error
        if found is not provider.issuer:
            raise SignInInvalid("its ID token is from another provider")
        return claims

    async def log_out(self, text: str) -> Logout:
        """What a logout token ends (OpenID Connect Back-Channel Logout 1.0); raises `SignInInvalid`."""
        try:
            issuer, claims = await self._tokens.verified_claims(text, _LOGOUT)
        except TokenInvalid as error:
            raise SignInInvalid(f"the logout token does not count: {error}") from error
        page = self._provider(issuer.issuer).page
        now = self._clock()
        issued_at = number_of(claims, "iat")
        events = claims.get("events")
        subject, session, token_id = (claims.get(name, "") for name in ("sub", "sid", "jti"))
        for is_wrong, reason in (
            (not is_for(claims, page.client_id), "it is for another client"),
            (now - issued_at > _LOGOUT_SECONDS, "it is too old"),
            (not _is_logout(events), "it is no logout"),
            # An ID token that is replayed here must log nobody out.
            ("nonce" in claims, "it has a nonce"),
            (not all(map(is_name, (subject, session, token_id))), "its names are none"),
            (not token_id, "it has no id"),
            (not subject and not session, "it names neither a subject nor a session"),
            ((issuer.issuer, token_id) in self._logouts, "it was used before"),
        ):
            if is_wrong:
                raise SignInInvalid(f"the logout token does not count: {reason}")
        return Logout(
            issuer=issuer.issuer, subject=subject, session=session, issued_by=issued_at, token_id=token_id
        )

    def note_logout(self, over: Logout) -> None:
        """Remember a logout that was stored: one that was not may come again."""
        if len(self._logouts) >= _LOGOUTS:
            self._logouts.clear()
        self._logouts.add((over.issuer, over.token_id))

    def named_issuer(self, text: str) -> str:
        """The provider that a logout token names, whoever wrote it; empty if it names none."""
        return self._tokens.named_issuer(text)

    def _provider(self, issuer: str) -> _Provider:
        found = self._providers.get(issuer)
        if found is None:
            raise SignInInvalid("people do not sign in with this provider")
        return found


def _person(
    issuer: Issuer, page: PageSignIn, attempt: Attempt, claims: Mapping[str, Any], now: float
) -> Person:
    """The person of an ID token whose signature and times were checked."""
    try:
        audience = claims.get("aud")
        # A token for several clients must say which of them asked for it.
        usual = "" if isinstance(audience, list) and len(audience) > 1 else page.client_id
        if not is_for(claims, page.client_id) or claims.get("azp", usual) != page.client_id:
            raise SignInInvalid("its ID token is for another client")
        # The token belongs to the request of this browser, and is no earlier one.
        nonce = claims.get("nonce")
        if not isinstance(nonce, str) or not hmac.compare_digest(nonce.encode(), attempt.nonce.encode()):
            raise SignInInvalid("its ID token belongs to another attempt")
        authenticated_at = number_of(claims, "auth_time") if "auth_time" in claims else 0.0
        # It would make the session fresh at some later time, without a sign-in.
        if authenticated_at > now + LEEWAY_SECONDS:
            raise SignInInvalid("its ID token says that the person authenticated in the future")
        if attempt.is_fresh and authenticated_at < attempt.began_at - LEEWAY_SECONDS:
            raise SignInInvalid("the provider did not ask the person to authenticate anew")
        subject, _ = subject_of(claims)
        agent, scopes = granted(claims, page.grants)
        session = claims.get("sid", "")
        # A logout that names the session would not find it.
        if not is_name(session):
            raise SignInInvalid("its ID token names a session that is no name")
        return Person(
            identity=Identity(client=page.client_id, issuer=issuer.issuer, subject=subject),
            agent=agent,
            scopes=scopes,
            issued_at=number_of(claims, "iat"),
            ends_at=number_of(claims, "exp"),
            authenticated_at=authenticated_at,
            session=session,
        )
    except TokenInvalid as error:
        raise SignInInvalid(f"its ID token does not count: {error}") from error


def _check_access_token(claims: Mapping[str, Any], token: Any, algorithm: str) -> None:
    """Raise if an ID token says that it belongs to another access token (OpenID Connect Core, 3.1.3.8)."""
    if "at_hash" not in claims:
        return
    size = int(algorithm[-3:]) if algorithm[-3:] in ("256", "384") else 512
    digest = hashlib.new(f"sha{size}", token.encode() if isinstance(token, str) else b"").digest()
    half = base64.urlsafe_b64encode(digest[: len(digest) // 2]).rstrip(b"=").decode()
    if claims["at_hash"] != half:
        raise TokenInvalid("it belongs to another access token")


def _is_logout(events: Any) -> bool:
    return isinstance(events, dict) and isinstance(events.get(_LOGOUT_EVENT), dict)


def _secret(page: PageSignIn) -> str:
    if not page.client_secret_file:
        return ""
    try:
        return Path(page.client_secret_file).read_text().strip()
    except (OSError, ValueError) as error:
        raise SignInInvalid("the file of the client's secret cannot be read") from error


def _basic(client: str, secret: str) -> dict[str, str]:
    # Form-encoded before base64 (RFC 6749, section 2.3.1).
    words = f"{quote(client, safe='')}:{quote(secret, safe='')}"
    return {"Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}


def _listed(metadata: Mapping[str, Any], name: str) -> list[Any]:
    found = metadata.get(name)
    return found if isinstance(found, list) else []


def _host(issuer: str) -> str:
    return issuer.partition("://")[2].partition("/")[0]


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
