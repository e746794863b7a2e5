"""Calls that one server answered with 202, polled, cancelled and submitted through another (SCL-2)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.conftest import PICK, TOOLS, begun, noted
from tests.server.talk import Client, Response, served, until
from tests.storage.cluster import Cluster
from tests.storage.two_keeps import execute, kill, two_keeps
from toolkeep import Code, Keep, ToolDefinition, tool
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.storage.postgres import shared_database


@pytest.fixture
def keeps(postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Keep, Keep]]:
    noted.clear()
    begun.clear()
    with two_keeps(postgres, tmp_path, monkeypatch, approver=defer_to_inbox, approval_wait_s=60) as keeps:
        for keep in keeps:
            keep.register(*TOOLS, send_later, ToolDefinition.from_dict(PICK))
            for agent in ("ada", "bob"):
                keep.declare_agent(agent)
        yield keeps


def talk(keeps: tuple[Keep, Keep], act: Callable[[Client, Client], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        async with served(keeps[0]) as one, served(keeps[1]) as other:
            return await act(one, other)

    return asyncio.run(whole())


gates: list[asyncio.Event] = []


@tool(danger="medium")
async def send_later(text: str) -> str:
    """Send a note when the gate opens.

    Args:
        text: What it says.
    """
    begun.append(text)
    await gates[-1].wait()
    return text


def seen(answer: Response) -> Any:
    return answer.data["value"] if answer.status == 200 else answer.code


async def ask(client: Client, text: str, name: str = "send_note") -> tuple[str, str]:
    """A call of ada that waits, and its question."""
    asked = await client.as_agent("ada").call(name, {"text": text})
    return f"/v1/calls/{asked.data['call_id']}", asked.data["approval"]


@pytest.mark.spec("SCL-2")
def test_a_waiting_call_is_polled_and_cancelled_through_another_server(keeps: tuple[Keep, Keep]) -> None:
    async def act(one: Client, other: Client) -> Any:
        path, question = await ask(one, "first")
        ada = other.as_agent("ada")
        before = await ada.get(path)
        polled = ada.begin("GET", f"{path}?wait=20")
        await one.post(f"/v1/approvals/{question}:decide", {"verdict": "approve"})
        after = await polled.answered()
        strangers = [(await client.as_agent("bob").get(path)).status for client in (one, other)]
        second, _ = await ask(one, "second")
        cancelled = (await ada.post(f"{second}:cancel")).status
        await until(lambda: not one.app.service.calls.in_flight)
        ends = [(await client.as_agent("ada").get(second)).status for client in (one, other)]
        return before.status, after.status, after.data["value"], strangers, cancelled, ends

    assert talk(keeps, act) == (202, 200, "sent first", [404, 404], 202, [404, 404])
    assert noted == ["first"]


def test_a_call_of_a_server_that_is_gone_has_an_unknown_outcome_and_keeps_it(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(one: Client, other: Client) -> Any:
        gates.append(asyncio.Event())
        running, question = await ask(one, "late", "send_later")
        path, answered = await ask(one, "early")
        waiting, _ = await ask(one, "never")
        for one_question in (question, answered):
            await one.post(f"/v1/approvals/{one_question}:decide", {"verdict": "approve"})
        mine, ada = one.as_agent("ada"), other.as_agent("ada")
        await mine.get(f"{path}?wait=20")
        kill(postgres, keeps[0])
        calls = (running, waiting, path)
        before = [await ada.get(one_path) for one_path in calls]
        gates[-1].set()  # it was only cut off
        late = await mine.get(f"{running}?wait=20")
        await mine.post(f"{waiting}:cancel")
        await until(lambda: not one.app.service.calls.in_flight)
        after = [await ada.get(one_path) for one_path in calls]
        cancelled = await ada.post(f"{running}:cancel")
        return late.data["value"], [seen(one_answer) for one_answer in (*before, *after, cancelled)]

    unknown = Code.OUTCOME_UNKNOWN.value
    kept = [unknown, unknown, "sent early"]
    assert talk(keeps, act) == ("late", [*kept, *kept, unknown])


def test_calls_that_end_while_the_database_is_away_have_ended_on_all_servers_once_it_is_back(
    postgres: Cluster, keeps: tuple[Keep, Keep], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_database, "_PATIENCE_SECONDS", 0.0)

    async def act(one: Client, other: Client) -> Any:
        gates.append(asyncio.Event())
        path, question = await ask(one, "late", "send_later")
        waiting, _ = await ask(one, "never")
        ada = other.as_agent("ada")
        await one.post(f"/v1/approvals/{question}:decide", {"verdict": "approve"})
        await until(lambda: "late" in begun)
        postgres.stop()
        gates[-1].set()
        await until(lambda: one.app.service.calls.in_flight == 1)
        one.app.service.calls.withdraw()
        await until(lambda: not one.app.service.calls.in_flight)
        postgres.start()
        answers = []
        async with asyncio.timeout(20):
            for polled in (path, waiting):
                while (answer := await ada.get(polled)).status in (202, 503):
                    pass
                answers.append((answer.status, answer.data.get("value")))
        return answers

    assert talk(keeps, act) == [(200, "late"), (404, None)]


@pytest.mark.parametrize("forged", ["agent = 'bob'", "state = 'forged'", "is_over = true"])
def test_a_forged_call_is_as_unknown_as_one_that_never_was(
    postgres: Cluster, keeps: tuple[Keep, Keep], forged: str
) -> None:
    async def act(one: Client, other: Client) -> Any:
        path, _ = await ask(one, "x")
        execute(postgres, f"UPDATE shared_work SET {forged}")  # noqa: S608 -- our own
        agent = "bob" if "bob" in forged else "ada"
        return (await other.as_agent(agent).get(path)).status

    assert talk(keeps, act) == 404


def test_the_result_of_a_client_executed_call_is_submitted_through_another_server(
    keeps: tuple[Keep, Keep],
) -> None:
    async def act(one: Client, other: Client) -> Any:
        pending = await one.call("pick_file", {"title": "A file"})
        path = f"/v1/calls/{pending.data['call_id']}:submit"
        stranger = await other.as_agent("bob").post(path, {"value": "b.txt"})
        done = await other.post(path, {"value": "a.txt"})
        again = await other.post(path, {"value": "a.txt"})
        return stranger.code, done.data["value"], again.code

    not_pending = Code.NOT_PENDING.value
    assert talk(keeps, act) == (not_pending, "a.txt", not_pending)
