"""Characters that a reader does not see, or that change how other characters are seen.

Tables of our own and not Python's: what is taken out of a definition decides its hash, which must be the same
under every version of Python and Unicode.
"""

from bisect import bisect_right
from enum import StrEnum
from typing import Final


class Unseen(StrEnum):
    """What kind of character it is, in words that follow a number."""

    CONTROL = "control characters"
    BIDI = "marks that change the direction of writing"
    ZERO_WIDTH = "characters without width"
    TAG = "invisible tag letters"
    SELECTOR = "variation selectors"
    BLANK = "letters that show nothing"
    PRIVATE = "characters without a public meaning"
    ESCAPE = "terminal escape sequences"


_RANGES: Final = (
    (0x00, 0x08, Unseen.CONTROL), (0x0B, 0x0C, Unseen.CONTROL), (0x0E, 0x1F, Unseen.CONTROL),
    (0x7F, 0x9F, Unseen.CONTROL), (0xAD, 0xAD, Unseen.ZERO_WIDTH), (0x034F, 0x034F, Unseen.BLANK),
    (0x061C, 0x061C, Unseen.BIDI), (0x115F, 0x1160, Unseen.BLANK), (0x17B4, 0x17B5, Unseen.BLANK),
    (0x180B, 0x180D, Unseen.SELECTOR), (0x180E, 0x180E, Unseen.ZERO_WIDTH), (0x180F, 0x180F, Unseen.SELECTOR),
    (0x200B, 0x200D, Unseen.ZERO_WIDTH), (0x200E, 0x200F, Unseen.BIDI), (0x202A, 0x202E, Unseen.BIDI),
    (0x2060, 0x2065, Unseen.ZERO_WIDTH), (0x2066, 0x2069, Unseen.BIDI), (0x206A, 0x206F, Unseen.CONTROL),
    (0x2800, 0x2800, Unseen.BLANK), (0x3164, 0x3164, Unseen.BLANK), (0xE000, 0xF8FF, Unseen.PRIVATE),
    (0xFDD0, 0xFDEF, Unseen.PRIVATE), (0xFE00, 0xFE0F, Unseen.SELECTOR), (0xFEFF, 0xFEFF, Unseen.ZERO_WIDTH),
    (0xFFA0, 0xFFA0, Unseen.BLANK), (0xFFF0, 0xFFFB, Unseen.CONTROL), (0xFFFE, 0xFFFF, Unseen.PRIVATE),
    (0x1BCA0, 0x1BCA3, Unseen.CONTROL), (0x1D173, 0x1D17A, Unseen.CONTROL), (0xE0000, 0xE007F, Unseen.TAG),
    (0xE0080, 0xE00FF, Unseen.TAG), (0xE0100, 0xE01EF, Unseen.SELECTOR), (0xE01F0, 0xE0FFF, Unseen.TAG),
    (0xF0000, 0x10FFFF, Unseen.PRIVATE),
)  # fmt: skip
UNSEEN: Final = "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last, _ in _RANGES)
"""All of them, as a character class of a regular expression has them."""
_STARTS: Final = tuple(first for first, _, _ in _RANGES)


def unseen(char: str) -> Unseen | None:
    """What a character is, where a reader does not see it; None for what is seen, tabs and line breaks."""
    code = ord(char)
    first, last, kind = _RANGES[max(bisect_right(_STARTS, code) - 1, 0)]
    return kind if first <= code <= last else None


def is_blank(char: str) -> bool:
    """Whether it is a letter or a mark that shows nothing, though Unicode calls it a letter or a mark."""
    return unseen(char) in (Unseen.BLANK, Unseen.SELECTOR)
