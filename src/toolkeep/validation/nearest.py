"""The name that was probably meant."""

from collections.abc import Iterable, Sequence

_MOST_NAMES = 100


def _folded(name: str) -> str:
    return name.replace("_", "").replace("-", "").replace(" ", "").casefold()


def nearest_name(wanted: str, names: Sequence[str]) -> str | None:
    """The one name that a slip explains: another spelling, or a letter or two; None when unsure."""
    if not names or len(wanted) > 256:
        return None
    same = [name for name in names if _folded(name) == _folded(wanted)]
    if len(same) == 1:
        return same[0]
    from rapidfuzz.distance import OSA

    scored = sorted((OSA.distance(_folded(wanted), _folded(name)), name) for name in names)
    best, name = scored[0]
    if best > max(1, min(len(wanted), len(name)) // 4) or len(name) < 3:
        return None
    if len(scored) > 1 and scored[1][0] == best:
        return None
    return name


def probable_name(wanted: str, names: Sequence[str]) -> str | None:
    """`nearest_name` among so few names that asking it for each of many faults takes no time."""
    return nearest_name(wanted, names) if len(names) <= _MOST_NAMES else None


def is_slip(wanted: str, name: str) -> bool:
    """Whether the two are surely the same word: spelt otherwise, a letter too many or too few, or two
    letters swapped. Another letter in its place (`start_x`, `start_y`) may be another word."""
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
