"""The method table: what a client gets for what it asks, in either era."""

import asyncio
import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.mcp_server.talk import HANDSHAKE, MODERN, Lines, lines, meta, until
from toolkeep import Keep, ToolContext, ToolDefinition, tool
from toolkeep.limits import MCP_PAGE, McpLimits
from toolkeep.mcp_protocol.jsonrpc import Message
from toolkeep.mcp_server import subscriptions
from toolkeep.mcp_server.approval_notices import INSTRUCTIONS
from toolkeep.mcp_server.client_context import current_client
from toolkeep.mcp_server.connection import Connection
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.features import Prompt, Resource

Talk = Callable[[Lines], Coroutine[Any, Any, Any]]


def talk(server: McpServer, act: Talk, answers: dict[str, Any] | None = None) -> Any:
    async def run() -> Any:
        async with lines(server, answers) as client:
            return await act(client)

    return asyncio.run(run())


def shaken(server: McpServer, act: Talk, answers: dict[str, Any] | None = None, **capabilities: Any) -> Any:
    async def run(client: Lines) -> Any:
        await client.handshake(capabilities)
        return await act(client)

    return talk(server, run, answers)


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize(
    ("wanted", "agreed"),
    [(HANDSHAKE, HANDSHAKE), ("2024-11-05", "2024-11-05"), ("1999-01-01", HANDSHAKE), (MODERN, HANDSHAKE)],
)
def test_a_handshake_ends_with_the_clients_version_or_the_newest(
    server: McpServer, wanted: str, agreed: str
) -> None:
    answer = talk(server, lambda client: client.handshake(version=wanted))
    assert answer["result"] == {
        "protocolVersion": agreed,
        "capabilities": {"tools": {"listChanged": True}},
        "serverInfo": {"name": "toolkeep", "title": "toolkeep", "version": "0.1.0"},
        "instructions": INSTRUCTIONS,
    }


def test_a_failure_that_only_the_operator_may_read_names_the_command_that_shows_it(server: McpServer) -> None:
    @tool(side_effects=[])
    async def fail() -> str:
        """Fail."""
        raise KeyError("the password")

    server.keep.register(fail)
    result = shaken(server, lambda client: client.call("fail", {}))["result"]
    words = result["content"][0]["text"]
    assert words.endswith(f"\nThe user sees why: toolkeep audit show {result['_meta']['toolkeep/call'][:8]}")
    assert "password" not in words


def test_nothing_is_done_before_the_handshake(server: McpServer) -> None:
    answer = talk(server, lambda client: client.ask("tools/list"))
    assert answer["error"]["code"] == -32600


def test_a_second_handshake_is_refused(server: McpServer) -> None:
    async def twice(client: Lines) -> Any:
        await client.handshake()
        return await client.handshake()

    assert talk(server, twice)["error"]["code"] == -32600


