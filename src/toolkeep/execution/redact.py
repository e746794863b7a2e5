"""Redacts secrets from the output of HTTP tools, persistent processes and MCP upstreams.

Searched in decoded strings, so that no JSON escape hides one, and in bytes. Not protected: a server or
program that transforms a secret, encodes it, or splits it; a function, which may return what it is given.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

from toolkeep.text.display import HIDDEN

SECRET_CHARS: Final = 8
"""Minimum length of a secret that is searched; shorter ones would match by chance."""

Secret = Callable[[str], str]


class KnownSecrets:
    """Gives secrets by name, and records those given."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret
        self._given: dict[str, None] = {}

    @property
    def given(self) -> tuple[str, ...]:
        """Secrets that were given out."""
        return tuple(self._given)

    def secret(self, name: str) -> str:
        """The secret of a name. Raises whatever its source raises."""
        found = self._secret(name)
        self._given[found] = None
        return found


def redacted(
    value: Any, secrets: Iterable[str], raw: bytes | None = None, shortest: int = SECRET_CHARS
) -> Any:
    """JSON data or bytes with these secrets replaced; `raw` is the JSON that it was parsed from.

    In failure texts, which nobody processes further, shorter secrets are searched too.
    """
    # Longest first: if one secret contains another, replacing the short one would leave the rest visible.
    sought = sorted((one for one in secrets if len(one) >= shortest), key=len, reverse=True)
    # Fast path: without escapes in the raw bytes, a secret would be found there literally.
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
        # Keys too: a program may return a secret as an object key.
        return {_without(name, secrets): _without(item, secrets) for name, item in value.items()}
    return value


def _bytes(secret: str) -> bytes:
    return secret.encode("utf-8", "surrogatepass")
