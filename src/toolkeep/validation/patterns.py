"""Regular expressions as the engine must be given them, so that they mean what ECMA-262 says.

To the engine `.` is everything but a line feed, also a carriage return, and `\\b` knows the letters of all
scripts. In ECMA-262 no line ending is a `.`, and words are of ASCII. The rest of it the engine knows.
"""

import re
from functools import lru_cache
from typing import Final

_PIECES: Final = re.compile(r"\\.|\[\^?\]?(?:[^\]\\]|\\.)*+\]|\(\?[a-zA-Z-]+[:)]|\.", re.DOTALL)
"""An escape, a whole class of characters, flags, or a dot; everything else is passed over."""

_MEANT: Final = {".": r"[^\n\r\u2028\u2029]", r"\b": r"(?-u:\b)", r"\B": r"(?-u:\B)"}


@lru_cache(maxsize=1000)  # the patterns are other people's
def to_ecma262(pattern: str) -> str:
    """The pattern for the engine. One that sets flags is not of ECMA-262, and stays as it is."""
    if any(piece.startswith("(?") for piece in _PIECES.findall(pattern)):
        return pattern
    return _PIECES.sub(lambda piece: _MEANT.get(piece[0], piece[0]), pattern)
