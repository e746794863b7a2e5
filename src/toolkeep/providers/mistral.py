"""Mistral's chat API: arguments arrive as text or as an object."""

from collections.abc import Sequence
from typing import Final

from toolkeep.providers.chat_completions import ChatStream, is_event, missing, reader, shape
from toolkeep.providers.profiles import Profile
from toolkeep.providers.replies import Reply
from toolkeep.providers.vendor import Messages, Vendor

EXECUTABLE: Final = frozenset(("tool_calls",))


def write(replies: Sequence[Reply]) -> Messages:
    """A message for each call, with its name."""
    return [
        {
            "role": "tool",
            "tool_call_id": reply.call.id,
            "name": reply.call.name,
            "content": reply.flagged_text,
        }
        for reply in replies
    ]


VENDOR: Final = Vendor(
    profile=Profile(name="mistral", takes_booleans=False, strict="codec"),
    shape=shape,
    missing=missing,
    read=reader(EXECUTABLE),
    is_event=is_event,
    stream=lambda: ChatStream(EXECUTABLE),
    write=write,
)
