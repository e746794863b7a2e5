"""`read_file`: the text of a file, or of some of its lines, as much as a model can use at once.

Reads little more than it returns, apart from the lines before; says what it left out, and how to get it.
"""

import codecs
import io
import os
from collections.abc import Sequence
from typing import Final, TextIO

from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.tools.tool_path import ToolPath, reason

TEXT_CHARS: Final = 50_000
"""The size of one result, some 12,000 tokens."""

_COUNTED_BYTES: Final = 16 << 20
"""Lines are counted in files up to this size, so that the reader knows how many there are."""

_PASSED_CHARS: Final = 256 << 20
"""Skipped on the way to the first line, some seconds; a sparse file may be a terabyte long."""

_LOOKED_AT: Final = 8192
_KNOWN: Final = (
    (b"\x89PNG", "a PNG image"), (b"\xff\xd8\xff", "a JPEG image"), (b"GIF8", "a GIF image"),
    (b"%PDF", "a PDF document"), (b"PK\x03\x04", "a ZIP archive"), (b"\x1f\x8b", "gzip data"),
    (b"\x7fELF", "a program"), (b"SQLite format 3", "an SQLite database"), (b"\x00asm", "a WASM module"),
)  # fmt: skip
_MARKS: Final = {
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
"""Byte order marks. That of UTF-32 begins with that of UTF-16, so it comes first."""
_PIECE: Final = 1 << 16

_MISFIT: Final = "\udcff"
"""Stands for undecodable bytes: no encoding decodes to it."""
for _codec_name in ("utf-8-sig", "utf-16-le", "utf-32-le", "utf-16", "utf-32", "ascii"):
    codecs.lookup(_codec_name)  # imported once here, not in every worker: half a millisecond of a call
codecs.register_error("toolkeep.misfit", lambda error: (_MISFIT, error.end))  # type: ignore[attr-defined]  # of UnicodeError


def read_file(
    path: Sequence[str],
    encoding: str = "utf-8",
    start_line: int = 1,
    end_line: int | None = None,
    max_lines: int | None = None,
) -> str:
    """The text; the last line, in brackets, says what remains."""
    place = ToolPath(*path)
    if end_line is not None and max_lines is not None:
        raise ToolFailed("end_line and max_lines say the same in two ways; give one of them")
    if end_line is not None and end_line < start_line:
        raise ToolFailed(f"end_line {end_line} comes before start_line {start_line}")
    if max_lines is not None:
        end_line = start_line + max_lines - 1
    try:
        with place.open() as file:
            size = os.fstat(file.fileno()).st_size
            beginning = file.read(_LOOKED_AT)
            _check_text(place, beginning, encoding, size)
            file.seek(0)
            codec = _codec(beginning, encoding)
            with io.TextIOWrapper(file, codec, errors="toolkeep.misfit", newline="\n") as text:
                return _Lines(place, text, encoding, size).read(start_line, end_line)
    except OSError as error:
        raise ToolFailed(f"'{place.named}' {reason(error)}") from error


def _check_text(place: ToolPath, beginning: bytes, encoding: str, size: int) -> None:
    """Refuse a file that is not text."""
    for mark, name in _KNOWN:
        if beginning.startswith(mark):
            raise ToolFailed(f"'{place.named}' is {name} of {size:,} bytes, not text")
    if encoding in ("utf-8", "ascii") and b"\0" in beginning:
        wide = next((name for name, marks in _MARKS.items() if beginning.startswith(marks)), None)
        hint = f"; it may be {wide}" if wide else ""
        raise ToolFailed(f"'{place.named}' is binary, {size:,} bytes, not text{hint}")


def _codec(beginning: bytes, encoding: str) -> str:
    """Without a byte order mark, wide encodings are little-endian, as nearly everywhere."""
    if encoding == "utf-8":
        return "utf-8-sig"
    if encoding in _MARKS and not beginning.startswith(_MARKS[encoding]):
        return f"{encoding}-le"
    return encoding


class _Lines:
    """Reads a file line by line, in pieces: a line may be as long as the file."""

    def __init__(self, place: ToolPath, text: TextIO, encoding: str, size: int) -> None:
        self._place = place
        self._text = text
        self._encoding = encoding
        self._size = size
        self._whole = 0
        """Lines that were read to their end."""
        self._is_within = False
        """Whether the last piece ended inside a line."""
        self._next = (0, False)
        """Both, when the end was looked for."""

    def read(self, start: int, end: int | None) -> str:
        """The lines from start to end, as many as fit."""
        self._pass_over(start)
        pieces: list[str] = []
        room = TEXT_CHARS
        while room and (end is None or self._whole < end) and (piece := self._piece(min(room, _PIECE))):
            pieces.append(piece)
            room -= len(piece)
        text = "".join(pieces)
        if not text and start > 1:
            raise ToolFailed(f"'{self._place.named}' has {_count(self._seen)}; there is no line {start:,}")
        if not text:
            return "[the file is empty]"
        return self._told(text, None) if self._is_at_end() else self._with_rest(text, start)

    def _pass_over(self, start: int) -> None:
        left = _PASSED_CHARS
        while self._whole < start - 1 and (piece := self._piece(_PIECE)):
            left -= len(piece)
            if left < 0:
                where = f"more than {_PASSED_CHARS >> 20} million characters into '{self._place.named}'"
                raise ToolFailed(f"line {start:,} is {where}, too far to be read")

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
        """The text read, whole lines if possible, and how to get the rest."""
        last, was_within = self._next
        if was_within and "\n" not in text:
            begun = f"only the beginning of line {start:,}, which is longer than one answer"
            return self._told(text, f"{begun}; more with start_line={start + 1}")
        text = text[: text.rfind("\n") + 1]
        total = self._total()
        of = "" if total is None else f" of {total:,}"
        return self._told(text, f"lines {start:,} to {last:,}{of}; more with start_line={last + 1}")

    def _total(self) -> int | None:
        """The number of lines; None if counting would take too long."""
        if self._size > _COUNTED_BYTES:
            return None
        while self._piece(_PIECE):
            pass
        return self._seen

    def _told(self, text: str, note: str | None) -> str:
        """The text with its notes."""
        misfits = text.count(_MISFIT)
        if misfits * 3 > len(text):
            hint = "it may be in another encoding, or no text"
            raise ToolFailed(f"'{self._place.named}' is not {self._encoding}; {hint}")
        odd = "1 place is" if misfits == 1 else f"{misfits:,} places are"
        notes = [f"{odd} not {self._encoding} and shown as \ufffd"] if misfits else []
        notes += [note] if note else []
        text = text.replace(_MISFIT, "\ufffd")
        return _with_note(text, "; ".join(notes)) if notes else text


def _with_note(text: str, note: str) -> str:
    return f"{text}{'' if text.endswith(chr(10)) else chr(10)}[{note}]"


def _count(lines: int) -> str:
    return "1 line" if lines == 1 else f"{lines:,} lines"
