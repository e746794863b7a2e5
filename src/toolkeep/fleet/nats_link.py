"""One connection to NATS, of a server or a worker, that comes back by itself.

What is published while the connection is away is lost: whoever needs an answer waits for one.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar

from toolkeep.config.fleet_settings import NatsSettings
from toolkeep.errors import FleetUnavailable

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

log = logging.getLogger("toolkeep.fleet")

OnFrame = Callable[[str, bytes], None]
"""Called with the subject and the frame."""
Value = TypeVar("Value")
_CONNECT_SECONDS: Final = 5
_CLOSE_SECONDS: Final = 1
_AGAIN_SECONDS: Final = 0.25
_PING_SECONDS: Final = 2
"""A connection that is cut without a word is noticed after three."""
_PENDING_MESSAGES: Final = 65_536
_PENDING_BYTES: Final = 64 << 20
"""Beyond, NATS drops what comes: the sessions notice, and ask again."""
_TRACEBACK_SECONDS: Final = 1.0
"""Between two tracebacks of frames that could not be handled; a flood must not fill the disk."""


class NatsLink:
    """Publishes and subscribes frames."""

    def __init__(self, settings: NatsSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._client: Client | None = None
        self._is_lost = False
        self._problem = ""
        """What NATS or the connection to it complained of last."""
        self._outbox: deque[tuple[str, bytes]] = deque()
        self._sender: asyncio.Task[None] | None = None
        self._failed_at = float("-inf")

    @property
    def is_connected(self) -> bool:
        """Whether frames go out now."""
        return self._client is not None and self._client.is_connected

    async def connect(self) -> None:
        """Connect; raises `FleetUnavailable`."""
        try:
            from nats.errors import Error

            self._client = client = _strict_client()
        except ImportError as error:
            raise FleetUnavailable(
                "nats-py is not installed", hint="run: pip install 'toolkeep[nats]'"
            ) from error
        try:
            connecting = client.connect(
                list(self._settings.servers),
                name=self._name,
                connect_timeout=_CONNECT_SECONDS,
                reconnect_time_wait=_AGAIN_SECONDS,  # type: ignore[arg-type]  # any number of seconds
                max_reconnect_attempts=-1,
                ping_interval=_PING_SECONDS,
                no_echo=True,
                error_cb=self._failed,
                disconnected_cb=self._lost,
                reconnected_cb=self._back,
                **self._credentials(),
            )
            await within(_CONNECT_SECONDS, connecting)  # nats-py would try for ever
        except (TimeoutError, OSError, Error, ValueError) as error:
            await _close(client)
            message = ": ".join(filter(None, ("NATS does not answer", self._problem or str(error))))
            hint = "check fleet.nats, its credentials, and that the server runs"
            raise FleetUnavailable(message, hint=hint) from error

    def _credentials(self) -> dict[str, Any]:
        settings, given = self._settings, dict[str, Any]()
        if settings.nkey_file:
            given["nkeys_seed"] = settings.nkey_file
        if settings.user:
            given |= {"user": settings.user, "password": settings.password}
        if settings.ca_file or settings.certificate_file:
            context = ssl.create_default_context(cafile=settings.ca_file or None)
            if settings.certificate_file:
                context.load_cert_chain(settings.certificate_file, settings.key_file or None)
            given["tls"] = context
        return given

    async def subscribe(self, subject: str, on_frame: OnFrame) -> None:
        """Hand over each frame of a subject, in order."""

        async def on_message(message: Any) -> None:
            try:
                on_frame(message.subject, message.data)
            except Exception:
                # One frame of anybody must not end the subscription.
                if time.monotonic() - self._failed_at >= _TRACEBACK_SECONDS:
                    self._failed_at = time.monotonic()
                    log.exception("a frame could not be handled")

        await self._connected.subscribe(
            subject,
            cb=on_message,
            pending_msgs_limit=_PENDING_MESSAGES,
            pending_bytes_limit=_PENDING_BYTES,
        )

    def jetstream(self, timeout_s: float) -> "JetStreamContext":
        """JetStream over this connection; requests wait so long."""
        return self._connected.jetstream(timeout=timeout_s)

    def send(self, subject: str, frame: bytes) -> None:
        """Send a frame, in order; it is lost where the connection is away. Only from the link's own loop."""
        self._outbox.append((subject, frame))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.ensure_future(self._drain())

    async def _drain(self) -> None:
        from nats.errors import Error

        while self._outbox:
            subject, frame = self._outbox.popleft()
            if not self.is_connected:
                continue  # a job that comes late is worse than one that does not come
            try:
                await self._connected.publish(subject, frame)
            except (Error, OSError) as error:
                log.warning("a frame could not be sent", extra={"error": type(error).__name__})

    @property
    def _connected(self) -> "Client":
        if self._client is None:
            raise FleetUnavailable("there is no connection to NATS", hint="connect first")
        return self._client

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            with contextlib.suppress(Exception):
                await self._drain()
                await self._client.flush(1)
            self._is_lost = True  # on purpose, which needs no warning
            await _close(self._client)

    async def _failed(self, error: Exception) -> None:
        self._problem = f"{type(error).__name__}: {error}"[:300]
        log.warning("NATS reports an error", extra={"error": self._problem})

    async def _lost(self) -> None:
        if not self._is_lost:
            log.warning("the connection to NATS is lost")
        self._is_lost = True

    async def _back(self) -> None:
        self._is_lost = False
        log.info("the connection to NATS is back")


async def within(seconds: float, work: Coroutine[Any, Any, Value]) -> Value:
    """What the work returns; `TimeoutError` if it takes longer.

    nats-py loses cancellations: it swallows some, and `asyncio.wait_for` of Python 3.11 drops one that comes
    together with a result. Cancelled once, it may try on for ever, so it is cancelled until it ends.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
        is_late = not task.done()
    finally:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_AGAIN_SECONDS)
    if is_late:
        raise TimeoutError from None if task.cancelled() else task.exception()
    return task.result()


async def _close(client: "Client") -> None:
    with contextlib.suppress(Exception):
        await within(_CLOSE_SECONDS, client.close())


def _strict_client() -> "Client":
    """A client that leaves dead connections soon, and without TLS gives a `tls://` address no credentials."""
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport
    from nats.errors import SecureConnRequiredError

    class Transport(TcpTransport):
        async def connect(self, *args: Any, **kwargs: Any) -> None:
            self.abort()  # nats-py leaves a connection open on which a server did not answer
            await super().connect(*args, **kwargs)

        async def wait_closed(self) -> None:
            # nats-py tries no other server before this ends. After a failed TLS handshake nobody tells the
            # stream that it is closed, and asyncio waits 30 s for the goodbye of a server that is cut off.
            try:
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await super().wait_closed()  # type: ignore[no-untyped-call]
            except TimeoutError:
                self.abort()

        def abort(self) -> None:
            if self._io_writer is not None:
                self._io_writer.transport.abort()

        def __bool__(self) -> bool:
            return True  # nats-py would put its own in place of one that is not connected yet

    class StrictClient(Client):
        def __init__(self) -> None:
            super().__init__()
            self._transport = Transport()  # type: ignore[no-untyped-call]

        def _connect_command(self) -> bytes:
            # By itself, nats-py encrypts only if the server says so first, in the clear: whoever sits between
            # would leave that out, and have the password.
            server = self._current_server
            if server is None or (server.uri.scheme == "tls" and not self._server_info.get("tls_required")):
                raise SecureConnRequiredError
            return super()._connect_command()

    return StrictClient()
