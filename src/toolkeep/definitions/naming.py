"""Names for all tools of an upstream at once: portable, apart from each other and from what is taken.

A tool keeps its name where it can. One whose name is taken, by a built-in tool or one of another upstream,
gets the name of its upstream in front. The same upstream with the same tools always gets the same names, and
each name leads back to one original.
"""

import hashlib
from collections.abc import Iterable

from toolkeep.definitions.names import PORTABLE_NAME, portable_name
from toolkeep.limits import NAME_CHARS

_DIGEST_CHARS = 12


def choose_names(originals: Iterable[str], *, upstream: str, taken: Iterable[str] = ()) -> dict[str, str]:
    """Our name for each original. Case does not tell names apart, here as in look-up."""
    used = {name.lower() for name in taken}
    wanted = list(dict.fromkeys(originals))
    moves = {name: portable_name(name) != name or name.lower() in used for name in wanted}
    chosen: dict[str, str] = {}
    # Those that can keep their names come first: no other one may be mapped onto one of them.
    for original in sorted(wanted, key=lambda original: (moves[original], original)):
        name = next(name for name in _candidates(original, upstream) if name.lower() not in used)
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
