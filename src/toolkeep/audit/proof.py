"""C2SP proofs (c2sp.org/tlog-proof): an index, the path to the root, and the checkpoint with that root."""

from typing import Final

import msgspec

from toolkeep.audit.checkpoint import Checkpoint, parse_size
from toolkeep.audit.errors import NoteInvalid
from toolkeep.audit.note import Note, decode_hash, encode_hash
from toolkeep.audit.tree import root_of_inclusion

HEADER: Final = "c2sp.org/tlog-proof@v1"


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """That the entry with this index is in the log of the checkpoint. It proves nothing until checked."""

    index: int
    path: tuple[bytes, ...]
    checkpoint: str

    @classmethod
    def parse(cls, text: str) -> "Proof":
        """Read the text form. Extra data is nobody's word for anything and is refused."""
        head, blank, checkpoint = text.partition("\n\n")
        lines = head.split("\n")
        if not blank or lines[0] != HEADER or len(lines) < 2 or not lines[1].startswith("index "):
            raise NoteInvalid("this is no proof of a transparency log")
        index = parse_size(lines[1].removeprefix("index "))
        return cls(index=index, path=tuple(map(decode_hash, lines[2:])), checkpoint=checkpoint)

    def __str__(self) -> str:
        path = "".join(f"{encode_hash(node)}\n" for node in self.path)
        return f"{HEADER}\nindex {self.index}\n{path}\n{self.checkpoint}"

    def has_leaf(self, leaf: bytes) -> bool:
        """Whether the path leads from this leaf to the root of the checkpoint, whoever signed that."""
        checkpoint = Checkpoint.parse(Note.parse(self.checkpoint).text)
        return root_of_inclusion(leaf, self.index, checkpoint.size, self.path) == checkpoint.root
