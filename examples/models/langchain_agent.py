"""A loop with a model of LangChain and the tools of a keep."""

import asyncio

from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI

from toolkeep import open_keep, tool
from toolkeep.frameworks.langchain import answer_message, langchain_tools


@tool(effects="none")
def find_book(title: str, shelf: int | None = None) -> dict[str, int]:
    """Find a book in the library.

    Args:
        title: Its title.
        shelf: Look only on this shelf.
    """
    return {"shelf": shelf or 7, "place": 2}


async def main() -> str:
    messages = [HumanMessage("Where is Emma?")]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        model = ChatOpenAI(model="gpt-5").bind_tools(langchain_tools(keep))
        while True:
            message = await model.ainvoke(messages)
            answers = await answer_message(keep, message, session="example")
            if not answers:
                return message.text
            messages += [message, *answers]


if __name__ == "__main__":
    print(asyncio.run(main()))