@pytest.mark.spec("MCP-1")
def test_the_newer_era_needs_no_handshake(server: McpServer) -> None:
    answer = talk(server, lambda client: client.modern("server/discover"))["result"]
    assert answer["supportedVersions"] == [MODERN]
    assert answer["capabilities"]["extensions"] == {"io.modelcontextprotocol/tasks": {}}
    assert (answer["resultType"], answer["cacheScope"], answer["ttlMs"]) == ("complete", "private", 60_000)
    assert answer["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "toolkeep"


@pytest.mark.parametrize(
    ("era", "method"),
    [
        ("older", "server/discover"), ("older", "tasks/get"), ("older", "subscriptions/listen"),
        ("newer", "initialize"), ("newer", "ping"), ("newer", "logging/setLevel"), ("newer", "resources/subscribe"),
        ("newer", "tasks/list"), ("newer", "nothing/here"), ("older", "nothing/here"), ("older", ""),
    ],
)  # fmt: skip
def test_what_an_era_does_not_know_is_no_method(server: McpServer, era: str, method: str) -> None:
    if era == "older":
        answer = shaken(server, lambda client: client.ask(method or "/"))
    else:
        answer = talk(server, lambda client: client.modern(method))
    assert answer["error"]["code"] == -32601


@pytest.mark.parametrize(
    "method", ["resources/list", "resources/read", "prompts/get", "completion/complete", "logging/setLevel"]
)
def test_what_nobody_registered_is_off(server: McpServer, method: str) -> None:
    assert shaken(server, lambda client: client.ask(method))["error"]["code"] == -32601


def test_what_is_registered_is_said_and_served(server: McpServer) -> None:
    server.add_resource(Resource(uri="note://{id}/text", name="note", read=lambda id: f"note {id}"))  # noqa: A006
    server.add_prompt(
        Prompt(
            name="greet", messages=lambda who: [{"role": "user", "content": who}], arguments={"who": "Who"}
        )
    )
    server.complete_with(lambda _ref, _name, typed, _given: [f"{typed}{n}" for n in range(150)])
    server.enable_logging()

    async def look(client: Lines) -> Any:
        said = (await client.handshake())["result"]["capabilities"]
        read = await client.ask("resources/read", {"uri": "note://7/text"})
        missing = await client.ask("resources/read", {"uri": "note://7/8/text"})
        prompt = await client.ask("prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})
        lacking = await client.ask("prompts/get", {"name": "greet"})
        completed = await client.ask(
            "completion/complete", {"ref": {}, "argument": {"name": "a", "value": "b"}}
        )
        return said, read, missing, prompt, lacking, completed

    said, read, missing, prompt, lacking, completed = talk(server, look)
    assert set(said) == {"tools", "resources", "prompts", "completions", "logging"}
    assert read["result"]["contents"] == [
        {"uri": "note://7/text", "mimeType": "text/plain", "text": "note 7"}
    ]
    assert missing["error"] == {
        "code": -32002,
        "message": "Resource not found",
        "data": {"uri": "note://7/8/text"},
    }
    assert prompt["result"]["messages"] == [{"role": "user", "content": "Ada"}]
    assert lacking["error"]["code"] == -32602
    found = completed["result"]["completion"]
    assert (len(found["values"]), found["total"], found["hasMore"]) == (100, 150, True)


# --- tools ---------------------------------------------------------------------------------------


def test_a_call_gives_what_the_tool_gives(server: McpServer) -> None:
    answer = shaken(server, lambda client: client.call("echo", {"text": "hi"}))
    assert answer["result"]["content"] == [{"type": "text", "text": "hi"}]


@pytest.mark.spec("MCP-1")
@pytest.mark.parametrize("arguments", [{"texd": "hi"}, {}, {"text": 5}, [1], "no"])
def test_arguments_that_do_not_fit_are_a_result_that_a_model_can_repair(
    server: McpServer, arguments: Any
) -> None:
    params = {"name": "echo", "arguments": arguments}
    result = shaken(server, lambda client: client.ask("tools/call", params))["result"]
    assert result["isError"] is True
    assert "echo expects: {text: string}" in result["content"][0]["text"]


def test_an_argument_that_stands_twice_is_a_result_too(server: McpServer) -> None:
    raw = b'{"jsonrpc":"2.0","id":9,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a","text":"b"}}}'

    async def act(client: Lines) -> Any:
        client.send(raw)
        await until(lambda: client.heard)
        return client.heard[0]["result"]

    result = shaken(server, act)
    assert (result["isError"], "text" in result["content"][0]["text"]) == (True, True)


@pytest.mark.parametrize("name", ["ecko", "disabled_tool"])
def test_a_tool_that_does_not_answer_is_a_protocol_error(keep: Keep, server: McpServer, name: str) -> None:
    keep.register(tool(name="disabled_tool", description="Off.", side_effects=[])(lambda: "x"))
    keep.disable("disabled_tool")
    assert shaken(server, lambda client: client.call(name))["error"]["code"] == -32602


@pytest.mark.parametrize("params", [{}, {"name": 5}, {"name": None}])
def test_a_call_without_a_name_is_a_protocol_error(server: McpServer, params: dict[str, Any]) -> None:
    assert shaken(server, lambda client: client.ask("tools/call", params))["error"]["code"] == -32602


HIDES = """
@id("all") permit (principal, action, resource);
@id("hidden") forbid (principal == Agent::"mcp-local", action == Action::"see", resource == Tool::"send_money");
"""


@pytest.mark.spec("POL-8")
@pytest.mark.parametrize("finds", [False, True])
def test_a_tool_that_the_agent_may_not_see_is_not_there(keep: Keep, finds: bool) -> None:
    keep.use_policies(HIDES)
    server = McpServer(keep, find_tools=finds)

    async def look(client: Lines) -> Any:
        listed = await client.ask("tools/list")
        found = await client.call("find_tools", {"query": "send money", "limit": 20})
        hidden = await client.call("send_money", {"amount": 1})
        invented = await client.call("send_coins", {"amount": 1})
        return listed, found, hidden["error"], invented["error"]

    listed, found, hidden, invented = shaken(server, look)
    assert "send_money" not in str(listed)
    assert "send_money" not in str(found)
    assert hidden["code"] == invented["code"] == -32602
    assert "Unknown tool 'send_money'" in hidden["message"]
    assert "send_money" not in invented["message"]


def test_a_hidden_tool_that_wants_tasks_does_not_show_by_that(keep: Keep) -> None:
    keep.register(
        tool(
            name="hidden_job", description="A job.", side_effects=[], metadata={"mcp": {"task": "required"}}
        )(lambda: "x")
    )
    keep.use_policies(HIDES.replace("send_money", "hidden_job"))
    answer = talk(McpServer(keep), lambda client: client.modern("tools/call", {"name": "hidden_job"}))
    assert answer["error"]["code"] == -32602


def test_a_list_is_the_same_bytes_twice(server: McpServer) -> None:
    async def look(client: Lines) -> list[bytes]:
        for _ in range(2):
            await client.ask("tools/list")
        return [frame.partition(b'"result":')[2] for frame in client.frames[-2:]]

    first, second = shaken(server, look)
    assert first == second


def test_a_long_list_comes_in_pages(keep: Keep, server: McpServer) -> None:
    count = MCP_PAGE + 10
    keep.register(*(ToolDefinition(name=f"t_{n}", description="One of many.") for n in range(count)))

    async def look(client: Lines) -> list[str]:
        page = (await client.ask("tools/list"))["result"]
        rest = (await client.ask("tools/list", {"cursor": page["nextCursor"]}))["result"]
        assert "nextCursor" not in rest
        return [one["name"] for one in (*page["tools"], *rest["tools"])]

    names = shaken(server, look)
    assert names == sorted(t.name for t in keep.tools())


def test_find_tools_stands_for_all_and_call_tool_calls_them(keep: Keep) -> None:
    server = McpServer(keep, find_tools=True)

    async def look(client: Lines) -> Any:
        names = [one["name"] for one in (await client.ask("tools/list"))["result"]["tools"]]
        found = (await client.call("find_tools", {"query": "give back a text"}))["result"][
            "structuredContent"
        ]
        called = await client.call("call_tool", {"name": "echo", "arguments": {"text": "hi"}})
        refused = await client.call("call_tool", {"name": "echo", "arguments": {"texd": "hi"}})
        broken = await client.call("call_tool", {"nam": "echo"})
        return names, found, called["result"], refused["result"], broken["result"]

    names, found, called, refused, broken = shaken(server, look)
    assert names == ["find_tools", "call_tool"]
    assert (found["tools"][0]["name"], found["total"]) == ("echo", len(keep.tools()))
    assert called["content"] == [{"type": "text", "text": "hi"}]
    assert (refused["isError"], broken["isError"]) == (True, True)


def test_the_two_tools_are_unknown_where_nobody_asked_for_them(server: McpServer) -> None:
    assert shaken(server, lambda client: client.call("find_tools", {"query": "x"}))["error"]["code"] == -32602


# --- while a call runs ---------------------------------------------------------------------------


@pytest.mark.spec("MCP-1")
def test_progress_comes_from_any_thread_and_only_forwards(server: McpServer) -> None:
    async def act(client: Lines) -> Any:
        await client.call("count_up", _meta={"progressToken": "p"})
        return [one["params"] for one in client.heard]

    told = shaken(server, act)
    assert [one["progress"] for one in told] == [1.0, 2.0, 3.0]
    assert told[0] == {"progressToken": "p", "progress": 1.0, "total": 3, "message": "on the way"}


@pytest.mark.parametrize("token", ["x" * 257, 2**63, True, 1.5, None, []])
def test_a_token_that_is_no_name_or_too_long_is_none(server: McpServer, token: Any) -> None:
    async def act(client: Lines) -> Any:
        answer = await client.call("count_up", _meta={"progressToken": token})
        return answer["result"]["content"][0]["text"], client.heard

    assert shaken(server, act) == ("up", [])


@tool(side_effects=[])
def count_oddly(context: ToolContext) -> str:
    """Tell how far it is in numbers that JSON does not have."""
    context.progress(math.nan)
    context.progress(1, math.nan)
    context.progress(math.inf)
    context.progress(2, math.inf)
    return "odd"


def test_progress_that_is_no_number_is_not_told(server: McpServer) -> None:
    server.keep.register(count_oddly)

    async def act(client: Lines) -> Any:
        await client.call("count_oddly", _meta={"progressToken": 1})
        return [one["params"] for one in client.heard if "progress" in one["method"]]

    told = shaken(server, act)
    assert told == [{"progressToken": 1, "progress": 1}, {"progressToken": 1, "progress": 2}]


def test_so_many_resources_are_watched_and_no_endless_names(server: McpServer) -> None:
    server.add_resource(Resource(uri="notes://x", name="notes", read=lambda: ""))

    async def act(client: Lines) -> Any:
        many = {"resourceSubscriptions": [str(number) for number in range(server.limits.watched + 1)]}
        return [
            (await client.modern("subscriptions/listen", {"notifications": many}))["error"]["code"],
            (await client.handshake())["result"]["protocolVersion"],
            (await client.ask("resources/subscribe", {"uri": "x" * 2049}))["error"]["code"],
            (await client.ask("resources/subscribe", {"uri": "x" * 2048}))["result"],
        ]

    assert talk(server, act) == [-32000, HANDSHAKE, -32602, {}]


def test_who_watches_a_resource_is_told_that_it_changed(server: McpServer) -> None:
    server.add_resource(Resource(uri="notes://x", name="notes", read=lambda: ""))

    async def act(client: Lines) -> Any:
        server.resource_updated("notes://x")  # nobody watches yet
        await client.ask("resources/subscribe", {"uri": "notes://x"})
        server.resource_updated("notes://x")
        server.resource_updated("notes://other")
        await client.ask("resources/unsubscribe", {"uri": "notes://x"})
        server.resource_updated("notes://x")
        await client.ask("ping")
        return [(one["method"], one["params"]) for one in client.heard if "updated" in one["method"]]

    assert shaken(server, act) == [("notifications/resources/updated", {"uri": "notes://x"})]


def test_nobody_is_told_of_progress_who_did_not_ask(server: McpServer) -> None:
    async def act(client: Lines) -> Any:
        await client.call("count_up")
        return client.heard

    assert shaken(server, act) == []


@tool(side_effects=[])
async def ask_between(context: ToolContext) -> str:
    """Tell how far it is, before and after its client is asked."""
    context.progress(1)
    client = current_client()
    if client is not None:
        await client.elicit("Go on?", {"type": "object", "properties": {}}, name="go")
    context.progress(2)
    return "done"


@pytest.mark.parametrize(
    ("token", "told"), [("second", [{"progressToken": "second", "progress": 2}]), (None, [])]
)
def test_progress_is_that_of_the_request_that_waits(server: McpServer, token: Any, told: list[Any]) -> None:
    server.keep.register(ask_between)
    asked: dict[str, Any] = {"elicitation": {}}

    async def act(client: Lines) -> Any:
        first = {"name": "ask_between", "arguments": {}, "_meta": meta(asked, progressToken="first")}
        state = (await client.ask("tools/call", first))["result"]["requestState"]
        client.heard.clear()
        said = {"requestState": state, "inputResponses": {"go": {"action": "accept", "content": {}}}}
        more = {"progressToken": token} if token else {}
        await client.ask("tools/call", {**first, **said, "_meta": meta(asked, **more)})
        return [one["params"] for one in client.heard]

    assert talk(server, act) == told


def test_only_the_id_of_a_request_cancels_it(server: McpServer) -> None:
    from tests.mcp_server.conftest import begun, ended

    async def act(client: Lines) -> Any:
        waits = {"name": "wait_for_ever", "arguments": {"label": "true"}}
        client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": waits})
        await until(lambda: begun)
        for wrong in (True, 1.0, "1", None):
            params = {"requestId": wrong}
            client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        await client.call("echo", {"text": "still here"})
        return list(ended)

    assert shaken(server, act) == []


@pytest.mark.spec("MCP-1")
def test_a_call_that_is_cancelled_ends_and_is_not_answered(server: McpServer) -> None:
    from tests.mcp_server.conftest import begun, ended

    async def act(client: Lines) -> Any:
        number, waiting = client.begin(
            "tools/call", {"name": "wait_for_ever", "arguments": {"label": "cancelled"}}
        )
        await until(lambda: begun)
        client.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}})
        await until(lambda: ended)
        answer = await client.call("echo", {"text": "still here"})
        return waiting.done(), answer["result"]["content"][0]["text"]

    assert shaken(server, act) == (False, "still here")
    assert ended == ["cancelled"]


