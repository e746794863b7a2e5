"""Unified diff of the file that a call would write, within a bound of work.

Both texts are untrusted. The shortest edit script (Myers 1986) takes quadratic time; beyond the bound
everything between the first and the last change is shown as replaced. Without the bound an agent could stall
the host with one large file.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolkeep.calls import PermittedCall
from toolkeep.limits import DIFFERENCE_BYTES, DIFFERENCE_LINES, DIFFERENCE_STEPS
from toolkeep.text.display import visible

_CONTEXT: Final = 3
"""Unchanged lines shown around a change."""
_EDIT_STEPS: Final = 10
"""Cost of one diagonal, in compared lines."""


class Run(NamedTuple):
    """A run of equal lines."""

    old: int
    new: int
    length: int


def unified(old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    """The lines of a unified diff without its header; nothing if the texts are equal."""
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
    """A hunk range in unified diff notation: one-based start and length."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + 1 if end > start else start},{end - start}"


def _hunks(kept: list[Run]) -> Iterator[list[Run]]:
    """Group changes into hunks with context."""
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
    """Runs of equal lines in order; the first and last are the common prefix and suffix, possibly empty."""
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
    """Equal runs of a shortest edit script (Myers 1986); none if the work bound is exceeded.

    A diagonal is the position in the old text minus that in the new one.
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
            # Counts compared lines plus a fixed cost, so that the bound is one of time and not of edits.
            steps += at - start + _EDIT_STEPS
            if at >= len(old) and at - diagonal >= len(new):
                return _walked_back(trail, diagonal, at)
            if steps > DIFFERENCE_STEPS:
                return []
    return []


def _previous(furthest: dict[int, int], diagonal: int, edits: int) -> int:
    """The diagonal from which one is reached: by an insertion or a deletion."""
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


_CONTENTS: Final = ("content", "contents", "text", "data", "body")
"""Parameter names for the whole new content of a file."""

_HARMLESS: Final = frozenset(
    ("encoding", "create_parents", "create_directories", "overwrite", "mode", "expected_sha256")
)
"""Other parameters that do not change what is written; any unknown one might, so no diff is shown then."""

_NO_END: Final = "\\ No newline at end of file"

_OVERWRITE: Final = "overwrite"
_APPEND: Final = "append"


def difference(call: PermittedCall, shown: Mapping[str, Any]) -> str:
    """Unified diff between the existing file and the content that a call would write.

    Empty if the call does not write exactly one file, or its content is not plain in the arguments. A wrong
    diff would be worse than none: the person would approve something else.
    """
    written = [one for one in call.touched if one.kind == "fs.write"]
    contents = [shown[name] for name in _CONTENTS if isinstance(shown.get(name), str)]
    paths = {one.pointer.removeprefix("/") for one in written}
    mode = shown.get("mode", _OVERWRITE)
    if shown.keys() - _HARMLESS - paths - set(_CONTENTS) or mode not in (_OVERWRITE, _APPEND):
        return ""
    # With two candidates for the content the diff could show the wrong one.
    if len(written) != 1 or len(contents) != 1 or len(contents[0]) > DIFFERENCE_BYTES:
        return ""
    # Through the checked descriptor, so that the diff is of the file that will be written.
    before = written[0].content(DIFFERENCE_BYTES)
    if before is None:
        return ""
    try:
        old = before.decode()
    except UnicodeDecodeError:
        became = "followed" if mode == _APPEND else "replaced"
        return f"{len(before)} bytes that are not text would be {became} by {len(contents[0])} characters"
    new = old + contents[0] if mode == _APPEND else contents[0]
    return _shown(written[0].shown, old, new)


def text_difference(path: str, now: bytes, after: bytes) -> str:
    """Unified diff between what a file holds and will hold; in numbers if either is not text."""
    try:
        return _shown(path, now.decode(), after.decode())
    except UnicodeDecodeError:
        return f"{len(now)} bytes of {visible(path)} would be replaced by {len(after)} bytes that differ"


def _shown(path: str, old: str, new: str) -> str:
    changes = [line for change in unified(_lines(old), _lines(new)) for line in change.split("\n")]
    if not changes:
        return ""
    name = visible(path)
    # No timestamps: diff format puts a tab before them, which the renderer would have to escape.
    head = [f"--- {name} (now)", f"+++ {name} (after)"]
    room = DIFFERENCE_LINES - len(head)
    cut = len(changes) - room
    more = [f"… and {cut} lines more"] if cut > 0 else []
    return "\n".join([*head, *map(visible, changes[:room]), *more])


def _lines(text: str) -> list[str]:
    """The lines without newlines. A last line that has none carries a note, so that it differs."""
    lines = text.split("\n")
    last = lines.pop()
    return [*lines, f"{last}\n{_NO_END}"] if last else lines
