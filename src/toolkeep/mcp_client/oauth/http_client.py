"""HTTP client for authorization servers: https, vetted public addresses, no redirects, small bounds.

A hostile server chooses the URLs, so each request is vetted by itself (SSRF): only public addresses are
dialed, and redirects are not followed. Errors quote nothing that these servers said.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import jiter

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.mcp_client.oauth.server_urls import check_https
from toolkeep.mcp_client.transport import UpstreamFailed
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError
from toolkeep.network.fetch import Answer, fetch
from toolkeep.network.hosts import HostScope, read_url
from toolkeep.network.http_endpoint import Request

DOCUMENT_BYTES: Final = 256 * 1024
SECONDS: Final = 20.0
"""Time limit of one request."""
REQUESTS: Final = 30
"""Maximum number of requests of one client. Discovery, registration and token exchange take under ten."""


class AuthorizationServerClient:
    """HTTP client of one sign-in, with one network budget."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._budget = Budget(NetworkBounds(max_requests=REQUESTS, max_bytes=8 * DOCUMENT_BYTES))
        self._seconds = seconds

    async def document(self, url: str) -> dict[str, Any] | None:
        """GET a JSON object; None for a 4xx status. Raises `UpstreamFailed`."""
        answer = await self._ask(Request(method="GET", url=url, headers=(("Accept", "application/json"),)))
        if 400 <= answer.status < 500:
            return None
        if answer.status != 200:
            raise UpstreamFailed(f"'{answer.host}' answered with status {answer.status}")
        return _object(answer)

    async def post_form(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """POST a form; returns status and JSON object. Raises `UpstreamFailed`."""
        return await self._post(url, urlencode(fields), "application/x-www-form-urlencoded", headers)

    async def post_json(self, url: str, data: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """POST a JSON object; returns status and JSON object. Raises `UpstreamFailed`."""
        return await self._post(url, json.dumps(data), "application/json", {})

    async def _post(
        self, url: str, text: str, kind: str, headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        lines = tuple({"Accept": "application/json", **headers}.items())
        answer = await self._ask(
            Request(method="POST", url=url, headers=lines, body=text.encode(), content_type=kind)
        )
        return answer.status, _object(answer)

    async def _ask(self, request: Request) -> Answer:
        check_https(request.url, "a URL that it names")
        # Not as named: the server chose the URL, and a private address in it would be reached (SSRF).
        scopes = (HostScope.of(read_url(request.url)),)
        reach = HostAllowlist(reads=scopes, writes=scopes)
        try:
            async with asyncio.timeout(self._seconds):
                # No redirects: one would carry codes and client secrets to a host that was not vetted as
                # issuer.
                return await fetch(request, reach, self._budget, DOCUMENT_BYTES, redirects=0)
        except TimeoutError:
            host = read_url(request.url)
            raise UpstreamFailed(f"'{host}' did not answer in {self._seconds:g} s") from None
        except NetworkError as error:
            raise UpstreamFailed(error.reason) from None


def _object(answer: Answer) -> dict[str, Any]:
    try:
        # Duplicate keys are refused: two parsers could see two different issuers.
        data = jiter.from_json(answer.body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise UpstreamFailed(f"'{answer.host}' did not answer with a JSON object")
    return data
