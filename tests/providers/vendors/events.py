"""Events and answers as objects of the vendors' own types."""

from collections.abc import Callable
from typing import Any

import botocore.session  # type: ignore[import-not-found, import-untyped, unused-ignore]
import botocore.validate  # type: ignore[import-not-found, import-untyped, unused-ignore]
import mcp_types  # type: ignore[import-not-found, unused-ignore]
from anthropic.types import (  # type: ignore[import-not-found, unused-ignore]
    Message,
    MessageParam,
    RawMessageStreamEvent,
)
from cohere.types import ToolMessageV2  # type: ignore[import-not-found, unused-ignore]
from cohere.v2.types import V2ChatResponse, V2ChatStreamResponse  # type: ignore[import-not-found, unused-ignore]
from google.genai.types import Content, GenerateContentResponse  # type: ignore[import-not-found, unused-ignore]
from mistralai.client.models import (  # type: ignore[import-not-found, unused-ignore]
    ChatCompletionResponse,
    CompletionEvent,
    ToolMessage,
)
from ollama import ChatResponse  # type: ignore[import-not-found, unused-ignore]
from ollama import Message as OllamaMessage
from openai.types.chat import (  # type: ignore[import-not-found, unused-ignore]
    ChatCompletion,
    ChatCompletionChunk,
    ChatCompletionToolMessageParam,
)
from openai.types.responses import (  # type: ignore[import-not-found, unused-ignore]
    Response,
    ResponseInputItemParam,
    ResponseStreamEvent,
)
from pydantic import TypeAdapter

from tests.providers.vendors.judges import same

Make = Callable[[Any], Any]

_MODEL = botocore.session.get_session().get_service_model("bedrock-runtime")


def _of_bedrock(shape: str) -> Make:
    def make(data: Any) -> Any:
        report = botocore.validate.ParamValidator().validate(data, _MODEL.shape_for(shape))
        if report.has_errors():
            raise ValueError(report.generate_report())
        return data

    return make


def _adapted(of: Any) -> Make:
    return TypeAdapter(of).validate_python


EVENTS: dict[str, Make] = {
    "anthropic": _adapted(RawMessageStreamEvent),
    "openai": ChatCompletionChunk.model_validate,
    "openai-responses": _adapted(ResponseStreamEvent),
    "gemini": GenerateContentResponse.model_validate,
    "bedrock": _of_bedrock("ConverseStreamOutput"),
    "mistral": CompletionEvent.model_validate,
    "cohere": _adapted(V2ChatStreamResponse),
    "ollama": ChatResponse.model_validate,
}
WHOLE: dict[str, Make] = {
    "anthropic": Message.model_validate,
    "openai": ChatCompletion.model_validate,
    "openai-responses": Response.model_validate,
    "gemini": GenerateContentResponse.model_validate,
    "bedrock": lambda data: data,
    "mistral": ChatCompletionResponse.model_validate,
    "cohere": V2ChatResponse.model_validate,
    "ollama": ChatResponse.model_validate,
}


def _typed(of: Any) -> Callable[[Any], str]:
    adapter = TypeAdapter(of)

    def judge(data: Any) -> str:
        back = adapter.dump_python(adapter.validate_python(data), mode="json")
        return str(same(back, data))

    return judge


def _modeled(model: Any, *, unknown: tuple[str, ...] = ()) -> Callable[[Any], str]:
    def judge(data: Any) -> str:
        back = model.model_validate(data).model_dump(by_alias=True, exclude_unset=True, mode="json")
        known = {key: value for key, value in data.items() if key not in unknown}
        return str(same({key: value for key, value in back.items() if key not in unknown}, known))

    return judge


def _bedrock_message(data: Any) -> str:
    _of_bedrock("Message")(data)
    return ""


ANSWERS: dict[str, Callable[[Any], str]] = {
    "anthropic": _typed(MessageParam),
    "openai": _typed(ChatCompletionToolMessageParam),
    "openai-responses": _typed(ResponseInputItemParam),
    "gemini": _modeled(Content),
    "bedrock": _bedrock_message,
    "mistral": _modeled(ToolMessage),
    "cohere": _modeled(ToolMessageV2, unknown=("role",)),
    "ollama": _modeled(OllamaMessage),
    "mcp": _modeled(mcp_types.CallToolResult),
}
