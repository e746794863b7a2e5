"""Plain http through the egress proxy: requests and responses are parsed and rebuilt.

None of the worker's bytes are forwarded as received, so no second request can hide in them (request
smuggling). One request per connection; anything after it is never read.
"""

import contextlib
from collections.abc import Awaitable, Callable

import h11

from toolkeep.limits import HEAD_BYTES
from toolkeep.network.errors import HostUnreachable, NetworkRefused
from toolkeep.network.hosts import Host
from toolkeep.network.relay import Relay
from toolkeep.network.request_head import end_to_end

_CLOSE = (b"Connection", b"close")


async def forward(
    relay: Relay, host: Host, path: bytes, request: h11.Request, worker: h11.Connection
) -> None:
    """Relay one request and its response; redirects are passed back as responses."""
    server = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)
    async with relay.idle_timeout():
        # A host may answer and close before it has read everything.
        with contextlib.suppress(ConnectionError):
            await _ask(relay, host, path, request, worker, server)
        await _answer(relay, host, worker, server)


async def _ask(
    relay: Relay,
    host: Host,
    path: bytes,
    request: h11.Request,
    worker: h11.Connection,
    server: h11.Connection,
) -> None:
    # Host from the vetted target, never from the worker; hop-by-hop headers are dropped.
    headers = [(b"Host", host.authority.encode()), _CLOSE, *end_to_end(request.headers.raw_items(), b"host")]
    # h11 re-chunks the body: the server sees our framing, not the worker's.
    if any(name == b"transfer-encoding" for name, _ in request.headers):
        headers.append((b"Transfer-Encoding", b"chunked"))
    await _send(relay, server, h11.Request(method=request.method, target=path, headers=headers))
    if worker.they_are_waiting_for_100_continue:
        await _reply(relay, worker, h11.InformationalResponse(status_code=100, headers=[]))
    while True:
        try:
            event = await _next(worker, relay.receive_from_worker)
        except h11.RemoteProtocolError:
            raise NetworkRefused("the body of the request is broken") from None
        if isinstance(event, h11.Data):
            await _send(relay, server, h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):  # Without trailers.
            await _send(relay, server, h11.EndOfMessage())
            return
        else:
            raise EOFError


async def _answer(relay: Relay, host: Host, worker: h11.Connection, server: h11.Connection) -> None:
    while True:
        try:
            event = await _next(server, relay.receive)
        except h11.RemoteProtocolError:
            raise HostUnreachable(f"'{host}' gave an answer that is not HTTP/1.1") from None
        if isinstance(event, h11.Response):
            await _reply(relay, worker, _passed_on(event, host))
        elif isinstance(event, h11.Data):
            await _reply(relay, worker, h11.Data(data=event.data))
        elif isinstance(event, h11.EndOfMessage):
            await _reply(relay, worker, h11.EndOfMessage())
            return
        elif not isinstance(event, h11.InformationalResponse):
            raise HostUnreachable(f"'{host}' gave no whole answer")


def _passed_on(answer: h11.Response, host: Host) -> h11.Response:
    names = [name for name, _ in answer.headers]
    # Two framings: the worker's client might pick the other one and see a second, forged response.
    if b"content-length" in names and b"transfer-encoding" in names:
        raise HostUnreachable(f"'{host}' gave an answer that says its length in two ways")
    # One request per connection: a second request could not be checked against the allowlist.
    headers = [*end_to_end(answer.headers.raw_items()), _CLOSE]
    return h11.Response(status_code=answer.status_code, reason=answer.reason, headers=headers)


async def _next(connection: h11.Connection, read: Callable[[], Awaitable[bytes]]) -> object:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(await read())
    return event


async def _send(relay: Relay, server: h11.Connection, event: h11.Event) -> None:
    await relay.send(server.send(event) or b"")


async def _reply(relay: Relay, worker: h11.Connection, event: h11.Event) -> None:
    await relay.reply(worker.send(event) or b"")
