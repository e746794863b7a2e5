"""The name that was probably meant."""

import re
from collections.abc import Iterable, Mapping, Sequence

from toolkeep.text.display import echo_name

_MOST_NAMES = 100
"""Names up to which `nearest_or_none` compares: it runs for each fault of a call."""
_FEWEST_CHARS = 3
"""Shortest name that is suggested: one edit turns a name of two letters into almost any other."""


_WORD = re.compile(r"[A-Z]?[a-z0-9]+|[A-Z]+")
"""A word of a name in snake_case, kebab-case or camelCase."""
_DIGIT = re.compile(r"[0-9]")


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").casefold()


def _is_abbreviated(wanted: str, name: str) -> bool:
    """Whether `wanted` is the name with some words cut short (`working_dir`, `timeout_secs`), one in full.

    One word alone says too little: `min` may be a minimum or minutes.
    """
    if len(wanted) >= len(name) or wanted[:1].lower() != name[:1].lower():
        return False
    given, full = ([word.lower() for word in _WORD.findall(one)] for one in (wanted, name))
    is_one_whole = any(a == b for a, b in zip(given, full, strict=False))
    return len(given) == len(full) and is_one_whole and all(map(_is_cut_short, given, full))


def _is_cut_short(word: str, full: str) -> bool:
    if word == full:
        return True
    stem = word[:-1] if word.endswith("s") and full.endswith("s") else word
    return len(stem) >= _FEWEST_CHARS and full.startswith(stem)


def nearest_name(wanted: str, names: Sequence[str]) -> str | None:
    """The one name that a slip explains: another spelling, an abbreviation, or a letter or two; None when
    unsure."""
    if not names or len(wanted) > 256:
        return None
    target, folded = _folded(wanted), list(map(_folded, names))
    if folded.count(target) == 1:
        return names[folded.index(target)]
    cut_short = [name for name in names if _is_abbreviated(wanted, name)]
    if len(cut_short) == 1:
        return cut_short[0]
    most = max(1, len(wanted) // 4)
    if not any(-most <= len(name) - len(target) <= most for name in folded):
        return None  # each letter more or less is one that differs
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    near = process.extract(target, folded, scorer=OSA.distance, score_cutoff=most, limit=None)
    near = [found for found in near if _is_near_by_word(wanted, names[found[2]])]
    best = min((distance for _, distance, _ in near), default=0)
    found = [names[index] for _, distance, index in near if distance == best]
    if len(found) != 1 or len(found[0]) < _FEWEST_CHARS or best > max(1, len(found[0]) // 4):
        return None
    return found[0]


def _is_near_by_word(one: str, other: str) -> bool:
    """Whether no word is another one altogether, as in `file_path` and `file_hash`."""
    pairs = list(zip(_WORD.findall(one), _WORD.findall(other), strict=False))
    if len(pairs) == 1 or len(_WORD.findall(one)) != len(_WORD.findall(other)):
        return True
    from rapidfuzz.distance import OSA

    return all(OSA.distance(a.lower(), b.lower()) <= max(1, len(b) // 4) for a, b in pairs)


def nearest_by_alias(wanted: str, names: Mapping[str, Sequence[str]]) -> str | None:
    """The name that `wanted` is nearest to, by itself or by one of its aliases; None when unsure."""
    found = nearest_name(wanted, [*names])
    if found is not None:
        return found
    by_alias = {alias: name for name, aliases in names.items() for alias in aliases}
    meant = nearest_name(wanted, [*by_alias])
    return None if meant is None else by_alias[meant]


def nearest_or_none(wanted: str, names: Sequence[str]) -> str | None:
    """`nearest_name` among so few names that asking it for each of many faults takes no time."""
    return nearest_name(wanted, names) if len(names) <= _MOST_NAMES else None


def intended_name(wanted: str, missing: Sequence[str], free: Sequence[str]) -> str | None:
    """The property that an unknown one stands for, None when unsure: one that is `missing` before one that is
    only `free`, spelling before meaning (`file_path` for `path`)."""
    for names in (missing, free):
        if found := nearest_or_none(wanted, names):
            return found
        alike = [name for name in names if _shares_words(wanted, name)] if len(names) <= _MOST_NAMES else []
        if len(alike) == 1:
            return alike[0]
    return None


def _shares_words(one: str, other: str) -> bool:
    """Whether the words of one name are all in the other: `file_path` and `path`, `startLine` and `start`."""
    words, more = sorted((_words(one), _words(other)), key=len)
    return bool(words) and words < more and all(len(word) > 1 for word in words)


def _words(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name[:256])}


def is_slip(wanted: str, name: str) -> bool:
    """Whether the two are surely the same word: spelt otherwise, abbreviated, a letter too many or too few,
    or two letters swapped. Another letter in its place (`start_x`, `start_y`) may be another word, and other
    digits (`404`, `4040`) are."""
    if _DIGIT.findall(wanted) != _DIGIT.findall(name):
        return False
    if _is_abbreviated(wanted, name):
        return True
    wanted, name = _folded(wanted), _folded(name)
    if wanted == name:
        return True
    from rapidfuzz.distance import OSA

    is_one_edit = OSA.distance(wanted, name, score_cutoff=1) == 1
    return is_one_edit and (len(wanted) != len(name) or sorted(wanted) == sorted(name))


def nearest_names(wanted: str, names: Iterable[str], limit: int) -> list[str]:
    """Names in order of likeness."""
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    found = process.extract(
        wanted[:256], list(names), scorer=OSA.normalized_similarity, processor=_folded, limit=limit
    )
    return [str(name) for name, _, _ in found]


def did_you_mean(wanted: str, names: Iterable[str]) -> str:
    """The hint for a name that does not exist."""
    meant = nearest_name(wanted, sorted(names))
    return f"did you mean '{echo_name(meant)}'?" if meant else "name one that exists"
