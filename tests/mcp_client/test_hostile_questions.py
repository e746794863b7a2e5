"""Servers that abuse questions, through a keep with its log on disk: what is shown, sent and recorded."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_client.servers import add, opened
from toolkeep import Code, ToolResult
from toolkeep.mcp_client.elicitation import QUESTIONS, ElicitationRequest
from toolkeep.sandbox.launch import interpreter

pytestmark = pytest.mark.spec("MCP-2", "AUD-1")

SERVER = str(Path(__file__).resolve().parent / "upstream.py")
BEGINNING = ["ToolInvoked", "CapabilityCheck", "PolicyDecision", "Approval"]


class World:
    """A project whose server misbehaves, and a person who says yes to everything, or never anything."""

    def __init__(self, project: Path, mode: str, *, answers: bool = True) -> None:
        add(project, "up", "--", interpreter(), "-I", "-S", SERVER, mode)
        self.project = project
        self.heard: list[ElicitationRequest] = []
        self.asked = asyncio.Event()
        self._answers = answers
        self.records: list[list[dict[str, Any]]] = []

    async def person(self, question: ElicitationRequest) -> dict[str, Any]:
        self.heard.append(question)
        self.asked.set()
        if not self._answers:
            await asyncio.Event().wait()
        return {"why": "because"}

    def calls(self, *texts: str, **options: Any) -> list[ToolResult]:
        """Calls one after the other, with the records of each."""

        async def main() -> list[ToolResult]:
            async with opened(self.project, answerer=self.person) as keep:
                keep.declare_agent("ada")
                results = [await keep.call("echo", {"text": text}, agent="ada", **options) for text in texts]
                self.records = [keep.record.records_of(result.call_id) for result in results]
                return results

        return asyncio.run(main())

    def outcomes(self, call: int = 0) -> list[str]:
        """What the log says became of the questions of a call, which ends after them."""
        types = [record["type"] for record in self.records[call]]
        asked = [record["outcome"] for record in self.records[call] if record["type"] == "ServerAsked"]
        assert types == [*BEGINNING, *["ServerAsked"] * len(asked), "ToolCompleted"]
        return asked


def test_of_many_questions_a_few_are_put_and_not_all_are_recorded(tmp_path: Path) -> None:
    world = World(tmp_path, "insists")
    (result,) = world.calls("500")
    assert result.value == f"{QUESTIONS} of 500"
    assert len(world.heard) == QUESTIONS
    assert sorted(world.outcomes()) == ["accept"] * QUESTIONS + ["refused"] * 20


def test_a_flood_of_questions_ends_the_server(tmp_path: Path) -> None:
    world = World(tmp_path, "insists")
    (result,) = world.calls("3000")
    assert result.code is Code.TOOL_FAILED
    assert "more than 2000 unsolicited messages" in result.text
    assert len(world.heard) <= QUESTIONS
    assert len(world.outcomes()) <= QUESTIONS + 20


def test_what_is_asked_after_the_call_is_shown_to_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, "asks later")
    first, second = world.calls("a", "b")
    assert first.value == "heard []"
    assert second.value in ("heard ['decline']", "heard ['cancel']")  # it may come together with the answer
    assert world.heard == []
    assert "accept" not in [*world.outcomes(0), *world.outcomes(1)]


def test_a_server_that_dies_while_a_person_is_asked_leaves_a_whole_record(tmp_path: Path) -> None:
    world = World(tmp_path, "asks and dies", answers=False)
    (result,) = world.calls("a")
    assert result.code is Code.TOOL_FAILED
    assert world.outcomes() == ["cancel"]


def test_a_call_that_is_cancelled_while_a_person_is_asked_leaves_a_whole_record(tmp_path: Path) -> None:
    world = World(tmp_path, "asks for ever", answers=False)

    async def main() -> None:
        async with opened(tmp_path, answerer=world.person) as keep:
            keep.declare_agent("ada")
            call = asyncio.create_task(keep.call("echo", {"text": "a"}, agent="ada"))
            await world.asked.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            entries = list(keep.record.log.read_back())[::-1]
            world.records = [[entry.record for entry in entries if entry.record.get("call")]]

    asyncio.run(main())
    assert world.outcomes() == ["cancel"]


def test_the_time_of_a_person_is_not_that_of_the_call_and_its_own_ends(tmp_path: Path) -> None:
    world = World(tmp_path, "asks for ever")
    began = time.monotonic()
    (result,) = world.calls("a", timeout_s=10)
    assert result.code is Code.TIMED_OUT
    assert time.monotonic() - began < 60
    assert world.outcomes() == ["accept"]


def test_giants_are_cut_or_put_to_nobody(tmp_path: Path) -> None:
    world = World(tmp_path, "asks at length")
    (result,) = world.calls("a")
    assert json.loads(result.value) == ["accept", "accept", "accept", "decline", "decline"]
    assert [len(question.message) for question in world.heard] == [2_000, 4, 4]
    hashes = [record["question_hash"] for record in world.records[0] if record["type"] == "ServerAsked"]
    assert [bool(one) for one in sorted(hashes)] == [False, False, False, True, True]
