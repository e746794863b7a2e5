"""Two servers on one PostgreSQL: what a client begins at one goes on at the other (SCL-2)."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_server import conftest
from tests.mcp_server.talk import TASKS, Exchange, Http, modern_request, until
from tests.storage.cluster import Cluster
from tests.storage.two_keeps import execute, kill, peers_of, two_keeps
from toolkeep import Keep, ToolContext, tool
from toolkeep.mcp_server.client_approvals import ask_client
from toolkeep.mcp_server.client_context import current_client
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.features import Resource
from toolkeep.mcp_server.http_app import McpApp


class Pair:
    """Two servers, and a client of each that has the same session."""

    def __init__(self, postgres: Cluster, keeps: tuple[Keep, Keep]) -> None:
        self.postgres = postgres
        self.keeps = keeps
        self.apps = [McpApp(McpServer(keep), path="/mcp") for keep in keeps]
        self.one, self.other = (Http(app) for app in self.apps)

    async def handshake(self, capabilities: dict[str, Any] | None = None) -> None:
        await self.one.handshake(capabilities)
        self.other.session = self.one.session

    def kill_one(self) -> None:
        """Have the other server take the first one for dead."""
        kill(self.postgres, self.keeps[0])

    def sql(self, statement: str) -> None:
        execute(self.postgres, statement)


@pytest.fixture
def keeps(postgres: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Keep, Keep]]:
    conftest.begun.clear()
    conftest.ended.clear()
    with two_keeps(postgres, tmp_path, monkeypatch, approver=ask_client) as keeps:
        for keep in keeps:
            keep.register(*conftest.TOOLS, steps, long_job)
        yield keeps


gates: list[asyncio.Queue[str]] = []
"""Lets the tool `steps` go on, a step at a time."""


@tool(side_effects=[])
async def steps(context: ToolContext) -> str:
    """Tell each step."""
    done = 0.0
    while (step := await gates[-1].get()) != "end":
        done += 1
        context.progress(done, None, step)
    return "done"


@tool(side_effects=[])
async def long_job() -> str:
    """Go on as a task, and ask in it."""
    client = current_client()
    assert client is not None
    client.start_task()
    answer = await client.elicit("Go on?", {"type": "object", "properties": {}}, name="go")
    return str(answer["action"])


def run(postgres: Cluster, keeps: tuple[Keep, Keep], act: Callable[[Pair], Coroutine[Any, Any, Any]]) -> Any:
    async def whole() -> Any:
        gates.append(asyncio.Queue())
        pair = Pair(postgres, keeps)
        try:
            return await act(pair)
        finally:
            for app in pair.apps:
                app.close()
            await asyncio.sleep(0)

    return asyncio.run(whole())


def call(name: str, number: int = 5, **arguments: Any) -> dict[str, Any]:
    params = {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


async def ended(exchange: Exchange) -> None:
    """The app has answered: a wait that cancels would have it end, too."""
    done, _ = await asyncio.wait({exchange.task}, timeout=20)
    assert done


def text(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])


# --- sessions ------------------------------------------------------------------------------------


@pytest.mark.spec("SCL-2")
def test_a_session_of_one_server_is_served_by_the_other_and_ends_on_both(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        heard = text((await pair.other.post(call("echo", text="hello"))).message)
        waiting = pair.one.begin(call("wait_for_ever", 6, label="one"))
        await until(lambda: conftest.begun)
        deleted = await pair.other.post(b"", method="DELETE")
        await ended(waiting)
        gone = [(await client.ask("tools/list")).status for client in (pair.one, pair.other)]
        return heard, deleted.status, conftest.ended, gone

    assert run(postgres, keeps, act) == ("hello", 204, ["one"], [404, 404])


def test_a_session_is_no_credential_and_its_row_cannot_be_forged(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        agents = iter(["mcp-other", "mcp-local"])
        pair.apps[1]._identify = lambda _: next(agents)
        found = [(await pair.other.ask("tools/list")).status for _ in range(2)]
        pair.apps[1]._identify = lambda _: "mcp-other"
        pair.sql("UPDATE shared_mcp_sessions SET agent = 'mcp-other'")
        return [*found, (await pair.other.ask("tools/list")).status]

    assert run(postgres, keeps, act) == [404, 200, 404]


def test_a_session_expires_by_the_clock_of_the_database(postgres: Cluster, keeps: tuple[Keep, Keep]) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        pair.sql("UPDATE shared_mcp_sessions SET seen_at = now() - interval '59 minutes'")
        found = (await pair.other.ask("tools/list")).status
        pair.sql("UPDATE shared_mcp_sessions SET seen_at = now() - interval '61 minutes'")
        return found, (await pair.one.ask("tools/list")).status

    assert run(postgres, keeps, act) == (200, 404)


# --- questions and cancellation ------------------------------------------------------------------


def test_a_question_of_one_server_is_answered_through_the_other(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake({"elicitation": {}})
        asking = pair.one.begin(call("ask_name"))
        (question,) = await asking.until(1)
        said = {"action": "accept", "content": {"name": "Ada"}}
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": said}
        statuses = [(await pair.other.post(answer)).status for _ in range(2)]
        await ended(asking)
        return statuses, text(asking.response.message)

    assert run(postgres, keeps, act) == ([202, 400], "Hello, Ada")


def test_a_message_that_no_server_wrote_is_not_acted_on(postgres: Cluster, keeps: tuple[Keep, Keep]) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        waiting = pair.one.begin(call("wait_for_ever", label="one"))
        await until(lambda: conftest.begun)
        # As somebody with the credential of the database alone would have it sent again.
        peers = peers_of(pair.keeps[1])
        sent: list[bytes] = []
        real = peers._messages._send
        peers._messages._send = lambda connection, name, server, body: sent.append(body)  # type: ignore[method-assign]
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
        await pair.other.post(cancel)
        home = peers_of(pair.keeps[0])
        pair.sql(
            f"INSERT INTO shared_messages VALUES "  # noqa: S608 -- our own
            f"('x', '{home.server}', decode('{sent[0].hex()}', 'hex'), now(), 'forged')"
        )
        await asyncio.sleep(1.5)
        is_waiting = not waiting.task.done()
        peers._messages._send = real  # type: ignore[method-assign]
        await pair.other.post(cancel)
        await ended(waiting)
        return is_waiting, conftest.ended, waiting.response.message["error"]["message"]

    assert run(postgres, keeps, act) == (True, ["one"], "The request was cancelled")


# --- streams -------------------------------------------------------------------------------------


def words(messages: list[dict[str, Any]]) -> list[str]:
    return [one["params"]["message"] if "params" in one else text(one) for one in messages]


async def broken_after_one(pair: Pair) -> tuple[Exchange, str]:
    running = pair.one.begin(call("steps"))
    gates[-1].put_nowait("one")
    await running.until(1)
    running.close()
    return running, running.response.names[-1]


def test_a_stream_is_resumed_at_the_other_server_and_its_call_goes_on(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        running, name = await broken_after_one(pair)
        gates[-1].put_nowait("two")
        again = pair.other.begin(b"", {"last-event-id": name}, method="GET")
        await again.until(1)
        for step in ("three", "end"):
            gates[-1].put_nowait(step)
        await ended(again)
        await ended(running)
        last = pair.other.begin(b"", {"last-event-id": again.response.names[-1]}, method="GET")
        await ended(last)
        return words(again.response.messages), last.response.messages

    assert run(postgres, keeps, act) == (["two", "three", "done"], [])


@pytest.mark.parametrize("is_answered", [False, True])
def test_the_answer_of_a_server_that_is_gone_is_the_stored_one_or_unknown_once(
    postgres: Cluster, keeps: tuple[Keep, Keep], is_answered: bool
) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        running, name = await broken_after_one(pair)
        if is_answered:
            gates[-1].put_nowait("end")
            await ended(running)
        pair.kill_one()
        found = []
        for _ in range(2):
            again = pair.other.begin(b"", {"last-event-id": name}, method="GET")
            await ended(again)
            found.append(again.response.messages)
        if not is_answered:  # it was only cut off, and comes too late
            gates[-1].put_nowait("end")
            await ended(running)
            again = pair.other.begin(b"", {"last-event-id": name}, method="GET")
            await ended(again)
            found.append(again.response.messages)
        return found

    found = run(postgres, keeps, act)
    if is_answered:
        assert [words(messages) for messages in found] == [["done"]] * 2
    else:
        assert [[one["id"] for one in messages] for messages in found] == [[5]] * 3
        assert all(
            "whether it had an effect is unknown" in messages[0]["error"]["message"] for messages in found
        )


def test_a_forged_event_is_not_sent_and_events_of_other_sessions_are_unknown(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        running, name = await broken_after_one(pair)
        stranger = Http(pair.apps[1])
        await stranger.handshake()
        refused = await stranger.post(b"", {"last-event-id": name}, method="GET")
        gates[-1].put_nowait("end")
        await ended(running)
        whole = pair.other.begin(b"", {"last-event-id": name}, method="GET")
        await ended(whole)
        pair.sql("UPDATE shared_events SET frame = '{\"forged\": 1}' WHERE is_last")
        pair.kill_one()
        again = pair.other.begin(b"", {"last-event-id": name}, method="GET")
        await ended(again)
        return refused.status, words(whole.response.messages), again.response.messages

    assert run(postgres, keeps, act) == (400, ["done"], [])


def test_messages_of_no_request_come_to_the_server_that_the_client_listens_at(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        await pair.handshake()
        listening = pair.one.begin(b"", method="GET")
        await until(lambda: listening.response.names)
        pair.keeps[0].disable("echo")
        (heard,) = await listening.until(1)
        listening.close()
        again = pair.other.begin(b"", {"last-event-id": listening.response.names[0]}, method="GET")
        await again.until(1)
        pair.keeps[1].disable("count_up")
        later = await again.until(2)
        again.close()
        return heard["method"], [one["method"] for one in later]

    changed = "notifications/tools/list_changed"
    assert run(postgres, keeps, act) == (changed, [changed] * 2)


def test_a_subscription_counts_at_the_server_that_the_client_listens_at(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        servers = [app._server for app in pair.apps]
        for server in servers:
            server.add_resource(Resource(uri="test://clock", name="clock", read=lambda: "12:00"))
        held: list[set[str]] = []

        async def hold(connection: Connection) -> None:
            held.append(set(connection.watched))

        servers[1].hub.hold_watched = hold
        await pair.handshake()
        listening = pair.other.begin(b"", method="GET")
        await until(lambda: listening.response.names)
        await pair.one.ask("resources/subscribe", {"uri": "test://clock"})
        await until(lambda: held)
        servers[1].resource_updated("test://clock")
        (heard,) = await listening.until(1)
        await pair.one.ask("resources/unsubscribe", {"uri": "test://clock"})
        await until(lambda: len(held) > 1)
        listening.close()
        return heard["params"], held

    assert run(postgres, keeps, act) == ({"uri": "test://clock"}, [{"test://clock"}, set()])


# --- tasks and suspended requests (2026-07-28) ---------------------------------------------------

ASKS = {**TASKS, "elicitation": {}}


async def modern(client: Http, method: str, **params: Any) -> dict[str, Any]:
    response = await client.modern(method, params, capabilities=ASKS)
    return response.message


async def reached(client: Http, task: str, status: str) -> dict[str, Any]:
    """A task, once it has a status."""
    async with asyncio.timeout(20):
        while (view := await modern(client, "tasks/get", taskId=task))["result"]["status"] != status:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    return view


def test_a_task_is_seen_answered_and_cancelled_through_the_other_server(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        made = [await modern(pair.one, "tools/call", name="long_job", arguments={}) for _ in range(3)]
        first, second, third = (one["result"]["taskId"] for one in made)
        listening = pair.other.begin(
            *modern_request("subscriptions/listen", {"notifications": {"taskIds": [first]}}, ASKS)
        )
        await listening.until(2)
        seen = [(await modern(pair.other, "tasks/get", taskId=first))["result"]["status"]]
        bad = await modern(pair.other, "tasks/update", taskId=first, inputResponses={"go": {"x": 1}})
        said = {"go": {"action": "accept"}}
        await modern(pair.other, "tasks/update", taskId=first, inputResponses=said)
        await listening.until(3)
        view = await reached(pair.other, first, "completed")
        await modern(pair.other, "tasks/cancel", taskId=second)
        await reached(pair.other, second, "cancelled")
        listening.close()
        pair.kill_one()
        lost = [await modern(pair.other, "tasks/get", taskId=one) for one in (third, third, first, second)]
        nobody = await modern(pair.other, "tasks/get", taskId="x")
        heard = [one["params"].get("status") for one in listening.response.messages[1:]]
        pair.apps[1]._identify = lambda _: "mcp-other"
        stranger = await modern(pair.other, "tasks/get", taskId=first)
        return (
            seen,
            bad["error"]["code"],
            view["result"]["result"]["content"][0]["text"],
            [one["result"]["status"] for one in lost],
            stranger["error"] == nobody["error"],
            heard[0],
            heard[-1],
        )

    seen, bad, said, lost, is_unknown, *heard = run(postgres, keeps, act)
    assert (seen, bad, said) == (["input_required"], -32602, "accept")
    assert (lost, is_unknown) == (["failed", "failed", "completed", "cancelled"], True)
    assert heard == ["input_required", "completed"]


def test_a_suspended_request_is_resumed_through_the_other_server_once(
    postgres: Cluster, keeps: tuple[Keep, Keep]
) -> None:
    async def act(pair: Pair) -> Any:
        params: dict[str, Any] = {"name": "ask_name", "arguments": {}}
        capabilities: dict[str, Any] = {"elicitation": {}}
        asked = (await pair.one.modern("tools/call", params, capabilities=capabilities)).message["result"]
        answers = {"name": {"action": "accept", "content": {"name": "Ada"}}}
        again = {**params, "requestState": asked["requestState"], "inputResponses": answers}
        wrong = {**again, "arguments": {"greeting": "Bye"}}
        found = [
            (await pair.other.modern("tools/call", one, capabilities=capabilities)).message
            for one in (wrong, again, again)
        ]
        last = (await pair.one.modern("tools/call", params, capabilities=capabilities)).message["result"]
        pair.kill_one()
        again["requestState"] = last["requestState"]
        gone = (await pair.other.modern("tools/call", again, capabilities=capabilities)).message
        return asked["resultType"], found, gone

    kind, (wrong, right, twice), gone = run(postgres, keeps, act)
    assert (kind, text(right)) == ("input_required", "Hello, Ada")
    assert "not one that was given" in wrong["error"]["message"]
    assert "used or is over" in twice["error"]["message"]
    assert "unknown" in gone["error"]["message"]
