"""Secrets that a tool was given are taken out of whatever it says, before anybody else reads it.

Looked for in texts as they are read, so that no escape of JSON hides one, and in bytes. What is not
protected: a server or program that says a secret in other words, in another encoding, or in pieces.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from toolkeep.wording import HIDDEN

SECRET_CHARS: Final = 8
"""Of a secret that is looked for; a shorter one would be found by chance."""

Secret = Callable[[str], str]


class Given:
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


def hidden(value: Any, secrets: Iterable[str], raw: bytes | None = None, shortest: int = SECRET_CHARS) -> Any:
    """JSON data or bytes with each of these secrets hidden; `raw` is the JSON that it was read from.

    In texts about failures, which nobody works with, shorter ones are looked for too.
    """
    sought = sorted((one for one in secrets if len(one) >= shortest), key=len, reverse=True)
    if raw is not None and not any(b"\\" in raw or _bytes(one) in raw for one in sought):
        return value
    return _without(value, sought) if sought else value


def _without(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, bytes):
        for secret in secrets:
            value = value.replace(_bytes(secret), HIDDEN.encode())
        return value
    if isinstance(value, list):
        return [_without(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_without(name, secrets): _without(item, secrets) for name, item in value.items()}
    return value


def _bytes(secret: str) -> bytes:
    return secret.encode("utf-8", "surrogatepass")
