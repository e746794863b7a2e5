"""An agent with Cohere."""

import asyncio

from cohere import AsyncClientV2

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
    client = AsyncClientV2()
    messages = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await client.chat(
                model="command-a-03-2025", messages=messages, tools=keep.tools_for("cohere")
            )
            messages.append(response.message.model_dump(exclude_none=True))
            answers = await keep.answer("cohere", response, session="example")
            if not answers:
                return "".join(block.text for block in response.message.content or [])
            messages += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
