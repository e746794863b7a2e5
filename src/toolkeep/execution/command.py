"""A tool that is a program (`run.command`): its words, filled with arguments, and what it reads.

A word may hold `{name}`: the argument of that name takes its place in that one word, whatever it holds. So no
argument becomes two words, and none that begins with a dash an option, unless `--` stands before it. What no
word takes, the program reads from its standard input as one JSON object.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

COMMAND: Final = "command"
RUNNER: Final = "toolkeep.tools.running:run_configured"
"""What starts the program, in a worker."""

_PLACE: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_WORD_CHARS: Final = 100_000


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
        if filled is None:  # an optional argument that was left out
            continue
        if filled.startswith("-") and not word.startswith("-") and "--" not in words[:number]:
            raise ValueError("an argument begins with a dash, and would be an option of the program")
        argv.append(filled)
    rest = {name: value for name, value in arguments.items() if name not in used}
    return Command((words[0], *argv[1:]), json.dumps(rest, ensure_ascii=False))


def _filled(word: str, arguments: Mapping[str, Any], used: set[str]) -> str | None:
    """A word with its arguments; nothing where it is one argument alone, and that is absent."""
    if (alone := _PLACE.fullmatch(word)) and arguments.get(alone[1]) is None:
        used.add(alone[1])
        return None

    def value(match: re.Match[str]) -> str:
        used.add(match[1])
        return _text(match[1], arguments.get(match[1]))

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
