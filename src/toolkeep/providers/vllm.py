"""vLLM, which uses OpenAI's chat format and enforces strict schemas by constrained decoding."""

from dataclasses import replace
from typing import Final

from toolkeep.providers import openai
from toolkeep.providers.vendor import Vendor

VENDOR: Final[Vendor] = replace(
    openai.VENDOR, profile=replace(openai.PROFILE, name="vllm", max_tools=None, description_chars=None)
)