@pytest.mark.spec("MCP-1")
def test_a_changed_list_is_told_once(keep: Keep, server: McpServer) -> None:
    async def act(client: Lines) -> Any:
        keep.disable("echo")
        keep.enable("echo")
        keep.unregister("send_note")
        for _ in range(5):
            await asyncio.sleep(0)
        return client.heard

    assert shaken(server, act) == [{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}]


@pytest.mark.spec("MCP-1")
def test_over_stdio_a_client_of_2026_is_told_once_and_only_what_it_subscribed_to(
    keep: Keep, server: McpServer
) -> None:
    async def act() -> Any:
        async with lines(server) as client:
            await client.modern("tools/list")
            keep.disable("echo")
            await client.modern("tools/list")
            unasked = [*client.heard]
            wanted = {"notifications": {"toolsListChanged": True}, "_meta": meta()}
            client.begin("subscriptions/listen", wanted)
            keep.enable("echo")
            await client.modern("tools/list")
            return unasked, [one["method"] for one in client.heard]

    told = ["notifications/subscriptions/acknowledged", "notifications/tools/list_changed"]
    assert asyncio.run(act()) == ([], told)


QUIET = tool(name="send_all", description="Send all of it.", danger="critical")(lambda: "x")
HIDDEN_TOO = (
    HIDES + '@id("too") forbid (principal, action == Action::"see", resource) when {resource.danger > 3};'
)


