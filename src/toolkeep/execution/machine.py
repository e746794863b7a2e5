"""What this machine can enforce: looked at once for each level of a keep, by the first call that has it."""

import asyncio
import threading

from toolkeep.sandbox.levels import Isolation, Mechanism
from toolkeep.sandbox.probe import Findings, probe


class Machine:
    """The findings about this machine."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._findings: dict[Isolation, Findings] = {}

    @property
    def tree_bound(self) -> Mechanism | None:
        """What bounds the memory of several processes together; None as long as nobody has looked."""
        bounds = (found.tree_bound for found in self._findings.values())
        return next((bound for bound in bounds if bound is not None), None)

    async def findings(self, level: Isolation) -> Findings:
        """What was found about a level."""
        found = self._findings.get(level)
        return found if found is not None else await asyncio.to_thread(self._look, level)

    def _look(self, level: Isolation) -> Findings:
        with self._lock:
            if level not in self._findings:
                self._findings = {**self._findings, level: probe(levels=(level,))}
            return self._findings[level]
