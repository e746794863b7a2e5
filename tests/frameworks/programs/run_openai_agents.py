"""A keep's tools in the OpenAI Agents SDK, with a model that says what it is told to."""

import json
from typing import Any

from agents import (  # type: ignore[import-not-found, unused-ignore]
    Agent,
    Model,
    ModelResponse,
    Runner,
    Usage,
    set_tracing_disabled,
)
from openai.types.responses import (  # type: ignore[import-not-found, unused-ignore]
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from tests.frameworks.programs import shop
from toolkeep.frameworks.openai_agents import agents_tools

set_tracing_disabled(True)


class Scripted(Model):  # type: ignore[misc, unused-ignore]
    def __init__(self, calls: list[Any]) -> None:
        self._turns = [calls, None]

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        calls = self._turns.pop(0)
        text = ResponseOutputText(text="done", type="output_text", annotations=[])
        last = ResponseOutputMessage(
            id="m1", content=[text], role="assistant", status="completed", type="message"
        )
        return ModelResponse(output=calls or [last], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def call(number: int, name: str, text: str, status: str = "completed") -> Any:
    return ResponseFunctionToolCall(
        type="function_call", call_id=f"c{number}", name=name, arguments=text, status=status
    )


async def run(calls: list[Any]) -> tuple[list[Any], Any]:
    keep, record = shop.opened()
    agent = Agent(name="writer", tools=agents_tools(keep, session="s1"), model=Scripted(calls))
    result = await Runner.run(agent, "go")
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"], record


async def main() -> dict[str, Any]:
    outputs, record = await run(
        [call(n, name, json.dumps(given)) for n, (name, given) in enumerate(shop.CALLS)]
    )
    same = shop.left(record) == await shop.directly()
    twice, _ = await run([call(1, "look", '{"place": "a", "place": "b"}')])
    picture, _ = await run([call(1, "picture", "")])
    cut, record = await run([call(1, "look", '{"place": "a"}', "incomplete")])
    ran_when_cut = list(shop.ran)
    codes = [entry for entry in shop.left(record) if "ACODE-TSR-050" in entry]
    cut_same = [len(shop.left(record)), len(codes)] == await shop.cut_directly()
    await run([call(n, name, json.dumps(given)) for n, (name, given) in enumerate(shop.BURNS)])
    return {
        "asked at once": list(shop.Desk.asked),
        "errors": [str(output).startswith("ERROR: ") for output in outputs],
        "first": outputs[0],
        "same records": same,
        "twice": "same key twice" in twice[0],
        "picture": type(picture[0][1]).__name__,
        "cut": [cut[0].startswith("ERROR: "), ran_when_cut, cut_same],
    }