@pytest.mark.spec("POL-8", "MCP-1")
@pytest.mark.parametrize(
    ("change", "is_told"),
    [
        (lambda keep: keep.disable("send_money"), False),
        (lambda keep: keep.unregister("send_money"), False),
        (lambda keep: keep.register(QUIET), False),
        (lambda keep: keep.use_policies(f"{HIDDEN_TOO}\n// the same in other words"), False),
        (lambda keep: keep.disable("echo"), True),
        (lambda keep: keep.unregister("echo"), True),
        (lambda keep: keep.use_policies(HIDES.replace("send_money", "echo")), True),
    ],
    ids=["hidden off", "hidden gone", "hidden new", "same policies", "off", "gone", "other policies"],
)
def test_only_whose_own_list_changed_is_told(
    keep: Keep, server: McpServer, change: Callable[[Keep], None], is_told: bool
) -> None:
    keep.use_policies(HIDDEN_TOO)

    async def act(client: Lines) -> Any:
        before = (await client.ask("tools/list"))["result"]["tools"]
        client.heard.clear()
        change(keep)
        await client.ask("ping")
        after = (await client.ask("tools/list"))["result"]["tools"]
        return before != after, [one["method"] for one in client.heard]

    told = ["notifications/tools/list_changed"] if is_told else []
    assert shaken(server, act) == (is_told, told)


