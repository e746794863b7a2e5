"""An agent with Claude."""

import asyncio

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
    messages = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await client.messages.create(
                model="claude-sonnet-4-5",
                max_tokens=1024,
                messages=messages,
                tools=keep.tools_for("anthropic", strict=True, cache=True),
            )
            messages.append({"role": "assistant", "content": response.content})
            answers = await keep.answer("anthropic", response, session="example", strict=True)
            if not answers:
                return "".join(block.text for block in response.content if block.type == "text")
            messages += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
