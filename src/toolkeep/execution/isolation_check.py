"""Results of the kernel probe: probed once per level and keep, by the first call."""

import asyncio
import threading

from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Findings, probe


class IsolationCheck:
    """Probe results by level."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._findings: dict[Isolation, Findings] = {}

    @property
    def tree_bound(self) -> Mechanism | None:
        """Mechanism that bounds the memory of process trees; None before the first probe."""
        bounds = (found.tree_bound for found in self._findings.values())
        return next((bound for bound in bounds if bound is not None), None)

    async def findings(self, level: Isolation) -> Findings:
        """Probe result of a level."""
        found = self._findings.get(level)
        return found if found is not None else await asyncio.to_thread(self._look, level)

    def _look(self, level: Isolation) -> Findings:
        with self._lock:
            if level not in self._findings:
                # In memory only: a result stored on disk could be forged to claim a protection that is
                # missing.
                self._findings = {**self._findings, level: probe(levels=(level,))}
            return self._findings[level]
