"""openai-agents: a function made a tool with `@function_tool`."""

import asyncio

from agents import function_tool, set_tracing_disabled  # type: ignore[import-not-found, unused-ignore]
from agents.function_schema import function_schema  # type: ignore[import-not-found, unused-ignore]
from agents.tool import (  # type: ignore[import-not-found, unused-ignore]
    _parse_function_tool_json_input,
)
from agents.tool_context import ToolContext  # type: ignore[import-not-found, unused-ignore]

from rivals.contestant import Check, Function

set_tracing_disabled(disabled=True)


class OpenAiAgentsTool:
    """A function tool, default settings."""

    name = "openai-agents"
    package = "openai-agents"
    sent = (
        "function_tool's on_invoke_tool with the raw text; by default the model reads one fixed sentence "
        "that names no fault"
    )
    timed = "its JSON parsing, its pydantic model and to_call_args"
    takes_text = True

    def send(self, function: Function, raw: str) -> str:
        made = function_tool(function)
        context = ToolContext(None, tool_name=made.name, tool_call_id="call_1", tool_arguments=raw)
        return str(asyncio.run(made.on_invoke_tool(context, raw)))

    def check(self, function: Function) -> Check:
        # Strict mode alters only the schema that the model is shown, and refuses some real ones.
        schema = function_schema(function, strict_json_schema=False)
        model, to_call_args = schema.params_pydantic_model, schema.to_call_args
        name = function.__name__

        def check(raw: str) -> object:
            return to_call_args(model(**_parse_function_tool_json_input(tool_name=name, input_json=raw)))

        return check
