"""Results of the kernel probe: probed once per level and keep, by the first call."""

import asyncio
import threading
from collections.abc import Iterable
from functools import partial
from typing import Final

from toolkeep.calls import RegisteredTool
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Findings, probe, try_mechanisms
from toolkeep.sandbox.launch import Trial

_CONFIGURED: Final = ("config", "project")
"""Providers of the tools that a configuration describes."""


class UnconfinedTools:
    """What an accepted configuration lets run unconfined where this machine cannot confine it (SBX-1)."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """`names` are those of built-in or configured tools, upstream servers, modules, or absolute paths."""
        self._names = frozenset(names)

    def includes(self, tool: RegisteredTool) -> bool:
        """Whether a tool was named, by the one kind of name that it answers to.

        A tool of a server is named by its server only: its own name is the server's choice, and could be
        that of a tool that the operator named.
        """
        kind, target = getattr(tool.runner, "kind", ""), getattr(tool.runner, "target", None)
        if not self._names or not kind:
            return False
        if kind == "mcp":
            return isinstance(target, dict) and "url" not in target and target.get("upstream") in self._names
        if kind == "built_in":
            return tool.name in self._names
        if kind == "python" and str(target).rpartition(":")[0] in self._names:
            return True
        is_configured = kind in ("python", "command", "process") and tool.provider in _CONFIGURED
        return is_configured and tool.name in self._names


class IsolationCheck:
    """Probe results by level, and what may run without.

    In memory only: stored ones could be forged to claim a missing protection.
    """

    def __init__(self, unconfined: UnconfinedTools | None = None) -> None:
        self._unconfined = unconfined or UnconfinedTools()
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

    async def mechanisms(
        self, level: Isolation, *, has_processes: bool, trial: Trial | None = None
    ) -> Findings:
        """Whether each mechanism of a level works, for workers of one process or several.

        `trial` was started already, and is used or ended.

        For a caller that starts a worker anyway, and asks for `findings` if it does not come up: a worker
        started for the probe alone would double the time of a first call.
        """
        found = self._mechanisms.get((level, has_processes))
        if found is None or trial is not None:
            found = await asyncio.to_thread(self._try_mechanisms, level, has_processes, trial)
        return found

    async def findings(self, level: Isolation) -> Findings:
        """The same, and whether a worker of the level answers a call."""
        found = self._findings.get(level)
        return found if found is not None else await asyncio.to_thread(self._probe, level)

    def is_unconfined(self, tool: RegisteredTool, level: Isolation, *, has_processes: bool = True) -> bool:
        """Whether calls of a tool run unconfined: it was named, and a probe showed that the level is missing.

        False before the probe. Where the level is available a named tool is confined like any other.
        """
        mechanisms, whole = self._mechanisms.get((level, has_processes)), self._findings.get(level)
        is_missing = mechanisms is not None and not mechanisms.is_available(level)
        is_missing |= whole is not None and level in whole.unstarted
        return is_missing and self._unconfined.includes(tool)

    def _try_mechanisms(self, level: Isolation, has_processes: bool, trial: Trial | None) -> Findings:  # noqa: FBT001 -- a thread's
        key = level, has_processes
        with self._lock:
            if key not in self._mechanisms:
                attempt = partial(try_mechanisms, started=trial)
                found = probe(attempt=attempt, rehearsal=None, levels=(level,), has_processes=has_processes)
                self._mechanisms = {**self._mechanisms, key: found}
        if trial is not None:
            trial.end()  # Here, not where the call may be cancelled: a killed trial would show nothing.
        return self._mechanisms[key]

    def _probe(self, level: Isolation) -> Findings:
        with self._lock:
            if level not in self._findings:
                found = probe(levels=(level,))
                self._findings = {**self._findings, level: found}
                self._mechanisms = {**self._mechanisms, (level, True): found}
            return self._findings[level]
