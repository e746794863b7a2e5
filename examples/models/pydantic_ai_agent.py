"""An agent of pydantic-ai with the tools of a keep."""

import asyncio

from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel

from toolkeep import open_keep, tool
from toolkeep.frameworks.pydantic_ai import KeepToolset


@tool(effects="none")
def find_book(title: str, shelf: int | None = None) -> dict[str, int]:
    """Find a book in the library.

    Args:
        title: Its title.
        shelf: Look only on this shelf.
    """
    return {"shelf": shelf or 7, "place": 2}


async def main() -> str:
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        agent = Agent(OpenAIChatModel("gpt-5"), toolsets=[KeepToolset(keep, session="example")])
        result = await agent.run("Where is Emma?")
        return result.output


if __name__ == "__main__":
    print(asyncio.run(main()))
