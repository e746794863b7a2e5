"""C2SP signed notes (c2sp.org/signed-note): text with Ed25519 signatures by named keys.

Plain signatures (type 1) cover the text; cosignatures (type 4, c2sp.org/tlog-cosignature) cover the text and
a timestamp. Parsing is strict: a note has exactly one encoding, so a signed note cannot be altered unnoticed.
Text without a signature of a known key proves nothing.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from toolkeep.audit.errors import NoteInvalid

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

NOTE_BYTES: Final = 64 * 1024
"""Maximum note size; sixteen signatures of any type fit, as signed-note demands."""

_KEY_BYTES = 32
_ID_BYTES = 4
_TIME_BYTES = 8
_SIGNATURE_BYTES = 64
"""Fixed by the formats: Ed25519 keys and signatures (RFC 8032), key ids (signed-note) and 64-bit timestamps
(tlog-cosignature)."""
_PRIVATE = "PRIVATE+KEY+"


class Algorithm(IntEnum):
    """Supported signature types."""

    ED25519 = 1
    COSIGNATURE = 4


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """One signature line: key name, key id and signature bytes."""

    name: str
    key_id: bytes
    signature: bytes

    def __str__(self) -> str:
        return f"— {self.name} {_encode(self.key_id + self.signature)}\n"

    @property
    def timestamp(self) -> int:
        """Time of a cosignature in POSIX seconds."""
        return int.from_bytes(self.signature[:_TIME_BYTES], "big")


class VerifierKey(msgspec.Struct, frozen=True, kw_only=True):
    """A public key in verifier key format: `name+id+base64`."""

    name: str
    algorithm: Algorithm
    public: bytes

    @classmethod
    def parse(cls, text: str) -> "VerifierKey":
        """Parse the text form."""
        name, _, rest = text.strip().partition("+")
        key_id, _, encoded = rest.partition("+")
        material = _decode(encoded)
        if len(material) != 1 + _KEY_BYTES or material[0] not in list(Algorithm):
            raise NoteInvalid(
                f"{text!r} is not an Ed25519 verifier key", "`toolkeep audit key` prints that of a log"
            )
        key = cls(name=_checked_name(name), algorithm=Algorithm(material[0]), public=material[1:])
        # A key whose id does not match was copied with an error, or altered: it would never verify anything.
        if key.key_id.hex() != key_id:
            raise NoteInvalid(f"the verifier key of {name!r} does not have the id {key_id!r}")
        return key

    def __str__(self) -> str:
        return f"{self.name}+{self.key_id.hex()}+{_encode(bytes([self.algorithm]) + self.public)}"

    @property
    def key_id(self) -> bytes:
        """Key id: the first four bytes of the SHA-256 of name, type and key.

        A hint only; `has_signed` verifies.
        """
        named = self.name.encode() + b"\n" + bytes([self.algorithm]) + self.public
        return hashlib.sha256(named).digest()[:_ID_BYTES]

    def has_signed(self, text: str, signature: Signature) -> bool:
        """Verify a signature over a text."""
        if (signature.name, signature.key_id) != (self.name, self.key_id):
            return False
        if self.algorithm is Algorithm.ED25519:
            return is_signed(self.public, signature.signature, text.encode())
        if len(signature.signature) != _TIME_BYTES + _SIGNATURE_BYTES or signature.timestamp >= 1 << 63:
            return False
        message = _timed(text, signature.timestamp)
        return is_signed(self.public, signature.signature[_TIME_BYTES:], message)


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A named private key."""

    name: str
    algorithm: Algorithm
    seed: bytes = field(repr=False)  # kept out of logs and tracebacks

    @classmethod
    def parse(cls, text: str) -> "Signer":
        """Parse the text form, `PRIVATE+KEY+name+id+base64`."""
        if not text.startswith(_PRIVATE):
            raise NoteInvalid("this is not a private key for signed notes")
        # Errors name the key but never quote the text: it contains the private key.
        name, _, rest = text.removeprefix(_PRIVATE).strip().partition("+")
        key_id, _, encoded = rest.partition("+")
        material = _decode(encoded)
        if len(material) != 1 + _KEY_BYTES or material[0] not in list(Algorithm):
            raise NoteInvalid(f"the private key of {name!r} is not an Ed25519 key")
        signer = cls(name=_checked_name(name), algorithm=Algorithm(material[0]), seed=material[1:])
        if signer.verifier.key_id.hex() != key_id:
            raise NoteInvalid(f"the private key of {name!r} does not have the id {key_id!r}")
        return signer

    def to_text(self) -> str:
        """The text form; contains the private key."""
        material = _encode(bytes([self.algorithm]) + self.seed)
        return f"{_PRIVATE}{self.name}+{self.verifier.key_id.hex()}+{material}\n"

    @cached_property
    def verifier(self) -> VerifierKey:
        """The public key."""
        public = self._key.public_key().public_bytes_raw()
        return VerifierKey(name=self.name, algorithm=self.algorithm, public=public)

    def sign(self, text: str, *, timestamp: int = 0) -> Signature:
        """Sign a text; the timestamp is used by cosignatures only."""
        if self.algorithm is Algorithm.ED25519:
            signed = self._key.sign(text.encode())
        else:
            signed = timestamp.to_bytes(_TIME_BYTES, "big") + self._key.sign(_timed(text, timestamp))
        return Signature(name=self.name, key_id=self.verifier.key_id, signature=signed)

    @cached_property
    def _key(self) -> "Ed25519PrivateKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        return Ed25519PrivateKey.from_private_bytes(self.seed)


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A text with its signatures. Parsing verifies none; `signers` does."""

    text: str
    signatures: tuple[Signature, ...]

    @classmethod
    def parse(cls, written: str) -> "Note":
        """Parse a note without verifying signatures."""
        if len(written.encode()) > NOTE_BYTES:
            raise NoteInvalid("the note is too long")
        # Control characters could make a terminal show another text than the signed one.
        if any(ord(character) < 0x20 and character != "\n" for character in written):
            raise NoteInvalid("the note holds a control character")
        text, blank, lines = written.rpartition("\n\n")
        if not blank or not lines.endswith("\n"):
            raise NoteInvalid("the note has no signature lines")
        signatures = tuple(_parse_signature(line) for line in lines[:-1].split("\n"))
        # Two signatures by one key would let a threshold of witnesses be met by a single one.
        if len({(signature.name, signature.key_id) for signature in signatures}) < len(signatures):
            raise NoteInvalid("a key signed the note twice")
        return cls(text=text + "\n", signatures=signatures)

    def __str__(self) -> str:
        return f"{self.text}\n{''.join(map(str, self.signatures))}"

    def signers(self, keys: Iterable[VerifierKey]) -> tuple[VerifierKey, ...]:
        """The keys that signed; raises if none did, or if a signature of one is invalid."""
        found: list[VerifierKey] = []
        for key in keys:
            claimed = [s for s in self.signatures if (s.name, s.key_id) == (key.name, key.key_id)]
            # An invalid signature under a known key is an error, not an absence: somebody altered the note.
            if not all(key.has_signed(self.text, signature) for signature in claimed):
                raise NoteInvalid(f"a signature of {key.name}+{key.key_id.hex()} is wrong")
            found += [key] if claimed else []
        if not found:
            raise NoteInvalid("no known key signed the note")
        return tuple(found)


def sign_note(text: str, *signers: Signer) -> Note:
    """Sign a text with each signer."""
    return Note(text=text, signatures=tuple(signer.sign(text) for signer in signers))


def encode_hash(digest: bytes) -> str:
    """A hash in base64, as in checkpoints and proofs."""
    return _encode(digest)


def decode_hash(text: str) -> bytes:
    """Parse a hash in base64, as in checkpoints and proofs."""
    digest = _decode(text)
    if len(digest) != hashlib.sha256().digest_size:
        raise NoteInvalid(f"{text!r} is not a SHA-256 hash")
    return digest


def _parse_signature(line: str) -> Signature:
    dash, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    signed = _decode(encoded)
    if dash != "—" or len(signed) <= _ID_BYTES:
        raise NoteInvalid(f"{line!r} is not a signature line")
    return Signature(name=_checked_name(name), key_id=signed[:_ID_BYTES], signature=signed[_ID_BYTES:])


def _checked_name(name: str) -> str:
    if not name or "+" in name or any(character.isspace() for character in name):
        raise NoteInvalid(f"{name!r} is not a key name")
    return name


def _timed(text: str, timestamp: int) -> bytes:
    """The signed message of a cosignature; its prefix keeps it from being taken for a plain signature."""
    return f"cosignature/v1\ntime {timestamp}\n{text}".encode()


def is_signed(public: bytes, signature: bytes, message: bytes) -> bool:
    """Whether an Ed25519 key signed a message."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, message)
    except InvalidSignature:
        return False
    return True


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decode(text: str) -> bytes:
    """Strict base64 with one encoding per value: b64decode ignores stray bits before the padding."""
    try:
        data = base64.b64decode(text.encode(), validate=True)
    except binascii.Error as error:
        raise NoteInvalid(f"{text!r} is not base64") from error
    if _encode(data) != text:
        raise NoteInvalid(f"{text!r} is not base64")
    return data
