"""Names of tools: what an author may choose, and how a name from elsewhere becomes a portable one."""

import hashlib
import re

from toolkeep.limits import NAME_CHARS

AUTHOR_NAME = re.compile(r"[a-z][a-z0-9_]*")
PORTABLE_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_CHARS}}}")
RESERVED = frozenset({"execute", "run", "call", "invoke"})

_DIGEST_CHARS = 12


def wrong_with_author_name(name: str) -> str | None:
    """Why an author may not use this name, or None."""
    if not name:
        return "is empty"
    if len(name) > NAME_CHARS:
        return f"has {len(name)} characters, at most {NAME_CHARS} are allowed"
    if not AUTHOR_NAME.fullmatch(name):
        return "must start with a lower-case letter and hold only a-z, 0-9 and _"
    if name in RESERVED:
        return "is reserved"
    return None


def portable_name(original: str) -> str:
    """A name that every provider takes: the original where it already is one, else a mapped one.

    The mapped name ends in a digest of the original, so that two originals that look alike once their odd
    characters are gone (`a.b` and `a/b`) stay apart, and the same original always gets the same name.
    """
    if PORTABLE_NAME.fullmatch(original):
        return original
    readable = re.sub(r"[^a-zA-Z0-9_-]+", "_", original).strip("_")
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    room = NAME_CHARS - _DIGEST_CHARS - 1
    return f"{readable[:room].rstrip('_') or 'tool'}_{digest}"
