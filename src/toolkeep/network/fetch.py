"""HTTP client for tool calls: vetted addresses, a budget, redirects checked like first requests.

Input: a `Request` and the host allowlist of the call. Output: an `Answer`, or a `NetworkError` without
addresses or headers in its text. The server is hostile: its answer is bounded and never decompressed.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urljoin

import msgspec

from toolkeep.limits import REDIRECTS
from toolkeep.network.allowlist import READING, HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import AnswerUnusable, NetworkError, NetworkRefused
from toolkeep.network.hosts import Host, HostRefused, read_url
from toolkeep.network.http_endpoint import Request
from toolkeep.network.http_exchange import OpenAnswer, exchange
from toolkeep.network.resolve import ResolvedHost, resolve_host

_KEEPS_METHOD: Final = frozenset((307, 308))
_REDIRECTS: Final = frozenset((301, 302, 303, *_KEEPS_METHOD))


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The final response of a server."""

    host: str
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""

    def header(self, wanted: str) -> str:
        """First header of a lower-case name; empty if missing."""
        return next((value for name, value in self.headers if name == wanted), "")


async def fetch(
    request: Request, allowlist: HostAllowlist, budget: Budget, max_bytes: int, *, redirects: int = REDIRECTS
) -> Answer:
    """The answer to a request, following redirects to allowed hosts."""
    async with opened(request, allowlist, budget, redirects=redirects) as answer:
        return Answer(
            host=answer.host,
            status=answer.status,
            content_type=answer.content_type,
            body=await answer.body(max_bytes),
            headers=answer.headers,
        )


@asynccontextmanager
async def opened(
    request: Request, allowlist: HostAllowlist, budget: Budget, *, redirects: int = REDIRECTS
) -> AsyncIterator[OpenAnswer]:
    """Like `fetch`, but the body is still to be read; the connection closes with the block."""
    # Parsed by the strict parser that policy used: what was authorised is what is contacted.
    first = _host(request.url)
    # Each hop is vetted anew: a granted host must not redirect a call to the metadata service or a private
    # host.
    for followed in range(redirects + 1):
        vetted = await _vetted(request, allowlist, budget, first if followed else None)
        async with exchange(request, vetted, budget) as answer:
            location = answer.header("location")
            if answer.status not in _REDIRECTS or not location:
                yield answer
                return
            try:
                request = _redirected(request, answer.status, location)
            except NetworkError as error:
                # A redirect is an answer: the request may have had its effect.
                error.was_sent = True
                raise
    raise AnswerUnusable(f"'{first}' redirects more than {redirects} times")


async def _vetted(
    request: Request, allowlist: HostAllowlist, budget: Budget, first: Host | None
) -> ResolvedHost:
    # Every hop counts, so that a redirect loop ends with the budget at the latest.
    budget.take_request()
    try:
        return await resolve_host(_host(request.url), allowlist.for_method(request.method))
    except NetworkRefused:
        if first is None:
            raise
        # The target is not named: it may be an address inside the server's own network.
        refused = NetworkRefused(f"'{first}' redirects to a host that this call may not reach")
        refused.target = str(_host(request.url))
        raise refused from None


def _host(url: str) -> Host:
    try:
        return read_url(url)
    except HostRefused as refused:
        raise NetworkRefused(f"a URL cannot be used: {refused.reason}") from None


def _redirected(request: Request, status: int, location: str) -> Request:
    """The request of a redirect; without the tool's headers unless the origin is the same."""
    before = _host(request.url)
    try:
        url = urljoin(request.url, location)
        after = read_url(url)
    except ValueError:  # `HostRefused` is one
        after = None
    # A redirect to file:, ftp: or an ambiguous URL is never followed.
    if after is None or not url.isascii() or after.scheme not in ("http", "https"):
        raise AnswerUnusable(f"'{before}' redirects to something that is not a plain http URL")
    # A downgrade would send the arguments in clear text.
    if (before.scheme, after.scheme) == ("https", "http"):
        raise NetworkRefused(f"'{before}' redirects from https to http")
    # RFC 9110 section 15.4: 307 and 308 keep method and body; after the others a POST becomes a GET.
    keeps_method = status in _KEEPS_METHOD or request.method in READING
    same = (before.scheme, before.name, before.port) == (after.scheme, after.name, after.port)
    return Request(
        method=request.method if keeps_method else "GET",
        url=url,
        # They may hold credentials, which belong to one origin.
        headers=request.headers if same else (),
        body=request.body if keeps_method else None,
        content_type=request.content_type,
    )
