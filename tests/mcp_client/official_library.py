"""A server of the official SDK with a prompt, a resource and a template."""

from typing import Any

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


server.run()
