"""Cache of results that cannot change: pure tools, and deterministic ones without side effects (EXE-5)."""

import threading
from collections import OrderedDict

from toolkeep.calls import RecordedCall, RegisteredTool
from toolkeep.definitions.vocabulary import Determinism, SideEffect
from toolkeep.limits import CACHED_BYTES, CACHED_RESULTS

Key = tuple[str, str]


def is_cacheable(tool: RegisteredTool) -> bool:
    """Whether equal calls give equal results, and nothing in them is secret."""
    definition = tool.definition
    if definition.determinism is None:
        return False
    if definition.determinism is Determinism.DETERMINISTIC:
        if definition.side_effects != (SideEffect.NONE,) or definition.capabilities:
            return False
    elif definition.determinism is not Determinism.PURE:
        return False
    return not tool.arguments.secrecy.has_secrets


class ResultCache:
    """LRU cache, bounded by number and size."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: OrderedDict[Key, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, call: RecordedCall) -> bytes | None:
        """Body of a result: canonical JSON, or the bytes themselves."""
        key = _key(call)
        with self._lock:
            if key in self._bodies:
                self._bodies.move_to_end(key)
            return self._bodies.get(key)

    def put(self, call: RecordedCall, body: bytes) -> None:
        """Store the body of a result; never the value, which its receiver may mutate."""
        # One large result must not evict everything else.
        if len(body) > CACHED_BYTES // 10:
            return
        key = _key(call)
        with self._lock:
            self._bytes += len(body) - len(self._bodies.pop(key, b""))
            self._bodies[key] = body
            while len(self._bodies) > CACHED_RESULTS or self._bytes > CACHED_BYTES:
                self._bytes -= len(self._bodies.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget all results."""
        with self._lock:
            self._bodies.clear()
            self._bytes = 0


def _key(call: RecordedCall) -> Key:
    # Not the agent: a pure result does not depend on who asks, and policy has decided before.
    return call.tool.run_key, call.argument_hash
