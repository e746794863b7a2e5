"""OpenAI's Chat Completions API."""

from typing import Final

from toolkeep.providers.chat_completions import ChatStream, is_event, missing, reader, shape, write
from toolkeep.providers.profiles import Profile
from toolkeep.providers.vendor import Vendor

EXECUTABLE: Final = frozenset(("tool_calls", "stop"))
"""`stop` completes the calls of a response in which a tool was forced by name."""

ROOT_FORBIDS: Final = ("oneOf", "anyOf", "allOf", "enum", "const", "not")

PROFILE: Final = Profile(
    name="openai",
    root_forbids=ROOT_FORBIDS,
    max_tools=128,
    description_chars=1024,
    needs_items=True,
    takes_booleans=False,
    strict="codec",
)

VENDOR: Final = Vendor(
    profile=PROFILE,
    shape=shape,
    missing=missing,
    read=reader(EXECUTABLE),
    is_event=is_event,
    stream=lambda: ChatStream(EXECUTABLE),
    write=write,
)
