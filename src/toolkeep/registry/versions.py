"""Names and versions as look-up takes them: in any case, `read_file@1.2.0`, and which version is newer."""

from typing import Any

_NUMBER, _WORD = 0, 1


def precedence(version: str) -> tuple[Any, ...]:
    """A key that sorts versions as semver.org says, section 11; equal ones by their text."""
    text, _, _build = version.partition("+")
    core, _, pre = text.partition("-")
    numbers = tuple(int(part) for part in core.split("."))
    parts = tuple((_NUMBER, int(p), "") if p.isdecimal() else (_WORD, 0, p) for p in pre.split(".") if p)
    return (*numbers, not parts, parts, version)


def split_version(name: str) -> tuple[str, str]:
    """`read_file@1.2.0` as name and version; the version is empty where none is asked for."""
    base, _, version = name.partition("@")
    return base, version


def fold(name: str) -> str:
    """A name in the case that look-up uses. Names are ASCII: no other letter may stand for one of theirs."""
    return name.lower() if name.isascii() else name
