"""A keep with everything that the official conformance suite looks for, registered through the public API.

Run by the conformance tests: python -m tests.mcp_server.everything PORT LAYER
"""

import asyncio
import json
import os
import sys
from typing import Any

import uvicorn

from tests.deploy.balancer import HOST
from toolkeep import Keep, ToolContext, ToolDefinition, ToolFailed, open_keep, tool
from toolkeep.limits import DEFAULT_SERVER_LIMITS
from toolkeep.mcp_protocol.jsonrpc import INTERNAL_ERROR
from toolkeep.mcp_server.client_context import Client, current_client
from toolkeep.mcp_server.dispatch import McpServer
from toolkeep.mcp_server.features import Prompt, Resource
from toolkeep.mcp_server.http_app import McpApp
from toolkeep.mcp_server.http_headers import LOOPBACK
from toolkeep.server import MemoryTokens, Scope, Tokens, make_app
from toolkeep.server.api.call_routes import defer_to_inbox
from toolkeep.server.asgi_app import AGENT_KEY, AuthenticatedMcp, KeepApp
from toolkeep.server.run_server import bind, serve

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="

SUITE = "For the conformance suite."
CONTENT = {"mcp": {"content": True}}
Blocks = list[dict[str, Any]]


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def client() -> Client:
    found = current_client()
    if found is None:
        raise ToolFailed("this tool is for MCP")
    return found


def elicitation(message: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


STRING = {"type": "string"}
BOOLEAN = {"type": "boolean"}
SAMPLING = {
    "method": "sampling/createMessage",
    "params": {"messages": [{"role": "user", "content": text("Generate a greeting")}], "maxTokens": 50},
}
ROOTS: dict[str, Any] = {"method": "roots/list", "params": {}}


@tool(side_effects=[])
async def test_simple_text() -> str:
    """Say something simple."""
    return "This is a simple text response for testing."


@tool(side_effects=[], metadata=CONTENT)
async def test_image_content() -> Blocks:
    """Show a picture."""
    return [{"type": "image", "data": PNG, "mimeType": "image/png"}]


@tool(side_effects=[], metadata=CONTENT)
async def test_audio_content() -> Blocks:
    """Play a sound."""
    return [{"type": "audio", "data": WAV, "mimeType": "audio/wav"}]


@tool(side_effects=[], metadata=CONTENT)
async def test_embedded_resource() -> Blocks:
    """Give a resource."""
    resource = {
        "uri": "test://embedded-resource",
        "mimeType": "text/plain",
        "text": "This is an embedded resource content.",
    }
    return [{"type": "resource", "resource": resource}]


@tool(side_effects=[], metadata=CONTENT)
async def test_multiple_content_types() -> Blocks:
    """Give several kinds of content."""
    resource = {
        "uri": "test://mixed-content-resource",
        "mimeType": "application/json",
        "text": '{"test":"data","value":123}',
    }
    return [
        text("Multiple content types test:"),
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "resource", "resource": resource},
    ]


@tool(side_effects=[])
async def test_tool_with_logging() -> str:
    """Log three times."""
    for words in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        client().log("info", words)
        await asyncio.sleep(0.05)
    return "Logged."


@tool(side_effects=[])
async def test_logging_tool() -> str:
    """Log once."""
    client().log("info", "This is for those who asked")
    return "Logged, if that was asked for."


@tool(side_effects=[])
async def test_error_handling() -> str:
    """Fail."""
    raise ToolFailed("This tool intentionally returns an error for testing")


@tool(side_effects=[])
async def test_tool_with_progress(context: ToolContext) -> str:
    """Tell how far it is."""
    for done in (0, 50, 100):
        context.progress(done, 100)
        await asyncio.sleep(0.05)
    return "Done."


@tool(side_effects=[])
async def test_sampling(prompt: str) -> str:
    """Ask the client's model.

    Args:
        prompt: What to ask.
    """
    answer = await client().sample([{"role": "user", "content": text(prompt)}], max_tokens=100)
    return f"LLM response: {answer['content'].get('text')}"


@tool(side_effects=[])
async def test_elicitation(message: str) -> str:
    """Ask the person at the client.

    Args:
        message: What to ask.
    """
    schema = {
        "type": "object",
        "properties": {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        },
        "required": ["username", "email"],
    }
    answer = await client().elicit(message, schema)
    return f"User response: action: {answer['action']}, content: {json.dumps(answer.get('content'))}"


