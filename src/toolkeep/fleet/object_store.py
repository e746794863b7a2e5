"""Bodies that no frame can hold, in a bucket of JetStream's object store.

Each body is sealed under a key of its own. The key, the size and the hash travel in a sealed frame, so NATS
can neither read a body nor put another in its place; it can lose one. Calls without such a body never come
here: a bucket takes no writes for seconds after its leader died.
"""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from toolkeep.fleet.messages import StoredBody
from toolkeep.fleet.nats_link import NatsLink, within
from toolkeep.limits import MIB, OUTPUT_CAP_BYTES

if TYPE_CHECKING:
    from nats.js.object_store import ObjectStore

INLINE_BYTES: Final = 800_000
"""A body up to this size travels in its frame, which holds 900,000 bytes."""
BUCKET: Final = "toolkeep"
_STREAM: Final = f"OBJ_{BUCKET}"
_KEPT_SECONDS: Final = 600
"""The receiver deletes a body; one that nobody fetched is gone after the longest deadline of a call."""
_BUCKET_BYTES: Final = 1024 * MIB
"""All bodies under way; beyond, the bucket refuses new ones."""
_CHUNK_BYTES: Final = 256 * 1024
_TAG_BYTES: Final = 16
_AT_ONCE: Final = 4
"""Transfers of one process: each holds its body twice."""
_REQUEST_SECONDS: Final = 2.0
_PATIENCE_SECONDS: Final = 12.0
"""A new leader takes up to 7.4 s to take writes."""
_SLOWEST: Final = 2 * MIB
"""Bytes a second: a transfer has its patience and the time that it takes at this rate."""
_AGAIN_SECONDS: Final = 0.25
"""Between two tries: soon after a new leader is there, and few while there is none."""
_NONCE: Final = bytes(12)
"""The same for all: no key is used twice."""

Value = TypeVar("Value")


class NotDelivered(Exception):
    """A body could not be stored, or was not there."""


class BodyStore:
    """Stores and takes bodies over one connection."""

    def __init__(self, link: NatsLink, *, replicas: int = 1) -> None:
        """`replicas` of the bucket, if it does not exist yet."""
        self._link = link
        self._replicas = replicas
        self._bucket: ObjectStore | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def put(self, body: bytes, *, patience_s: float = _PATIENCE_SECONDS) -> StoredBody:
        """Store a body; raises `NotDelivered` if that fails for so long."""
        if len(body) > OUTPUT_CAP_BYTES:
            raise NotDelivered(f"it has more than {OUTPUT_CAP_BYTES} bytes")
        return await self._in_turn(patience_s, len(body), partial(self._stored, body))

    async def take(self, stored: StoredBody, *, patience_s: float = _PATIENCE_SECONDS) -> bytes:
        """Fetch a body, check it, and delete it; raises `NotDelivered`."""
        if not 0 < stored.size <= OUTPUT_CAP_BYTES:
            raise NotDelivered(f"it has more than {OUTPUT_CAP_BYTES} bytes")
        return await self._in_turn(patience_s, stored.size, partial(self._taken, stored))

    async def _in_turn(
        self, patience_s: float, size: int, transfer: Callable[[], Coroutine[Any, Any, Value]]
    ) -> Value:
        async with self._turns:
            try:
                return await within(patience_s + size / _SLOWEST, transfer())
            except TimeoutError as error:
                raise NotDelivered("JetStream does not answer, or does not have it") from error

    async def _stored(self, body: bytes) -> StoredBody:
        name, key = os.urandom(16).hex(), os.urandom(32)
        # In a thread: a hundred megabytes take a third of a second.
        sealed, digest = await asyncio.to_thread(_sealed, body, key, name)
        await self._repeated(lambda bucket: self._put(bucket, name, sealed))
        return StoredBody(name, key, len(body), digest)

    async def _taken(self, stored: StoredBody) -> bytes:
        sealed = await self._repeated(lambda bucket: self._fetch(bucket, stored))
        body = await asyncio.to_thread(_opened, sealed, stored)
        with contextlib.suppress(*_failures()):
            await (await self._opened_bucket()).delete(stored.name)
        return body

    async def _put(self, bucket: "ObjectStore", name: str, sealed: bytes) -> None:
        from nats.js.api import ObjectMeta, ObjectMetaOptions

        await bucket.put(name, sealed, ObjectMeta(options=ObjectMetaOptions(max_chunk_size=_CHUNK_BYTES)))

    async def _fetch(self, bucket: "ObjectStore", stored: StoredBody) -> bytes:
        """Chunk by chunk, from any replica, and never more than was announced.

        `ObjectStore.get` follows links that anybody may have put there, to objects of any size.
        """
        info = await bucket.get_info(stored.name)
        subject, whole, after = f"$O.{BUCKET}.C.{info.nuid}", bytearray(), 0
        while len(whole) < stored.size + _TAG_BYTES:
            chunk = await self._link.jetstream(_REQUEST_SECONDS).get_msg(
                _STREAM, seq=after + 1, subject=subject, next=True, direct=True
            )
            whole += chunk.data or b""
            after = chunk.seq or after + 1
        return bytes(whole)

    async def _repeated(self, work: "Callable[[ObjectStore], Awaitable[Value]]") -> Value:
        """Until it succeeds; the caller's patience ends it."""
        while True:
            with contextlib.suppress(*_failures()):
                return await work(await self._opened_bucket())
            self._bucket = None
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _opened_bucket(self) -> "ObjectStore":
        from nats.js.errors import NotFoundError

        if self._bucket is None:
            jetstream = self._link.jetstream(_REQUEST_SECONDS)
            try:
                self._bucket = await jetstream.object_store(BUCKET)
            except NotFoundError:
                self._bucket = await jetstream.create_object_store(
                    BUCKET, ttl=_KEPT_SECONDS, max_bytes=_BUCKET_BYTES, replicas=self._replicas
                )
        return self._bucket


def _failures() -> tuple[type[Exception], ...]:
    """What passes, or is worth another try."""
    from nats.errors import Error

    return (Error, OSError, ValueError)


def _sealed(body: bytes, key: bytes, name: str) -> tuple[bytes, bytes]:
    return ChaCha20Poly1305(key).encrypt(_NONCE, body, name.encode()), hashlib.sha256(body).digest()


def _opened(sealed: bytes, stored: StoredBody) -> bytes:
    try:
        body = ChaCha20Poly1305(stored.key).decrypt(_NONCE, sealed, stored.name.encode())
    except (InvalidTag, ValueError) as error:
        raise NotDelivered("something else is in its place") from error
    if len(body) != stored.size or hashlib.sha256(body).digest() != stored.hash:
        raise NotDelivered("it is not what was announced")
    return body
