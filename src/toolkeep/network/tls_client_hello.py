"""Reads the SNI server name from a TLS ClientHello (RFC 8446 section 4.1.2, RFC 6066).

Input: the first bytes of a connection, from a hostile client. Output: the one server name, None while bytes
are missing, or `NetworkRefused`. A hello that encrypts its name (ECH) or has none is refused: its destination
would be unknown.

Not protected: what is requested inside the encryption. A server with several names, as CDNs have, may be
asked there for another one.
"""

from typing import Final

from toolkeep.limits import CLIENT_HELLO_BYTES
from toolkeep.network.errors import NetworkRefused

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_RECORD_HEAD: Final = 5
_RECORD_BYTES: Final = 1 << 14
_RECORDS: Final = 32
"""Maximum records of one hello; each is parsed again whenever more bytes come (quadratic work)."""

_MESSAGE_HEAD: Final = 4
_RANDOM_BYTES: Final = 32
"""Size of the field `random` of a ClientHello (RFC 8446 section 4.1.2)."""
_SERVER_NAME: Final = 0
_HOST_NAME: Final = 0
_HIDDEN_NAMES: Final = frozenset((0xFE0D, 0xFE0A, 0xFE09, 0xFE08, 0xFFCE))
"""Encrypted ClientHello (RFC 9849), its drafts, and encrypted SNI before it."""

ACCESS_DENIED: Final = bytes((21, 3, 3, 0, 2, 2, 49))
"""Fatal alert access_denied, so that the client's own error names the reason."""


class _Bytes:
    """Bounds-checked reader; raises if a message is shorter than it says."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_empty(self) -> bool:
        return self._at == len(self._data)

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def take(self, count: int) -> bytes:
        taken = self._data[self._at : self._at + count]
        if len(taken) != count:
            raise NetworkRefused("the TLS ClientHello is broken")
        self._at += count
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> "_Bytes":
        """Content of a length-prefixed vector."""
        return _Bytes(self.take(self.number(size)))


def server_name(data: bytes) -> str | None:
    """Name in the ClientHello at the start of the data; None if more bytes are needed."""
    message = _message(data)
    return None if message is None else _name_in(_Bytes(message))


def _message(data: bytes) -> bytes | None:
    """Body of the first handshake message, which may span records."""
    message = b""
    at = records = 0
    while len(data) > at:
        # A CONNECT tunnel must not carry another protocol (SSH, SMTP), which no grant describes.
        if data[at] != _HANDSHAKE:
            raise NetworkRefused("only TLS may be spoken through CONNECT")
        if len(data) < at + _RECORD_HEAD:
            break
        length = int.from_bytes(data[at + 3 : at + _RECORD_HEAD], "big")
        if data[at + 1] != 3 or not 0 < length <= _RECORD_BYTES:
            raise NetworkRefused("only TLS may be spoken through CONNECT")
        message += data[at + _RECORD_HEAD : at + _RECORD_HEAD + length]
        at += _RECORD_HEAD + length
        records += 1
        if records > _RECORDS:
            raise NetworkRefused("the TLS ClientHello is in too many pieces")
        if (body := _body(message)) is not None:
            return body
    if len(data) > CLIENT_HELLO_BYTES:
        raise NetworkRefused("the TLS ClientHello is too long")
    return None


def _body(message: bytes) -> bytes | None:
    if message and message[0] != _CLIENT_HELLO:
        raise NetworkRefused("TLS must begin with a ClientHello")
    length = int.from_bytes(message[1:_MESSAGE_HEAD], "big")
    if len(message) >= _MESSAGE_HEAD and length > CLIENT_HELLO_BYTES:
        raise NetworkRefused("the TLS ClientHello is too long")
    is_whole = len(message) >= _MESSAGE_HEAD + length and len(message) >= _MESSAGE_HEAD
    return message[_MESSAGE_HEAD : _MESSAGE_HEAD + length] if is_whole else None


def _name_in(hello: _Bytes) -> str:
    hello.take(2 + _RANDOM_BYTES)  # version
    hello.vector(1)  # session
    hello.vector(2)  # ciphers
    hello.vector(1)  # compressions
    extensions = hello.vector(2) if not hello.is_empty else _Bytes(b"")
    # Trailing bytes: another parser may find more extensions there.
    if not hello.is_empty:
        raise NetworkRefused("the TLS ClientHello is broken")
    names: list[str] = []
    while not extensions.is_empty:
        kind, content = extensions.number(2), extensions.vector(2)
        # With ECH the visible SNI is a decoy; the real name is encrypted.
        if kind in _HIDDEN_NAMES:
            raise NetworkRefused("TLS must not hide the server's name (ECH)")
        if kind == _SERVER_NAME:
            names += _names(content)
    # Two names: we and the server might pick different ones.
    if len(names) != 1:
        raise NetworkRefused("TLS must name one server (SNI)")
    return names[0]


def _names(content: _Bytes) -> list[str]:
    names = []
    listed = content.vector(2)
    while not listed.is_empty:
        kind, name = listed.number(1), listed.vector(2)
        if kind != _HOST_NAME:
            raise NetworkRefused("the TLS ClientHello names its server in an unknown way")
        names.append(name.rest().decode("ascii", "replace"))
    if not content.is_empty:
        raise NetworkRefused("the TLS ClientHello is broken")
    return names
