"""Split a command line into words, without a shell: quotes group, a backslash escapes the next character.

Shell syntax is refused rather than passed on as text: its author meant something that would not happen, and a
program that gets `;` or `$(…)` as an argument may hand it to a shell of its own.
"""

import re
from typing import Final


class NoCommand(ValueError):
    """The line is not a plain command; the text says why and what to do."""


_OPERATORS: Final = {
    "|": "pipes", "&": "background jobs and &&", ";": "lists of commands", "<": "redirections",
    ">": "redirections", "(": "subshells", ")": "subshells", "\n": "several lines",
    "`": "command substitution",
}  # fmt: skip
_EXPANDED: Final = {"*": "file names", "?": "file names", "[": "file names", "$": "variables"}
_OUTSIDE: Final = frozenset((*_OPERATORS, *_EXPANDED))
_IN_QUOTES: Final = frozenset("$`")
_AT_BEGINNING: Final = {
    "~": "nothing puts a home folder in the place of ~",
    "#": "a shell would leave out what follows #",
}
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_SHELL_WORDS: Final = frozenset((
    "!", ".", ":", "alias", "break", "builtin", "case", "cd", "command", "continue", "declare", "eval",
    "exec", "exit", "export", "for", "function", "if", "local", "read", "readonly", "return", "select", "set",
    "shift", "source", "times", "trap", "type", "ulimit", "umask", "unset", "until", "wait", "while", "{",
    "}", "[[",
))  # fmt: skip
"""Builtins and keywords of a shell: no program of that name exists."""
_HINT: Final = (
    "there is no shell; single-quote it if it is meant as text, or run sh -c '...' where sh is granted"
)


def split_command(command: str) -> list[str]:
    """The program and its arguments; raises `NoCommand`."""
    words = _Words(command.strip("\r\n")).read()
    if not words or not words[0]:
        raise NoCommand("it names no program")
    return words


class _Words:
    """Reads a line character by character."""

    def __init__(self, line: str) -> None:
        self._line = iter(line)
        self._words: list[str] = []
        self._word: str | None = None
        self._quote = ""
        self._plain_part = ""
        """The unquoted beginning of the word: where a shell would recognize its keywords."""
        self._is_plain = True
        self._is_in_brace = False

    def read(self) -> list[str]:
        for character in self._line:
            if character == "\0":
                raise NoCommand("it contains a NUL character")
            if self._quote == "'":
                self._within_quotes(character)
            elif character == "\\":
                self._escaped()
            elif self._quote:
                _check(character, _IN_QUOTES)
                self._within_quotes(character)
            else:
                self._outside(character)
        if self._quote:
            raise NoCommand(f"a quote ({self._quote}) is not closed")
        self._end_word()
        return self._words

    def _outside(self, character: str) -> None:
        if character in "'\"":
            self._quote = character
            self._is_plain = False
            self._add("")
        elif character in " \t":
            self._end_word()
        else:
            self._check_outside(character)
            self._plain_part += character if self._is_plain else ""
            self._add(character)

    def _check_outside(self, character: str) -> None:
        _check(character, _OUTSIDE)
        if self._word is None and character in _AT_BEGINNING:
            raise NoCommand(f"{_AT_BEGINNING[character]}: {_HINT}")
        if character < " " or character == "\x7f":
            raise NoCommand(f"it holds a control character outside of quotes: {_HINT}")
        if self._is_in_brace and (
            character == "," or (character == "." and (self._word or "").endswith("."))
        ):
            raise NoCommand(f"nothing makes several words of braces: {_HINT}")
        self._is_in_brace = character == "{" or (self._is_in_brace and character != "}")

    def _within_quotes(self, character: str) -> None:
        if character == self._quote:
            self._quote = ""
        else:
            self._add(character)

    def _escaped(self) -> None:
        taken = next(self._line, None)
        if taken is None:
            raise NoCommand("it ends with a backslash")
        if taken in "\n\0":
            raise NoCommand(f"it holds a backslash before the end of a line: {_HINT}")
        is_kept = self._quote and taken not in '"\\$`'
        self._is_plain = False
        self._add(f"\\{taken}" if is_kept else taken)

    def _add(self, text: str) -> None:
        self._word = (self._word or "") + text

    def _end_word(self) -> None:
        if self._word is not None:
            if not self._words:
                self._check_program()
            self._words.append(self._word)
        self._word, self._plain_part, self._is_plain, self._is_in_brace = None, "", True, False

    def _check_program(self) -> None:
        if _ASSIGNMENT.match(self._plain_part):
            raise NoCommand(
                f"nothing sets a variable before a program; write env {self._plain_part}... : {_HINT}"
            )
        if self._is_plain and self._word in _SHELL_WORDS:
            raise NoCommand(f"{self._word} is a word of the shell, not a program: {_HINT}")


def _check(character: str, refused: frozenset[str]) -> None:
    if character not in refused:
        return
    if character in _OPERATORS:
        raise NoCommand(f"it uses {_OPERATORS[character]} ({character.strip() or 'newline'}): {_HINT}")
    raise NoCommand(f"nothing puts {_EXPANDED[character]} in the place of {character}: {_HINT}")
