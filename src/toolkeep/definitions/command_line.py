"""A command line as words, without a shell: quotes group, a backslash takes the next character as it is.

Whatever a shell would do something else with is refused rather than passed on as text: whoever wrote it meant
that something else.
"""

from typing import Final


class NoCommand(ValueError):
    """A line that is no plain command; the text says why and what to do."""


_OPERATORS: Final = {
    "|": "pipes", "&": "background jobs and &&", ";": "lists of commands", "<": "redirections",
    ">": "redirections", "(": "subshells", ")": "subshells", "\n": "several lines",
    "`": "command substitution",
}  # fmt: skip
_EXPANDED: Final = {"*": "file names", "?": "file names", "[": "file names", "$": "variables"}
_OUTSIDE: Final = frozenset((*_OPERATORS, *_EXPANDED))
_IN_QUOTES: Final = frozenset("$`")
_HINT: Final = "there is no shell; quote it if it is meant as text, or run sh -c '...' where sh is granted"


def split_command(command: str) -> list[str]:
    """The program and its arguments; raises `NoCommand`."""
    words = _Words(command.strip()).read()
    if not words or not words[0]:
        raise NoCommand("it names no program")
    return words


class _Words:
    """Reads a line, character by character."""

    def __init__(self, line: str) -> None:
        self._line = iter(line)
        self._words: list[str] = []
        self._word: str | None = None
        self._quote = ""

    def read(self) -> list[str]:
        for character in self._line:
            if self._quote == "'":
                self._within_quotes(character)
            elif character == "\\":
                self._escaped()
            elif self._quote:
                _check(character, _IN_QUOTES)
                self._within_quotes(character)
            else:
                self._plain(character)
        if self._quote:
            raise NoCommand(f"a quote ({self._quote}) is not closed")
        self._end_word()
        return self._words

    def _plain(self, character: str) -> None:
        if character in "'\"":
            self._quote = character
            self._add("")
        elif character in " \t":
            self._end_word()
        else:
            _check(character, _OUTSIDE)
            if character == "~" and self._word is None:
                raise NoCommand(f"nothing puts a home folder in the place of ~: {_HINT}")
            self._add(character)

    def _within_quotes(self, character: str) -> None:
        if character == self._quote:
            self._quote = ""
        else:
            self._add(character)

    def _escaped(self) -> None:
        taken = next(self._line, None)
        if taken is None:
            raise NoCommand("it ends with a backslash")
        is_kept = self._quote and taken not in '"\\$`'
        self._add(f"\\{taken}" if is_kept else taken)

    def _add(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
        self._word = None


def _check(character: str, refused: frozenset[str]) -> None:
    if character not in refused:
        return
    if character in _OPERATORS:
        raise NoCommand(f"it uses {_OPERATORS[character]} ({character.strip() or 'newline'}): {_HINT}")
    raise NoCommand(f"nothing puts {_EXPANDED[character]} in the place of {character}: {_HINT}")