async def _elicited(properties: dict[str, Any]) -> str:
    answer = await client().elicit(
        "Please fill this in", {"type": "object", "properties": properties, "required": []}
    )
    return f"Elicitation completed: action={answer['action']}, content={json.dumps(answer.get('content'))}"


@tool(side_effects=[])
async def test_elicitation_sep1034_defaults() -> str:
    """Ask with defaults."""
    return await _elicited(
        {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
    )


@tool(side_effects=[])
async def test_elicitation_sep1330_enums() -> str:
    """Ask with choices."""
    options = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{n}", "title": f"{word} Option"}
        for n, word in enumerate(("First", "Second", "Third"), 1)
    ]
    names = ["Option One", "Option Two", "Option Three"]
    return await _elicited(
        {
            "untitledSingle": {"type": "string", "enum": options},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
            "titledMulti": {"type": "array", "items": {"anyOf": titled}},
        }
    )


@tool(side_effects=[])
async def test_missing_capability() -> str:
    """Need the client's model."""
    client().require("sampling/createMessage")
    return "It is there."


@tool(side_effects=[])
async def test_streaming_elicitation(context: ToolContext) -> str:
    """Ask in the midst of work."""
    context.progress(1, 2)
    answer = await client().ask({"user_name": elicitation("What is your name?", name=STRING)})
    return f"Hello, {answer['user_name']['content']['name']}!"


@tool(side_effects=[])
async def test_input_required_result_elicitation() -> str:
    """Ask for a name."""
    answer = await client().ask({"user_name": elicitation("What is your name?", name=STRING)})
    return f"Hello, {(answer['user_name'].get('content') or {}).get('name')}!"


@tool(side_effects=[])
async def test_input_required_result_sampling() -> str:
    """Ask the client's model."""
    asked = {
        "messages": [{"role": "user", "content": text("What is the capital of France?")}],
        "maxTokens": 100,
    }
    answer = await client().ask({"capital_question": {"method": "sampling/createMessage", "params": asked}})
    return f"It says {json.dumps(answer['capital_question']['content'])}"


@tool(side_effects=[])
async def test_input_required_result_list_roots() -> str:
    """Ask for folders."""
    return f"Roots: {json.dumps(await client().roots(name='client_roots'))}"


@tool(side_effects=[])
async def test_input_required_result_request_state() -> str:
    """Ask for a yes."""
    await client().ask({"confirm": elicitation("Please confirm", ok=BOOLEAN)})
    return "state-ok"


@tool(side_effects=[])
async def test_input_required_result_tampered_state() -> str:
    """Ask for a yes."""
    await client().ask({"confirm": elicitation("Please confirm", ok=BOOLEAN)})
    return "state-ok"


@tool(side_effects=[])
async def test_input_required_result_multiple_inputs() -> str:
    """Ask for three things at once."""
    asked = {
        "user_name": elicitation("What is your name?", name=STRING),
        "greeting": SAMPLING,
        "client_roots": ROOTS,
    }
    return json.dumps(await client().ask(asked))


@tool(side_effects=[])
async def test_input_required_result_multi_round() -> str:
    """Ask twice."""
    name = await client().ask({"step1": elicitation("Step 1: What is your name?", name=STRING)})
    color = await client().ask({"step2": elicitation("Step 2: What is your favorite color?", color=STRING)})
    return json.dumps([name, color])


@tool(side_effects=[])
async def test_input_required_result_capabilities() -> str:
    """Ask what the client can answer."""
    offered = {
        "user_name": elicitation("What is your name?", name=STRING),
        "greeting": SAMPLING,
        "client_roots": ROOTS,
    }
    asked = {name: one for name, one in offered.items() if client().can(one["method"])}
    return json.dumps(await client().ask(asked) if asked else {})


@tool(side_effects=[])
async def greet(name: str) -> str:
    """Greet somebody.

    Args:
        name: Who.
    """
    return f"Hello, {name}!"


