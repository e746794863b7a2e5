"""Approval through the MCP client (POL-4). Off by default: approval requests go to the inbox.

`ask_client` is the approver of a keep served over MCP. It never approves by itself. It returns the client's
answer, recorded as the client's word, or None: then a person answers elsewhere.
"""

import time
from typing import Any, Final

from toolkeep.approval.question import BY_CLIENT, Answer, Question, Verdict
from toolkeep.approval.question_text import MARGIN, name, render_question
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.mcp_server.client_context import Client, ask_user, current_client

# An MCP client may be the model's own host and answer by itself. Only low-risk calls accept its word; a
# critical call needs a person that the client cannot imitate.
_DANGERS: Final = frozenset(("safe", "low", "medium"))
_METHOD: Final = "elicitation/create"
_APPROVE: Final = "Approve"
_LEFT_OUT: Final = frozenset(("Arguments:", f"{MARGIN}{{", f"{MARGIN}}}"))
# The values are the words that clients show: each era has another way to give values titles, and all know a
# plain enum. One field: on a form with an optional one, Enter does not submit in every client.
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"answer": {"type": "string", "title": "Your answer", "enum": [_APPROVE, "Deny"]}},
    "required": ["answer"],
}


async def ask_client(question: Question) -> Answer | None:
    """Elicit an answer from the client; None if its word does not count or it cannot be asked."""
    client = current_client()
    if client is None:
        return None
    if not (client.may_answer and question.danger in _DANGERS and question.acts == 1 and client.can(_METHOD)):
        client.person_is_asked(question)
        return None
    return await _asked(client, question)


async def _asked(client: Client, question: Question) -> Answer | None:
    # A client may show three lines: what is called comes first, then its arguments. At a terminal it stands
    # last, above the prompt.
    _, *lines = render_question(question, now=time.time())
    heading = f"Approve this call of {name(question.tool)}? Danger: {question.danger}"
    message = "\n".join((heading, *(line.text for line in lines if line.text not in _LEFT_OUT)))
    try:
        # The question id is random: with a fixed name, a client could send an "accept" in advance with
        # the first request (`inputResponses`), before any question was shown.
        said = await ask_user(client, message, _SCHEMA, name=f"approval-{question.id}")
    except ToolFailed:
        client.error = None  # the call may still be approved in the inbox
        client.person_is_asked(question)
        return None
    content = said.get("content") or {}
    # Only the exact word of an accepted form approves; a form that was declined or closed denies.
    is_approved = said["action"] == "accept" and content.get("answer") == _APPROVE
    verdict: Verdict = "approve" if is_approved else "deny"
    return Answer(verdict=verdict, approver=f"client of {question.agent}", way=BY_CLIENT)
