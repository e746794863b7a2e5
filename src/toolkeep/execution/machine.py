"""What this machine can enforce: looked at once for a keep, by the first call that needs to know."""

import asyncio
import threading

from toolkeep.sandbox.levels import Mechanism
from toolkeep.sandbox.probe import Findings, probe


class Machine:
    """The findings about this machine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._findings: Findings | None = None

    @property
    def tree_bound(self) -> Mechanism | None:
        """What bounds the memory of several processes together; None as long as nobody has looked."""
        return self._findings.tree_bound if self._findings is not None else None

    async def findings(self) -> Findings:
        """What was found."""
        return self._findings if self._findings is not None else await asyncio.to_thread(self._look)

    def _look(self) -> Findings:
        with self._lock:
            found = self._findings = probe() if self._findings is None else self._findings
            return found
