"""Keys of servers and workers: Ed25519, in one file each, that nobody else may read."""

import base64
import hashlib
import os
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from toolkeep.errors import StateUnusable
from toolkeep.host.files import is_there
from toolkeep.storage.atomic_files import write_once
from toolkeep.storage.state_folder import make_private

_PREFIX: Final = "ed25519:"
_BYTES: Final = 32
"""Of an Ed25519 key, fixed by RFC 8032."""


class PublicKey:
    """Who somebody is."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self._key = Ed25519PublicKey.from_public_bytes(raw)
        self.text = _PREFIX + base64.b64encode(raw).decode()
        self.token = hashlib.sha256(raw).hexdigest()[:32]
        """Names it in NATS subjects."""

    @classmethod
    def read(cls, text: str) -> "PublicKey":
        """Parse the text form; ValueError says what is wrong."""
        if not text.startswith(_PREFIX):
            raise ValueError(f"a key starts with {_PREFIX}")
        raw = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        if len(raw) != _BYTES:
            raise ValueError(f"a key has {_BYTES} bytes, not {len(raw)}")
        return cls(raw)

    def has_signed(self, signature: bytes, message: bytes) -> bool:
        """Whether this key signed the message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and other.raw == self.raw

    def __hash__(self) -> int:
        return hash(self.raw)

    def __repr__(self) -> str:
        return self.text


class PrivateKey:
    """Proves who one is."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self.sign = self._key.sign

    @cached_property
    def public(self) -> PublicKey:
        """What others know it by."""
        return PublicKey(self._key.public_key().public_bytes_raw())

    def __repr__(self) -> str:
        """Without the key."""
        return f"<private key of {self.public.text}>"


def load_key(path: Path) -> PrivateKey:
    """The key of a file in the state folder, which is made where there is none."""
    if not is_there(path):
        make_private(path.parent)
        write_once(path, os.urandom(_BYTES))
    if path.stat().st_mode & 0o077:
        raise StateUnusable(str(path), "others may read this key", hint=f"run: chmod 600 {path}")
    seed = path.read_bytes()
    if len(seed) != _BYTES:
        raise StateUnusable(str(path), "it holds no key", hint="remove it, and a new one is made")
    return PrivateKey(seed)
