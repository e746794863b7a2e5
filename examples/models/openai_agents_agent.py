"""An agent of the OpenAI Agents SDK with the tools of a keep."""

import asyncio

from agents import Agent, Runner

from toolkeep import open_keep, tool
from toolkeep.frameworks.openai_agents import agents_tools


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
        agent = Agent(name="librarian", model="gpt-5", tools=agents_tools(keep, session="example"))
        result = await Runner.run(agent, "Where is Emma?")
        return str(result.final_output)


if __name__ == "__main__":
    print(asyncio.run(main()))