def test_a_list_that_was_given_while_it_changed_is_told_of(keep: Keep, server: McpServer) -> None:
    async def act(client: Lines) -> Any:
        await client.ask("tools/list")
        keep.disable("echo")
        server._page("mcp-local", None)  # another client of the agent asks before anybody was told
        keep.enable("echo")
        await client.ask("ping")
        return [one["method"] for one in client.heard]

    assert shaken(server, act) == ["notifications/tools/list_changed"]


def test_where_comparing_takes_long_everyone_is_told(
    keep: Keep, server: McpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscriptions, "_COMPARED", 0)

    async def act(client: Lines) -> Any:
        await client.ask("tools/list")
        keep.use_policies(HIDES)
        await client.ask("ping")
        keep.disable("send_money")
        await client.ask("ping")
        return [one["method"] for one in client.heard]

    assert shaken(server, act) == ["notifications/tools/list_changed"] * 2


@pytest.mark.parametrize(
    "change",
    [
        lambda keep: keep.use_policies('@id("all") permit (principal, action, resource);'),
        lambda keep: keep.declare_agent("mcp-local"),
    ],
    ids=["policies", "agent"],
)
def test_a_client_hears_that_it_may_see_other_tools(
    keep: Keep, server: McpServer, change: Callable[[Keep], None]
) -> None:
    async def act(client: Lines) -> Any:
        change(keep)
        await client.ask("ping")
        return [one["method"] for one in client.heard]

    assert shaken(server, act) == ["notifications/tools/list_changed"]


def test_a_changed_grant_changes_the_list_and_is_told(keep: Keep, server: McpServer) -> None:
    fetch = tool(name="fetch", description="Fetch.", capabilities=["net.read"], side_effects=["NetRead"])
    keep.register(fetch(lambda: "x"))

    async def act(client: Lines) -> Any:
        def listed(answer: Any) -> bool:
            return "fetch" in [one["name"] for one in answer["result"]["tools"]]

        before = listed(await client.ask("tools/list"))
        keep.declare_agent("mcp-local", capabilities=["net.read:a.example"])
        await client.ask("ping")
        return before, listed(await client.ask("tools/list")), [one["method"] for one in client.heard]

    assert shaken(server, act) == (False, True, ["notifications/tools/list_changed"])


