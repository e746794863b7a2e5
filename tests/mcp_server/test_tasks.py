"""Tasks: calls that go on while the client does something else."""

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mcp_server.conftest import begun, ended
from tests.mcp_server.talk import TASKS, Lines, lines, meta, until
from toolkeep import Keep, tool
from toolkeep.mcp_server import tasks, tools_call
from toolkeep.mcp_server.client_context import current_client
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.detached_requests import DetachedRequest
from toolkeep.mcp_server.dispatch import McpServer

ASKABLE: dict[str, Any] = {**TASKS, "elicitation": {}}


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls become tasks at once."""
    monkeypatch.setattr(tools_call, "MCP_TASK_AFTER_SECONDS", 0.0)


def run(keep: Keep, act: Any) -> Any:
    async def talk() -> Any:
        server = McpServer(keep)
        async with lines(server) as client:
            found = await act(client)
        server.close()
        return found

    return asyncio.run(talk())


async def get(client: Lines, task: str, capabilities: Any = None) -> dict[str, Any]:
    answer = await client.modern("tasks/get", {"taskId": task}, capabilities or TASKS)
    result: dict[str, Any] = answer["result"]
    return result


async def start(client: Lines, label: str, capabilities: Any = None) -> str:
    params = {"name": "wait_for_ever", "arguments": {"label": label}}
    created = (await client.modern("tools/call", params, capabilities or TASKS))["result"]
    assert created["resultType"] == "task"
    assert isinstance(created["ttlMs"], int)
    name: str = created["taskId"]
    return name


@pytest.mark.spec("MCP-1")
def test_a_long_call_becomes_a_task_that_can_be_cancelled(keep: Keep) -> None:
    async def act(client: Lines) -> Any:
        task = await start(client, "long")
        working = await get(client, task)
        await until(lambda: begun)
        ack = (await client.modern("tasks/cancel", {"taskId": task}, TASKS))["result"]
        await until(lambda: ended)
        again = (await client.modern("tasks/cancel", {"taskId": task}, TASKS))["result"]
        return working["status"], ack["resultType"], again["resultType"], (await get(client, task))["status"]

    assert run(keep, act) == ("working", "complete", "complete", "cancelled")


def test_closing_the_connection_does_not_end_a_task(keep: Keep) -> None:
    async def talk() -> Any:
        server = McpServer(keep)
        async with lines(server) as client:
            task = await start(client, "goes on")
            await until(lambda: begun)
        async with lines(server) as client:
            status = (await get(client, task))["status"]
        return status, list(ended)

    assert asyncio.run(talk()) == ("working", [])


def test_a_client_that_knows_no_tasks_gets_none(keep: Keep) -> None:
    async def act(client: Lines) -> Any:
        return await client.modern(
            "tools/call", {"name": "echo", "arguments": {"text": "x"}}, {"elicitation": {}}
        )

    assert run(keep, act)["result"]["resultType"] == "complete"


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_tasks_are_for_clients_that_know_them(keep: Keep, method: str) -> None:
    async def act(client: Lines) -> Any:
        task = await start(client, "x")
        return await client.modern(method, {"taskId": task}, {})

    assert run(keep, act)["error"]["code"] == -32021


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_the_task_of_another_agent_is_not_there(keep: Keep, method: str) -> None:
    keep.declare_agent("other")

    async def talk() -> Any:
        mine, other = McpServer(keep), McpServer(keep, agent="other")
        other.calling = mine.calling
        other._handlers = other._by_era()
        async with lines(mine) as client, lines(other) as thief:
            task = await start(client, "mine")
            stolen = await thief.modern(method, {"taskId": task}, TASKS)
            invented = await thief.modern(method, {"taskId": "x" * 32}, TASKS)
            status = (await get(client, task))["status"]
        mine.close()
        return stolen["error"] == invented["error"], stolen["error"]["code"], status

    assert asyncio.run(talk()) == (True, -32602, "working")


@pytest.mark.parametrize("task", [None, 5, "", [], "nothing"])
def test_an_unknown_task_is_an_error(keep: Keep, task: Any) -> None:
    answer = run(keep, lambda client: client.modern("tasks/get", {"taskId": task}, TASKS))
    assert answer["error"]["code"] == -32602


def test_a_task_that_asks_goes_on_with_the_answer(keep: Keep) -> None:
    async def act(client: Lines) -> Any:
        created = (await client.modern("tools/call", {"name": "ask_name"}, ASKABLE))["result"]
        if created["resultType"] == "input_required":  # it asked before it became a task
            return "Hello, Ada"
        task = created["taskId"]
        asking = await get(client, task, ASKABLE)
        while asking["status"] == "working":
            asking = await get(client, task, ASKABLE)
        assert list(asking["inputRequests"]) == ["name"]
        answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        await client.modern("tasks/update", {"taskId": task, "inputResponses": answers}, ASKABLE)
        done = asking
        while done["status"] in ("working", "input_required"):
            done = await get(client, task, ASKABLE)
        return done["result"]["content"][0]["text"]

    assert run(keep, act) == "Hello, Ada"


def test_what_breaks_in_a_task_is_an_error_of_it(keep: Keep) -> None:
    @tool(side_effects=[])
    async def breaks() -> str:
        """Break."""
        client = current_client()
        if client is not None:
            client.start_task()
            await asyncio.sleep(0)
            raise client.fail(-32050, "broken", {"why": "it is"})
        return "never"

    keep.register(breaks)

    async def act(client: Lines) -> Any:
        task = (await client.modern("tools/call", {"name": "breaks"}, TASKS))["result"]["taskId"]
        done = await get(client, task)
        while done["status"] == "working":
            done = await get(client, task)
        return done["status"], done["error"], "result" in done

    assert run(keep, act) == (
        "failed",
        {"code": -32050, "message": "broken", "data": {"why": "it is"}},
        False,
    )


# --- changes are told to those who asked ---------------------------------------------------------


def listen(client: Lines, tasks: Any, capabilities: Any = None) -> None:
    wanted = {"notifications": {"taskIds": tasks}, "_meta": meta(capabilities or ASKABLE)}
    client.begin("subscriptions/listen", wanted)


def told(client: Lines) -> list[dict[str, Any]]:
    return [one["params"] for one in client.heard if one["method"] == "notifications/tasks"]


def honored(client: Lines) -> Any:
    (first,) = [one for one in client.heard if one["method"].endswith("acknowledged")]
    return first["params"]["notifications"]


@pytest.mark.spec("MCP-1")
def test_a_client_hears_when_its_task_changes(keep: Keep) -> None:
    async def act(client: Lines) -> Any:
        params = {"name": "ask_name"}
        created = (await client.modern("tools/call", params, ASKABLE))["result"]
        task = created["taskId"]
        listen(client, [task])
        await until(lambda: any(one["status"] == "input_required" for one in told(client)))
        (asked,) = [one for one in told(client) if one["status"] == "input_required"]
        answers = {name: {"action": "accept", "content": {"name": "Ada"}} for name in asked["inputRequests"]}
        await client.modern("tasks/update", {"taskId": task, "inputResponses": answers}, ASKABLE)
        await until(lambda: told(client)[-1]["status"] == "completed")
        return (
            honored(client) == {"taskIds": [task]},
            [one["status"] for one in told(client)],
            told(client)[-1],
        )

    is_honored, statuses, last = run(keep, act)
    assert (is_honored, statuses[-3:]) == (True, ["input_required", "working", "completed"])
    assert last["result"]["content"][0]["text"] == "Hello, Ada"


def test_a_cancelled_task_is_told_once(keep: Keep) -> None:
    async def act(client: Lines) -> Any:
        task = await start(client, "long")
        await until(lambda: begun)
        listen(client, [task])
        await client.modern("tasks/cancel", {"taskId": task}, TASKS)
        await until(lambda: ended)
        await get(client, task)
        return [one["status"] for one in told(client)]

    assert run(keep, act) == ["working", "cancelled"]


def test_the_tasks_of_another_agent_are_told_to_nobody_else(keep: Keep) -> None:
    keep.declare_agent("other")

    async def talk() -> Any:
        mine, other = McpServer(keep), McpServer(keep, agent="other")
        other.calling, other.hub = mine.calling, mine.hub
        other._handlers = other._by_era()
        async with lines(mine) as client, lines(other) as thief:
            task = await start(client, "mine")
            await until(lambda: begun)
            listen(thief, [task, "x", 7, None])
            await client.modern("tasks/cancel", {"taskId": task}, TASKS)
            await until(lambda: ended)
            await get(client, task)
            found = honored(thief), told(thief)
        mine.close()
        return found

    assert asyncio.run(talk()) == ({}, [])


@pytest.mark.parametrize("wanted", [None, "x", {}, [7], [["x"]]])
def test_what_names_no_tasks_is_not_honored(keep: Keep, wanted: Any) -> None:
    async def act(client: Lines) -> Any:
        listen(client, wanted)
        await until(lambda: client.heard)
        return honored(client)

    assert run(keep, act) == {}


def test_a_client_that_knows_no_tasks_hears_of_none(keep: Keep) -> None:
    async def act(client: Lines) -> Any:
        task = await start(client, "x")
        listen(client, [task], {"elicitation": {}})
        await until(lambda: client.heard)
        return honored(client)

    assert run(keep, act) == {}


# --- how many, and how much of them --------------------------------------------------------------


async def given(text: str) -> str:
    return text


async def task_of(held: tasks.Tasks, agent: str, text: str = "") -> str:
    """A task that gives a text and has ended, or one that goes on where there is none."""
    running = DetachedRequest(Connection(agent, is_modern=True), lambda _: None, {})
    running.start(given(text) if text else asyncio.Event().wait())
    made = await held.create(agent, running, lambda ended: {"text": ended.task.result()})
    name: str = made["taskId"]
    if text:
        await until(running.task.done)
        await asyncio.sleep(0)
    return name


async def known(held: tasks.Tasks, agent: str, *names: str) -> list[bool]:
    connection = Connection(agent, is_modern=True)
    connection.capabilities = TASKS
    found = await held.own(connection, list(names))
    return [name in found for name in names]


def test_the_oldest_results_of_an_agent_give_way_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MCP_AGENT_TASK_BYTES", 250)

    async def act() -> Any:
        held = tasks.Tasks()
        other, runs = await task_of(held, "b", "x" * 100), await task_of(held, "a")
        mine = [await task_of(held, "a", "x" * 100) for _ in range(4)]
        found = await known(held, "b", other), await known(held, "a", runs, *mine)
        held.close()
        return found

    assert asyncio.run(act()) == ([True], [True, False, False, True, True])


def test_a_result_that_is_larger_than_all_of_it_is_kept_until_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "MCP_AGENT_TASK_BYTES", 50)

    async def act() -> Any:
        held = tasks.Tasks()
        first = await task_of(held, "a", "x" * 100)
        was_known = await known(held, "a", first)
        return was_known, await known(held, "a", first, await task_of(held, "a", "x" * 100))

    assert asyncio.run(act()) == ([True], [False, True])


def test_an_agent_with_too_many_tasks_takes_no_room_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "MCP_AGENT_TASKS", 2)

    async def act() -> Any:
        held = tasks.Tasks()
        first = await task_of(held, "a", "over")
        await task_of(held, "a")
        had_room = held.has_room("a"), await known(held, "a", first)
        await task_of(held, "a")
        found = held.has_room("a"), held.has_room("b")
        held.close()
        return had_room, found

    assert asyncio.run(act()) == ((True, [False]), (False, True))


def test_who_begins_tasks_without_end_leaves_nothing_of_those_that_gave_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "MCP_AGENT_TASKS", 2)
    timers: list[asyncio.TimerHandle] = []

    async def act() -> int:
        loop = asyncio.get_running_loop()
        begin = loop.call_later

        def noted(*args: Any) -> asyncio.TimerHandle:
            timers.append(begin(*args))
            return timers[-1]

        held = tasks.Tasks()
        for _ in range(10):
            assert held.has_room("a")
            with monkeypatch.context() as patch:
                patch.setattr(loop, "call_later", noted)
                await task_of(held, "a", "over")
        left = sum(not timer.cancelled() for timer in timers)
        held.close()
        return left

    assert (asyncio.run(act()), len(timers)) == (2, 10)


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_of_a_task_that_has_ended_only_its_result_is_kept_also_before_anybody_looks_for_garbage() -> None:
    async def act() -> Any:
        held = tasks.Tasks()
        running = DetachedRequest(Connection("a", is_modern=True), lambda _: None, {})
        running.start(given("much"))
        await held.create("a", running, lambda ended: {"text": ended.task.result()})
        await until(running.task.done)
        await asyncio.sleep(0)
        gone = weakref.ref(running)
        del running
        return gone()

    assert asyncio.run(act()) is None
