"""Asks a server in the name of a call: to vetted addresses, within a budget, redirects vetted anew.

Comes in: a `Request`, and what the call may reach. Goes out: an `Answer`, or a `NetworkError` in words that
hold neither addresses nor headers. The server is hostile: its answer is bounded, and never unpacked.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import urljoin

import msgspec

from toolkeep.limits import REDIRECTS
from toolkeep.network.budget import Budget
from toolkeep.network.endpoint import Request
from toolkeep.network.errors import AnswerUnusable, NetworkError, NetworkRefused
from toolkeep.network.exchange import OpenAnswer, exchange
from toolkeep.network.hosts import Host, HostRefused, read_url
from toolkeep.network.reaching import READING, HostReach
from toolkeep.network.vetting import Vetted, vet

_KEEPS_METHOD: Final = frozenset((307, 308))
_REDIRECTS: Final = frozenset((301, 302, 303, *_KEEPS_METHOD))


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said in the end."""

    host: str
    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    """Names in lower case."""

    def header(self, wanted: str) -> str:
        """The first header of a name in lower case; empty where there is none."""
        return next((value for name, value in self.headers if name == wanted), "")


async def fetch(
    request: Request, reach: HostReach, budget: Budget, max_bytes: int, *, redirects: int = REDIRECTS
) -> Answer:
    """The answer to a request, over redirects where they lead to what may be reached."""
    async with opened(request, reach, budget, redirects=redirects) as answer:
        return Answer(
            host=answer.host,
            status=answer.status,
            content_type=answer.content_type,
            body=await answer.body(max_bytes),
            headers=answer.headers,
        )


@asynccontextmanager
async def opened(
    request: Request, reach: HostReach, budget: Budget, *, redirects: int = REDIRECTS
) -> AsyncIterator[OpenAnswer]:
    """As `fetch`, with the body still to come; the connection ends with the block."""
    first = _host(request.url)
    for followed in range(redirects + 1):
        vetted = await _vetted(request, reach, budget, first if followed else None)
        async with exchange(request, vetted, budget) as answer:
            location = answer.header("location")
            if answer.status not in _REDIRECTS or not location:
                yield answer
                return
            try:
                request = _redirected(request, answer.status, location)
            except NetworkError as error:
                error.was_sent = True
                raise
    raise AnswerUnusable(f"'{first}' redirects more than {redirects} times")


async def _vetted(request: Request, reach: HostReach, budget: Budget, first: Host | None) -> Vetted:
    budget.take_request()
    try:
        return await vet(_host(request.url), reach.by(request.method))
    except NetworkRefused:
        if first is None:
            raise
        # Where to is not said: it may be an address inside the server's own network.
        raise NetworkRefused(f"'{first}' redirects to where this call may not go") from None


def _host(url: str) -> Host:
    try:
        return read_url(url)
    except HostRefused as refused:
        raise NetworkRefused(f"a URL cannot be used: {refused.reason}") from None


def _redirected(request: Request, status: int, location: str) -> Request:
    """The request that a redirect asks for: without the tool's headers unless the origin is the same."""
    before = _host(request.url)
    try:
        url = urljoin(request.url, location)
        after = read_url(url)
    except ValueError:  # `HostRefused` is one
        after = None
    if after is None or not url.isascii() or after.scheme not in ("http", "https"):
        raise AnswerUnusable(f"'{before}' redirects to what is no plain http URL")
    if (before.scheme, after.scheme) == ("https", "http"):
        raise NetworkRefused(f"'{before}' redirects from https to http")
    keeps_method = status in _KEEPS_METHOD or request.method in READING
    same = (before.scheme, before.name, before.port) == (after.scheme, after.name, after.port)
    return Request(
        method=request.method if keeps_method else "GET",
        url=url,
        headers=request.headers if same else (),
        body=request.body if keeps_method else None,
        content_type=request.content_type,
    )
