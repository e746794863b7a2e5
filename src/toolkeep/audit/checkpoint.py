"""C2SP checkpoints (c2sp.org/tlog-checkpoint): the size and the root of a log, signed."""

from collections.abc import Iterable

import msgspec

from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.note import Note, Signer, VerifierKey, decode_hash, encode_hash, sign_note


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a log said about itself at one size."""

    origin: str
    size: int
    root: bytes

    @classmethod
    def parse(cls, text: str) -> "Checkpoint":
        """Read the text of a note. Lines beyond the first three are not ours and are refused."""
        lines = text.split("\n")
        if len(lines) != 4 or lines[3] or not lines[0]:
            raise NoteInvalid("a checkpoint has three lines: origin, size, root")
        return cls(origin=lines[0], size=parse_size(lines[1]), root=decode_hash(lines[2]))

    @property
    def text(self) -> str:
        """The text that is signed."""
        return f"{self.origin}\n{self.size}\n{encode_hash(self.root)}\n"

    def sign(self, *signers: Signer) -> Note:
        """The checkpoint as a signed note."""
        return sign_note(self.text, *signers)


def parse_size(text: str) -> int:
    """A size or an index: ASCII digits without leading zeroes, below 2^63."""
    if not (text.isascii() and text.isdigit()) or len(text) > 19 or str(int(text)) != text:
        raise NoteInvalid(f"{text!r} is no size")
    return int(text)


def open_checkpoint(written: str, keys: Iterable[VerifierKey]) -> Checkpoint:
    """A checkpoint that one of the keys signed, in the name of its origin; raises `NoteInvalid` otherwise."""
    note = Note.parse(written)
    checkpoint = Checkpoint.parse(note.text)
    note.signers([key for key in keys if key.name == checkpoint.origin])
    return checkpoint
