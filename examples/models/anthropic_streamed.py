"""An agent with Claude that shows its words while they come."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from anthropic import AsyncAnthropic

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
    client = AsyncAnthropic()
    messages: list[Any] = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            async with client.messages.stream(
                model="claude-sonnet-4-5",
                max_tokens=1024,
                messages=messages,
                tools=keep.tools_for("anthropic"),
            ) as stream:
                answers = await keep.answer_stream("anthropic", shown(stream), session="example")
                message = await stream.get_final_message()
            messages.append({"role": "assistant", "content": message.content})
            if not answers:
                return "".join(block.text for block in message.content if block.type == "text")
            messages += answers


async def shown(stream: Any) -> AsyncIterator[Any]:
    """The events of a stream; its words are printed as they come."""
    async for event in stream:
        if event.type == "text":
            print(event.text, end="", flush=True)
        yield event


if __name__ == "__main__":
    print(asyncio.run(main()))
