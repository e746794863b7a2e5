"""Encrypts what only servers with the same key may read or make (ChaCha20-Poly1305)."""

import os
from typing import Final

_NONCE_BYTES: Final = 12


class SealedBox:
    """Seals and opens under one key of 32 bytes."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        self._cipher = ChaCha20Poly1305(key)

    def seal(self, content: bytes, about: str) -> bytes:
        """The content, encrypted; it can be opened only with the same `about`."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, content, about.encode())

    def open(self, sealed: bytes, about: str) -> bytes | None:
        """The content; None if it was not sealed so under this key."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            return None
