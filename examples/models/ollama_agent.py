"""An agent with a model that Ollama runs."""

import asyncio

from ollama import AsyncClient

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
    client = AsyncClient()
    messages = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await client.chat(model="qwen3", messages=messages, tools=keep.tools_for("ollama"))
            messages.append(response.message.model_dump(exclude_none=True))
            answers = await keep.answer("ollama", response, session="example")
            if not answers:
                return response.message.content or ""
            messages += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
