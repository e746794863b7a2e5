"""The vendors' own types as judges: a definition validates, comes back the same, and has no unknown field."""

import json
from collections.abc import Callable
from typing import Any

import botocore.session  # type: ignore[import-not-found, import-untyped, unused-ignore]
import botocore.validate  # type: ignore[import-not-found, import-untyped, unused-ignore]
import jsonschema_rs
import mcp_types  # type: ignore[import-not-found, unused-ignore]
from anthropic.types import ToolParam  # type: ignore[import-not-found, unused-ignore]
from botocore.serialize import create_serializer  # type: ignore[import-not-found, import-untyped, unused-ignore]
from cohere.types import ToolV2  # type: ignore[import-not-found, unused-ignore]
from google.genai.types import FunctionDeclaration  # type: ignore[import-not-found, unused-ignore]
from llguidance import LLMatcher  # type: ignore[import-not-found, unused-ignore]
from mcp_types import _v2025_11_25, _v2026_07_28
from mistralai.client.models import Tool as MistralTool  # type: ignore[import-not-found, unused-ignore]
from ollama import Tool as OllamaTool  # type: ignore[import-not-found, unused-ignore]
from openai.types.chat import ChatCompletionFunctionToolParam  # type: ignore[import-not-found, unused-ignore]
from openai.types.responses import FunctionToolParam  # type: ignore[import-not-found, unused-ignore]
from pydantic import TypeAdapter

Judge = Callable[[dict[str, Any]], str]
"""What is wrong with a definition; empty: nothing."""


def _typed(of: Any) -> Judge:
    adapter = TypeAdapter(of)

    def judge(data: dict[str, Any]) -> str:
        return same(adapter.dump_python(adapter.validate_python(data)), data)

    return judge


def same(back: Any, data: Any) -> str:
    is_same = json.dumps(back, sort_keys=True) == json.dumps(data, sort_keys=True)
    return "" if is_same else "comes back otherwise"


def _gemini(data: dict[str, Any]) -> str:
    return same(FunctionDeclaration.model_validate(data).model_dump(by_alias=True, exclude_unset=True), data)


def _mistral(data: dict[str, Any]) -> str:
    return same(MistralTool.model_validate(data).model_dump(by_alias=True, exclude_unset=True), data)


def _cohere(data: dict[str, Any]) -> str:
    made = ToolV2.model_validate(data)
    if made.model_extra or made.function.model_extra:
        return "has an unknown field"
    return same(made.model_dump(exclude_unset=True), data)


_MODEL = botocore.session.get_session().get_service_model("bedrock-runtime")
_CONVERSE = _MODEL.operation_model("Converse")


def _bedrock(data: dict[str, Any]) -> str:
    request = {"modelId": "m", "messages": [], "toolConfig": {"tools": [data]}}
    report = botocore.validate.ParamValidator().validate(request, _CONVERSE.input_shape)
    if report.has_errors():
        return str(report.generate_report())
    body = create_serializer("rest-json").serialize_to_request(request, _CONVERSE)["body"]
    return same(json.loads(body)["toolConfig"]["tools"][0], data)


def _mcp(wire: Any) -> Judge:
    def judge(data: dict[str, Any]) -> str:
        wire.Tool.model_validate(data)
        made = mcp_types.Tool.model_validate(data)
        return same(made.model_dump(by_alias=True, exclude_unset=True), data)

    return judge


def _json_schema(data: dict[str, Any]) -> str:
    jsonschema_rs.meta.validate(data)
    return ""


def _grammar(data: dict[str, Any]) -> str:
    return str(LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(data["schema"])))


def _ollama(data: dict[str, Any]) -> str:
    """Its own type drops nested properties: the keywords that its profile lists judge those."""
    return same(OllamaTool.model_validate(data).function.name, data["function"]["name"])


JUDGES: dict[str, Judge] = {
    "anthropic": _typed(ToolParam),
    "openai": _typed(ChatCompletionFunctionToolParam),
    "vllm": _typed(ChatCompletionFunctionToolParam),
    "openai-responses": _typed(FunctionToolParam),
    "gemini": _gemini,
    "bedrock": _bedrock,
    "mistral": _mistral,
    "cohere": _cohere,
    "ollama": _ollama,
    "mcp": _mcp(_v2026_07_28),
    "mcp-2025-11-25": _mcp(_v2025_11_25),
    "json-schema": _json_schema,
    "llguidance": _grammar,
    "xgrammar": _grammar,
}
