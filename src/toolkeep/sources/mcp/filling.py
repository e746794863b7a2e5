"""Secrets go where an upstream wants them: into its environment, or into headers; nobody else is told.

Which ones went there is remembered, so that they can be taken out of what the server says.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from toolkeep.wording import echo_name

_SECRET: Final = re.compile(r"\{secret:([^{}]+)\}")
_HEADER_VALUE: Final = re.compile(r"([!-~]([\t -~]*[!-~])?)?")

Secret = Callable[[str], str]


class Filling:
    """Gives secrets by name, and remembers those that it gave."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._given: dict[str, None] = {}

    @property
    def given(self) -> tuple[str, ...]:
        """What was given out."""
        return tuple(self._given)

    def secret(self, name: str) -> str:
        """The secret of a name. Raises whatever its source raises."""
        found = self._secret(name)
        self._given[found] = None
        return found

    def headers(self, texts: Mapping[str, str]) -> dict[str, str]:
        """Headers with their secrets; ValueError names one that cannot be sent, and not what it holds."""
        filled = {
            name: _SECRET.sub(lambda place: self.secret(place[1]), text) for name, text in texts.items()
        }
        for name, text in filled.items():
            if not _HEADER_VALUE.fullmatch(text):
                raise ValueError(f"its header {echo_name(name)} would hold what no header can")
        return filled
