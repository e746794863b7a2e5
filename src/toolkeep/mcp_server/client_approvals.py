"""Approval through the MCP client (POL-4). Off by default: approval requests go to the inbox.

`ask_client` is the approver of a keep served over MCP. It never approves by itself. It returns the client's
answer, recorded as the client's word, or None: then a person answers elsewhere.
"""

import asyncio
import time
from collections.abc import Sequence
from typing import Any, Final

from toolkeep.approval.approver import GATHER_SECONDS
from toolkeep.approval.question import BY_CLIENT, Answer, Question, Verdict
from toolkeep.approval.question_text import MARGIN, name, render_question
from toolkeep.definitions.tool_context import ToolFailed
from toolkeep.mcp_server.client_context import Client, ask_user, current_client

# An MCP client may be the model's own host and answer by itself. Only low-risk calls accept its word; a
# critical call needs a person that the client cannot imitate.
_DANGERS: Final = frozenset(("safe", "low", "medium"))
_METHOD: Final = "elicitation/create"
_APPROVE: Final = "Approve"
_APPROVE_ALL: Final = "Approve all"
_PICKED: Final = "Approve those marked, deny the others"
_LEFT_OUT: Final = frozenset(("Arguments:", f"{MARGIN}{{", f"{MARGIN}}}"))
# The values are the words that clients show: each era has another way to give values titles, and all know a
# plain enum. One field: on a form with an optional one, Enter does not submit in every client.
_ANSWER: Final[dict[str, Any]] = {"type": "string", "title": "Your answer"}
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"answer": {**_ANSWER, "enum": [_APPROVE, "Deny"]}},
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


class _Form:
    """One form about the calls of one response."""

    def __init__(self, client: Client) -> None:
        self.questions: list[Question] = []
        self._task = asyncio.ensure_future(self._sent(client))

    async def answer(self, question: Question) -> Verdict | None:
        """Add a question, and wait for its answer; None if the client cannot be asked."""
        self.questions.append(question)
        try:
            verdicts = await asyncio.shield(self._task)
            return None if verdicts is None else verdicts[question.id]
        finally:
            self.questions.remove(question)
            if not self.questions:
                self._task.cancel()

    async def _sent(self, client: Client) -> dict[str, Verdict] | None:
        connection = client.connection
        try:
            await asyncio.sleep(0 if connection.is_modern else GATHER_SECONDS)
        finally:
            if connection.form is self:
                connection.form = None
        questions = tuple(self.questions)
        message, schema = _several(questions) if len(questions) > 1 else _single(questions[0])
        try:
            # The question id is random: with a fixed name, a client could send an "accept" in advance with
            # the first request (`inputResponses`), before any question was shown.
            said = await ask_user(client, message, schema, name=f"approval-{questions[0].id}")
        except ToolFailed:
            client.error = None  # the call may still be approved in the inbox
            return None
        content = said.get("content") or {}
        # Only the exact words of an accepted form approve; a form that was declined or closed denies.
        answer = content.get("answer") if said["action"] == "accept" else None
        is_yes = answer == (_APPROVE if len(questions) == 1 else _APPROVE_ALL)
        is_picked = answer == _PICKED and len(questions) > 1
        approved = {
            question.id
            for number, question in enumerate(questions, 1)
            if is_yes or (is_picked and content.get(f"call_{number}") is True)
        }
        return {question.id: "approve" if question.id in approved else "deny" for question in questions}


async def _asked(client: Client, question: Question) -> Answer | None:
    # A client of 2026-07-28 gets its questions in the answer to each request: it might not look at one
    # before the others are answered.
    connection = client.connection
    form: _Form | None = None if connection.is_modern else connection.form
    if form is None or not form.questions:  # all calls of it have ended
        form = connection.form = _Form(client)
    verdict = await form.answer(question)
    if verdict is None:
        client.person_is_asked(question)
        return None
    return Answer(verdict=verdict, approver=f"client of {question.agent}", way=BY_CLIENT)


def _single(question: Question) -> tuple[str, dict[str, Any]]:
    return (
        f"Approve this call of {name(question.tool)}? Danger: {question.danger}\n{_lines(question)}",
        _SCHEMA,
    )


def _several(questions: Sequence[Question]) -> tuple[str, dict[str, Any]]:
    parts = [f"Approve these {len(questions)} calls?"]
    fields: dict[str, Any] = {"answer": {**_ANSWER, "enum": [_APPROVE_ALL, "Deny all", _PICKED]}}
    for number, question in enumerate(questions, 1):
        title = f"{number}. {name(question.tool)}"
        parts.append(f"{title}, danger: {question.danger}\n{_lines(question)}")
        fields[f"call_{number}"] = {"type": "boolean", "title": f"Approve {title}", "default": False}
    return "\n".join(parts), {"type": "object", "properties": fields, "required": ["answer"]}


def _lines(question: Question) -> str:
    """A client may show three lines: the arguments come first. At a terminal they stand above the prompt."""
    _, *lines = render_question(question, now=time.time())
    return "\n".join(line.text for line in lines if line.text not in _LEFT_OUT)
