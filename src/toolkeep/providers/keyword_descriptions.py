"""Describe a keyword that a provider does not know in words, at the end of a description."""

from typing import Any, Final

from toolkeep.providers.schema_losses import Losses, brief

NOTES: Final = frozenset(
    (
        "title", "$comment", "readOnly", "writeOnly", "deprecated", "contentEncoding", "contentMediaType",
        "contentSchema", "$schema", "$id", "$anchor", "$vocabulary",
    )
)  # fmt: skip
"""Keywords that do not affect which values are valid."""


def said(keyword: str, value: Any, pointer: str, losses: Losses) -> list[str]:
    """The keyword in words, or none if it is too long; records the loss."""
    is_note = keyword in NOTES or keyword.startswith("x-")
    text = None if is_note else brief(value)
    if text is None:
        why = "only describes, and is left out" if is_note else "too long for a description"
        losses.note(pointer, keyword, "weakened", why)
        return []
    losses.note(pointer, keyword, "moved", "said in the description")
    return [f"{keyword}: {text}"]


def described(schema: dict[str, Any], words: list[str]) -> dict[str, Any]:
    """The schema with these words at the end of its description."""
    if not words:
        return schema
    before = schema.get("description")
    return {**schema, "description": f"{before or ''} ({'; '.join(words)})".lstrip()}
