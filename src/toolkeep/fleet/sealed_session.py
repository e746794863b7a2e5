"""A session of one server with one worker: keys agreed under both signatures, then sealed frames.

The server's `Hello` and the worker's `Welcome` each hold a new X25519 key and are signed by the long-lived
key; the `Welcome` signs the `Hello` too. All frames are sealed by ChaCha20-Poly1305 under keys of the
session, one for each direction, with a counter that only rises; the first one holds what the worker claims. A
frame that is replayed, reordered, turned round, or of another session does not open. Keys of a session are
kept in memory alone, so what NATS recorded stays sealed if a long-lived key is stolen later.

A seal proves to one of the two that the other wrote a frame. What proves it to others is `Signed`
(`transcript.py`).
"""

import hashlib
import os
from typing import Final, TypeVar

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from toolkeep.fleet.identity import PrivateKey, PublicKey
from toolkeep.fleet.messages import PROTOCOL, SHAPE

ANNOUNCE, HELLO, WELCOME, DECLINED, SEALED = b"\x01", b"\x02", b"\x03", b"\x04", b"\x05"
"""First byte of a frame."""

_SESSION_BYTES: Final = 8
"""Random: enough to tell the sessions of one worker apart; the keys tell who they are with."""
_HEADER: Final = 1 + _SESSION_BYTES + 8
FRAME_BYTES: Final = 900_000
"""Below the payload that a NATS server takes by default (1 MiB)."""
_LAST: Final = 1 << 48
"""Frames of one session and direction; a new session begins long before."""


UNHANDLED: Final = "it could not be handled"
"""Why a frame counted for nothing that raised an unexpected exception."""


class FrameInvalid(Exception):
    """A frame is not what it claims to be."""


class Announce(msgspec.Struct, frozen=True, array_like=True):
    """A worker is there, so that servers say hello."""

    worker: bytes
    boot: bytes


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """A server opens a session."""

    protocol: int
    shape: str
    version: str
    server: bytes
    reply: str
    """Last part of the subject of answers: one for each connection of the server."""
    worker: bytes
    boot: bytes
    """Of the worker: a hello to an earlier process of the worker opens nothing."""
    number: int
    """Rises with each hello of a connection, so that a replayed one is known."""
    key: bytes
    lease_ms: int


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """The worker opens it too."""

    session: bytes
    hello: bytes
    """Hash of the whole frame that it answers."""
    key: bytes


class Declined(msgspec.Struct, frozen=True, array_like=True):
    """The worker opens no session."""

    hello: bytes
    why: str


Read = TypeVar("Read", bound=msgspec.Struct)
_Body = Hello | Welcome | Declined
_pack: Final = msgspec.msgpack.Encoder().encode
_PURPOSE: Final = b"toolkeep fleet 1 "


def _signed(kind: bytes, body: "_Body | Announce", key: PrivateKey) -> bytes:
    packed = _pack(body)
    return kind + key.sign(_PURPOSE + kind + packed) + packed


def _checked(frame: bytes, key: PublicKey) -> bytes:
    kind, signature, packed = frame[:1], frame[1:65], frame[65:]
    if not key.has_signed(signature, _PURPOSE + kind + packed):
        raise FrameInvalid("it is not signed by the key that it names")
    return packed


def announce(worker: PrivateKey, boot: bytes) -> bytes:
    """The frame that tells servers of a worker; the same as long as its process lives."""
    return _signed(ANNOUNCE, Announce(worker.public.raw, boot), worker)


def read_announce(frame: bytes) -> tuple[Announce, PublicKey]:
    """Parse one, and the key that it names; anybody may have written it. Raises `FrameInvalid`."""
    announced = _read(frame[65:], Announce)
    return announced, _key(announced.worker)


def check_announce(frame: bytes, worker: PublicKey) -> None:
    """Raise `FrameInvalid` unless the worker signed it."""
    _checked(frame, worker)


