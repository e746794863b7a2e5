"""Bodies that no frame can hold, in a bucket of JetStream's object store.

Each body is sealed under a key of its own. The key, the size and the hash travel in a sealed frame, so NATS
can neither read a body nor put another in its place; it can lose one. Calls without such a body never come
here: a bucket takes no writes for seconds after its leader died. Reading needs no leader.
"""

import asyncio
import hashlib
import logging
import os
from base64 import urlsafe_b64encode
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from toolkeep.fleet.messages import StoredBody
from toolkeep.fleet.nats_link import NatsLink, within
from toolkeep.limits import MIB, OUTPUT_CAP_BYTES

if TYPE_CHECKING:
    from nats.js import JetStreamContext
    from nats.js.object_store import ObjectStore

log = logging.getLogger("toolkeep.fleet")

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
"""Writes are refused for up to 9.2 s after the leader died."""
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
        """The bucket gets so many replicas, unless it has more."""
        self._link = link
        self._replicas = replicas
        self._bucket: ObjectStore | None = None
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def put(self, body: bytes, *, patience_s: float = _PATIENCE_SECONDS) -> StoredBody:
        """Store a body; raises `NotDelivered` if that fails for so long."""
        if len(body) > OUTPUT_CAP_BYTES:
            raise NotDelivered(f"it has more than {OUTPUT_CAP_BYTES} bytes")
        return await self._repeated(patience_s, len(body), partial(self._stored, body))

    async def take(self, stored: StoredBody, *, patience_s: float = _PATIENCE_SECONDS) -> bytes:
        """Fetch a body, check it, and delete it; raises `NotDelivered`."""
        if not 0 < stored.size <= OUTPUT_CAP_BYTES:
            raise NotDelivered(f"it has more than {OUTPUT_CAP_BYTES} bytes")
        return await self._repeated(patience_s, stored.size, partial(self._taken, stored))

    async def _repeated(
        self, patience_s: float, size: int, transfer: Callable[[], Coroutine[Any, Any, Value]]
    ) -> Value:
        """Until it succeeds. Waiting for a turn counts: while there is no leader, nobody waits for others."""
        problem = ""

        async def tries() -> Value:
            nonlocal problem
            while True:
                async with self._turns:
                    try:
                        return await transfer()
                    except _failures() as error:
                        problem = f"{type(error).__name__}: {error}"[:300]
                        self._bucket = None
                await asyncio.sleep(_AGAIN_SECONDS)

        try:
            return await within(patience_s + size / _SLOWEST, tries())
        except TimeoutError as error:
            log.warning("a large body was not delivered", extra={"why": problem, "bytes": size})
            raise NotDelivered("JetStream does not answer, or does not have it") from error

    async def _stored(self, body: bytes) -> StoredBody:
        from nats.js.api import ObjectMeta, ObjectMetaOptions

        bucket, name, key = await self._opened_bucket(), os.urandom(16).hex(), os.urandom(32)
        # In a thread: a hundred megabytes take a third of a second.
        sealed, digest = await asyncio.to_thread(_sealed, body, key, name)
        await bucket.put(name, sealed, ObjectMeta(options=ObjectMetaOptions(max_chunk_size=_CHUNK_BYTES)))
        return StoredBody(name, key, len(body), digest)

    async def _taken(self, stored: StoredBody) -> bytes:
        meta = f"$O.{BUCKET}.M.{urlsafe_b64encode(stored.name.encode()).decode()}"
        # Not by `ObjectStore.get`: it needs the leader, and follows links that anybody may have put there,
        # to objects of any size.
        told = await self._link.jetstream(_REQUEST_SECONDS).get_last_msg(_STREAM, meta, direct=True)
        chunks = f"$O.{BUCKET}.C.{msgspec.json.decode(told.data or b'', type=_Meta).nuid}"
        body = await asyncio.to_thread(_opened, await self._fetch(chunks, stored.size), stored)
        # Nobody waits for the answer: without a leader, the bucket deletes it when its time is over.
        for subject in (chunks, meta):
            self._link.send(f"$JS.API.STREAM.PURGE.{_STREAM}", msgspec.json.encode({"filter": subject}))
        return body

    async def _fetch(self, chunks: str, size: int) -> bytes:
        """Chunk by chunk, from any replica, and never more than was announced."""
        whole, after = bytearray(), 0
        while len(whole) < size + _TAG_BYTES:
            chunk = await self._link.jetstream(_REQUEST_SECONDS).get_msg(
                _STREAM, seq=after + 1, subject=chunks, next=True, direct=True
            )
            whole += chunk.data or b""
            after = chunk.seq or after + 1
        return bytes(whole)

    async def _opened_bucket(self) -> "ObjectStore":
        from nats.js.errors import NotFoundError

        if self._bucket is None:
            jetstream = self._link.jetstream(_REQUEST_SECONDS)
            try:
                bucket = await jetstream.object_store(BUCKET)
                await self._raise_replicas(jetstream)
            except NotFoundError:
                bucket = await jetstream.create_object_store(
                    BUCKET, ttl=_KEPT_SECONDS, max_bytes=_BUCKET_BYTES, replicas=self._replicas
                )
            self._bucket = bucket
        return self._bucket

    async def _raise_replicas(self, jetstream: "JetStreamContext") -> None:
        """Of a bucket that somebody made with fewer; where NATS refuses that, it is used as it is."""
        from nats.js.errors import BadRequestError, ServerError

        config = (await jetstream.stream_info(_STREAM)).config
        if (config.num_replicas or 1) < self._replicas:
            try:
                await jetstream.update_stream(config, num_replicas=self._replicas)
            except (BadRequestError, ServerError) as error:
                log.warning("the bucket has fewer replicas than wanted", extra={"why": str(error)[:300]})


class _Meta(msgspec.Struct):
    """What the object store says of a body."""

    nuid: str


def _failures() -> tuple[type[Exception], ...]:
    """What passes, or is worth another try."""
    from nats.errors import Error

    return (Error, OSError, ValueError, msgspec.DecodeError)


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
