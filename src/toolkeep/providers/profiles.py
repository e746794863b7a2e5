"""What a provider takes: names, keys, roots, keywords and counts, as data.

Each number is one that the vendor states, or that its API has answered with; `providers/` has one file for
each vendor, which says its own.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

PORTABLE: Final = r"[a-zA-Z0-9_-]{1,64}"
"""The name that every provider but Gemini takes as it is; Gemini wants a letter or _ first."""

Mode = Literal["none", "codec", "subset"]
"""How a provider's strict mode is met: not at all, by a reversible rewriting, or by staying in its subset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The rules of one provider."""

    name: str
    name_pattern: str = PORTABLE
    name_chars: int = 64
    key_pattern: str = ""
    """What the keys of top-level properties must match; empty: anything."""
    root_forbids: tuple[str, ...] = ()
    """Keywords that may not stand at the root."""
    max_tools: int | None = None
    description_chars: int | None = None
    """Beyond this the API has refused descriptions; only a warning."""
    keywords: frozenset[str] | None = None
    """The keywords that are understood; None: all are handed on."""
    inlines_references: bool = False
    """Whether `$ref` is not understood, so that what it refers to has to stand in its place."""
    references_stand_alone: bool = False
    """Whether nothing may stand beside `$ref`."""
    needs_items: bool = False
    """Whether an array must say what its items are."""
    takes_booleans: bool = True
    """Whether `true` and `false` are schemas."""
    strict: Mode = "none"
    is_always_strict: bool = False
    """Whether its schemas hold a decoder, so that they are strict in any case."""
    strict_fields: int | None = None
    """Parameters of all tools together that its strict mode takes."""

    def takes_name(self, name: str) -> bool:
        """Whether a name may be used as it is."""
        return re.fullmatch(self.name_pattern, name) is not None

    def takes_key(self, key: str) -> bool:
        """Whether a top-level property may have this name."""
        return not self.key_pattern or re.fullmatch(self.key_pattern, key) is not None
