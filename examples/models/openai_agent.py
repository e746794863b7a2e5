"""An agent with OpenAI's Chat Completions, in strict mode."""

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
    messages = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await client.chat.completions.create(
                model="gpt-5", messages=messages, tools=keep.tools_for("openai", strict=True)
            )
            message = response.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            answers = await keep.answer("openai", response, session="example", strict=True)
            if not answers:
                return message.content or ""
            messages += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