@tool(side_effects=[], constraints={"max_execution_time": 120})
async def slow_compute(seconds: float, label: str = "") -> str:
    """Take some time.

    Args:
        seconds: How much.
        label: What for.
    """
    if seconds:
        client().start_task()
    await asyncio.sleep(seconds)
    return f"Computed {label} in {seconds} s."


@tool(side_effects=[])
async def append_line(line: str, context: ToolContext) -> str:
    """Append a line to a file, and go on for ever.

    Args:
        line: Which.
    """
    with open(os.environ["EFFECTS"], "a") as effects:  # noqa: ASYNC230, PTH123 -- a line
        effects.write(f"{line}\n")
    context.progress(1, 2, "appended")
    await asyncio.Event().wait()
    return line


@tool(danger="medium")
async def send_note(text: str) -> str:
    """Send a note, which a person has to approve.

    Args:
        text: What it says.
    """
    return f"sent {text}"


@tool(side_effects=[], metadata={"mcp": {"task": "required"}})
async def failing_job() -> str:
    """Fail after a while."""
    client().start_task()
    await asyncio.sleep(1)
    raise ToolFailed("The job failed")


@tool(side_effects=[])
async def protocol_error_job() -> str:
    """End in a protocol error."""
    client().start_task()
    await asyncio.sleep(0.1)
    raise client().fail(INTERNAL_ERROR, "The job broke")


@tool(side_effects=[])
async def confirm_delete(filename: str) -> str:
    """Ask before something is deleted.

    Args:
        filename: What.
    """
    client().start_task()
    answer = await client().ask({"confirm": elicitation(f"Delete {filename}?", confirm=BOOLEAN)})
    return f"Deleted: {answer['confirm']['action']}"


@tool(side_effects=[])
async def multi_input() -> str:
    """Ask for two things at once."""
    client().start_task()
    asked = {key: elicitation(f"The {key} name?", name=STRING) for key in ("first", "second")}
    return json.dumps(await client().ask(asked))


@tool(side_effects=[], metadata={"mcp": {"task": "required"}})
async def test_tool_with_task() -> str:
    """Ask, then go on as a task."""
    answer = await client().ask({"user_name": elicitation("What is your name?", name=STRING)})
    client().start_task()
    await asyncio.sleep(0.1)
    return f"Hello, {answer['user_name']['content']['name']}!"


SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": STRING, "city": STRING},
        }
    },
    "properties": {
        "name": STRING,
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": STRING,
        "email": STRING,
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
HEADERS_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "additionalProperties": False,
}


@tool(side_effects=[], parameters=HEADERS_SCHEMA)
async def test_headers(region: str = "") -> str:  # noqa: PT028 -- no test of pytest's
    """Has an argument that is repeated in a header.

    Args:
        region: Where.
    """
    return region


TOOLS = [value for value in list(globals().values()) if type(value).__name__ == "FunctionTool"]


def everything(keep: Keep) -> McpServer:
    server = McpServer(keep)
    keep.register(*TOOLS, _from_elsewhere())
    _add_changes(keep, server)
    _add_resources(server)
    _add_prompts(server)
    server.complete_with(lambda _ref, _name, typed, _given: [typed + "ing"])
    server.enable_logging()
    return server


def _from_elsewhere() -> ToolDefinition:
    """Names as nobody here would choose them."""
    name = "json_schema_2020_12_tool"
    data = {
        "name": name,
        "description": "Tool with JSON Schema 2020-12 features",
        "parameters": SCHEMA_2020_12,
    }
    return ToolDefinition.from_elsewhere(data)


def _add_changes(keep: Keep, server: McpServer) -> None:
    name = "comes_and_goes"

    async def change_tools(*_: object) -> bytes:
        if name in keep:
            keep.unregister(name)
        else:
            keep.register(
                ToolDefinition.from_dict({"name": name, "description": "Comes and goes.", "version": "1.0.0"})
            )
        return b""

    async def change_prompts(*_: object) -> bytes:
        if name in server.features.prompts:
            server.remove_prompt(name)
        else:
            server.add_prompt(Prompt(name=name, messages=list, description="Comes and goes."))
        return b""

    # What the host's own code registers, it registers on each of its servers.
    if server.peers is not None:
        server.peers.on("change tools", change_tools)
        server.peers.on("change prompts", change_prompts)

    @tool(side_effects=[])
    async def test_trigger_tool_change() -> str:
        """Change the list of tools."""
        await change_tools()
        if server.peers is not None:
            await server.peers.tell_all("change tools", b"")
        return "Changed."

    @tool(side_effects=[])
    async def test_trigger_prompt_change() -> str:
        """Change the list of prompts."""
        await change_prompts()
        if server.peers is not None:
            await server.peers.tell_all("change prompts", b"")
        return "Changed."

    keep.register(test_trigger_tool_change, test_trigger_prompt_change)


