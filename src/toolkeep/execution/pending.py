"""Calls that wait for the client's result (EXE-6); they last as long as the process."""

import threading
from collections import Counter

from toolkeep.calls import RecordedCall
from toolkeep.execution.ledger import Claim
from toolkeep.limits import PENDING_CALLS

Waiting = tuple[RecordedCall, Claim]


class PendingCalls:
    """Recorded calls by id; when there are too many, the oldest of the agent that has most gives way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, Waiting] = {}

    def put(self, call: RecordedCall, claim: Claim) -> Waiting | None:
        """Wait for a result; the call that gave way, which nobody waits for any more."""
        with self._lock:
            self._calls[call.request.id] = (call, claim)
            return self._calls.pop(self._oldest()) if len(self._calls) > PENDING_CALLS else None

    def _oldest(self) -> str:
        times = Counter(call.request.agent for call, _ in self._calls.values())
        agent = max(times, key=times.__getitem__)
        return next(name for name, (call, _) in self._calls.items() if call.request.agent == agent)

    def take(self, call_id: str, agent: str) -> Waiting | None:
        """The call and its claim, once, if it is this agent's."""
        with self._lock:
            waiting = self._calls.get(call_id)
            if waiting is None or waiting[0].request.agent != agent:
                return None
            return self._calls.pop(call_id)
