"""Plain JSON Schema, and schemas for constrained decoders: llguidance, xgrammar.

A call is `{"name", "arguments"}`, the arguments as text or object; `{"calls": […]}` for several. Only the
caller knows whether a text was truncated, so a call states it: `"finished": true`.
"""

from collections.abc import Sequence
from typing import Any, Final

from toolkeep.providers.model_turn import ModelCall, Turn, from_text, name_in, settled
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Reply
from toolkeep.providers.response_reader import items, missing_field
from toolkeep.providers.vendor import Messages, Shown, Vendor


def shape_schema(shown: Shown) -> dict[str, Any]:
    """A schema that names and describes its tool."""
    rest = {key: value for key, value in shown.schema.items() if key not in ("title", "description")}
    description = {"description": shown.description} if shown.description else {}
    return {"title": shown.alias, **description, **rest}


def shape_grammar(shown: Shown) -> dict[str, Any]:
    """A tool with the schema for decoding its arguments."""
    return {"name": shown.alias, "description": shown.description, "schema": shown.schema}


_CALLS: Final = missing_field(calls=list)
_CALL: Final = missing_field(name=str)


def missing(response: dict[str, Any]) -> str:
    """One call, or several."""
    return _CALLS(response) if "calls" in response else _CALL(response)


def read(response: dict[str, Any]) -> Turn:
    """The calls; complete only if they say so."""
    found = items(response, "calls") if "calls" in response else [response]
    calls = [
        ModelCall(
            id=name_in(item.get("id")),
            name=name_in(item.get("name")),
            arguments=from_text(item.get("arguments")),
            unfinished="" if item.get("finished") is True else "it does not say that it is finished",
        )
        for item in found
    ]
    return settled(calls, "", is_ended=True, needs_ids=False)


def write(replies: Sequence[Reply]) -> Messages:
    """An object for each call."""
    return [
        {
            **({"id": reply.call.id} if reply.call.id else {}),
            "name": reply.call.name,
            "status": "error" if reply.is_error else "pending" if reply.is_pending else "ok",
            "content": reply.text,
        }
        for reply in replies
    ]


JSON_SCHEMA: Final = Vendor(
    profile=Profile(name="json-schema"),
    shape=shape_schema,
    missing=missing,
    read=read,
    stream=None,
    write=write,
)
LLGUIDANCE: Final = Vendor(
    profile=Profile(name="llguidance", strict="codec", is_always_strict=True),
    shape=shape_grammar,
    missing=missing,
    read=read,
    stream=None,
    write=write,
)
XGRAMMAR: Final = Vendor(
    profile=Profile(name="xgrammar", strict="codec", is_always_strict=True),
    shape=shape_grammar,
    missing=missing,
    read=read,
    stream=None,
    write=write,
)
