"""Results of the kernel probe: probed once per level and keep, by the first call."""

import asyncio
import threading

from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Findings, probe


class IsolationCheck:
    """Probe results by level. In memory only: stored ones could be forged to claim a missing protection."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mechanisms: dict[tuple[Isolation, bool], Findings] = {}
        self._findings: dict[Isolation, Findings] = {}

    @property
    def tree_bound(self) -> Mechanism | None:
        """Mechanism that bounds the memory of process trees; None before the first probe."""
        bounds = (found.tree_bound for found in self._mechanisms.values())
        return next((bound for bound in bounds if bound is not None), None)

    def known_mechanisms(self, level: Isolation, *, has_processes: bool) -> Findings | None:
        """What `mechanisms` found before."""
        return self._mechanisms.get((level, has_processes))

    async def mechanisms(self, level: Isolation, *, has_processes: bool) -> Findings:
        """Whether each mechanism of a level works, for workers of one process or several.

        For a caller that starts a worker anyway, and asks for `findings` if it does not come up: a worker
        started for the probe alone would double the time of a first call.
        """
        found = self._mechanisms.get((level, has_processes))
        if found is None:
            found = await asyncio.to_thread(self._try_mechanisms, level, has_processes)
        return found

    async def findings(self, level: Isolation) -> Findings:
        """The same, and whether a worker of the level answers a call."""
        found = self._findings.get(level)
        return found if found is not None else await asyncio.to_thread(self._probe, level)

    def _try_mechanisms(self, level: Isolation, has_processes: bool) -> Findings:  # noqa: FBT001 -- a thread's
        key = level, has_processes
        with self._lock:
            if key not in self._mechanisms:
                found = probe(levels=(level,), rehearsal=None, has_processes=has_processes)
                self._mechanisms = {**self._mechanisms, key: found}
            return self._mechanisms[key]

    def _probe(self, level: Isolation) -> Findings:
        with self._lock:
            if level not in self._findings:
                found = probe(levels=(level,))
                self._findings = {**self._findings, level: found}
                self._mechanisms = {**self._mechanisms, (level, True): found}
            return self._findings[level]
