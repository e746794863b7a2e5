"""Egress proxy of a confined worker: an HTTP proxy to granted hosts only (SBX-4).

Input: a listening socket that the worker can reach, the host allowlist of its call, and a budget. Output: TLS
and plain http by CONNECT, plain http by absolute URLs, to vetted addresses; a log of contacts and refusals.
Everything from the worker is hostile, and a host may be its accomplice.

A persistent program also connects by itself, as if there were a network: its name server gives it an address
for each granted name, and what it connects to at such an address is checked like a request to the proxy.

Not protected: what is said to a granted host inside TLS, or after its greeting, and other names that its
server serves.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Final, NamedTuple, Self

import h11
import msgspec

from toolkeep.limits import HEAD_BYTES, HEAD_SECONDS, NETWORK_CONNECTIONS, NETWORK_CONTACTS
from toolkeep.network.allowlist import TUNNEL, HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import HostTooSlow, HostUnreachable, NetworkError, NetworkRefused
from toolkeep.network.hosts import WEB_PORTS, Host, HostRefused, read_host
from toolkeep.network.http_forward import forward
from toolkeep.network.name_server import SyntheticAddresses, is_granted, next_query
from toolkeep.network.relay import CHUNK_BYTES, Relay, one_error
from toolkeep.network.request_head import METHODS, direct_target, forward_target, read_head, tunnel_target
from toolkeep.network.resolve import resolve_host
from toolkeep.network.tls_client_hello import ACCESS_DENIED, server_name

log = logging.getLogger("toolkeep.network")

_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1 << 18
"""Read and discarded after a refusal: closing a socket with unread bytes sends a reset, and the client would
never see the refusal."""

_GREETING_SECONDS: Final = 0.5
"""How long a program may be silent before its host is asked to speak first, at ports other than the web's."""
_METHOD_BYTES: Final = 4
"""Bytes that tell a method from the start of other protocols; the shortest request has more."""
_METHODS: Final = frozenset((method + b" ")[:_METHOD_BYTES] for method in METHODS)
"""The first bytes of a request in plain http."""
_HANDSHAKE: Final = b"\x16"
"""First byte of a TLS ClientHello (RFC 8446 section 5.1)."""
_SETTINGS: Final = 4
"""Type of the frame that an HTTP/2 server may send first (RFC 9113 section 3.4)."""
_LOOKUP: Final = "DNS"

