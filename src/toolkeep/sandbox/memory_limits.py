"""Memory limit for all processes of a worker together: a cgroup, or a polling watch where there is none.

The plan names the mechanism. A worker with a single process is bounded by RLIMIT_AS and needs neither.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from toolkeep.sandbox.cgroups import Bounds, Cgroups
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.isolation_levels import Mechanism
from toolkeep.sandbox.memory_watch import Watch
from toolkeep.sandbox.plan import WorkerPlan

_THREADS: Final = 2
"""Moving a process into a cgroup blocks for milliseconds."""


class MemoryLimit(Protocol):
    """The limit of one worker's process tree."""

    def is_exceeded(self) -> bool:
        """Whether the worker was killed for exceeding it."""

    def set_active(self, *, is_active: bool) -> None:
        """Whether the worker handles a call now (True) or is idle."""

    def release(self) -> None:
        """Release it: the worker is dead, or being killed."""


class MemoryLimits:
    """The memory limits of one pool."""

    def __init__(self) -> None:
        self._groups = Cgroups()
        self._watch = Watch()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="toolkeep-cgroup")

    def apply(self, plan: WorkerPlan, pidfd: int) -> "asyncio.Future[MemoryLimit]":
        """Apply the limit to a new worker. The future may raise SandboxBroken or SandboxExhausted.

        Applied before the worker gets its grant: a worker that may fork must not run tool code unbounded.
        """
        loop = asyncio.get_running_loop()
        limits = plan.limits
        done: asyncio.Future[MemoryLimit] = loop.create_future()
        try:
            if plan.memory_by is Mechanism.MEMORY_CGROUP:
                bounds = Bounds(limits.memory_bytes, limits.processes)
                return loop.run_in_executor(self._threads, self._groups.add, pidfd, bounds)
            done.set_result(self._watch.add(pidfd, limits.memory_bytes))
        except ProcessLookupError as error:
            done.set_exception(SandboxBroken(f"a worker could not be watched: {error}"))
        except (OSError, RuntimeError) as error:  # Python raises RuntimeError if it cannot start a thread.
            done.set_exception(SandboxExhausted(f"its memory could not be bounded: {error}"))
        return done

    def close(self) -> None:
        """Remove cgroups; may be used again afterwards."""
        self._groups.close()
