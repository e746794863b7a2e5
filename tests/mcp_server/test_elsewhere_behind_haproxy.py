"""Clients of two servers behind haproxy, without sticky sessions; one of the servers is killed (SCL-2)."""

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.mcp_server.balanced import Balanced, balanced
from tests.mcp_server.talk import HANDSHAKE, modern_request
from tests.mcp_server.test_conformance import results, suite
from tests.storage.cluster import Cluster

ASKS: dict[str, Any] = {"extensions": {"io.modelcontextprotocol/tasks": {}}, "elicitation": {}}


class Connection:
    """One connection of a client: haproxy sends the next one to the next server."""

    def __init__(self, address: str) -> None:
        self._client = http.client.HTTPConnection(address, timeout=60)
        self.response: http.client.HTTPResponse

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> None:
        sent = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self._client.request(method, path, None if body is None else json.dumps(body), sent | (headers or {}))
        self.response = self._client.getresponse()

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The events of a stream, or the one answer."""
        if self.response.headers["content-type"] != "text/event-stream":
            yield "", json.load(self.response)
            return
        name = ""
        for raw in self.response:
            key, _, value = raw.decode().strip().partition(": ")
            if key == "id":
                name = value
            elif key == "data" and value:
                yield name, json.loads(value)

    def close(self) -> None:
        self._client.close()


class Client:
    """A client of one protocol version, each of whose requests has a connection of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.session: dict[str, str] = {}

    @contextlib.contextmanager
    def sent(
        self,
        body: Any,
        headers: dict[str, str] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
        address: str = "",
    ) -> Iterator[Connection]:
        with contextlib.closing(Connection(address or self._address)) as connection:
            connection.send(method, path, body, {**self.session, **(headers or {})})
            yield connection

    def handshake(self) -> None:
        info = {
            "protocolVersion": HANDSHAKE,
            "capabilities": {"elicitation": {}},
            "clientInfo": {"name": "t"},
        }
        with self.sent(request("initialize", info)) as begun:
            self.session = {"mcp-session-id": begun.response.headers["mcp-session-id"]}

    def ask(self, body: Any, headers: dict[str, str] | None = None, **more: Any) -> Any:
        """The last message of the answer."""
        with self.sent(body, headers, **more) as asked:
            return [message for _, message in asked.events()][-1]

    def modern(self, method: str, **params: Any) -> Any:
        return self.ask(*modern_request(method, params, ASKS))["result"]


def request(method: str, params: dict[str, Any], number: int = 3) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", {"name": name, "arguments": arguments, "_meta": {"progressToken": "p"}})


def text(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


def both_say(ask: Callable[[], object], wanted: object) -> None:
    """Ask one server after the other until both give the same answer."""
    until = time.monotonic() + 20
    while (found := [ask(), ask()]) != [wanted, wanted]:
        assert time.monotonic() < until, found


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, postgres: Cluster) -> Iterator[Balanced]:
    with balanced(tmp_path_factory.mktemp("balanced"), postgres.clean()) as servers:
        yield servers


@pytest.fixture
def client(servers: Balanced) -> Client:
    return Client(servers.front.url.removeprefix("http://"))


def test_a_session_is_served_and_its_questions_are_answered_through_either_server(client: Client) -> None:
    client.handshake()
    listed = [len(client.ask(request("tools/list", {}))["result"]["tools"]) for _ in range(2)]
    assert listed[0] == listed[1]
    for _ in range(3):  # an odd number of requests each: asked and answered by turns
        with client.sent(call("test_elicitation", message="Who?")) as asking:
            events = asking.events()
            _, question = next(events)
            content = {"username": "ada", "email": "ada@example.org"}
            answer = {
                "jsonrpc": "2.0",
                "id": question["id"],
                "result": {"action": "accept", "content": content},
            }
            with client.sent(answer) as answered:
                assert answered.response.status == 202
            assert "ada@example.org" in text(next(events)[1]["result"])
    with client.sent(None, method="DELETE") as ended:
        assert ended.response.status == 204
    for _ in range(2):
        with client.sent(request("tools/list", {})) as refused:
            assert refused.response.status == 404


def test_a_task_is_polled_answered_and_cancelled_through_either_server(client: Client) -> None:
    task = client.modern("tools/call", name="confirm_delete", arguments={"filename": "x"})["taskId"]
    both_say(lambda: client.modern("tasks/get", taskId=task)["status"], "input_required")
    client.modern("tasks/update", taskId=task, inputResponses={"confirm": {"action": "accept"}})
    both_say(lambda: client.modern("tasks/get", taskId=task)["status"], "completed")
    assert text(client.modern("tasks/get", taskId=task)["result"]) == "Deleted: accept"
    other = client.modern("tools/call", name="slow_compute", arguments={"seconds": 60})["taskId"]
    client.modern("tasks/get", taskId=other)
    client.modern("tasks/cancel", taskId=other)
    assert {client.modern("tasks/get", taskId=other)["status"] for _ in range(2)} == {"cancelled"}


def test_a_waiting_call_is_polled_and_cancelled_through_either_server(client: Client) -> None:
    plain, body = {"accept": "application/json"}, {"arguments": {"text": "x"}}
    with client.sent(body, plain, path="/v1/tools/send_note:call") as asked:
        assert asked.response.status == 202
        path = asked.response.headers["location"]
    for _ in range(2):
        with client.sent(None, method="GET", path=path) as polled:
            assert polled.response.status == 202
    with client.sent({}, path=f"{path}:cancel") as cancelled:
        assert cancelled.response.status == 202

    def status() -> int:
        with client.sent(None, method="GET", path=path) as polled:
            return polled.response.status

    both_say(status, 404)


@pytest.mark.parametrize(
    ("revision", "scenario"),
    [("2025-11-25", "tools-call-sampling"), ("2026-07-28", "tasks-status-notifications")],
)
def test_conformance_through_either_server(
    servers: Balanced, tmp_path: Path, revision: str, scenario: str
) -> None:
    """The whole suite is part of `scripts/soak`."""
    url = f"{servers.front.url}/mcp"
    done = suite("server", "--url", url, "--spec-version", revision, "--scenario", scenario, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not results(done.stdout + done.stderr)["failed"]


@pytest.mark.spec("SCL-2")
def test_what_a_killed_server_was_running_has_an_unknown_outcome_once(
    servers: Balanced, client: Client
) -> None:
    """Comes last: one of the servers is gone then."""
    client.handshake()
    task = client.ask(
        *modern_request("tools/call", {"name": "slow_compute", "arguments": {"seconds": 60}}, ASKS),
        address=servers.addresses[0],
    )["result"]["taskId"]
    with client.sent(call("append_line", line="once"), address=servers.addresses[0]) as running:
        name, _ = next(running.events())
        servers.kill(0)
    found = [client.ask(None, {"last-event-id": name}, method="GET") for _ in range(2)]
    assert found[0] == found[1]
    assert (found[0]["id"], "effect is unknown" in found[0]["error"]["message"]) == (3, True)
    assert client.modern("tasks/get", taskId=task)["status"] == "failed"
    assert servers.effects == ["once"]
