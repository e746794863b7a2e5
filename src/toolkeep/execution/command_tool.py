"""Command line of a program tool (`run.command`): argv and standard input, from the arguments.

A word may contain `{name}`: the argument is substituted within that one word, whatever it contains. There is
no shell. So no argument becomes two words, and none that starts with a dash an option, unless `--` stands
before it (argument injection). Arguments that no word uses go to standard input as one JSON object.
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

COMMAND: Final = "command"
RUNNER: Final = "toolkeep.tools.run_command:run_configured"
"""The guest function that starts the program, in a worker."""

_PLACE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_WORD_BYTES: Final = 100_000
"""Maximum length of one word, below the kernel's limit for an argument (MAX_ARG_STRLEN, 128 KiB)."""


class Command(NamedTuple):
    """What a program is started with."""

    argv: tuple[str, ...]
    input: str


def fill(words: Sequence[str], arguments: Mapping[str, Any]) -> Command:
    """The command of one call; ValueError says which argument cannot be used."""
    used: set[str] = set()
    argv: list[str] = []
    for number, word in enumerate(words):
        filled = _filled(word, arguments, used)
        if filled is None:  # An optional argument that is absent.
            continue
        # Argument injection: `--output=/etc/x` as a value must not become an option of the program.
        if filled.startswith("-") and not word.startswith("-") and "--" not in words[:number]:
            raise ValueError("an argument begins with a dash, and would be an option of the program")
        argv.append(filled)
    rest = {name: value for name, value in arguments.items() if name not in used}
    # argv[0] as configured: an argument must not choose the program.
    return Command((words[0], *argv[1:]), json.dumps(rest, ensure_ascii=False))


def _filled(word: str, arguments: Mapping[str, Any], used: set[str]) -> str | None:
    """A word with its arguments; None if it is a single absent argument."""
    if (alone := _PLACE.fullmatch(word)) and arguments.get(alone[1]) is None:
        used.add(alone[1])
        return None

    def value(match: re.Match[str]) -> str:
        used.add(match[1])
        return _text(match[1], arguments.get(match[1]))

    filled = _PLACE.sub(value, word)
    # Otherwise execve would fail with an unclear error. In bytes, as the kernel counts: é has two.
    if len(os.fsencode(filled)) > _WORD_BYTES:
        raise ValueError("an argument is too long for a word of a command")
    return filled


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (bool, dict, list)):
        value = json.dumps(value, ensure_ascii=False)
    text = str(value)
    # execve cuts a string at NUL: the program would get another word than was approved.
    if "\0" in text:
        raise ValueError(f"'{name}' contains a null character")
    return text
