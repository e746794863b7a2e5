"""Webhook delivery of events as signed CloudEvents 1.0 (STO-2). Never blocks a call.

Events enter a bounded queue; a thread posts them in order. Failed deliveries are retried with growing backoff
and finally dropped; events that find the queue full are dropped and counted. The target is vetted like a
tool's host: TLS, public addresses, or the one that its URL names (SSRF). The signature is that of Standard
Webhooks: HMAC-SHA256 over id, timestamp and body. It authenticates the sender, but does not prove that no
event is missing.
"""

import asyncio
import base64
import binascii
import contextlib
import hashlib
import hmac
import logging
import queue
import threading
import time
import uuid
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from toolkeep import events
from toolkeep.definitions.constraints import NetworkBounds
from toolkeep.events import Event
from toolkeep.limits import (
    WEBHOOK_ANSWER_BYTES,
    WEBHOOK_CLOSE_SECONDS,
    WEBHOOK_PAUSES,
    WEBHOOK_QUEUE,
    WEBHOOK_SECONDS,
)
from toolkeep.network.allowlist import HostAllowlist
from toolkeep.network.budget import Budget
from toolkeep.network.errors import NetworkError
from toolkeep.network.fetch import fetch
from toolkeep.network.hosts import HostScope, read_url
from toolkeep.network.http_endpoint import Request

log = logging.getLogger("toolkeep.webhook")

TYPES: Final[dict[str, type[Event]]] = {
    kind.__name__: kind
    for kind in (
        events.ToolDefinitionCreatedEvent,
        events.ToolDefinitionUpdatedEvent,
        events.ToolDefinitionDeletedEvent,
        events.ToolDefinitionValidatedEvent,
        events.ToolQuarantined,
        events.ApprovalRequested,
        events.ApprovalDecided,
        events.AgentDrifted,
    )
}
"""Event types that can be sent to a webhook."""

_PREFIX: Final = "whsec_"


class Webhook:
    """Webhook sender for one URL. A listener for `Keep.subscribe`."""

    def __init__(
        self,
        url: str,
        secret: str,
        *,
        source: str,
        types: Collection[str] = (),
        pauses: Sequence[float] = WEBHOOK_PAUSES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        # Events name agents and tools, and the signature does not encrypt them.
        if read_url(url).scheme != "https":
            raise ValueError("a webhook must start with https://")
        self._url = url
        self._key = signing_key(secret)
        self._source = source
        self._types = tuple(TYPES[name] for name in types or TYPES)
        self._pauses = pauses
        self._clock = clock
        self._waiting: queue.Queue[tuple[str, bytes] | None] = queue.Queue(WEBHOOK_QUEUE)
        self._is_over = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.lost = 0
        """Number of dropped events: the queue was full, or all retries failed."""

    def __call__(self, event: Event) -> None:
        """Enqueue an event if its type is selected; never blocks."""
        if not isinstance(event, self._types) or self._is_over.is_set():
            return
        event_id = str(uuid.uuid4())
        try:
            self._waiting.put_nowait((event_id, cloud_event(event, event_id, self._source)))
        except queue.Full:
            self._lose("the queue is full")
            return
        self._start()

    def close(self) -> None:
        """Flush the queue, one attempt each within a time limit, and stop."""
        self._is_over.set()
        with self._lock:
            thread, self._thread = self._thread, None
        if thread is not None:
            with contextlib.suppress(queue.Full):  # then the join times out
                self._waiting.put_nowait(None)
            thread.join(WEBHOOK_CLOSE_SECONDS)

    def _start(self) -> None:
        """Start the thread with the first event, so that a keep that sends none has none."""
        with self._lock:
            if self._thread is None and not self._is_over.is_set():
                # A daemon: an unreachable webhook must not keep the interpreter from exiting.
                thread = threading.Thread(target=self._run, name="toolkeep-webhook", daemon=True)
                thread.start()
                self._thread = thread

    def _run(self) -> None:
        while (item := self._next()) is not None:
            self._deliver(*item)

    def _next(self) -> tuple[str, bytes] | None:
        try:
            return self._waiting.get(block=not self._is_over.is_set())
        except queue.Empty:
            return None

    def _deliver(self, event_id: str, body: bytes) -> None:
        """Post with retries and backoff; after `close` only once."""
        for pause_s in (*self._pauses, None):
            reason = self._post(event_id, body)
            if not reason:
                return
            if pause_s is None or self._is_over.is_set():
                break
            log.warning("a webhook did not take an event", extra={"event_id": event_id, "reason": reason})
            self._is_over.wait(pause_s)
        self._lose(reason)

    def _post(self, event_id: str, body: bytes) -> str:
        """Post once; returns the reason of failure, empty on success."""
        try:
            return asyncio.run(self._ask(event_id, body))
        except (NetworkError, TimeoutError) as error:
            return str(error) or "no answer in time"
        except Exception as error:  # noqa: BLE001 -- no failure may end the thread silently
            return type(error).__name__

    async def _ask(self, event_id: str, body: bytes) -> str:
        # An allowlist of one host: a redirect or a DNS answer cannot lead the request elsewhere. A person
        # wrote the address, so that it may be a private one.
        reach = HostAllowlist(writes=(HostScope.of(read_url(self._url), is_named=True),))
        headers = signed_headers(self._key, event_id, int(self._clock()), body)
        request = Request(method="POST", url=self._url, headers=headers, body=body)
        budget = Budget(NetworkBounds(max_requests=1, max_bytes=len(body) + WEBHOOK_ANSWER_BYTES))
        async with asyncio.timeout(WEBHOOK_SECONDS):
            answer = await fetch(request, reach, budget, WEBHOOK_ANSWER_BYTES)
        return "" if 200 <= answer.status < 300 else f"it answered {answer.status}"

    def _lose(self, reason: str) -> None:
        self.lost += 1
        log.error("a webhook lost an event", extra={"reason": reason, "lost": self.lost})


def cloud_event(event: Event, event_id: str, source: str) -> bytes:
    """An event in CloudEvents JSON format."""
    data: dict[str, Any] = msgspec.to_builtins(event)
    told = getattr(event, "timestamp", None) or datetime.now(UTC)
    envelope = {
        "specversion": "1.0",
        "id": event_id,
        "source": source,
        "type": f"toolkeep.{type(event).__name__}",
        "subject": data.get("tool_name", ""),
        "time": told.isoformat(),
        "datacontenttype": "application/json",
        "data": data,
    }
    return msgspec.json.encode(envelope)


def signing_key(secret: str) -> bytes:
    """The HMAC key of a secret: `whsec_` and base64, or any text as is."""
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return secret.encode()


def signed_headers(key: bytes, event_id: str, at: int, body: bytes) -> tuple[tuple[str, str], ...]:
    """Signature headers; id and timestamp are signed too, so that a receiver can detect replays."""
    mac = hmac.digest(key, f"{event_id}.{at}.".encode() + body, hashlib.sha256)
    return (
        ("Content-Type", "application/cloudevents+json"),
        ("webhook-id", event_id),
        ("webhook-timestamp", str(at)),
        ("webhook-signature", f"v1,{base64.b64encode(mac).decode()}"),
    )
