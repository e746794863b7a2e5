"""A server of the official SDK with a prompt, a resource and a template, completion and subscriptions."""

from typing import Any

from mcp import types  # type: ignore[import-not-found, unused-ignore]
from mcp.server import MCPServer  # type: ignore[import-not-found, unused-ignore]

server: Any = MCPServer("library")


@server.prompt()  # type: ignore[untyped-decorator, unused-ignore]
def review(text: str, tone: str = "kindly") -> str:
    """Review a text."""
    return f"Review {text}, {tone}."


@server.resource("docs://readme")  # type: ignore[untyped-decorator, unused-ignore]
def readme() -> str:
    """What to read first."""
    return "Read me."


@server.resource("docs://pages/{name}")  # type: ignore[untyped-decorator, unused-ignore]
def page(name: str) -> str:
    """A page."""
    return f"Page {name}"


@server.completion()  # type: ignore[untyped-decorator, unused-ignore]
async def complete(ref: Any, argument: Any, context: Any) -> Any:
    """Complete any argument."""
    return types.Completion(values=[f"{argument.value}{word}" for word in ("by", "ly")])


async def subscribe(context: Any, params: Any) -> Any:
    """Subscribe, and tell of a change at once."""
    await context.session.send_resource_updated(params.uri)
    return types.EmptyResult()


for method in ("resources/subscribe", "resources/unsubscribe"):
    server._lowlevel_server.add_request_handler(method, types.SubscribeRequestParams, subscribe)

server.run()