class Opening:
    """A session that a server has asked for."""

    def __init__(self, server: PrivateKey, worker: PublicKey, **facts: object) -> None:
        self._worker = worker
        self._secret = X25519PrivateKey.generate()
        hello = Hello(
            protocol=PROTOCOL,
            shape=SHAPE,
            server=server.public.raw,
            worker=worker.raw,
            key=self._secret.public_key().public_bytes_raw(),
            **facts,  # type: ignore[arg-type]  # version, reply, boot, number and lease_ms
        )
        self.frame = _signed(HELLO, hello, server)
        self._hash = hashlib.sha256(self.frame).digest()

    def finish(self, frame: bytes) -> "SealedSession":
        """The session, by the worker's answer; raises `FrameInvalid`."""
        welcome = _read(_checked(frame, self._worker), Welcome)
        if welcome.hello != self._hash or len(welcome.session) != _SESSION_BYTES:
            raise FrameInvalid("it answers another hello")
        keys = _keys(self._secret, welcome.key, self.frame + frame)
        return SealedSession(welcome.session, seal=keys[0], open_=keys[1])

    def why_declined(self, frame: bytes) -> str:
        """What the worker objects to; raises `FrameInvalid`."""
        declined = _read(_checked(frame, self._worker), Declined)
        if declined.hello != self._hash:
            raise FrameInvalid("it answers another hello")
        return declined.why


def read_hello(frame: bytes) -> tuple[Hello, PublicKey]:
    """A hello and the key that signed it, which may be anybody's; raises `FrameInvalid`."""
    hello = _read(frame[65:], Hello)
    server = _key(hello.server)
    _checked(frame, server)
    return hello, server


def welcome(worker: PrivateKey, frame: bytes, hello: Hello) -> "tuple[SealedSession, bytes]":
    """Open the session of a hello that was checked, and the frame that says so."""
    secret, session = X25519PrivateKey.generate(), os.urandom(_SESSION_BYTES)
    public = secret.public_key().public_bytes_raw()
    answer = _signed(WELCOME, Welcome(session, hashlib.sha256(frame).digest(), public), worker)
    keys = _keys(secret, hello.key, frame + answer)
    return SealedSession(session, seal=keys[1], open_=keys[0]), answer


def decline(worker: PrivateKey, frame: bytes, why: str) -> bytes:
    """The frame that refuses a hello."""
    return _signed(DECLINED, Declined(hashlib.sha256(frame).digest(), why), worker)


class SealedSession:
    """Seals and opens frames, each once."""

    def __init__(self, id_: bytes, *, seal: bytes, open_: bytes) -> None:
        self.id = id_
        self._sealing = ChaCha20Poly1305(seal)
        self._opening = ChaCha20Poly1305(open_)
        self._sealed = 0
        self._opened = 0

    def seal(self, message: bytes) -> bytes:
        """A frame with this message."""
        self._sealed += 1
        if self._sealed > _LAST:
            raise FrameInvalid("the session is used up")
        count = self._sealed.to_bytes(8, "big")
        header = SEALED + self.id + count
        return header + self._sealing.encrypt(b"\0\0\0\0" + count, message, header)

    def open(self, frame: bytes) -> bytes:
        """The message of a frame; raises `FrameInvalid` unless it is new and of this session."""
        header = frame[:_HEADER]
        count = int.from_bytes(header[-8:], "big")
        if header[1:-8] != self.id or len(header) != _HEADER:
            raise FrameInvalid("it is of another session")
        if count <= self._opened:
            raise FrameInvalid("it was sent before")
        try:
            message = self._opening.decrypt(b"\0\0\0\0" + header[-8:], frame[_HEADER:], header)
        except InvalidTag as error:
            raise FrameInvalid("its seal is broken") from error
        self._opened = count
        return message


def session_of(frame: bytes) -> bytes:
    """The session that a sealed frame names."""
    return frame[1 : 1 + _SESSION_BYTES]


def _keys(secret: X25519PrivateKey, public: bytes, transcript: bytes) -> tuple[bytes, bytes]:
    """To the worker, and to the server."""
    try:
        shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # of the wrong length, or a point that makes the secret known
        raise FrameInvalid("it holds no key for the session") from error
    salt = hashlib.sha256(transcript).digest()
    both = HKDF(SHA256(), 64, salt, _PURPOSE + b"keys").derive(shared)
    return both[:32], both[32:]


def _key(raw: bytes) -> PublicKey:
    try:
        return PublicKey(raw)
    except ValueError as error:
        raise FrameInvalid("it names no key") from error


def _read(packed: bytes, kind: type[Read]) -> Read:
    try:
        return msgspec.msgpack.decode(packed, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise FrameInvalid("it cannot be read") from error