_REASON_CHARS: Final = 200
"""Characters of a refusal in the reason phrase, which clients show in their error; the body has all of it."""


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a worker: target and outcome."""

    method: str
    host: str
    """Empty if the request was refused before it named one."""
    port: int
    problem: str = ""
    """Why it was refused or aborted."""
    is_denied: bool = False
    """Whether it was refused, rather than failed at its host."""
    sent_bytes: int = 0
    received_bytes: int = 0
    is_private: bool = False
    """Whether the host has a private or loopback address."""
    remedy: str = ""
    """What the operator could change; it may name addresses."""


_Handle = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class _Asked(NamedTuple):
    """One request of a worker, in whichever way it came."""

    method: str
    target: Callable[[], tuple[Host, bytes]]
    """Its host and path; raises `NetworkRefused`."""
    carry: Callable[[Relay, Host, bytes], Awaitable[None]]
    refuse: Callable[[asyncio.StreamReader, asyncio.StreamWriter, NetworkError], Awaitable[None]]


class EgressProxy:
    """Serves one worker on given sockets, until it is closed or times out."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        allowlist: HostAllowlist,
        *,
        max_seconds: float | None,
        budget: Budget | None = None,
        on_contact: Callable[[Contact], None] | None = None,
    ) -> None:
        """The listeners are listening already, possibly in another network namespace; closed with this.

        The first is that of the proxy. If there are more, the second is that of the name server, and all
        others take the connections that a program makes by itself.

        `max_seconds` is None for a proxy that is closed when its worker exits.
        """
        self.contacts: list[Contact] = []
        """Contacts in the order in which they ended, up to a maximum number."""
        self.budget = budget or Budget()
        self._listeners = tuple(listeners)
        self._addresses = SyntheticAddresses()
        self._allowlist = allowlist
        self._on_contact = on_contact
        self._max_seconds = max_seconds
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start serving in this event loop."""
        for listener in self._listeners:
            listener.setblocking(False)  # noqa: FBT003 -- the standard library's
        self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Close all connections and the listener."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
        self._close_listeners()

    def _close_listeners(self) -> None:
        for listener in self._listeners:
            listener.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _serve(self) -> None:
        # Each connection takes descriptors and buffers of the host.
        places = asyncio.Semaphore(NETWORK_CONNECTIONS)
        handlers = (self._proxied, self._named, *(self._direct for _ in self._listeners[2:]))
        try:
            # A task group: no connection outlives the proxy, and so none outlives its call.
            async with asyncio.timeout(self._max_seconds), asyncio.TaskGroup() as connections:
                for listener, handle in zip(self._listeners, handlers, strict=False):
                    connections.create_task(self._accept(listener, handle, places, connections))
        except TimeoutError:
            log.info("an egress proxy was stopped at the deadline")
        finally:
            self._close_listeners()

    async def _accept(
        self, listener: socket.socket, handle: _Handle, places: asyncio.Semaphore, tasks: asyncio.TaskGroup
    ) -> None:
        """Accept connections; those beyond the limit wait in the kernel backlog, where they cost nothing."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.error("an egress proxy failed", extra={"error_type": type(error).__name__})  # noqa: TRY400 -- whole
                return
            try:
                await places.acquire()
            except asyncio.CancelledError:
                accepted.close()
                raise
            tasks.create_task(self._connected(accepted, handle)).add_done_callback(lambda _: places.release())

    async def _connected(self, accepted: socket.socket, handle: _Handle) -> None:
        # `limit` bounds the buffer: a head without an end is refused, not collected.
        reader, writer = await asyncio.open_connection(sock=accepted, limit=HEAD_BYTES)
        try:
            await handle(reader, writer)
        except (OSError, EOFError):
            pass  # The worker or its host closed the connection.
        except Exception:
            log.exception("internal error while proxying a worker's request")
        finally:
            # abort: a worker that does not read must not keep the connection open.
            writer.transport.abort()

    async def _proxied(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A request to the proxy."""
        # A new parser per connection: no state of one request reaches the next.
        worker = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        try:
            request = await read_head(reader, worker)
        except NetworkError as error:
            self._log_contact("", None, None, error.reason, error)
            await _refuse(reader, writer, error)
            return
        if request.method == b"CONNECT":
            asked = _Asked(
                TUNNEL,
                lambda: (tunnel_target(request), b""),
                lambda relay, host, _: _tunnelled(relay, host),
                _refuse,
            )
        else:
            asked = _Asked(
                request.method.decode(),
                lambda: forward_target(request),
                partial(_forward, request, worker),
                _refuse,
            )
        await self._exchange(reader, writer, worker, asked)

    async def _direct(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A connection that a program made by itself; the address says to which host."""
        address, port = writer.get_extra_info("sockname")[:2]
        host = self._addresses.host_of(address, port)
        worker = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        first = await _first_byte(reader, HEAD_SECONDS if port in WEB_PORTS else _GREETING_SECONDS)
        if first == _HANDSHAKE:
            carry = partial(tunnel, first=first, reply=b"")
            asked = _Asked(TUNNEL, lambda: (host, b""), lambda relay, host, _: carry(relay, host), _alert)
        elif not first and port in WEB_PORTS:
            return
        elif not first:
            asked = _Asked(TUNNEL, lambda: (host, b""), lambda relay, host, _: greeted(relay, host), _alert)
        else:
            try:
                request = await read_head(reader, worker, first)
            except NetworkError as error:
                self._log_contact("", host, None, error.reason, error)
                await _refuse(reader, writer, error)
                return
            asked = _Asked(
                request.method.decode(),
                lambda: (host, direct_target(request, host)),
                partial(_forward, request, worker),
                _refuse,
            )
        await self._exchange(reader, writer, worker, asked)

    async def _named(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Queries of a program for the addresses of names."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HEAD_SECONDS):
                while True:
                    lookup = await next_query(reader)
                    try:
                        self.budget.take_lookup()
                        response = lookup.response(self._address(lookup.name))
                    except NetworkRefused:
                        response = lookup.refusal()
                    writer.write(response)
                    await writer.drain()

    def _address(self, name: str) -> str:
        if is_granted(name, self._allowlist):
            return self._addresses.address_of(name)
        refused = NetworkRefused(f"'{name}' is not among the hosts that this call may reach")
        # Resolvers ask for each version of IP at once.
        if not self.contacts or (self.contacts[-1].method, self.contacts[-1].host) != (_LOOKUP, name):
            self._log_contact(_LOOKUP, Host(name, 0, "", is_address=False), None, refused.reason, refused)
        raise refused

    async def _exchange(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        worker: h11.Connection,
        asked: _Asked,
    ) -> None:
        is_tunnel = asked.method == TUNNEL
        host: Host | None = None
        relay: Relay | None = None
        problem = "it broke off"
        failed: NetworkError | None = None
        try:
            # Counted before anything else, so that refused requests cannot be made without end.
            self.budget.take_request()
            host, path = asked.target()
            # Allowlist before DNS: a lookup of an arbitrary name would leak data to its name server.
            self._allowlist.check(asked.method, host)
            # Resolved once, here; the relay dials these addresses and never resolves the name again (DNS
            # rebinding).
            vetted = await resolve_host(host, self._allowlist.for_method(asked.method))
            async with Relay(vetted, reader, writer, self.budget) as relay:
                await asked.carry(relay, host, path)
            problem = ""
        except NetworkError as error:
            failed, problem = error, error.reason
        finally:
            # Before the worker hears of it: its call may end with that.
            self._log_contact(asked.method, host, relay, problem, failed)
        if failed is not None:
            if relay is None or (worker.our_state is h11.SEND_RESPONSE and not is_tunnel):
                await asked.refuse(reader, writer, failed)
            elif not is_tunnel:  # A response has begun, so there is no way left to send an error.
                _tear_down(writer)
        await _flush(writer)

    def _log_contact(
        self,
        method: str,
        host: Host | None,
        relay: Relay | None,
        problem: str,
        failed: NetworkError | None = None,
    ) -> None:
        # Bounded: a worker can make refused requests faster than the log can hold them.
        if len(self.contacts) >= NETWORK_CONTACTS:
            return
        contact = Contact(
            method=method,
            host=host.name if host else "",
            port=host.port if host else 0,
            problem=problem,
            is_denied=isinstance(failed, NetworkRefused),
            sent_bytes=relay.sent_bytes if relay else 0,
            received_bytes=relay.received_bytes if relay else 0,
            is_private=relay is not None and relay.vetted.is_private,
            remedy=failed.remedy if failed else "",
        )
        self.contacts.append(contact)
        if self._on_contact is not None:
            self._on_contact(contact)


def _status(error: NetworkError) -> int:
    if isinstance(error, HostTooSlow):
        return 504
    return 502 if isinstance(error, HostUnreachable) else 403


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, error: NetworkError) -> None:
    """Refuse, in the reason phrase too: for a failed CONNECT most clients show nothing else."""
    # Printable ASCII only: a host name in the reason could hold CRLF, and inject headers.
    said = "".join(char if " " <= char <= "~" else "?" for char in f"toolkeep: {error.reason}")
    phrase, body = said[:_REASON_CHARS], said.encode() + b"\n"
    head = (
        f"HTTP/1.1 {_status(error)} {phrase}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    writer.write(head.encode() + body)
    writer.write_eof()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            left = _LINGER_BYTES
            while left > 0 and (data := await reader.read(CHUNK_BYTES)):
                left -= len(data)


def _tear_down(writer: asyncio.StreamWriter) -> None:
    """Close with a reset: to a client that reads until end of file, a cut response would look complete."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _flush(writer: asyncio.StreamWriter) -> None:
    """Let what was written arrive before the connection closes."""
    writer.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            await writer.wait_closed()


async def _alert(_: asyncio.StreamReader, writer: asyncio.StreamWriter, __: NetworkError) -> None:
    """Refuse a connection that a program made by itself: to a TLS client the bytes are an alert."""
    writer.write(ACCESS_DENIED)


async def _first_byte(reader: asyncio.StreamReader, seconds: float) -> bytes:
    """The first byte of a connection; empty if none comes, `EOFError` at its end."""
    try:
        async with asyncio.timeout(seconds):
            return await reader.readexactly(1)
    except TimeoutError:
        return b""


async def _forward(
    request: h11.Request, worker: h11.Connection, relay: Relay, host: Host, path: bytes
) -> None:
    await forward(relay, host, path, request, worker)


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def tunnel(relay: Relay, host: Host, first: bytes = b"", *, reply: bytes = _ESTABLISHED) -> None:
    """Accept, check the ClientHello that begins with `first`, then relay both ways until the host closes."""
    async with relay.idle_timeout():
        await relay.reply(reply)
        try:
            # Before a byte reaches the host: a shared server (CDN) chooses its site by SNI, so a worker could
            # reach any other site there by naming it (domain fronting).
            hello = await _hello(relay, host, first)
        except NetworkRefused:
            await relay.reply(ACCESS_DENIED)
            raise
        await relay.send(hello)
        await _both_ways(relay)


async def _tunnelled(relay: Relay, host: Host) -> None:
    """Accept a tunnel for TLS, or for one request in plain http: some clients send those through one too."""
    async with relay.idle_timeout():
        await relay.reply(_ESTABLISHED)
    first = await _first_byte(relay.worker[0], HEAD_SECONDS)
    if first.isalpha():
        first += await relay.worker[0].readexactly(_METHOD_BYTES - 1)
    if first not in _METHODS:
        await tunnel(relay, host, first, reply=b"")
        return
    worker = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
    try:
        request = await read_head(relay.worker[0], worker, first)
        path = direct_target(request, host)
    except NetworkRefused as refused:
        await _refuse(*relay.worker, refused)
        raise
    await forward(relay, host, path, request, worker)


async def greeted(relay: Relay, host: Host) -> None:
    """Relay a protocol in which the host speaks first, such as that of MySQL, without inspection.

    No byte of the worker reaches the host before. So it is neither TLS nor HTTP, where a worker could name
    another site of a shared server.
    """
    async with relay.idle_timeout():
        theirs = asyncio.ensure_future(relay.receive())
        ours = asyncio.ensure_future(relay.receive_from_worker())
        try:
            await asyncio.wait({theirs, ours}, timeout=HEAD_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not theirs.done():
                raise NetworkRefused(
                    f"'{host}' did not speak first, and the connection is neither TLS nor HTTP"
                )
            greeting = theirs.result()
            if greeting[3:4] == bytes((_SETTINGS,)):
                raise NetworkRefused(f"'{host}' speaks HTTP/2 without TLS, whose requests are not checked")
        finally:
            theirs.cancel()
            ours.cancel()
        await relay.reply(greeting)
        if ours.done() and not ours.cancelled():
            await relay.send(ours.result())
        await _both_ways(relay)


async def _both_ways(relay: Relay) -> None:
    with one_error():
        async with asyncio.TaskGroup() as ways:
            up = ways.create_task(_pass_up(relay))
            while data := await relay.receive():
                await relay.reply(data)
            # The host has closed: nothing that the worker still sends can arrive.
            up.cancel()


async def _pass_up(relay: Relay) -> None:
    while data := await relay.receive_from_worker():
        await relay.send(data)
    relay.host[1].write_eof()


async def _hello(relay: Relay, host: Host, data: bytes) -> bytes:
    """All bytes up to the end of a ClientHello whose SNI names the host."""
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            while (name := server_name(data)) is None:
                if not (more := await relay.receive_from_worker()):
                    raise EOFError
                data += more
    except TimeoutError:
        raise HostTooSlow("the TLS ClientHello did not come in time") from None
    try:
        said = read_host(name)
    except HostRefused:
        raise NetworkRefused("the TLS server name (SNI) is not a host") from None
    # Compared in canonical form (case, IDNA, trailing dot), so that no spelling passes as another host.
    if said.port or said.is_address or said.name != host.name:
        raise NetworkRefused(f"the TLS server name (SNI) differs from the '{host}' that is connected to")
    return data
