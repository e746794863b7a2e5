"""A request for a whole http URL: taken apart, put together anew for its host, and its answer likewise.

Nothing of the worker's bytes goes out as it came, so that no second request hides in them. One request for
each connection; what is sent behind it is never read.
"""

import contextlib
from collections.abc import Awaitable, Callable

import h11

from toolkeep.limits import HEAD_BYTES
from toolkeep.network.errors import HostUnreachable, NetworkRefused
from toolkeep.network.heads import end_to_end
from toolkeep.network.hosts import Host
from toolkeep.network.link import Link

_CLOSE = (b"Connection", b"close")


async def forward(link: Link, host: Host, path: bytes, request: h11.Request, worker: h11.Connection) -> None:
    """Ask the host what the worker asks, and give the worker the answer; redirects are answers too."""
    server = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
    async with link.awake():
        with contextlib.suppress(ConnectionError):  # a host may answer and close before it has heard all
            await _ask(link, host, path, request, worker, server)
        await _answer(link, host, worker, server)


async def _ask(
    link: Link, host: Host, path: bytes, request: h11.Request, worker: h11.Connection, server: h11.Connection
) -> None:
    headers = [(b"Host", host.authority.encode()), _CLOSE, *end_to_end(request.headers.raw_items(), b"host")]
    if any(name == b"transfer-encoding" for name, _ in request.headers):
        headers.append((b"Transfer-Encoding", b"chunked"))
    await _send(link, server, h11.Request(method=request.method, target=path, headers=headers))
    if worker.they_are_waiting_for_100_continue:
        await _reply(link, worker, h11.InformationalResponse(status_code=100, headers=[]))
    while True:
        try:
            event = await _next(worker, link.hear)
        except h11.RemoteProtocolError:
            raise NetworkRefused("the body of the request is broken") from None
        if isinstance(event, h11.Data):
            await _send(link, server, h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):  # without its trailers
            await _send(link, server, h11.EndOfMessage())
            return
        else:
            raise EOFError


async def _answer(link: Link, host: Host, worker: h11.Connection, server: h11.Connection) -> None:
    while True:
        try:
            event = await _next(server, link.receive)
        except h11.RemoteProtocolError:
            raise HostUnreachable(f"'{host}' gave an answer that is not HTTP/1.1") from None
        if isinstance(event, h11.Response):
            await _reply(link, worker, _passed_on(event, host))
        elif isinstance(event, h11.Data):
            await _reply(link, worker, h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            await _reply(link, worker, h11.EndOfMessage())
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise HostUnreachable(f"'{host}' gave no whole answer")


def _passed_on(answer: h11.Response, host: Host) -> h11.Response:
    names = [name for name, _ in answer.headers]
    if b"content-length" in names and b"transfer-encoding" in names:
        raise HostUnreachable(f"'{host}' gave an answer that says its length in two ways")
    headers = [*end_to_end(answer.headers.raw_items()), _CLOSE]
    return h11.Response(status_code=answer.status_code, reason=answer.reason, headers=headers)


async def _next(connection: h11.Connection, read: Callable[[], Awaitable[bytes]]) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await read())
    return event


async def _send(link: Link, server: h11.Connection, event: h11.Event) -> None:
    await link.send(server.send(event) or b"")


async def _reply(link: Link, worker: h11.Connection, event: h11.Event) -> None:
    await link.reply(worker.send(event) or b"")
