"""Calls that wait for a person hold up nobody else who calls the same tool."""

import asyncio

import pytest

from toolkeep import Keep, tool
from toolkeep.approval.question import Question
from toolkeep.limits import CallLimits


@tool(danger="medium")
async def send(text: str) -> str:
    """Send a text.

    Args:
        text: What to send.
    """
    return f"sent {text}"


@pytest.mark.spec("EXE-7")
def test_calls_of_one_agent_that_wait_for_a_person_do_not_take_the_tool_from_another() -> None:
    asked: list[str] = []

    async def act() -> str:
        may_answer = asyncio.Event()

        async def approver(question: Question) -> bool:
            asked.append(question.agent)
            if question.agent == "slow":
                await may_answer.wait()
            return True

        with Keep(approver=approver, call_limits=CallLimits(tool_concurrency=1)) as keep:
            keep.register(send)
            for agent in ("slow", "quick"):
                keep.declare_agent(agent)
            waiting = asyncio.create_task(keep.call("send", {"text": "late"}, agent="slow"))
            while not asked:  # noqa: ASYNC110 -- the approver knows nothing of tests
                await asyncio.sleep(0)
            async with asyncio.timeout(20):
                quick = await keep.call("send", {"text": "early"}, agent="quick")
            may_answer.set()
            return f"{quick.value}, {(await waiting).value}"

    assert asyncio.run(act()) == "sent early, sent late"
