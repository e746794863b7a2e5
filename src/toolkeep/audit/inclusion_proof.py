"""C2SP inclusion proofs (c2sp.org/tlog-proof): leaf index, Merkle audit path, signed checkpoint."""

from typing import Final

import msgspec

from toolkeep.audit.checkpoint import Checkpoint, parse_size
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.merkle_tree import root_of_inclusion
from toolkeep.audit.signed_note import Note, decode_hash, encode_hash

HEADER: Final = "c2sp.org/tlog-proof@v1"


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Inclusion proof for one entry.

    Parsing verifies nothing; `has_leaf` checks the path, `open_checkpoint` the signature.
    """

    index: int
    path: tuple[bytes, ...]
    checkpoint: str

    @classmethod
    def parse(cls, text: str) -> "Proof":
        """Parse the text form. Extra data is refused, because no signature covers it."""
        head, blank, checkpoint = text.partition("\n\n")
        lines = head.split("\n")
        # The version is part of the header: an unknown one may hash differently.
        if not blank or lines[0] != HEADER or len(lines) < 2 or not lines[1].startswith("index "):
            raise NoteInvalid("this is not a proof of a transparency log")
        index = parse_size(lines[1].removeprefix("index "))
        return cls(index=index, path=tuple(map(decode_hash, lines[2:])), checkpoint=checkpoint)

    def __str__(self) -> str:
        path = "".join(f"{encode_hash(node)}\n" for node in self.path)
        return f"{HEADER}\nindex {self.index}\n{path}\n{self.checkpoint}"

    def has_leaf(self, leaf: bytes) -> bool:
        """Whether the audit path leads from this leaf to the checkpoint's root.

        Does not verify the signature.
        """
        checkpoint = Checkpoint.parse(Note.parse(self.checkpoint).text)
        return root_of_inclusion(leaf, self.index, checkpoint.size, self.path) == checkpoint.root
