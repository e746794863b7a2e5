"""Which lines change between two texts, as a unified difference, within a bound of work.

Both texts are the words of others. Where it would take too long to find, with hundreds of changes, all that
lies between the first and the last of them is shown as replaced.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from toolkeep.limits import DIFFERENCE_STEPS

_CONTEXT: Final = 3
"""Lines that stay, around those that change."""
_EDIT_STEPS: Final = 10
"""What one way to go on costs, in lines that are compared."""


class Run(NamedTuple):
    """Lines that stand in both texts, one after the other."""

    old: int
    new: int
    length: int


def unified(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The lines of a difference, without those that name the files; nothing where the texts are the same."""
    for hunk in _hunks(_kept(old, new)):
        first, last = hunk[0], hunk[-1]
        start, end = first.old, last.old + last.length
        new_start, new_end = first.new, last.new + last.length
        yield f"@@ -{_place(start, end)} +{_place(new_start, new_end)} @@"
        yield from (" " + line for line in old[start : start + first.length])
        for before, after in itertools.pairwise(hunk):
            yield from ("-" + line for line in old[before.old + before.length : after.old])
            yield from ("+" + line for line in new[before.new + before.length : after.new])
            yield from (" " + line for line in old[after.old : after.old + after.length])


def _place(start: int, end: int) -> str:
    """Where lines stand, as such differences say it: counted from one, and how many."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _hunks(kept: list[Run]) -> Iterator[list[Run]]:
    """Changes that lie close together, each between what stays before and after it."""
    if len(kept) == 1:
        return
    hunk = [_end_of(kept[0])]
    for run in kept[1:-1]:
        if run.length > 2 * _CONTEXT:
            yield [*hunk, _beginning_of(run)]
            hunk = [_end_of(run)]
        else:
            hunk.append(run)
    yield [*hunk, _beginning_of(kept[-1])]


def _beginning_of(run: Run) -> Run:
    return run._replace(length=min(run.length, _CONTEXT))


def _end_of(run: Run) -> Run:
    left_out = max(0, run.length - _CONTEXT)
    return Run(run.old + left_out, run.new + left_out, run.length - left_out)


def _kept(old: Sequence[str], new: Sequence[str]) -> list[Run]:
    """What stays, in order; begins and ends with what both texts begin and end with, though it be nothing."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    if head == len(old) == len(new):
        return [Run(0, 0, head)]
    rest = shorter - head
    tail = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    between = _matched(old[head : len(old) - tail], new[head : len(new) - tail])
    middle = [Run(head + run.old, head + run.new, run.length) for run in between]
    return [Run(0, 0, head), *middle, Run(len(old) - tail, len(new) - tail, tail)]


def _matched(old: Sequence[str], new: Sequence[str]) -> list[Run]:
    """The runs of a shortest way from one text to the other (Myers 1986); none where it is too long.

    A diagonal is how many lines of the old text are ahead of those of the new one.
    """
    furthest = {1: 0}
    trail: list[dict[int, int]] = []
    steps = 0
    for edits in range(DIFFERENCE_STEPS):
        trail.append(furthest.copy())
        for diagonal in range(-edits, edits + 1, 2):
            start = at = _entered(furthest, diagonal, _previous(furthest, diagonal, edits))
            while at < len(old) and at - diagonal < len(new) and old[at] == new[at - diagonal]:
                at += 1
            furthest[diagonal] = at
            steps += at - start + _EDIT_STEPS
            if at >= len(old) and at - diagonal >= len(new):
                return _walked_back(trail, diagonal, at)
            if steps > DIFFERENCE_STEPS:
                return []
    return []


def _previous(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """The diagonal from which one is reached: by a line that is added, or by one that is removed."""
    if diagonal == -edits:
        return diagonal + 1
    is_removed = diagonal == edits or furthest[diagonal - 1] >= furthest[diagonal + 1]
    return diagonal - 1 if is_removed else diagonal + 1


def _entered(furthest: dict[int, int], diagonal: int, previous: int) -> int:
    return furthest[previous] + (1 if previous < diagonal else 0)


def _walked_back(trail: list[dict[int, int]], diagonal: int, at: int) -> list[Run]:
    runs: list[Run] = []
    for edits in range(len(trail) - 1, -1, -1):
        before = trail[edits]
        previous = _previous(before, diagonal, edits)
        start = _entered(before, diagonal, previous)
        if at > start:
            runs.append(Run(start, start - diagonal, at - start))
        diagonal, at = previous, before[previous]
    return runs[::-1]
