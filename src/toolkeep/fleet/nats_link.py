"""One connection to NATS, of a server or a worker, that comes back by itself.

What is published while the connection is away is lost: whoever needs an answer waits for one.
"""

import asyncio
import contextlib
import logging
import ssl
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from toolkeep.config.fleet_settings import NatsSettings
from toolkeep.errors import FleetUnavailable

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext

log = logging.getLogger("toolkeep.fleet")

OnFrame = Callable[[str, bytes], None]
"""Called with the subject and the frame."""
_CONNECT_SECONDS: Final = 5
_CLOSE_SECONDS: Final = 1
_AGAIN_SECONDS: Final = 0.25
_PING_SECONDS: Final = 2
"""A connection that is cut without a word is noticed after three."""
_PENDING_MESSAGES: Final = 65_536
_PENDING_BYTES: Final = 64 << 20
"""Beyond, NATS drops what comes: the sessions notice, and ask again."""


class NatsLink:
    """Publishes and subscribes frames."""

    def __init__(self, settings: NatsSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._client: Client | None = None
        self._is_lost = False
        self._outbox: deque[tuple[str, bytes]] = deque()
        self._sender: asyncio.Task[None] | None = None

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
            async with asyncio.timeout(_CONNECT_SECONDS):  # nats-py would try for ever
                await client.connect(
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
        except (TimeoutError, OSError, Error, ValueError) as error:
            await _close(client)
            hint = "check fleet.nats, its credentials, and that the server runs"
            raise FleetUnavailable("NATS does not answer", hint=hint) from error

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
            await _close(self._client)

    async def _failed(self, error: Exception) -> None:
        log.warning("NATS reports an error", extra={"error": f"{type(error).__name__}: {error}"[:300]})

    async def _lost(self) -> None:
        if not self._is_lost:
            log.warning("the connection to NATS is lost")
        self._is_lost = True

    async def _back(self) -> None:
        self._is_lost = False
        log.info("the connection to NATS is back")


async def _close(client: "Client") -> None:
    with contextlib.suppress(Exception):
        # After a failed TLS handshake, nats-py may wait for the other side for ever.
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()


def _strict_client() -> "Client":
    """A client that gives no credentials to a server of a `tls://` address over a connection without TLS."""
    from nats.aio.client import Client
    from nats.errors import SecureConnRequiredError

    class StrictClient(Client):
        def _connect_command(self) -> bytes:
            # By itself, nats-py encrypts only if the server says so first, in the clear: whoever sits between
            # would leave that out, and have the password.
            server = self._current_server
            if server is None or (server.uri.scheme == "tls" and not self._server_info.get("tls_required")):
                raise SecureConnRequiredError
            return super()._connect_command()

    return StrictClient()
