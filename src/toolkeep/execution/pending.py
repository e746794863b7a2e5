"""Calls that wait for the client's result (EXE-6); they last as long as the process."""

import threading
from collections import OrderedDict

from toolkeep.calls import RecordedCall
from toolkeep.execution.ledger import Claim
from toolkeep.limits import PENDING_CALLS


class PendingCalls:
    """Recorded calls by id; the oldest give way when there are too many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: OrderedDict[str, tuple[RecordedCall, Claim]] = OrderedDict()

    def put(self, call: RecordedCall, claim: Claim) -> None:
        """Wait for a result."""
        with self._lock:
            self._calls[call.request.id] = (call, claim)
            if len(self._calls) > PENDING_CALLS:
                self._calls.popitem(last=False)

    def take(self, call_id: str, agent: str) -> tuple[RecordedCall, Claim] | None:
        """The call and its claim, once, if it is this agent's."""
        with self._lock:
            waiting = self._calls.get(call_id)
            if waiting is None or waiting[0].request.agent != agent:
                return None
            return self._calls.pop(call_id)
