"""Approvals over MCP (POL-4): the inbox by default; the client's own answer only where that was switched on.

`ask_client` is the approver of a keep that is served over MCP. It never says yes by itself: it gives back
what the client says, marked as the client's word, or nothing, and then people answer elsewhere.
"""

import time
from typing import Any, Final

from toolkeep.approval.question import Answer, Question
from toolkeep.approval.view import render_question
from toolkeep.definitions.context import ToolFailed
from toolkeep.mcp.client import Client, current_client

WAY: Final = "client"
"""What the log says of a yes that only a client vouches for."""

_DANGERS: Final = frozenset(("safe", "low", "medium"))
_METHOD: Final = "elicitation/create"
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Make this call", "description": "Whether it may be made."},
        "reason": {"type": "string", "title": "Reason", "description": "Why not; the model reads it."},
    },
    "required": ["approve"],
}


async def ask_client(question: Question) -> Answer | None:
    """What the client says to one question; None where its word does not count or it cannot be asked."""
    client = current_client()
    if client is None:
        return None
    if not (client.may_answer and question.danger in _DANGERS and question.acts == 1 and client.can(_METHOD)):
        client.person_is_asked()
        return None
    return await _asked(client, question)


async def _asked(client: Client, question: Question) -> Answer | None:
    message = "\n".join(line.text for line in render_question(question, now=time.time()))
    try:
        # Under a name that nobody could answer before it was asked.
        said = await client.elicit(message, _SCHEMA, name=f"approval-{question.id}")
    except ToolFailed:
        client.error = None  # the call may still find a person
        client.person_is_asked()
        return None
    content = said.get("content") or {}
    approver = f"client of {question.agent}"
    if said["action"] == "accept" and content.get("approve") is True:
        return Answer(verdict="approve", approver=approver, way=WAY)
    if said["action"] == "cancel":
        client.person_is_asked()
        return None
    reason = content.get("reason")
    words = reason if isinstance(reason, str) else ""
    return Answer(verdict="deny", approver=approver, way=WAY, reason=words)
