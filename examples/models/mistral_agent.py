"""An agent with Mistral."""

import asyncio
import os

from mistralai.client import Mistral

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
    client = Mistral(
        api_key=os.environ["MISTRAL_API_KEY"],
        server_url=os.environ.get("MISTRAL_SERVER_URL", "https://api.mistral.ai"),
    )
    messages = [{"role": "user", "content": "Where is Emma?"}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await client.chat.complete_async(
                model="mistral-large-latest", messages=messages, tools=keep.tools_for("mistral")
            )
            message = response.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            answers = await keep.answer("mistral", response, session="example")
            if not answers:
                return str(message.content)
            messages += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
