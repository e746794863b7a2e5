"""C2SP checkpoints (c2sp.org/tlog-checkpoint): the signed tree head of a log, its size and Merkle root."""

from collections.abc import Iterable

import msgspec

from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.signed_note import Note, Signer, VerifierKey, decode_hash, encode_hash, sign_note


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The tree head of a log at one size."""

    origin: str
    size: int
    root: bytes

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Parse a note's text. Extension lines are refused: nothing here would check them."""
        lines = text.split("\n")
        # Exactly one encoding: a signature over text that parsers read differently would vouch for two trees.
        if len(lines) != 4 or lines[3] or not lines[0]:
            raise NoteInvalid("a checkpoint has three lines: origin, size, root")
        return cls(origin=lines[0], size=parse_size(lines[1]), root=decode_hash(lines[2]))

    @property
    def text(self) -> str:
        """The signed text."""
        return f"{self.origin}\n{self.size}\n{encode_hash(self.root)}\n"

    def sign(self, *signers: Signer) -> Note:
        """The checkpoint as a signed note."""
        return sign_note(self.text, *signers)


def parse_size(text: str) -> int:
    """Parse a size or index.

    ASCII digits without leading zeros, below 2^63, so that each has one spelling.
    """
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or str(int(text)) != text:
        raise NoteInvalid(f"{text!r} is not a size")
    return int(text)


def open_checkpoint(written: str, keys: Iterable[VerifierKey]) -> Checkpoint:
    """A checkpoint signed by one of the keys under its origin; raises `NoteInvalid` otherwise."""
    note = Note.parse(written)
    checkpoint = Checkpoint.parse(note.text)
    # Only keys named like the origin: a key of another log must not vouch for this one.
    note.signers([key for key in keys if key.name == checkpoint.origin])
    return checkpoint
