"""What an issuer publishes: its metadata and its keys, over vetted connections.

The operator named the issuer, and its metadata names other URLs: each is https at a public address, or at one
in the scope that the configuration names. Redirects are not followed, and errors quote nothing that the
issuer said.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final
from urllib.parse import urlencode

import jiter

from toolkeep.config.identity_settings import Issuer
from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError
from toolkeep.network.fetch import Answer, fetch
from toolkeep.network.hosts import HostRefused, HostScope, read_url
from toolkeep.network.http_endpoint import Request
from toolkeep.server.oidc.issuer_keys import KeysUnavailable

_DOCUMENT_BYTES: Final = 256 * 1024
"""Metadata and key sets have a few KB; a hundred keys with certificates some 200."""
_SECONDS: Final = 10.0
"""For metadata and keys together. Only callers with an unknown key wait for it."""
_BOUNDS: Final = NetworkBounds(max_requests=4, max_bytes=4 * _DOCUMENT_BYTES)
_METADATA_SECONDS: Final = 600.0
"""As long as keys count: a provider that moves an endpoint is followed within ten minutes."""
_AGAIN_SECONDS: Final = 10.0
"""After a failure: anybody can begin a sign-in, and a person may try again soon."""


class IssuerDocuments:
    """One issuer as a server of documents."""

    def __init__(self, issuer: Issuer) -> None:
        self._issuer = issuer
        self._named = (HostScope.read_grant(issuer.host),) if issuer.host else ()

    async def keys(self) -> dict[str, Any]:
        """Its key set; raises `KeysUnavailable`."""
        try:
            async with asyncio.timeout(_SECONDS):
                budget = Budget(_BOUNDS)
                return await self._document(self._issuer.keys or await self._keys_url(budget), budget)
        except TimeoutError as error:
            raise _too_slow() from error

    async def metadata(self) -> dict[str, Any]:
        """Its metadata (OpenID Connect Discovery); raises `KeysUnavailable`."""
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._metadata(Budget(_BOUNDS))
        except TimeoutError as error:
            raise _too_slow() from error

    async def clock(self) -> float | None:
        """Its clock (`Date`) in POSIX seconds; None if it does not say. Raises `KeysUnavailable`."""
        try:
            async with asyncio.timeout(_SECONDS):
                answer = await self._answered(_get(self._metadata_url()), Budget(_BOUNDS))
            return parsedate_to_datetime(answer.header("date")).timestamp()
        except TimeoutError as error:
            raise _too_slow() from error
        except (ValueError, OverflowError):
            return None

    def may_ask(self, url: str) -> bool:
        """Whether a URL that its metadata names is https.

        An issuer that is itself reached over http, at an address of this machine, may name such.
        """
        try:
            host = read_url(url)
        except HostRefused:
            return False
        is_named = any(scope.contains(host) for scope in self._named)
        is_local = self._issuer.issuer.startswith("http://") or url == self._issuer.keys
        return host.scheme == "https" or (is_named and is_local)

    async def post_form(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]
    ) -> dict[str, Any]:
        """Its answer to a form; raises `KeysUnavailable`."""
        body = urlencode(fields).encode()
        given = (("Accept", "application/json"), *headers.items())
        request = Request(
            method="POST",
            url=url,
            headers=given,
            body=body,
            content_type="application/x-www-form-urlencoded",
        )
        try:
            async with asyncio.timeout(_SECONDS):
                return await self._asked(request, Budget(_BOUNDS))
        except TimeoutError as error:
            raise _too_slow() from error

    def _metadata_url(self) -> str:
        return f"{self._issuer.issuer.rstrip('/')}/.well-known/openid-configuration"

    async def _metadata(self, budget: Budget) -> dict[str, Any]:
        found = await self._document(self._metadata_url(), budget)
        # Exact comparison: normalization would let look-alike issuers pass.
        if found.get("issuer") != self._issuer.issuer:
            raise KeysUnavailable("its metadata names another issuer")
        return found

    async def _keys_url(self, budget: Budget) -> str:
        url = (await self._metadata(budget)).get("jwks_uri")
        if not isinstance(url, str) or len(url) > 1024:
            raise KeysUnavailable("its metadata names no keys")
        return url

    async def _document(self, url: str, budget: Budget) -> dict[str, Any]:
        return await self._asked(_get(url), budget)

    async def _answered(self, request: Request, budget: Budget) -> Answer:
        try:
            host = read_url(request.url)
            if not self.may_ask(request.url):
                raise KeysUnavailable("it names a URL that is not https")
            # A public address, whatever the name says; a private one only in the scope of the configuration.
            scopes = (HostScope.of(host), *self._named)
            reach = HostAllowlist(reads=scopes, writes=scopes if request.method == "POST" else ())
            return await fetch(request, reach, budget, _DOCUMENT_BYTES, redirects=0)
        except HostRefused as error:
            raise KeysUnavailable("it names something that is no URL") from error
        except NetworkError as error:
            raise KeysUnavailable(error.reason, error.remedy) from error

    async def _asked(self, request: Request, budget: Budget) -> dict[str, Any]:
        answer = await self._answered(request, budget)
        if answer.status != 200:
            raise KeysUnavailable(f"it answered with status {answer.status}")
        try:
            data = jiter.from_json(answer.body, allow_inf_nan=False, catch_duplicate_keys=True)
        except ValueError:
            data = None
        if not isinstance(data, dict):
            raise KeysUnavailable("it did not answer with a JSON object")
        return data


def _get(url: str) -> Request:
    return Request(method="GET", url=url, headers=(("Accept", "application/json"),))


def _too_slow() -> KeysUnavailable:
    return KeysUnavailable(f"it did not answer in {_SECONDS:g} s")


class SharedMetadata:
    """The metadata of an issuer, asked for once for all who wait."""

    def __init__(self, documents: IssuerDocuments, clock: Callable[[], float] = time.monotonic) -> None:
        self._documents = documents
        self._clock = clock
        self._found: dict[str, Any] | KeysUnavailable = KeysUnavailable("it was not asked")
        self._until = float("-inf")
        self._asking: asyncio.Task[None] | None = None

    async def now(self) -> dict[str, Any]:
        """The metadata, at most ten minutes old; raises `KeysUnavailable`."""
        if self._clock() >= self._until:
            if self._asking is None:
                self._asking = asyncio.ensure_future(self._ask())
            await asyncio.shield(self._asking)
        if isinstance(self._found, KeysUnavailable):
            raise KeysUnavailable(str(self._found))
        return self._found

    async def _ask(self) -> None:
        try:
            self._found = await self._documents.metadata()
            self._until = self._clock() + _METADATA_SECONDS
        except KeysUnavailable as error:
            self._found = error
            self._until = self._clock() + _AGAIN_SECONDS
        finally:
            self._asking = None
