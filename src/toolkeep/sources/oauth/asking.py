"""Asks authorization servers: vetted addresses, https, no redirects, little time and few bytes.

Where a document leads is decided by a hostile server, so that every request is vetted by itself: only public
addresses are dialled, and a redirect is no answer (SSRF). What went wrong is said without a word of theirs.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import jiter

from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.network.budget import Budget
from toolkeep.network.endpoint import Request
from toolkeep.network.errors import NetworkError
from toolkeep.network.fetching import Answer, fetch
from toolkeep.network.hosts import HostScope, read_url
from toolkeep.network.reaching import HostReach
from toolkeep.sources.mcp.speaking import UpstreamFailed
from toolkeep.sources.oauth.urls import check_https

DOCUMENT_BYTES: Final = 256 * 1024
SECONDS: Final = 20.0
"""How long one of these servers may take for an answer."""
REQUESTS: Final = 30


class Asker:
    """Asks in the name of one sign-in, within one budget."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._budget = Budget(NetworkBounds(max_requests=REQUESTS, max_bytes=8 * DOCUMENT_BYTES))
        self._seconds = seconds

    async def document(self, url: str) -> dict[str, Any] | None:
        """The JSON object at a URL; None where there is none. Raises `UpstreamFailed`."""
        answer = await self._ask(Request(method="GET", url=url, headers=(("Accept", "application/json"),)))
        if 400 <= answer.status < 500:
            return None
        if answer.status != 200:
            raise UpstreamFailed(f"'{answer.host}' answered with status {answer.status}")
        return _object(answer)

    async def post_form(
        self, url: str, fields: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, Any]]:
        """The status and the JSON object that a form is answered with. Raises `UpstreamFailed`."""
        return await self._post(url, urlencode(fields), "application/x-www-form-urlencoded", headers)

    async def post_json(self, url: str, data: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
        """The status and the JSON object that an object is answered with. Raises `UpstreamFailed`."""
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
        scopes = (HostScope.read(str(read_url(request.url))),)
        reach = HostReach(reads=scopes, writes=scopes)
        try:
            async with asyncio.timeout(self._seconds):
                return await fetch(request, reach, self._budget, DOCUMENT_BYTES, redirects=0)
        except TimeoutError:
            host = read_url(request.url)
            raise UpstreamFailed(f"'{host}' did not answer in {self._seconds:g} s") from None
        except NetworkError as error:
            raise UpstreamFailed(error.reason) from None


def _object(answer: Answer) -> dict[str, Any]:
    try:
        data = jiter.from_json(answer.body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError:
        data = None
    if not isinstance(data, dict):
        raise UpstreamFailed(f"'{answer.host}' answered with what is no JSON object")
    return data
