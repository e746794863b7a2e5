"""An agent with Gemini."""

import asyncio

from google import genai

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
    client = genai.Client()
    contents = [{"role": "user", "parts": [{"text": "Where is Emma?"}]}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await client.aio.models.generate_content(
                model="gemini-3-pro", contents=contents, config={"tools": keep.tools_for("gemini")}
            )
            contents.append(response.candidates[0].content)
            answers = await keep.answer("gemini", response, session="example")
            if not answers:
                return response.text or ""
            contents += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
