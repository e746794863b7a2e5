"""Parses the `WWW-Authenticate` Bearer challenge (RFC 6750, RFC 9728)."""

import re
from typing import Final

import msgspec

_CHARS: Final = 8_192
"""Characters of a `WWW-Authenticate` header that are parsed. An untrusted server sends it; an ordinary one
has a few hundred."""
_PARAMETER: Final = re.compile(r'([A-Za-z_]{1,40})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,200}")
_SCOPES: Final = 50


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """A Bearer challenge."""

    metadata_url: str = ""
    scope: str = ""
    error: str = ""


def read_challenge(header: str) -> Challenge:
    """Parse a challenge; missing parameters are empty."""
    scheme, _, rest = header[:_CHARS].strip().partition(" ")
    if scheme.lower() != "bearer":
        return Challenge()
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(rest):
        # The first occurrence wins, as in other clients; a proxy that appends parameters cannot override it.
        found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    return Challenge(
        metadata_url=found.get("resource_metadata", ""),
        scope=clean_scope(found.get("scope")),
        error=found.get("error", ""),
    )


def clean_scope(text: object) -> str:
    """Valid scope tokens of a string (RFC 6749, section 3.3), deduplicated; none if there are too many."""
    words = text.split(" ") if isinstance(text, str) else []
    return " ".join(
        dict.fromkeys(word for word in words if _SCOPE.fullmatch(word)).keys()
        if len(words) <= _SCOPES
        else ()
    )


def joined_scopes(*texts: str) -> str:
    """Union of scopes, in order."""
    return " ".join(dict.fromkeys(word for text in texts for word in text.split()))
