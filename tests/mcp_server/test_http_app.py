"""Streamable HTTP: who is spoken to, sessions, headers that say what the body says, streams, closing."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.mcp_server.conftest import begun, ended
from tests.mcp_server.talk import HANDSHAKE, MODERN, TASKS, Http, modern_request, until
from toolkeep import Keep
from toolkeep.limits import MCP_INTRODUCTION_BYTES, McpLimits
from toolkeep.mcp_server import http_sessions
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.http_app import McpApp
from toolkeep.mcp_server.serve_http import check_loopback

Act = Callable[[Http], Coroutine[Any, Any, Any]]
ECHO = {"name": "echo", "arguments": {"text": "hi"}}


def talk(server: McpServer, act: Act, **options: Any) -> Any:
    async def run() -> Any:
        return await act(Http(McpApp(server, path="/mcp", **options)))

    return asyncio.run(run())


def shaken(server: McpServer, act: Act, **capabilities: Any) -> Any:
    async def run(client: Http) -> Any:
        await client.handshake(capabilities)
        return await act(client)

    return talk(server, run)


# --- who is spoken to, and by whom ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"host": "localhost"}, 200),
        ({"host": "[::1]:9"}, 200),
        ({"host": "LocalHost:80"}, 200),
        ({"origin": "http://localhost:3000"}, 200),
        ({"host": "evil.example.com"}, 403),
        ({"host": "127.0.0.1.evil.example.com"}, 403),
        ({"host": "127.0.0.1@evil.example.com"}, 403),
        ({"host": " "}, 403),
        ({"origin": "http://evil.example.com"}, 403),
        ({"origin": "http://localhost.evil.example.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "file://"}, 403),
        ({"origin": "chrome-extension://localhost"}, 403),
    ],
)
def test_only_requests_to_this_machine_and_from_it_are_taken(
    server: McpServer, headers: dict[str, str], status: int
) -> None:
    response = talk(server, lambda client: client.modern("server/discover", headers=headers))
    assert response.status == status


@pytest.mark.parametrize("host", ["0.0.0.1", "192.168.0.1", "example.org", "::", ""])
def test_it_serves_on_loopback_only(host: str) -> None:
    with pytest.raises(ValueError, match="reached by others"):
        check_loopback(host)


@pytest.mark.spec("POL-8")
def test_who_calls_is_said_by_whoever_mounts_the_app(keep: Keep, server: McpServer) -> None:
    keep.declare_agent("token-agent")
    keep.use_policies('@id("one") permit (principal == Agent::"token-agent", action, resource);')

    def identify(scope: Any) -> str | None:
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        return {"Bearer good": "token-agent", "Bearer other": "mcp-local"}.get(given)

    async def act(client: Http) -> Any:
        tried = []
        for token in ("Bearer good", "Bearer other", "Bearer bad", ""):
            answer = await client.modern("tools/call", ECHO, headers={"authorization": token})
            tried.append(
                (answer.status, answer.messages[0]["result"].get("isError", False) if answer.body else None)
            )
        return tried

    assert talk(server, act, identify=identify) == [(200, False), (200, True), (401, None), (401, None)]


@pytest.mark.parametrize(
    "kind", ["text/plain", "", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_a_form_of_a_page_is_no_message(server: McpServer, kind: str) -> None:
    response = talk(
        server, lambda client: client.modern("tools/call", ECHO, headers={"content-type": kind or "x"})
    )
    assert response.status == 415


def test_other_methods_and_paths_are_not_served(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        get = await client.post(b"", method="GET")
        put = await client.post(b"", method="PUT")
        elsewhere = client.begin(b"{}", path="/other")
        await elsewhere.task
        return get.status, put.status, elsewhere.response.status

    assert talk(server, act) == (405, 405, 404)


def test_a_body_that_is_too_long_is_not_read(keep: Keep) -> None:
    server = McpServer(keep, limits=McpLimits(message_bytes=100))

    async def act(client: Http) -> Any:
        whole = await client.post(b"x" * 101)
        said = await client.post(b"", {"content-length": "101"})
        return whole.status, said.status

    assert talk(server, act) == (413, 413)


def test_a_body_that_comes_in_pieces_is_not_read_beyond_the_limit(keep: Keep) -> None:
    server = McpServer(keep, limits=McpLimits(message_bytes=100))
    sent: list[Any] = []
    received = [0]

    async def receive() -> Any:
        received[0] += 1
        return {"type": "http.request", "body": b"x" * 40, "more_body": received[0] < 50}

    async def send(event: Any) -> None:
        sent.append(event)

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers}
    asyncio.run(McpApp(server)(scope, receive, send))
    assert (sent[0]["status"], received[0]) == (413, 3)


# --- sessions ------------------------------------------------------------------------------------


@pytest.mark.spec("MCP-1")
def test_a_session_begins_with_a_handshake_and_ends_with_delete(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        session = (await client.handshake()).headers["mcp-session-id"]
        called = await client.ask("tools/call", ECHO)
        noted = await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        deleted = await client.post(b"", method="DELETE")
        after = await client.ask("ping")
        again = await client.post(b"", method="DELETE")
        return (
            len(session),
            called.message["result"]["content"][0]["text"],
            noted.status,
            deleted.status,
            after.status,
            again.status,
        )

    assert talk(server, act) == (32, "hi", 202, 204, 404, 404)


def test_without_a_session_nothing_is_answered(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        none = await client.ask("tools/list")
        client.session = "0" * 32
        invented = await client.ask("tools/list")
        noted = await client.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return none.status, invented.status, noted.status

    assert talk(server, act) == (400, 404, 404)


def test_a_session_is_the_agents_that_began_it(keep: Keep, server: McpServer) -> None:
    keep.declare_agent("other")
    agents = iter(["mcp-local", "other", "other", "mcp-local"])

    async def run() -> Any:
        client = Http(McpApp(server, identify=lambda _: next(agents)))
        await client.handshake()
        stolen = await client.ask("ping")
        ended = await client.post(b"", method="DELETE")
        return stolen.status, ended.status, (await client.ask("ping")).status

    assert asyncio.run(run()) == (404, 404, 200)


def test_the_session_that_was_silent_longest_makes_room(
    server: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "MCP_SESSIONS", 2)

    async def run() -> Any:
        app = McpApp(server)
        clients = [Http(app) for _ in range(3)]
        await clients[0].handshake()
        await clients[1].handshake()
        await clients[0].ask("ping")
        await clients[2].handshake()
        return [(await client.ask("ping")).status for client in clients]

    assert asyncio.run(run()) == [200, 404, 200]


def test_an_agent_that_shakes_hands_without_end_ends_its_own_sessions(
    server: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_sessions, "MCP_SESSIONS", 3)

    async def run() -> Any:
        agents = {"1": "mcp-local", "2": "other"}
        app = McpApp(server, identify=lambda scope: agents[dict(scope["headers"])[b"host"].decode()[-1]])
        mine = Http(app, host="localhost:1")
        await mine.handshake()
        others = [Http(app, host="localhost:2") for _ in range(5)]
        for other in others:
            await other.handshake()
        return [(await client.ask("ping")).status for client in (mine, *others)]

    server.keep.declare_agent("other")
    assert asyncio.run(run()) == [200, 404, 404, 404, 200, 200]


def test_a_client_that_says_too_much_of_itself_gets_no_session(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        answer = await client.handshake({"experimental": {"x": "y" * MCP_INTRODUCTION_BYTES}})
        return answer.message["error"]["code"], "mcp-session-id" in answer.headers

    assert talk(server, act) == (-32602, False)


# --- headers -------------------------------------------------------------------------------------


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"mcp-method": "tools/list"}, -32020),
        ({"mcp-method": ""}, -32020),
        ({"mcp-name": "send_money"}, -32020),
        ({"mcp-name": ""}, -32020),
        ({"mcp-name": "=?base64?c2VuZF9tb25leQ==?="}, -32020),
        ({"mcp-name": "=?base64?ZWNobw==?="}, None),
        ({"mcp-name": "=?base64?ZWNobw?="}, -32020),
        ({"mcp-name": "  echo\t"}, None),
        ({"mcp-protocol-version": "2027-01-01"}, -32020),
    ],
)
def test_headers_say_what_the_body_says(server: McpServer, headers: dict[str, str], code: int | None) -> None:
    response = talk(server, lambda client: client.modern("tools/call", ECHO, headers=headers))
    assert (response.message.get("error") or {}).get("code") == code
    assert response.status == (400 if code else 200)


def test_a_header_that_stands_twice_is_refused(server: McpServer) -> None:
    async def run() -> Any:
        app = McpApp(server)
        body, headers = modern_request("tools/call", ECHO)
        exchange = Http(app).begin(body, headers)
        await exchange.task
        sent: list[Any] = []
        import json

        raw = [(k.encode(), v.encode()) for k, v in headers.items()] + [
            (b"mcp-name", b"echo"),
            (b"host", b"localhost"),
        ]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/",
            "headers": [*raw, (b"content-type", b"application/json")],
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(body).encode()}

        async def send(event: Any) -> None:
            sent.append(event)

        await app(scope, receive, send)
        return exchange.response.status, sent[0]["status"]

    assert asyncio.run(run()) == (200, 400)


def test_another_version_is_told_which_there_are(server: McpServer) -> None:
    key = "io.modelcontextprotocol/protocolVersion"
    params = {"_meta": {key: "2099-01-01"}}
    response = talk(
        server,
        lambda client: client.modern(
            "server/discover", params, headers={"mcp-protocol-version": "2099-01-01"}
        ),
    )
    assert response.status == 400
    assert response.message["error"]["data"] == {"supported": [MODERN], "requested": "2099-01-01"}


def test_a_notification_of_the_newer_era_cancels_nobody(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        running = client.begin(*modern_request("tools/call", {"name": "wait_for_ever"}))
        await until(lambda: begun)
        body = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        response = await client.post(body, {"mcp-protocol-version": MODERN})
        still = list(ended)
        running.close()
        await running.task
        return response.status, still

    assert talk(server, act) == (202, [])


# --- streams -------------------------------------------------------------------------------------


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize("era", ["older", "newer"])
def test_closing_the_response_cancels_the_call(server: McpServer, era: str) -> None:
    async def act(client: Http) -> Any:
        params = {"name": "wait_for_ever", "arguments": {"label": era}}
        if era == "older":
            await client.handshake()
            running = client.begin({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params})
        else:
            running = client.begin(*modern_request("tools/call", params))
        await until(lambda: begun)
        running.close()
        done, _ = await asyncio.wait({running.task}, timeout=20)
        return len(done), running.response.status

    assert talk(server, act) == (1, 0)
    assert ended == [era]


def test_closing_the_response_of_a_task_does_not_end_it(
    server: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from toolkeep.mcp_server import tools_call

    monkeypatch.setattr(tools_call, "MCP_TASK_AFTER_SECONDS", 0.0)

    async def act(client: Http) -> Any:
        created = await client.modern("tools/call", {"name": "wait_for_ever"}, capabilities=TASKS)
        task = created.message["result"]["taskId"]
        found = await client.modern("tasks/get", {"taskId": task}, capabilities=TASKS)
        server.close()
        return found.message["result"]["status"]

    assert talk(server, act) == "working"


def test_a_call_that_tells_its_progress_is_a_stream(server: McpServer) -> None:
    params = {"name": "count_up", "_meta": {"progressToken": 1}}
    response = talk(server, lambda client: client.modern("tools/call", params))
    assert response.headers["content-type"] == "text/event-stream"
    assert [one.get("method", "answer") for one in response.messages] == [
        *["notifications/progress"] * 3,
        "answer",
    ]


@pytest.mark.spec("MCP-1")
def test_a_client_of_the_older_era_is_asked_on_the_stream_of_its_request(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        body = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "ask_name"}}
        running = client.begin(body)
        (asked,) = await running.until(1)
        said = {"action": "accept", "content": {"name": "Ada"}}
        other = await client.post({"jsonrpc": "2.0", "id": "1-forged", "result": said})
        taken = await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": said})
        twice = await client.post({"jsonrpc": "2.0", "id": asked["id"], "result": said})
        await running.task
        return (
            other.status,
            taken.status,
            twice.status,
            running.response.message["result"]["content"][0]["text"],
        )

    assert shaken(server, act, elicitation={}) == (400, 202, 400, "Hello, Ada")


@pytest.mark.spec("MCP-1")
def test_changes_are_told_on_a_stream_that_asked_for_them(keep: Keep, server: McpServer) -> None:
    async def act(client: Http) -> Any:
        wanted = {"notifications": {"toolsListChanged": True, "promptsListChanged": False}}
        stream = client.begin(*modern_request("subscriptions/listen", wanted))
        deaf = client.begin(
            *modern_request("subscriptions/listen", {"notifications": {"promptsListChanged": True}})
        )
        await stream.until(1)
        await deaf.until(1)
        keep.disable("echo")
        told = await stream.until(2)
        for one in (stream, deaf):
            one.close()
            await asyncio.wait_for(one.task, 20)
        return told, deaf.response.messages, len(server.hub.subscriptions)

    told, deaf, left = talk(server, act)
    tag = {"io.modelcontextprotocol/subscriptionId": 7}
    assert [one["method"] for one in told] == [
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
    ]
    assert told[0]["params"] == {"notifications": {"toolsListChanged": True}, "_meta": tag}
    assert told[1]["params"] == {"_meta": tag}
    assert (len(deaf), left) == (1, 0)


def test_changes_are_told_on_the_stream_of_a_session(keep: Keep, server: McpServer) -> None:
    async def act(client: Http) -> Any:
        stream = client.begin(b"", method="GET")
        await until(lambda: stream.response.status)
        keep.disable("echo")
        (told,) = await stream.until(1)
        stream.close()
        await asyncio.wait_for(stream.task, 20)
        return told

    assert shaken(server, act) == {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}


def test_a_cancelled_call_of_a_session_is_answered(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        running = client.begin(
            {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "wait_for_ever"}}
        )
        await until(lambda: begun)
        await client.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        await asyncio.wait_for(running.task, 20)
        return running.response.message["error"]["message"]

    assert shaken(server, act) == "The request was cancelled"


def test_one_session_cannot_cancel_or_answer_for_another(server: McpServer) -> None:
    async def run() -> Any:
        app = McpApp(server)
        mine, other = Http(app), Http(app)
        await mine.handshake({"elicitation": {}})
        await other.handshake()
        running = mine.begin(
            {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "ask_name"}}
        )
        (asked,) = await running.until(1)
        said = {"action": "accept", "content": {"name": "Mallory"}}
        answered = await other.post({"jsonrpc": "2.0", "id": asked["id"], "result": said})
        await other.post({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
        await mine.post({"jsonrpc": "2.0", "id": asked["id"], "result": {**said, "content": {"name": "Ada"}}})
        await running.task
        return answered.status, running.response.message["result"]["content"][0]["text"]

    assert asyncio.run(run()) == (400, "Hello, Ada")


def test_an_unknown_method_is_not_found(server: McpServer) -> None:
    response = talk(server, lambda client: client.modern("nothing/here"))
    assert (response.status, response.message["error"]["code"]) == (404, -32601)
    response = shaken(server, lambda client: client.ask("nothing/here"))
    assert (response.status, response.message["error"]["code"]) == (200, -32601)


def test_the_version_of_a_session_may_be_said_again(server: McpServer) -> None:
    async def act(client: Http) -> Any:
        body = {"jsonrpc": "2.0", "id": 5, "method": "ping"}
        return (await client.post(body, {"mcp-protocol-version": HANDSHAKE})).status

    assert shaken(server, act) == 200
