"""`read_file`: the text of a file, or of some of its lines, as much as a model can use at once.

Reads no more than it gives, whatever the size of the file; says what it left out, and how to get it.
"""

import codecs
import io
import os
from collections.abc import Sequence
from typing import BinaryIO, Final

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.place import Place

TEXT_CHARS: Final = 50_000
"""What one call gives, some 12,000 tokens."""

_COUNTED_BYTES: Final = 16 << 20
"""Of a file up to this size, all lines are counted, so that the reader knows how many there are."""

_LOOKED_AT: Final = 8192
_KNOWN: Final = (
    (b"\x89PNG", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"), (b"PK\x03\x04", "a ZIP archive"), (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"), (b"SQLite format 3", "an SQLite database"), (b"\x00asm", "a WASM module"),
)  # fmt: skip
_PIECE: Final = 1 << 16


def read_file(
    path: Sequence[str],
    encoding: str = "utf-8",
    start_line: int = 1,
    end_line: int | None = None,
    max_lines: int | None = None,
) -> str:
    """The text; the last line in brackets says what is left."""
    place = Place(*path)
    if end_line is not None and max_lines is not None:
        raise ToolFailed("end_line and max_lines say the same in two ways; give one of them")
    if end_line is not None and end_line < start_line:
        raise ToolFailed(f"end_line {end_line} comes before start_line {start_line}")
    if max_lines is not None:
        end_line = start_line + max_lines - 1
    with place.open() as file:
        beginning = file.read(_LOOKED_AT)
        _check_text(place, beginning, encoding, os.fstat(file.fileno()).st_size)
        file.seek(0)
        try:
            return _Lines(place, file, encoding).read(start_line, end_line)
        except UnicodeDecodeError as error:
            hint = "" if encoding == "utf-8" else "; most files are utf-8"
            byte = f"the byte 0x{error.object[error.start]:02x} does not fit"
            raise ToolFailed(f"'{place.named}' is not {encoding}: {byte}{hint}") from error
        except UnicodeError as error:
            raise ToolFailed(f"'{place.named}' is not {encoding}") from error


def _check_text(place: Place, beginning: bytes, encoding: str, size: int) -> None:
    """Refuse what is no text, by what it is."""
    for mark, name in _KNOWN:
        if beginning.startswith(mark):
            raise ToolFailed(f"'{place.named}' is {name} of {size:,} bytes, not text")
    if encoding in ("utf-8", "ascii") and b"\0" in beginning:
        wide = beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        hint = "; it may be utf-16" if wide else ""
        raise ToolFailed(f"'{place.named}' is binary, {size:,} bytes, not text{hint}")


class _Lines:
    """Reads a file line by line, in pieces: a line may be as long as the file."""

    def __init__(self, place: Place, file: BinaryIO, encoding: str) -> None:
        codec = "utf-8-sig" if encoding == "utf-8" else encoding
        self._place = place
        self._size = os.fstat(file.fileno()).st_size
        self._text = io.TextIOWrapper(file, encoding=codec, newline="\n")
        self._whole = 0
        """Lines that were read to their end."""
        self._is_within = False
        """Whether the last piece ended inside a line."""
        self._next = (0, False)
        """Both, as they were when the end was looked for."""

    def read(self, start: int, end: int | None) -> str:
        """The lines from start to end, as many as fit."""
        while self._whole < start - 1 and self._piece(_PIECE):
            pass
        pieces: list[str] = []
        room = TEXT_CHARS
        while room and (end is None or self._whole < end) and (piece := self._piece(min(room, _PIECE))):
            pieces.append(piece)
            room -= len(piece)
        text = "".join(pieces)
        if not text and start > 1:
            raise ToolFailed(f"'{self._place.named}' has {_count(self._seen)}; there is no line {start:,}")
        return text if self._is_at_end() else self._with_rest(text, start)

    def _piece(self, most: int) -> str:
        piece = self._text.readline(most)
        if piece:
            self._is_within = not piece.endswith("\n")
            self._whole += not self._is_within
        return piece

    @property
    def _seen(self) -> int:
        return self._whole + self._is_within

    def _is_at_end(self) -> bool:
        last, was_within = self._whole, self._is_within
        if not self._piece(1):
            return True
        self._next = (last, was_within)
        return False

    def _with_rest(self, text: str, start: int) -> str:
        """What was read, whole lines where there is one, and how to get what is left."""
        last, was_within = self._next
        if was_within and "\n" not in text:
            return _with_note(text, f"line {start:,} is longer than this; only its beginning can be read")
        text = text[: text.rfind("\n") + 1]
        total = self._total()
        of = "" if total is None else f" of {total:,}"
        return _with_note(text, f"lines {start:,} to {last:,}{of}; more with start_line={last + 1}")

    def _total(self) -> int | None:
        """How many lines there are; None where to count them would take too long."""
        if self._size > _COUNTED_BYTES:
            return None
        while self._piece(_PIECE):
            pass
        return self._seen


def _with_note(text: str, note: str) -> str:
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}[{note}]"


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
