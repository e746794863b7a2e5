"""Names and versions as lookup takes them: case-insensitive, `read_file@1.2.0`, and which version is
newer."""

from typing import Any

_NUMBER, _WORD = 0, 1


def precedence(version: str) -> tuple[Any, ...]:
    """A sort key in the order of semver.org, section 11; ties by text."""
    text, _, _build = version.partition("+")
    core, _, pre = text.partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    parts = tuple((_NUMBER, int(p), "") if p.isdecimal() else (_WORD, 0, p) for p in pre.split(".") if p)
    return (*numbers, not parts, parts, version)


def split_version(name: str) -> tuple[str, str]:
    """Split `read_file@1.2.0` into name and version; the version is empty if there is none."""
    base, _, version = name.partition("@")
    return base, version


def fold(name: str) -> str:
    """Casefold a name for lookup.

    Names are ASCII, so that no homoglyph can stand for a letter of another name.
    """
    return name.lower() if name.isascii() else name
