"""What vendors and frameworks offer to turn a JSON Schema into what a provider takes, where installed."""

import copy
import importlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Schema = dict[str, Any]


class Helper(NamedTuple):
    """One way to make a provider's schema."""

    target: str
    """OpenAI strict, Claude strict or Gemini."""
    name: str
    make: Callable[[Schema], Schema]


def helpers() -> Iterator[Helper]:
    """Those whose packages are installed."""
    for find in (_openai, _agents, _anthropic, _genai, _mistral, _pydantic_ai):
        try:
            yield from find()
        except ImportError:
            continue


def _openai() -> Iterator[Helper]:
    strict = vars(importlib.import_module("openai.lib._pydantic"))["_ensure_strict_json_schema"]

    def make(schema: Schema) -> Schema:
        own = copy.deepcopy(schema)
        made: Schema = strict(own, path=(), root=own)
        return made

    yield Helper("OpenAI strict", "openai", make)


def _agents() -> Iterator[Helper]:
    module = importlib.import_module("agents.strict_schema")
    yield Helper(
        "OpenAI strict",
        "openai-agents",
        lambda schema: module.ensure_strict_json_schema(copy.deepcopy(schema)),
    )


def _mistral() -> Iterator[Helper]:
    module = importlib.import_module("mistralai.extra.utils._pydantic_helper")
    yield Helper(
        "OpenAI strict", "mistralai", lambda schema: module.rec_strict_json_schema(copy.deepcopy(schema))
    )


def _anthropic() -> Iterator[Helper]:
    module = importlib.import_module("anthropic")
    yield Helper("Claude strict", "anthropic", lambda schema: module.transform_schema(copy.deepcopy(schema)))


def _genai() -> Iterator[Helper]:
    utils = importlib.import_module("google.genai._mcp_utils")
    types = importlib.import_module("mcp_types")

    def make(schema: Schema) -> Schema:
        tool = types.Tool(name="t", description="", input_schema=copy.deepcopy(schema))
        made: Schema = utils.mcp_to_gemini_tool(tool).model_dump(exclude_none=True, mode="json")
        return made

    yield Helper("Gemini", "google-genai", make)


def _pydantic_ai() -> Iterator[Helper]:
    openai = importlib.import_module("pydantic_ai.profiles.openai").OpenAIJsonSchemaTransformer
    google = importlib.import_module("pydantic_ai.profiles.google").GoogleJsonSchemaTransformer
    anthropic = importlib.import_module("pydantic_ai.providers.anthropic").AnthropicJsonSchemaTransformer

    def through(transformer: Any, *, strict: bool | None) -> Callable[[Schema], Schema]:
        return lambda schema: transformer(copy.deepcopy(schema), strict=strict).walk()

    yield Helper("OpenAI strict", "pydantic-ai", through(openai, strict=True))
    yield Helper("Claude strict", "pydantic-ai", through(anthropic, strict=True))
    yield Helper("Gemini", "pydantic-ai", through(google, strict=None))
