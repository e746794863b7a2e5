"""langchain-core: a function made a tool with `@tool`."""

from langchain_core.exceptions import (  # type: ignore[import-not-found, unused-ignore]
    OutputParserException,
)
from langchain_core.output_parsers.openai_tools import (  # type: ignore[import-not-found, unused-ignore]
    parse_tool_call,
)
from langchain_core.tools import tool  # type: ignore[import-not-found, unused-ignore]
from pydantic import ValidationError

from rivals.contestant import Check, Function


class LangchainTool:
    """A structured tool, default settings."""

    name = "langchain-core"
    package = "langchain-core"
    sent = (
        "tools take a dict: the raw text goes through langchain-core's own parse_tool_call, then tool.invoke"
    )
    timed = "parse_tool_call, then tool._parse_input"
    takes_text = True

    def send(self, function: Function, raw: str) -> str:
        made = tool(function)
        try:
            return str(made.invoke(parse_tool_call(_raw_call(function.__name__, raw))))
        except (OutputParserException, ValidationError) as error:
            return str(error)

    def check(self, function: Function) -> Check:
        parse_input = tool(function)._parse_input  # noqa: SLF001 -- invoke() would run the body and callbacks
        name = function.__name__

        def check(raw: str) -> object:
            call = parse_tool_call(_raw_call(name, raw))
            return parse_input(call["args"], call["id"])

        return check


def _raw_call(name: str, raw: str) -> dict[str, object]:
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": raw}}
