"""An agent with Amazon Bedrock."""

import asyncio

import boto3

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
    client = boto3.client("bedrock-runtime")
    messages = [{"role": "user", "content": [{"text": "Where is Emma?"}]}]
    with open_keep(built_in=False) as keep:
        keep.register(find_book)
        while True:
            response = await asyncio.to_thread(
                client.converse,
                modelId="anthropic.claude-sonnet-4-5",
                messages=messages,
                toolConfig={"tools": keep.tools_for("bedrock", cache=True)},
            )
            messages.append(response["output"]["message"])
            answers = await keep.answer("bedrock", response, session="example")
            if not answers:
                return "".join(block.get("text", "") for block in messages[-1]["content"])
            messages += answers


if __name__ == "__main__":
    print(asyncio.run(main()))
