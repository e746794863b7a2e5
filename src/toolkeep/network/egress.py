"""The way out of a confined worker: an HTTP proxy that leads to granted hosts and nowhere else (SBX-4).

Comes in: a listening socket that a worker can reach, the hosts that its call was granted, and a budget. Goes
out: TLS by CONNECT and plain http by whole URLs, to vetted addresses; a record of what was contacted, and of
what was refused and why. Everything from the worker is hostile, and a host may be its accomplice.
Not protected against: what is said to a granted host inside TLS, and other names that its server serves.
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

from toolkeep.limits import HEAD_BYTES, NETWORK_CONNECTIONS, NETWORK_CONTACTS
from toolkeep.network.budget import Budget
from toolkeep.network.errors import HostTooSlow, HostUnreachable, NetworkError
from toolkeep.network.forwarding import forward
from toolkeep.network.heads import forward_target, read_head, tunnel_target
from toolkeep.network.hosts import Host
from toolkeep.network.link import CHUNK_BYTES, Link
from toolkeep.network.reaching import HostReach
from toolkeep.network.tunneling import tunnel
from toolkeep.network.vetting import vet

log = logging.getLogger("toolkeep.network")

_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1 << 18
"""What is read and thrown away after a refusal: a socket that is closed with unread bytes takes it back."""

_REASON_CHARS: Final = 200


class Contact(msgspec.Struct, frozen=True, kw_only=True):
    """One request of a worker: to whom, and what became of it."""

    method: str
    host: str
    """Empty where the request was refused before it named one."""
    port: int
    problem: str = ""
    """Why it was refused, or broke off."""
    sent_bytes: int = 0
    received_bytes: int = 0


class Egress:
    """Serves one worker on a socket that is given to it, until it is closed or its time is up."""

    def __init__(
        self,
        listener: socket.socket,
        reach: HostReach,
        *,
        max_seconds: float | None,
        budget: Budget | None = None,
        on_contact: Callable[[Contact], None] | None = None,
    ) -> None:
        """The listener listens already, maybe in another network namespace; it is closed with this.

        `max_seconds` is None for who is closed when the one that it serves ends.
        """
        self.contacts: list[Contact] = []
        """What was asked for, in the order in which it ended; the first so many."""
        self.budget = budget or Budget()
        self._listener = listener
        self._reach = reach
        self._on_contact = on_contact
        self._max_seconds = max_seconds
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve from now on, in this event loop."""
        self._listener.setblocking(False)  # noqa: FBT003 -- the standard library's
        self._serving = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """End every connection, and the listener."""
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
            async with asyncio.timeout(self._max_seconds), asyncio.TaskGroup() as connections:
                await self._accept(connections)
        except TimeoutError:
            log.info("the time of a worker's way out is up")
        finally:
            self._listener.close()

    async def _accept(self, connections: asyncio.TaskGroup) -> None:
        """Take connections; those beyond the bound wait in the kernel, where they cost nothing."""
        loop = asyncio.get_running_loop()
        places = asyncio.Semaphore(NETWORK_CONNECTIONS)
        while True:
            await places.acquire()
            try:
                accepted, _ = await loop.sock_accept(self._listener)
            except ConnectionAbortedError:
                places.release()
                continue
            except OSError as error:
                log.error("a worker's way out broke", extra={"error_type": type(error).__name__})  # noqa: TRY400 -- whole
                return
            connections.create_task(self._connected(accepted)).add_done_callback(lambda _: places.release())

    async def _connected(self, accepted: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=accepted, limit=HEAD_BYTES)
        try:
            await self._request(reader, writer)
        except (OSError, EOFError):
            pass  # the worker, or its host, is gone
        except Exception:
            log.exception("a request of a worker broke in the way out itself")
        finally:
            writer.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        worker = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        try:
            request = await read_head(reader, worker)
        except NetworkError as error:
            self._note(None, None, None, error.reason)
            await _refuse(reader, writer, error)
            return
        is_tunnel = request.method == b"CONNECT"
        host: Host | None = None
        link: Link | None = None
        problem = "it broke off"
        try:
            self.budget.take_request()
            host, path = (tunnel_target(request), b"") if is_tunnel else forward_target(request)
            method = request.method.decode()
            self._reach.check(method, host)
            vetted = await vet(host, self._reach.by(method))
            async with Link(vetted, reader, writer, self.budget) as link:
                await (tunnel(link, host) if is_tunnel else forward(link, host, path, request, worker))
            problem = ""
        except NetworkError as error:
            problem = error.reason
            if link is None or (worker.our_state is h11.SEND_RESPONSE and not is_tunnel):
                await _refuse(reader, writer, error)
            elif not is_tunnel:  # an answer has begun, so that there is no place left to say so
                _tear_down(writer)
        finally:
            self._note(request, host, link, problem)
        await _flush(writer)

    def _note(self, request: h11.Request | None, host: Host | None, link: Link | None, problem: str) -> None:
        if len(self.contacts) >= NETWORK_CONTACTS:
            return
        contact = Contact(
            method=request.method.decode() if request else "",
            host=host.name if host else "",
            port=host.port if host else 0,
            problem=problem,
            sent_bytes=link.sent_bytes if link else 0,
            received_bytes=link.received_bytes if link else 0,
        )
        self.contacts.append(contact)
        if self._on_contact is not None:
            self._on_contact(contact)


def _status(error: NetworkError) -> int:
    if isinstance(error, HostTooSlow):
        return 504
    return 502 if isinstance(error, HostUnreachable) else 403


async def _refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, error: NetworkError) -> None:
    """Say no, in the reason phrase too: of a CONNECT that fails, most clients show nothing else."""
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
    """End with a reset: to who reads until the end, a plain answer that broke off would look whole."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _flush(writer: asyncio.StreamWriter) -> None:
    """Let what was written arrive before the connection ends."""
    writer.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_SECONDS):
            await writer.wait_closed()
