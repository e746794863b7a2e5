"""A server of the official SDK with a prompt, a resource and a template."""

from mcp.server import MCPServer  # type: ignore[import-not-found, unused-ignore]

server = MCPServer("library")


@server.prompt()
def review(text: str, tone: str = "kindly") -> str:
    """Review a text."""
    return f"Review {text}, {tone}."


@server.resource("docs://readme")
def readme() -> str:
    """What to read first."""
    return "Read me."


@server.resource("docs://pages/{name}")
def page(name: str) -> str:
    """A page."""
    return f"Page {name}"


server.run()
