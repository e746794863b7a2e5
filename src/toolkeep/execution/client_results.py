"""Calls that wait for the client's result (EXE-6); kept in memory, for the lifetime of the process."""

import threading
from collections import Counter

from toolkeep.calls import RecordedCall
from toolkeep.execution.idempotency import Claim
from toolkeep.limits import PENDING_BYTES, PENDING_CALLS

Waiting = tuple[RecordedCall, Claim]


class PendingCalls:
    """Recorded calls by id; beyond the limit, the oldest of the agent with most is evicted.

    So that an agent that never answers only evicts its own calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[str, Waiting] = {}
        self._bytes = 0

    def put(self, call: RecordedCall, claim: Claim) -> list[Waiting]:
        """Store a call that waits for its result; returns evicted calls."""
        gave_way: list[Waiting] = []
        with self._lock:
            self._calls[call.request.id] = (call, claim)
            self._bytes += call.argument_bytes
            while len(self._calls) > PENDING_CALLS or self._bytes > PENDING_BYTES:
                gave_way.append(self._pop(self._oldest()))
        return gave_way

    def _oldest(self) -> str:
        held: Counter[str] = Counter()
        for call, _ in self._calls.values():
            # By number or by bytes, whichever limit was exceeded.
            held[call.request.agent] += 1 if len(self._calls) > PENDING_CALLS else call.argument_bytes
        agent = max(held, key=held.__getitem__)
        return next(name for name, (call, _) in self._calls.items() if call.request.agent == agent)

    def _pop(self, call_id: str) -> Waiting:
        waiting = self._calls.pop(call_id)
        self._bytes -= waiting[0].argument_bytes
        return waiting

    def take(self, call_id: str, agent: str) -> Waiting | None:
        """Remove and return the call and its claim, if it is this agent's.

        The agent is compared: a guessed id must not let one agent answer for another.
        """
        with self._lock:
            waiting = self._calls.get(call_id)
            if waiting is None or waiting[0].request.agent != agent:
                return None
            return self._pop(call_id)
