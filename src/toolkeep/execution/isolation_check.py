"""Results of the kernel probe: probed once per level and keep, by the first call."""

import asyncio
import threading
from collections.abc import Iterable
from typing import Final

from toolkeep.calls import RegisteredTool
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.kernel_probe import Findings, probe

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
    """Probe results by level, and what may run without."""

    def __init__(self, unconfined: UnconfinedTools | None = None) -> None:
        self._unconfined = unconfined or UnconfinedTools()
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

    def is_unconfined(self, tool: RegisteredTool, level: Isolation) -> bool:
        """Whether calls of a tool run unconfined: it was named, and a probe showed that the level is missing.

        False before the probe. Where the level is available a named tool is confined like any other.
        """
        found = self._findings.get(level)
        return found is not None and not found.is_available(level) and self._unconfined.includes(tool)

    def _look(self, level: Isolation) -> Findings:
        with self._lock:
            if level not in self._findings:
                # In memory only: a result stored on disk could be forged to claim a protection that is
                # missing.
                self._findings = {**self._findings, level: probe(levels=(level,))}
            return self._findings[level]
