"""A tool that is a program (`run.command`): its words, filled with arguments, and what it reads.

A word may hold `{name}`: the argument of that name takes its place in that one word, whatever it holds. So no
argument becomes two words, and none that begins with a dash an option, unless `--` stands before it. What no
word takes, the program reads from its standard input as one JSON object.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

COMMAND: Final = "command"
RUNNER: Final = "toolkeep.tools.running:run_configured"
"""What starts the program, in a worker."""

_PLACE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_WORD_CHARS: Final = 100_000


class Command(NamedTuple):
    """A program that is ready to be started."""

    program: str
    argv: tuple[str, ...]
    input: str


def find_program(word: str, base: str) -> str:
    """The real path of the program that a configuration names; ValueError where there is none."""
    path = os.path.expanduser(word)  # noqa: PTH111 -- text
    found = shutil.which(os.path.join(base, path) if "/" in path else path)  # noqa: PTH118 -- text
    if found is None:
        raise ValueError(f"there is no program '{word}' that can be executed")
    return os.path.realpath(found)


def fill(words: Sequence[str], arguments: Mapping[str, Any], *, program: str) -> Command:
    """The command of one call; ValueError says which argument cannot be used."""
    used: set[str] = set()
    argv: list[str] = []
    for word in words:
        argv.append(_filled(word, arguments, used, is_after_dashes="--" in argv))
        if argv[-1] == "" and word:  # an optional argument that was left out
            argv.pop()
    rest = {name: value for name, value in arguments.items() if name not in used}
    named = os.path.basename(program)  # noqa: PTH119 -- text; where it lies is nobody's business
    return Command(program, (named, *argv[1:]), json.dumps(rest, ensure_ascii=False))


def _filled(word: str, arguments: Mapping[str, Any], used: set[str], *, is_after_dashes: bool) -> str:
    def value(match: re.Match[str]) -> str:
        name = match[1]
        used.add(name)
        text = _text(name, arguments.get(name))
        if match.start() == 0 and text.startswith("-") and not is_after_dashes:
            raise ValueError(f"'{name}' begins with a dash, and would be an option of the program")
        return text

    filled = _PLACE.sub(value, word)
    if len(filled) > _WORD_CHARS:
        raise ValueError("an argument is too long for a word of a command")
    return filled


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, dict, list)):
        value = json.dumps(value, ensure_ascii=False)
    text = str(value)
    if "\0" in text:
        raise ValueError(f"'{name}' holds a null character")
    return text