def test_a_second_request_of_the_same_id_is_refused(server: McpServer) -> None:
    async def act(client: Lines) -> Any:
        number, _ = client.begin("tools/call", {"name": "wait_for_ever"})
        client.send({"jsonrpc": "2.0", "id": number, "method": "ping"})
        return client.frames[-1]

    assert b"-32600" in shaken(server, act)


def test_logs_reach_only_those_who_want_that_level(keep: Keep) -> None:
    from toolkeep.mcp_server.client_context import current_client

    @tool(side_effects=[])
    async def tell() -> str:
        """Log."""
        client = current_client()
        if client is not None:
            client.log("debug", "quiet")
            client.log("error", {"loud": True}, logger="tell")
        return "told"

    keep.register(tell)
    server = McpServer(keep)
    server.enable_logging()

    async def act(client: Lines) -> Any:
        await client.ask("logging/setLevel", {"level": "warning"})
        await client.call("tell")
        wrong = await client.ask("logging/setLevel", {"level": "shout"})
        return [one["params"] for one in client.heard], wrong["error"]["code"]

    assert shaken(server, act) == ([{"level": "error", "logger": "tell", "data": {"loud": True}}], -32602)
    quiet = talk(server, _modern_logs)
    assert quiet == []


async def _modern_logs(client: Lines) -> Any:
    await client.modern("tools/call", {"name": "tell", "arguments": {}})
    return client.heard


def test_a_client_that_cannot_be_asked_is_not(server: McpServer) -> None:
    answer = shaken(server, lambda client: client.call("ask_name"))
    assert answer["error"]["code"] == -32021
    assert answer["error"]["data"] == {"requiredCapabilities": {"elicitation": {}}}


@pytest.mark.spec("MCP-1")
def test_a_client_that_can_be_asked_is(server: McpServer) -> None:
    said = {"elicitation/create": {"action": "accept", "content": {"name": "Ada"}}}
    answer = shaken(server, lambda client: client.call("ask_name"), said, elicitation={})
    assert answer["result"]["content"][0]["text"] == "Hello, Ada"


def test_a_second_answer_to_the_same_question_is_none() -> None:
    async def run() -> list[bool]:
        connection = Connection("a")
        frames: list[bytes] = []
        asked = asyncio.ensure_future(connection.ask("ping", {}, frames.append))
        await until(lambda: frames)
        name = json.loads(frames[0])["id"]
        taken = [connection.answered(Message(name, "", {}, None, {"n": n})) for n in range(2)]
        assert await asked == {"n": 0}
        return taken

    assert asyncio.run(run()) == [True, False]


# --- limits --------------------------------------------------------------------------------------


def test_too_many_messages_a_second_are_refused(keep: Keep) -> None:
    server = McpServer(keep, limits=McpLimits(messages_per_second=0.001, burst=3))

    async def act(client: Lines) -> Any:
        return [("error" in await client.ask("ping")) for _ in range(4)]

    assert shaken(server, act) == [False, False, True, True]


def test_too_many_requests_at_once_are_refused(keep: Keep) -> None:
    server = McpServer(keep, limits=McpLimits(in_flight=2))

    async def act(client: Lines) -> Any:
        for _ in range(2):
            client.begin("tools/call", {"name": "wait_for_ever"})
        await asyncio.sleep(0)
        return (await client.ask("ping"))["error"]["code"]

    assert shaken(server, act) == -32000


def test_what_the_client_says_of_itself_is_recorded_and_is_not_who_it_is(
    keep: Keep, server: McpServer
) -> None:
    from toolkeep.events import CallEnded, Event

    told: list[Event] = []
    keep.subscribe(told.append)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    async def act(client: Lines) -> Any:
        params = {
            "protocolVersion": HANDSHAKE,
            "clientInfo": {"name": "operator", "version": "9"},
            "agent": "operator",
        }
        await client.ask("initialize", params)
        return await client.call(
            "echo", {"text": "x"}, _meta={"traceparent": trace, "agent": "operator"}, agent="operator"
        )

    assert "result" in talk(server, act)
    (ended,) = [one for one in told if isinstance(one, CallEnded)]
    assert (ended.agent, ended.correlation_id) == ("mcp-local", "0af7651916cd43dd8448eb211c80319c")
