"""A keep with a few tools, and a server of it."""

import asyncio
from collections.abc import Iterator
from typing import Annotated, Any

import pytest

from tests.mcp_server.everything import elicitation
from toolkeep import Keep, Secret, ToolContext, ToolFailed, open_keep, tool
from toolkeep.mcp_server.client_approvals import ask_client
from toolkeep.mcp_server.client_context import current_client
from toolkeep.mcp_server.dispatch import McpServer

begun: list[str] = []
ended: list[str] = []
"""Calls of `wait_for_ever`."""
sent: list[str] = []
"""What `send_note` did."""


@tool(side_effects=[])
async def echo(text: str) -> str:
    """Give back a text.

    Args:
        text: What to give back.
    """
    return text


@tool(danger="medium")
async def send_note(text: str) -> str:
    """Send a note.

    Args:
        text: What it says.
    """
    sent.append(text)
    return f"sent {text}"


@tool(danger="high")
async def send_money(amount: int) -> str:
    """Send money.

    Args:
        amount: How much.
    """
    sent.append(str(amount))
    return f"sent {amount}"


@tool(side_effects=[])
async def log_in(user: str, password: Annotated[str, Secret()] = "hunter2") -> dict[str, Any]:  # noqa: S107 -- to be hidden
    """Log in.

    Args:
        user: Who.
        password: The password.
    """
    return {"user": user, "length": len(str(password))}


@tool(side_effects=[])
async def wait_for_ever(label: str = "") -> str:
    """Wait.

    Args:
        label: What for.
    """
    begun.append(label)
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(label)
    return "never"


@tool(side_effects=[])
async def ask_name(greeting: str = "Hello") -> str:
    """Ask for a name.

    Args:
        greeting: What to say.
    """
    client = current_client()
    if client is None:
        raise ToolFailed("nobody to ask")
    answers = await client.ask({"name": elicitation("Your name?", name={"type": "string"})})
    return f"{greeting}, {answers['name']['content']['name']}"


@tool(side_effects=[])
def count_up(context: ToolContext) -> str:
    """Tell how far it is, from a thread of its own."""
    for done in (1.0, 2.0, 1.5, 3.0):
        context.progress(done, 3, "on the way")
    return "up"


TOOLS = (echo, send_note, send_money, log_in, wait_for_ever, ask_name, count_up)


@pytest.fixture
def keep() -> Iterator[Keep]:
    """With nobody to ask but the client."""
    begun.clear()
    ended.clear()
    sent.clear()
    with open_keep(built_in=False, approver=ask_client) as keep:
        keep.register(*TOOLS)
        yield keep


@pytest.fixture
def server(keep: Keep) -> Iterator[McpServer]:
    server = McpServer(keep)
    yield server
    server.close()
