"""Plain tables for a terminal."""

from collections.abc import Iterable, Sequence


def print_table(title: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A title, a head line and rows; the first column to the left, the others to the right."""
    lines = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    print(f"\n{title}\n")
    for number, line in enumerate(lines):
        print(_line(line, widths))
        if number == 0:
            print("  ".join("-" * width for width in widths))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (
        cell.ljust(width) if column == 0 else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join([first, *others]).rstrip()


def print_notes(notes: Iterable[str]) -> None:
    """Footnotes, one a line."""
    print()
    for note in notes:
        print(f"  {note}")
