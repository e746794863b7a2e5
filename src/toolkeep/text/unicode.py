"""Tables of invisible characters: control, bidi, zero-width, tag and others that hide or reorder text.

Our own tables instead of Python's `unicodedata`: removing these characters affects a definition's hash, which
must be the same under every version of Python and Unicode.
"""

from bisect import bisect_right
from enum import StrEnum
from typing import Final


class Invisible(StrEnum):
    """Kind of invisible character; the value is a noun phrase for messages."""

    CONTROL = "control characters"
    BIDI = "marks that change the direction of writing"
    ZERO_WIDTH = "characters without width"
    TAG = "invisible tag letters"
    SELECTOR = "variation selectors"
    BLANK = "letters that show nothing"
    PRIVATE = "characters without a public meaning"
    ESCAPE = "terminal escape sequences"


_RANGES: Final = (
    (0x00, 0x08, Invisible.CONTROL), (0x0B, 0x0C, Invisible.CONTROL), (0x0E, 0x1F, Invisible.CONTROL),
    (0x7F, 0x9F, Invisible.CONTROL), (0xAD, 0xAD, Invisible.ZERO_WIDTH), (0x034F, 0x034F, Invisible.BLANK),
    (0x061C, 0x061C, Invisible.BIDI), (0x115F, 0x1160, Invisible.BLANK), (0x17B4, 0x17B5, Invisible.BLANK),
    (0x180B, 0x180D, Invisible.SELECTOR), (0x180E, 0x180E, Invisible.ZERO_WIDTH),
    (0x180F, 0x180F, Invisible.SELECTOR), (0x200B, 0x200D, Invisible.ZERO_WIDTH),
    (0x200E, 0x200F, Invisible.BIDI), (0x202A, 0x202E, Invisible.BIDI),
    (0x2060, 0x2065, Invisible.ZERO_WIDTH), (0x2066, 0x2069, Invisible.BIDI),
    (0x206A, 0x206F, Invisible.CONTROL), (0x2800, 0x2800, Invisible.BLANK),
    (0x3164, 0x3164, Invisible.BLANK), (0xE000, 0xF8FF, Invisible.PRIVATE),
    (0xFDD0, 0xFDEF, Invisible.PRIVATE), (0xFE00, 0xFE0F, Invisible.SELECTOR),
    (0xFEFF, 0xFEFF, Invisible.ZERO_WIDTH), (0xFFA0, 0xFFA0, Invisible.BLANK),
    (0xFFF0, 0xFFFB, Invisible.CONTROL), (0xFFFE, 0xFFFF, Invisible.PRIVATE),
    (0x1BCA0, 0x1BCA3, Invisible.CONTROL), (0x1D173, 0x1D17A, Invisible.CONTROL),
    (0xE0000, 0xE007F, Invisible.TAG), (0xE0080, 0xE00FF, Invisible.TAG),
    (0xE0100, 0xE01EF, Invisible.SELECTOR), (0xE01F0, 0xE0FFF, Invisible.TAG),
    (0xF0000, 0x10FFFF, Invisible.PRIVATE),
)  # fmt: skip
UNSEEN: Final = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last, _ in _RANGES)
"""All ranges, as the body of a regular expression character class."""
_STARTS: Final = tuple(first for first, _, _ in _RANGES)


def invisible_kind(char: str) -> Invisible | None:
    """The kind of an invisible character; None for visible ones, tabs and line breaks."""
    code = ord(char)
    first, last, kind = _RANGES[max(bisect_right(_STARTS, code) - 1, 0)]
    return kind if first <= code <= last else None


def is_blank(char: str) -> bool:
    """Whether it is a blank letter or a variation selector, which Unicode classifies as a letter or mark."""
    return invisible_kind(char) in (Invisible.BLANK, Invisible.SELECTOR)
