"""An agent with a model that vLLM runs, streamed, held to strict schemas."""

import asyncio
from typing import Any

from openai import AsyncOpenAI

from toolkeep import open_keep, tool


@tool(effects="none")
def find_book(title: str, shelf: int | None = None) -> dict[str, int]:
    """Find a book in the library.

    Args:
        title: Its title.
        shelf: Look only on this shelf.
    """
    return {"shelf": shelf or 7, "place": 2}


async def main() -> str:
    client = AsyncOpenAI()
    messages: list[Any] = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            stream = await client.chat.completions.create(
                model="qwen3", messages=messages, tools=keep.tools_for("vllm", strict=True), stream=True
            )
            chunks = [chunk async for chunk in stream]
            answers = await keep.answer_stream("vllm", chunks, session="example", strict=True)
            message = put_together(chunks)
            if not answers:
                return str(message["content"])
            messages += [message, *answers]


def put_together(chunks: list[Any]) -> dict[str, Any]:
    """The message of a stream, as the next request wants to see it again."""
    content, calls = "", {}
    for delta in (chunk.choices[0].delta for chunk in chunks if chunk.choices):
        content += delta.content or ""
        for piece in delta.tool_calls or []:
            call = calls.setdefault(
                piece.index, {"type": "function", "function": {"name": "", "arguments": ""}}
            )
            call["id"] = call.get("id") or piece.id
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    return {**message, "tool_calls": list(calls.values())} if calls else message


if __name__ == "__main__":
    print(asyncio.run(main()))