def _add_resources(server: McpServer) -> None:
    def data(id: str) -> str:  # noqa: A002 -- the template says so
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    plain = "This is the content of the static text resource."
    server.add_resource(
        Resource(uri="test://static-text", name="text", read=lambda: plain, description=SUITE)
    )
    server.add_resource(
        Resource(
            uri="test://static-binary",
            name="binary",
            read=lambda: b"\x89PNG",
            mime_type="image/png",
            description=SUITE,
        )
    )
    server.add_resource(
        Resource(
            uri="test://template/{id}/data",
            name="template",
            read=data,
            mime_type="application/json",
            description=SUITE,
        )
    )
    server.add_resource(
        Resource(uri="test://watched-resource", name="watched", read=lambda: "now", description=SUITE)
    )


def _message(content: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": content}


def _add_prompts(server: McpServer) -> None:
    def with_arguments(arg1: str, arg2: str) -> Blocks:
        return [_message(text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]

    def with_resource(resourceUri: str) -> Blocks:  # noqa: N803 -- the suite calls it that
        resource = {
            "uri": resourceUri,
            "mimeType": "text/plain",
            "text": "Embedded resource content for testing.",
        }
        embedded = _message({"type": "resource", "resource": resource})
        return [embedded, _message(text("Please process the embedded resource above."))]

    def with_image() -> Blocks:
        image = {"type": "image", "data": PNG, "mimeType": "image/png"}
        return [_message(image), _message(text("Please analyze the image above."))]

    async def with_input() -> Blocks:
        asked = {"user_context": elicitation("What context should the prompt use?", context=STRING)}
        answer = await client().ask(asked)
        return [_message(text(json.dumps(answer)))]

    simple = [_message(text("This is a simple prompt for testing."))]
    both = {"arg1": "First test argument", "arg2": "Second test argument"}
    uri = {"resourceUri": "URI of the resource to embed"}
    server.add_prompt(Prompt(name="test_simple_prompt", messages=lambda: simple, description=SUITE))
    server.add_prompt(
        Prompt(name="test_prompt_with_arguments", messages=with_arguments, arguments=both, description=SUITE)
    )
    server.add_prompt(
        Prompt(
            name="test_prompt_with_embedded_resource",
            messages=with_resource,
            arguments=uri,
            description=SUITE,
        )
    )
    server.add_prompt(Prompt(name="test_prompt_with_image", messages=with_image, description=SUITE))
    server.add_prompt(
        Prompt(name="test_input_required_result_prompt", messages=with_input, description=SUITE)
    )


class WithToken:
    """An app whose requests all carry a token: the suite sends none."""

    def __init__(self, app: KeepApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


def serve_as_shipped(keep: Keep, port: int) -> None:
    """The HTTP layer of `toolkeep serve`, with a token; its MCP server is the one with everything."""
    tokens = Tokens(MemoryTokens())
    app = make_app(keep, tokens, client_answers=True, hosts=LOOPBACK | {HOST})
    mcp = McpApp(everything(keep), identify=lambda scope: scope.get(AGENT_KEY), path="/mcp")
    app.mount("/mcp", AuthenticatedMcp(app, mcp))
    app.on_shutdown_start(mcp.let_go)
    app.on_shutdown_end(mcp.close)
    token = tokens.make("suite", [Scope.ADMIN], agent="local").text
    shipped: Any = WithToken(app, token)
    serve(shipped, bind("127.0.0.1", port), DEFAULT_SERVER_LIMITS, lambda: None)


def main(port: int, layer: str) -> None:
    with open_keep(approver=defer_to_inbox, approval_wait_s=60) as keep:
        if layer == "shipped":
            serve_as_shipped(keep, port)
        else:
            app = McpApp(everything(keep), path="/mcp")
            uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
