"""Bounds the memory of all processes of a worker together; a worker with one process has its own limit.

A plan says by which mechanism: a cgroup, or a watch where there is none.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from toolkeep.sandbox.cgroups import Bounds, Groups
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.levels import Mechanism
from toolkeep.sandbox.plan import WorkerPlan
from toolkeep.sandbox.watch import Watch

_THREADS: Final = 2
"""They wait for the kernel, which takes milliseconds to move a process."""


class TreeBound(Protocol):
    """What holds the processes of one worker."""

    def is_exceeded(self) -> bool:
        """Whether they were killed for taking too much memory."""

    def attend(self, *, closely: bool) -> None:
        """Whether the worker has a call now, or waits for one."""

    def release(self) -> None:
        """Let go of it: the worker is dead, or being killed."""


class TreeBounds:
    """Those of one pool."""

    def __init__(self) -> None:
        self._groups = Groups()
        self._watch = Watch()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="toolkeep-cgroup")

    def put_on(self, plan: WorkerPlan, pidfd: int) -> "asyncio.Future[TreeBound]":
        """Bound a new worker. The future may raise SandboxBroken or SandboxExhausted."""
        loop = asyncio.get_running_loop()
        limits = plan.limits
        done: asyncio.Future[TreeBound] = loop.create_future()
        try:
            if plan.memory_by is Mechanism.MEMORY_CGROUP:
                bounds = Bounds(limits.memory_bytes, limits.processes)
                return loop.run_in_executor(self._threads, self._groups.hold, pidfd, bounds)
            done.set_result(self._watch.hold(pidfd, limits.memory_bytes))
        except ProcessLookupError as error:
            done.set_exception(SandboxBroken(f"a worker could not be watched: {error}"))
        except (OSError, RuntimeError) as error:  # Python says RuntimeError where it can start no thread
            done.set_exception(SandboxExhausted(f"its memory could not be bounded: {error}"))
        return done

    def close(self) -> None:
        """Leave nothing behind; may be used again afterwards."""
        self._groups.close()
