"""A keep with tools of every kind, as it is served."""

import asyncio
from collections.abc import Iterator
from typing import Annotated

import pytest

from toolkeep import Keep, Secret, ToolContext, ToolDefinition, ToolFailed, open_keep, tool
from toolkeep.server.api.call_routes import defer_to_inbox

begun: list[str] = []
ended: list[str] = []
"""Calls of `wait_for_ever`."""
noted: list[str] = []
"""What `send_note` and `write_down` did."""


@tool(side_effects=[])
async def add(a: int, b: int = 1) -> int:
    """Add two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


@tool(danger="safe", side_effects=["DbWrite"], capabilities=["db.write:notes"])
async def write_down(text: str) -> str:
    """Write a text down.

    Args:
        text: What to write.
    """
    noted.append(text)
    return f"wrote {text}"


@tool(danger="medium")
async def send_note(text: str) -> str:
    """Send a note.

    Args:
        text: What it says.
    """
    noted.append(text)
    return f"sent {text}"


@tool(danger="critical")
async def launch(code: str) -> str:
    """Launch it.

    Args:
        code: The code.
    """
    return f"launched {code}"


@tool(side_effects=[])
async def wait_for_ever(label: str, context: ToolContext) -> str:
    """Wait until somebody gives up.

    Args:
        label: What it is called.
    """
    begun.append(label)
    context.progress(1, 2, "half way")
    try:
        await asyncio.Event().wait()
    finally:
        ended.append(label)
    return ""


@tool(side_effects=[])
async def count_up(to: int, context: ToolContext) -> int:
    """Count.

    Args:
        to: How far.
    """
    for number in range(to):
        context.progress(number, to, f"at {number}")
    return to


@tool(side_effects=[])
async def break_down() -> str:
    """Fail as no tool should."""
    raise RuntimeError("the password is hunter2")


@tool(side_effects=[])
async def give_up() -> str:
    """Fail as a tool may."""
    raise ToolFailed("There is no such thing.")


@tool(side_effects=[])
async def sign_in(user: str, password: Annotated[str, Secret()]) -> str:
    """Sign in.

    Args:
        user: Who.
        password: The secret.
    """
    return f"{user} is in"


PICK = {
    "name": "pick_file",
    "description": "Let the user pick a file.",
    "version": "1.0.0",
    "client_executed": True,
    "side_effects": [],
    "parameters": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]},
    "output_schema": {"type": "string"},
}

TOOLS = [add, write_down, send_note, launch, wait_for_ever, count_up, break_down, give_up, sign_in]


def open_served_keep() -> Keep:
    """A keep as `toolkeep serve` opens one, with the agents ada and bob."""
    keep = open_keep(built_in=False, approver=defer_to_inbox, approval_wait_s=60)
    keep.register(*TOOLS, ToolDefinition.from_dict(PICK))
    for agent in ("ada", "bob"):
        keep.declare_agent(agent, capabilities=["db.write:notes"])
    keep.declare_agent("operator", capabilities=["db.write:notes"])
    return keep


@pytest.fixture
def keep() -> Iterator[Keep]:
    begun.clear()
    ended.clear()
    noted.clear()
    with open_served_keep() as keep:
        yield keep
