"""Egress proxy of a confined worker: an HTTP proxy to granted hosts only (SBX-4).

Input: a listening socket that the worker can reach, the host allowlist of its call, and a budget. Output: TLS
by CONNECT and plain http by absolute URLs, to vetted addresses; a log of contacts and refusals. Everything
from the worker is hostile, and a host may be its accomplice.

Not protected: what is said to a granted host inside TLS, and other names that its server serves.
"""

import asyncio
import contextlib
import logging
import socket
import struct
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

import h11
import msgspec

from toolkeep.limits import HEAD_BYTES, HEAD_SECONDS, NETWORK_CONNECTIONS, NETWORK_CONTACTS
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import HostTooSlow, HostUnreachable, NetworkError, NetworkRefused
from toolkeep.network.hosts import Host, HostRefused, read_host
from toolkeep.network.http_forward import forward
from toolkeep.network.relay import CHUNK_BYTES, Relay, one_error
from toolkeep.network.request_head import forward_target, read_head, tunnel_target
from toolkeep.network.resolve import resolve_host
from toolkeep.network.tls_client_hello import ACCESS_DENIED, server_name

log = logging.getLogger("toolkeep.network")

_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1 << 18
"""Read and discarded after a refusal: closing a socket with unread bytes sends a reset, and the client would
never see the refusal."""

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


class EgressProxy:
    """Serves one worker on a given socket, until it is closed or times out."""

    def __init__(
        self,
        listener: socket.socket,
        allowlist: HostAllowlist,
        *,
        max_seconds: float | None,
        budget: Budget | None = None,
        on_contact: Callable[[Contact], None] | None = None,
    ) -> None:
        """The listener is listening already, possibly in another network namespace; it is closed with this.

        `max_seconds` is None for a proxy that is closed when its worker exits.
        """
        self.contacts: list[Contact] = []
        """Contacts in the order in which they ended, up to a maximum number."""
        self.budget = budget or Budget()
        self._listener = listener
        self._allowlist = allowlist
        self._on_contact = on_contact
        self._max_seconds = max_seconds
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start serving in this event loop."""
        self._listener.setblocking(False)  # noqa: FBT003 -- the standard library's
        self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Close all connections and the listener."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait({self._serving})
        self._listener.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _serve(self) -> None:
        try:
            # A task group: no connection outlives the proxy, and so none outlives its call.
            async with asyncio.timeout(self._max_seconds), asyncio.TaskGroup() as connections:
                await self._accept(connections)
        except TimeoutError:
            log.info("an egress proxy was stopped at the deadline")
        finally:
            self._listener.close()

    async def _accept(self, connections: asyncio.TaskGroup) -> None:
        """Accept connections; those beyond the limit wait in the kernel backlog, where they cost nothing."""
        loop = asyncio.get_running_loop()
        # Each connection takes descriptors and buffers of the host.
        places = asyncio.Semaphore(NETWORK_CONNECTIONS)
        while True:
            await places.acquire()
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except ConnectionAbortedError:
                places.release()
                continue
            except OSError as error:
                log.error("an egress proxy failed", extra={"error_type": type(error).__name__})  # noqa: TRY400 -- whole
                return
            connections.create_task(self._connected(accepted)).add_done_callback(lambda _: places.release())

    async def _connected(self, accepted: socket.socket) -> None:
        # `limit` bounds the buffer: a head without an end is refused, not collected.
        reader, writer = await asyncio.open_connection(sock=accepted, limit=HEAD_BYTES)
        try:
            await self._request(reader, writer)
        except (OSError, EOFError):
            pass  # The worker or its host closed the connection.
        except Exception:
            log.exception("internal error while proxying a worker's request")
        finally:
            # abort: a worker that does not read must not keep the connection open.
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A new parser per connection: no state of one request reaches the next.
        worker = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        try:
            request = await read_head(reader, worker)
        except NetworkError as error:
            self._log_contact(None, None, None, error.reason, error)
            await _refuse(reader, writer, error)
            return
        is_tunnel = request.method == b"CONNECT"
        host: Host | None = None
        relay: Relay | None = None
        problem = "it broke off"
        failed: NetworkError | None = None
        try:
            # Counted before anything else, so that refused requests cannot be made without end.
            self.budget.take_request()
            host, path = (tunnel_target(request), b"") if is_tunnel else forward_target(request)
            method = request.method.decode()
            # Allowlist before DNS: a lookup of an arbitrary name would leak data to its name server.
            self._allowlist.check(method, host)
            # Resolved once, here; the relay dials these addresses and never resolves the name again (DNS
            # rebinding).
            vetted = await resolve_host(host, self._allowlist.for_method(method))
            async with Relay(vetted, reader, writer, self.budget) as relay:
                await (tunnel(relay, host) if is_tunnel else forward(relay, host, path, request, worker))
            problem = ""
        except NetworkError as error:
            failed, problem = error, error.reason
        finally:
            # Before the worker hears of it: its call may end with that.
            self._log_contact(request, host, relay, problem, failed)
        if failed is not None:
            if relay is None or (worker.our_state is h11.SEND_RESPONSE and not is_tunnel):
                await _refuse(reader, writer, failed)
            elif not is_tunnel:  # A response has begun, so there is no way left to send an error.
                _tear_down(writer)
        await _flush(writer)

    def _log_contact(
        self,
        request: h11.Request | None,
        host: Host | None,
        relay: Relay | None,
        problem: str,
        failed: NetworkError | None = None,
    ) -> None:
        # Bounded: a worker can make refused requests faster than the log can hold them.
        if len(self.contacts) >= NETWORK_CONTACTS:
            return
        contact = Contact(
            method=request.method.decode() if request else "",
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


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def tunnel(relay: Relay, host: Host) -> None:
    """CONNECT: accept, check the ClientHello, then relay both ways until the host closes."""
    async with relay.idle_timeout():
        await relay.reply(_ESTABLISHED)
        try:
            # Before a byte reaches the host: a shared server (CDN) chooses its site by SNI, so a worker could
            # reach any other site there by naming it (domain fronting).
            hello = await _hello(relay, host)
        except NetworkRefused:
            await relay.reply(ACCESS_DENIED)
            raise
        await relay.send(hello)
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


async def _hello(relay: Relay, host: Host) -> bytes:
    """All bytes up to the end of a ClientHello whose SNI names the host."""
    data = b""
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
        raise NetworkRefused(f"the TLS server name (SNI) differs from the '{host}' of CONNECT")
    return data
