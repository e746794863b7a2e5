"""Notify MCP clients that a call waits for approval, and where a person can approve it (POL-4).

A progress and a log message at once, then progress every few seconds: many clients end a request that is
silent for a minute. The client shows them to its user. Of the call they hold the values that nobody trusted
named, and where they come from (FLO-7), escaped and cut: the model has seen both.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from toolkeep.approval.question_text import MARGIN, duration, flow_line, name
from toolkeep.text.display import excerpt

if TYPE_CHECKING:
    from toolkeep.approval.question import Question
    from toolkeep.mcp_server.client_context import Client

Notify = Callable[["Client", "Question"], None]

_FIRST_S: Final = 0.1
"""A call that is refused or answered at once needs no notice."""
_REPEAT_S: Final = 10.0
"""Shorter than any read timeout that was met, and rare enough not to flood a client's log."""
_LINES: Final = 3
_LINE_CHARS: Final = 300
"""A notice is read at a glance; the whole question is in the inbox."""

INSTRUCTIONS: Final = (
    "Every call is validated, authorized and recorded by toolkeep before the tool runs.\n"
    "- A call that was refused did not run. Its text lists each problem and, where one is certain, a JSON "
    "Patch: correct the arguments and call again. Do not repeat a refused call unchanged.\n"
    "- A call that needs approval waits until a person answers. If it was denied, do not try again. If "
    "nobody answered in time, tell the user: `toolkeep approvals list` shows the calls that wait.\n"
    "- A call that lacks a capability cannot succeed until the operator grants it: tell the user which one."
)
"""For the model, in the answer to `initialize` and `server/discover`."""


def waiting_notice(question: "Question", page_url: str, now: float) -> str:
    """What a person in front of the client reads while the call waits."""
    page = f" or on {page_url}/ui/approvals" if page_url else ""
    left = duration(question.expires_at - now)
    untrusted = [one for one in question.flow if one.origin not in ("user", "system")]
    lines = [MARGIN + excerpt(flow_line(one), _LINE_CHARS) for one in untrusted[:_LINES]]
    if len(untrusted) > _LINES:
        lines.append(f"  and {len(untrusted) - _LINES} more")
    told = f"Waiting for approval: {name(question.tool)} (danger: {question.danger}). "
    told += f"Run `toolkeep approve {question.id}`{page}. Expires in {left}."
    return "\n".join((told, *lines))


class ApprovalNotices:
    """The notices of one server, by approval id."""

    def __init__(self, page_url: str | Callable[[], str]) -> None:
        """A function is called for each notice: the page may be served later, or at another port."""
        self._page_url = page_url
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiting: set[str] = set()

    def begin(self, client: "Client", question: "Question") -> Callable[[], str]:
        """Notify the client soon, and again until `end` or the end of its request.

        Returns a function that gives the notice; empty after `end`.
        """
        self._waiting.add(question.id)
        self._later(_FIRST_S, self._first, client, question)
        return lambda: self._words(question) if question.id in self._waiting else ""

    def end(self, approval_id: str) -> None:
        """The call no longer waits."""
        self._waiting.discard(approval_id)
        if (timer := self._timers.pop(approval_id, None)) is not None:
            timer.cancel()

    def close(self) -> None:
        """Stop all notices."""
        for approval_id in [*self._timers]:
            self.end(approval_id)

    def _first(self, client: "Client", question: "Question") -> None:
        if not client.is_over:
            client.log("warning", self._words(question), logger="toolkeep")
        self._repeat(client, question)

    def _repeat(self, client: "Client", question: "Question") -> None:
        self._timers.pop(question.id, None)
        if not client.is_over and client.note(self._words(question)):
            self._later(_REPEAT_S, self._repeat, client, question)

    def _words(self, question: "Question") -> str:
        page_url = self._page_url if isinstance(self._page_url, str) else self._page_url()
        return waiting_notice(question, page_url, time.time())

    def _later(self, wait_s: float, notify: Notify, client: "Client", question: "Question") -> None:
        loop = asyncio.get_running_loop()
        self._timers[question.id] = loop.call_later(wait_s, notify, client, question)
