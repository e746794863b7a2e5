"""Forms that ask for what no server may ask for in a form: passwords, keys, codes (2025-11-25, Elicitation).

It reads words, not intentions: a server that asks in other words passes, so whoever shows a form says it too.
"""

import re
import unicodedata
from typing import Any, Final

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN: Final = re.compile(r"[\W_]+")
_PLAIN: Final = (
    r"pass ?(?:word|phrase|code)s?|passwd|credentials?|(?:seed|recovery) phrase|card number|social security|"
    r"(?:api|access|private|secret|ssh|signing|recovery) ?keys?|"
    r"(?:access|auth|api|bearer|session|refresh|security) ?tokens?|"
    r"(?:pin|security|verification|authentication|one time) ?code|one time password"
)
_IN_SENTENCES: Final = re.compile(rf"\b(?:{_PLAIN})\b")
_IN_NAMES: Final = re.compile(rf"\b(?:{_PLAIN}|pwd|secrets?|token|pin|otp|totp|2fa|mfa|cvv|cvc|ssn)\b")


def wants_secret(message: str, schema: dict[str, Any]) -> bool:
    """Whether a form that a server wants filled in has a place for a secret, and asks for one."""
    fields = {name: field for name, field in schema["properties"].items() if _is_free(field)}
    texts = any(field["type"] == "string" for field in fields.values())
    return (texts and _has(_IN_SENTENCES, message)) or any(
        _has(_IN_NAMES, name)
        or _has(_IN_NAMES, field.get("title", ""))
        or _has(_IN_SENTENCES, field.get("description", ""))
        for name, field in fields.items()
    )


def _is_free(field: dict[str, Any]) -> bool:
    """Whether a person types what is sent; a choice holds no secret."""
    return field["type"] in ("string", "integer", "number") and not field.keys() & {"enum", "oneOf"}


def _has(pattern: re.Pattern[str], text: str) -> bool:
    words = _HUMP.sub(" ", unicodedata.normalize("NFKC", text))
    return pattern.search(_BETWEEN.sub(" ", words).casefold()) is not None
