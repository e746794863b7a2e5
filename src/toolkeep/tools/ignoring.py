"""Which files a search leaves out: what `.gitignore` and `.ignore` say, folder by folder, as git does."""

import os
from typing import Final

from pathspec import GitIgnoreSpec

_FILES: Final = (".gitignore", ".ignore")
_RULES_BYTES: Final = 256 * 1024


class Ignored:
    """The rules in force inside one folder: its own, and those of the folders around it."""

    def __init__(self, folder: str, above: "Ignored | None" = None) -> None:
        self._above = above
        self._folder = folder
        self._rules = _read(folder)

    @property
    def has_rules(self) -> bool:
        """Whether anything may be left out."""
        return self._rules is not None or (self._above is not None and self._above.has_rules)

    def covers(self, path: str, *, is_folder: bool) -> bool:
        """Whether the path is left out; the innermost rule that speaks about it decides."""
        if self._rules is not None:
            relative = path[len(self._folder) + 1 :] + ("/" if is_folder else "")
            said = self._rules.check_file(relative).include
            if said is not None:
                return said
        return self._above is not None and self._above.covers(path, is_folder=is_folder)


def _read(folder: str) -> GitIgnoreSpec | None:
    lines: list[str] = []
    for name in _FILES:
        try:
            descriptor = os.open(
                f"{folder}/{name}", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            )
        except OSError:
            continue
        with os.fdopen(descriptor, "rb") as file:
            try:
                lines += file.read(_RULES_BYTES).decode("utf-8", "replace").splitlines()
            except OSError:  # a folder of that name
                continue
    rules = [line for line in lines if line.strip() and not line.startswith("#")]
    try:
        return GitIgnoreSpec.from_lines(rules) if rules else None
    except ValueError:  # a rule that git would not read either
        return None
