"""What a provider accepts: names, keys, roots, keywords and counts, as data.

Each number is stated by the vendor or was observed in its API's responses; each vendor's file in `providers/`
has its own.
"""

import re
from dataclasses import dataclass
from typing import Final, Literal

PORTABLE: Final = r"[a-zA-Z0-9_-]{1,64}"
"""The name that every provider but Gemini accepts; Gemini wants a letter or _ first."""

Mode = Literal["none", "codec", "subset"]
"""How a provider's strict mode is met: not at all, by a reversible rewriting, or by staying in its subset."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The rules of one provider."""

    name: str
    name_pattern: str = PORTABLE
    name_chars: int = 64
    key_pattern: str = ""
    """What the keys of top-level properties must match; empty for anything."""
    root_forbids: tuple[str, ...] = ()
    """Keywords that are not allowed at the root."""
    closes_root: bool = True
    """Whether the root may have `additionalProperties`; else the tool's description says it."""
    max_tools: int | None = None
    description_chars: int | None = None
    """The API has refused longer descriptions; only a warning."""
    keywords: frozenset[str] | None = None
    """The supported keywords; None passes on all."""
    inlines_references: bool = False
    """Whether `$ref` is not supported, so that its target is inlined."""
    references_stand_alone: bool = False
    """Whether nothing may stand beside `$ref`."""
    needs_items: bool = False
    """Whether an array must have `items`."""
    takes_booleans: bool = True
    """Whether `true` and `false` are schemas."""
    strict: Mode = "none"
    is_always_strict: bool = False
    """Whether its schemas constrain the decoder, so that they are always strict."""
    strict_fields: int | None = None
    """Parameters of all tools together in strict mode."""

    def takes_name(self, name: str) -> bool:
        """Whether a name is accepted."""
        return re.fullmatch(self.name_pattern, name) is not None

    def takes_key(self, key: str) -> bool:
        """Whether a top-level property may have this name."""
        return not self.key_pattern or re.fullmatch(self.key_pattern, key) is not None
