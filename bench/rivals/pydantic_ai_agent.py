"""pydantic-ai: a function given to an agent whose model is a local function."""

from pydantic_ai import Agent, Tool  # type: ignore[import-not-found, unused-ignore]
from pydantic_ai.messages import (  # type: ignore[import-not-found, unused-ignore]
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import (  # type: ignore[import-not-found, unused-ignore]
    AgentInfo,
    FunctionModel,
)

from rivals.contestant import Check, Function


class PydanticAiAgent:
    """An agent with one tool, default settings."""

    name = "pydantic-ai"
    package = "pydantic-ai-slim"
    sent = "a whole agent run: a FunctionModel sends the raw text as a ToolCallPart and reads what comes back"
    timed = "Tool.function_schema.validator.validate_json"
    takes_text = True

    def send(self, function: Function, raw: str) -> str:
        replies: list[str] = []

        def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            if len(messages) == 1:
                return ModelResponse(parts=[ToolCallPart(function.__name__, raw)])
            part = messages[-1].parts[-1]
            replies.append(part.model_response() if hasattr(part, "model_response") else str(part.content))
            return ModelResponse(parts=[TextPart("done")])

        Agent(FunctionModel(model), tools=[function]).run_sync("transfer some money")
        return replies[-1]

    def check(self, function: Function) -> Check:
        check: Check = Tool(function).function_schema.validator.validate_json
        return check
