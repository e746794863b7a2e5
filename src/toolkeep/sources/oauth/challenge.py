"""What a server says when it lets nobody in: the header `WWW-Authenticate` (RFC 6750, RFC 9728)."""

import re
from typing import Final

import msgspec

_CHARS: Final = 8_192
_PARAMETER: Final = re.compile(r'([A-Za-z_]{1,40})\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s",]+))')
_SCOPE: Final = re.compile(r"[!#-\[\]-~]{1,200}")
_SCOPES: Final = 50


class Challenge(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be shown."""

    metadata_url: str = ""
    scope: str = ""
    error: str = ""


def read_challenge(header: str) -> Challenge:
    """What a header asks for; empty in whatever it does not say."""
    scheme, _, rest = header[:_CHARS].strip().partition(" ")
    if scheme.lower() != "bearer":
        return Challenge()
    found: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(rest):
        found.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    return Challenge(
        metadata_url=found.get("resource_metadata", ""),
        scope=clean_scope(found.get("scope")),
        error=found.get("error", ""),
    )


def clean_scope(text: object) -> str:
    """The scopes of a text that are ones (RFC 6749, section 3.3), each once and not too many."""
    words = text.split(" ") if isinstance(text, str) else []
    return " ".join(
        dict.fromkeys(word for word in words if _SCOPE.fullmatch(word)).keys()
        if len(words) <= _SCOPES
        else ()
    )


def joined_scopes(*texts: str) -> str:
    """All of them, each once, in order."""
    return " ".join(dict.fromkeys(word for text in texts for word in text.split()))
