"""Which files a search leaves out: what `.gitignore` and `.ignore` say, folder by folder, as git does.

Asked from the top down: a folder that is left out is not entered, so that nothing in it is asked about.
"""

import re
from typing import Final, NamedTuple

from toolkeep.definitions.context import ToolFailed
from toolkeep.tools.globbing import Expression, NoPattern, compiled
from toolkeep.tools.place import Place

_FILES: Final = (".gitignore", ".ignore")
_RULES_BYTES: Final = 256 * 1024
_END_BLANKS: Final = re.compile(r"(?<!\\) +$")


class _Rule(NamedTuple):
    expression: Expression
    is_about_names: bool
    is_about_folders: bool
    leaves_out: bool

    def fits(self, relative: str, *, is_folder: bool) -> bool:
        if self.is_about_folders and not is_folder:
            return False
        return self.expression.fits(relative.rpartition("/")[2] if self.is_about_names else relative)


class Ignored:
    """The rules in force inside one folder: its own, and those of the folders around it."""

    def __init__(self, folder: str, above: "Ignored | None" = None) -> None:
        rules = _read(folder)
        own = ((len(folder.rstrip("/")) + 1, rules),) if rules else ()
        self.layers: tuple[tuple[int, list[_Rule]], ...] = own + (above.layers if above else ())
        """Where the paths that rules are about begin, and the rules; the innermost folder first."""

    def covers(self, path: str, *, is_folder: bool) -> bool:
        """Whether a path is left out: the last rule of the innermost folder that speaks about it decides."""
        for start, rules in self.layers:
            relative = path[start:]
            for rule in rules:
                if rule.fits(relative, is_folder=is_folder):
                    return rule.leaves_out
        return False


def _read(folder: str) -> list[_Rule]:
    """The rules of a folder, the last one first."""
    rules: list[_Rule] = []
    for name in _FILES:
        for line in _lines(f"{folder}/{name}"):
            try:
                rule = _rule(line)
            except NoPattern:  # git takes no notice of it either
                continue
            rules += [rule] if rule else []
    return rules[::-1]


def _lines(path: str) -> list[str]:
    try:
        with Place(path, path).open() as file:
            data = file.read(_RULES_BYTES)
    except (OSError, ToolFailed):
        return []
    return data.decode("utf-8-sig", "replace").split("\n")


def _rule(line: str) -> _Rule | None:
    """A line, read as git reads it."""
    pattern = _END_BLANKS.sub("", line.removesuffix("\r"))
    if not pattern or pattern.startswith("#"):
        return None
    leaves_out = not pattern.startswith("!")
    pattern = pattern if leaves_out else pattern[1:]
    is_about_folders = pattern.endswith("/")
    pattern = pattern[:-1] if is_about_folders else pattern
    if not pattern:
        return None
    return _Rule(
        compiled(pattern.removeprefix("/"), is_gits=True), "/" not in pattern, is_about_folders, leaves_out
    )
