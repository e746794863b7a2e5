"""Tool names: what an author may choose, and how an imported name becomes portable.

A prompt or resource has a name with a prefix, `prompt:review`, which no tool can have: neither a model nor a
client can call one as a tool, and no tool can take its place.
"""

import hashlib
import itertools
import re
from collections import Counter
from collections.abc import Iterable

from toolkeep.definitions.vocabulary import CallKind
from toolkeep.limits import NAME_CHARS

AUTHOR_NAME = re.compile(r"[a-z][a-z0-9_]*")
PORTABLE_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{NAME_CHARS}}}")
RESERVED = frozenset({"execute", "run", "call", "invoke"})
_PREFIXES = frozenset(kind.value for kind in CallKind if kind is not CallKind.TOOL)

_DIGEST_CHARS = 12
"""48 bits of the hash: enough against accidents; `choose_names` resolves forged collisions."""


def wrong_with_author_name(name: str) -> str | None:
    """Why an author may not use this name, or None."""
    if not name:
        return "is empty"
    if len(name) > NAME_CHARS:
        return f"has {len(name)} characters, at most {NAME_CHARS} are allowed"
    if not AUTHOR_NAME.fullmatch(name):
        return "must start with a lower-case letter and contain only a-z, 0-9 and _"
    if name in RESERVED:
        return "is reserved"
    return None


def kind_of(name: str) -> CallKind:
    """What a name is a name of, by its prefix."""
    prefix, colon, _ = name.partition(":")
    return CallKind(prefix) if colon and prefix in _PREFIXES else CallKind.TOOL


def with_kind(kind: CallKind, name: str) -> str:
    """The registered name of what is no tool."""
    return name if kind is CallKind.TOOL else f"{kind.value}:{name}"


def is_imported_name(name: str, *, is_mcp: bool) -> bool:
    """Whether an import may have this name; only an MCP server has other things than tools."""
    prefix, colon, rest = name.partition(":")
    if colon and (not is_mcp or prefix not in _PREFIXES):
        return False
    return PORTABLE_NAME.fullmatch(rest if colon else name) is not None


def portable_name(original: str) -> str:
    """A name that every provider accepts: the original if it is one, else a mapped one.

    The mapped name ends in a digest of the original. So originals that look alike without their odd
    characters (`a.b` and `a/b`) stay distinct, and the same original always gets the same name.
    """
    if PORTABLE_NAME.fullmatch(original):
        return original
    readable = _readable(original)
    digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    room = NAME_CHARS - _DIGEST_CHARS - 1
    return f"{readable[:room].rstrip('_') or 'tool'}_{digest}"


def _readable(original: str) -> str:
    return re.sub(r"[^a-zA-Z0-9_-]+", "_", original).strip("_")


def choose_names(originals: Iterable[str], *, upstream: str, taken: Iterable[str] = ()) -> dict[str, str]:
    """A local name for each original. Names that differ in case only collide, as in lookup."""
    used = {name.lower() for name in taken}
    wanted = list(dict.fromkeys(originals))
    alike = Counter(_readable(name).lower() for name in wanted)
    moves = {name: portable_name(name) != name or name.lower() in used for name in wanted}
    chosen: dict[str, str] = {}
    # Names that can be kept come first, so that no other one is mapped onto them.
    for original in sorted(wanted, key=lambda original: (moves[original], original)):
        readable = _readable(original)
        # A digest only where names would clash or be cut, and then for each of them: else one that comes
        # later could take the name, and the grants, of another.
        is_own = alike[readable.lower()] == 1 and PORTABLE_NAME.fullmatch(readable) is not None
        candidates = itertools.chain([readable] if is_own else [], _candidates(original, upstream))
        name = next(name for name in candidates if name.lower() not in used)
        chosen[original] = name
        used.add(name.lower())
    return {original: chosen[original] for original in wanted}


def _candidates(original: str, upstream: str) -> Iterable[str]:
    yield portable_name(original)
    prefixed = f"{portable_name(upstream)}_{portable_name(original)}"
    if PORTABLE_NAME.fullmatch(prefixed):
        yield prefixed
    for attempt in range(1 << 16):
        text = f"{upstream}\0{original}\0{attempt}"
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
        yield f"{prefixed[: NAME_CHARS - _DIGEST_CHARS - 1].rstrip('_')}_{digest}"
