"""A keep's tools in LangChain."""

import asyncio
from typing import Any

from langchain_core.messages import AIMessage  # type: ignore[import-not-found, unused-ignore]

from tests.frameworks.programs import shop
from toolkeep.frameworks.langchain import answer_message, langchain_tools


def call(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": "call1", "type": "tool_call"}


async def through_tools() -> dict[str, Any]:
    keep, record = shop.opened()
    tools = {tool.name: tool for tool in langchain_tools(keep, session="s1")}
    answers = [await tools[name].ainvoke(call(name, arguments)) for name, arguments in shop.CALLS]
    same = shop.left(record) == await shop.directly()
    picture = await tools["picture"].ainvoke(call("picture", {}))
    return {
        "statuses": [answer.status for answer in answers],
        "first": answers[0].content,
        "artifact": answers[0].artifact.hash != "",
        "same records": same,
        "picture": picture.content[1]["mime_type"],
    }


async def through_message() -> dict[str, Any]:
    keep, record = shop.opened()
    calls = [{**call(name, arguments), "id": f"c{n}"} for n, (name, arguments) in enumerate(shop.CALLS)]
    broken = {
        "name": "look",
        "args": '{"place": "a", "place": "b"}',
        "id": "c9",
        "error": None,
        "type": "invalid_tool_call",
    }
    message = AIMessage(content="", tool_calls=calls, response_metadata={"stop_reason": "tool_use"})
    answers = await answer_message(keep, message, session="s1")
    same = shop.left(record) == await shop.directly()
    message = AIMessage(
        content="", invalid_tool_calls=[broken], response_metadata={"finish_reason": "tool_calls"}
    )
    (refused,) = await answer_message(keep, message, session="s1")
    return {
        "ids": [answer.tool_call_id for answer in answers],
        "statuses": [answer.status for answer in answers],
        "same records": same,
        "invalid": [refused.status, "same key twice" in refused.content],
    }


async def cut(metadata: dict[str, Any]) -> list[Any]:
    keep, record = shop.opened()
    message = AIMessage(content="", tool_calls=[call("look", {"place": "a"})], response_metadata=metadata)
    (answer,) = await answer_message(keep, message, session="s1")
    codes = [entry for entry in shop.left(record) if "ACODE-TSR-050" in entry]
    return [answer.status, shop.ran, [len(shop.left(record)), len(codes)] == await shop.cut_directly()]


async def asked() -> list[int]:
    """How many calls a person is asked about at once: of a message, and of tools that run at once."""
    keep, _ = shop.opened()
    calls = [{**call(name, arguments), "id": f"c{n}"} for n, (name, arguments) in enumerate(shop.BURNS)]
    message = AIMessage(content="", tool_calls=calls, response_metadata={"stop_reason": "tool_use"})
    await answer_message(keep, message, session="s1")
    tools = {tool.name: tool for tool in langchain_tools(keep, session="s1")}
    await asyncio.gather(*(tools[one["name"]].ainvoke(one) for one in calls))
    return list(shop.Desk.asked)


async def main() -> dict[str, Any]:
    reasons: list[dict[str, Any]] = [
        {"stop_reason": "max_tokens"}, {"finish_reason": "length"}, {"finish_reason": "MAX_TOKENS"}, {},
    ]  # fmt: skip
    return {
        "tools": await through_tools(),
        "message": await through_message(),
        "asked at once": await asked(),
        "cut": [await cut(metadata) for metadata in reasons],
    }
