"""The name by which a provider knows a tool: its own if allowed, else an alias.

An alias depends on the tool's name only, so it stays the same whichever other tools come and go. It ends in a
digest of the name. A name that already looks like an alias gets one of its own, so that no tool can
impersonate another.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Final

from toolkeep.providers.profiles import Profile

_DIGEST_CHARS: Final = 16
"""64 bits of the hash: enough against accidents; `names_by_alias` drops collisions."""
_LOOKS_LIKE_AN_ALIAS: Final = re.compile(rf".*_x[0-9a-f]{{{_DIGEST_CHARS}}}", re.DOTALL)


def alias_of(name: str, profile: Profile) -> str:
    """The provider's name of a tool."""
    if profile.takes_name(name) and not looks_like_an_alias(name):
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    readable = re.sub(r"[^a-zA-Z0-9_]+", "_", name).strip("_")
    room = profile.name_chars - _DIGEST_CHARS - 2
    start = readable[:room].rstrip("_") or "tool"
    return f"{start if start[0].isalpha() else f't_{start}'[:room]}_x{digest}"


def looks_like_an_alias(name: str) -> bool:
    """Whether a name has the form of an alias."""
    return _LOOKS_LIKE_AN_ALIAS.fullmatch(name) is not None


def names_by_alias(names: Iterable[str], profile: Profile) -> dict[str, str]:
    """The tool of each alias; an alias that two tools share is dropped, because either could be meant."""
    found: dict[str, str] = {}
    shared: set[str] = set()
    for name in names:
        alias = alias_of(name, profile)
        if alias in found:
            shared.add(alias)
        found[alias] = name
    return {alias: name for alias, name in found.items() if alias not in shared}
