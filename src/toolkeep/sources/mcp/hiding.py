"""Secrets that a server was given are taken out of whatever it says, before anybody else reads it.

Looked for in the texts of a message as they are read, so that no escape of JSON hides one. What is not
protected: a server that says a secret in other words, or in pieces.
"""

from collections.abc import Iterable
from typing import Any, Final

from toolkeep.wire.messages import Message
from toolkeep.wording import HIDDEN

SECRET_CHARS: Final = 8
"""Of a secret that is looked for; a shorter one would be found by chance."""


def without_secrets(message: Message, raw: bytes, secrets: Iterable[str]) -> Message:
    """The message that `raw` holds, with each of these secrets hidden."""
    sought = sorted((one for one in secrets if len(one) >= SECRET_CHARS), key=len, reverse=True)
    if not any(b"\\" in raw or one.encode() in raw for one in sought):
        return message
    return Message(
        message.id,
        message.method,
        _hidden(message.params, sought),
        None,
        _hidden(message.result, sought),
        _hidden(message.error, sought),
    )


def _hidden(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return value
    if isinstance(value, list):
        return [_hidden(item, secrets) for item in value]
    if isinstance(value, dict):
        return {_hidden(name, secrets): _hidden(item, secrets) for name, item in value.items()}
    return value
