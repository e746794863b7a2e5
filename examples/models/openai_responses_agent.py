"""An agent with OpenAI's Responses."""

import asyncio

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
    items = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await client.responses.create(
                model="gpt-5", input=items, tools=keep.tools_for("openai-responses", strict=True)
            )
            items += response.model_dump(exclude_none=True)["output"]
            answers = await keep.answer("openai-responses", response, session="example", strict=True)
            if not answers:
                return response.output_text
            items += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
