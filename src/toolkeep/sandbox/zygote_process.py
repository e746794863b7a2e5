"""Host side of one zygote: starts it, requests workers, notices its exit.

The host never forks: a fork of a multi-threaded process copies its locks and secrets. The zygote is a program
started by path, with an empty environment.
"""

import asyncio
import contextlib
import os
import socket
from typing import Any, Final

from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.launch import LaunchedZygote
from toolkeep.sandbox.memory_limits import MemoryLimits
from toolkeep.sandbox.mountinfo import MountWatch
from toolkeep.sandbox.plan import NotThere, WorkerPlan, ZygotePlan
from toolkeep.sandbox.template_process import Template
from toolkeep.sandbox.worker_source import SourceGone, Worker, WorkerSource, fail, until_readable

START_SECONDS: Final = 20.0
"""How long a zygote may take to become ready; a loaded machine needs one or two seconds."""
_OF_FORK_SERVER: Final = 2
"""Descriptors that come with a fork server: its control socket and its pidfd."""


class Zygote(WorkerSource):
    """One running zygote."""

    def __init__(
        self, plan: ZygotePlan, memory_limits: MemoryLimits, launched: LaunchedZygote | None = None
    ) -> None:
        """Launch one, unless one was `launched`. Raises NotThere if a path of its plan is gone."""
        self._plan = plan
        # Recorded before it mounts anything, so that a folder swapped meanwhile is noticed (`is_stale`).
        self._identities = plan.identities()
        self._mounts = _mounts_inside(plan)
        try:
            self._process, control = (launched or LaunchedZygote()).take()
        except BaseException:
            self._mounts.close()
            raise
        super().__init__(control, memory_limits)
        self._prepared: set[str] = set()
        self._opening: dict[int, asyncio.Future[Template]] = {}
        """Fork servers that were requested."""
        self._templates: set[Template] = set()

    @classmethod
    async def start(
        cls, plan: ZygotePlan, memory_limits: MemoryLimits, launched: LaunchedZygote | None = None
    ) -> "Zygote":
        """Start one and wait until it can fork."""
        zygote = cls(plan, memory_limits, launched)
        try:
            zygote._send(plan.to_json())
            async with asyncio.timeout(START_SECONDS):
                await zygote._ready
        except TimeoutError as error:
            raise SandboxBroken(f"the zygote was not ready in {START_SECONDS:.0f} s") from error
        except SourceGone as error:
            raise SandboxBroken("the zygote ended while it started") from error
        finally:
            if not zygote._is_ready():
                zygote._kill_unready()
        return zygote

    def is_stale(self) -> bool:
        """Whether a path of its plan changed: mounts refer to folders, not to their names.

        A call that used the old mount would read and write a folder that is no longer at the granted path.
        """
        if self.is_gone or self._mounts.have_changed():
            return True
        try:
            return self._plan.identities() != self._identities
        except NotThere:
            return True

    async def fork(self, name: str, plan: WorkerPlan) -> Worker:
        """A new worker. Raises SourceGone, SandboxExhausted or SandboxBroken."""
        return await self._arrived(self.order(name, plan))

    def order(self, name: str, plan: WorkerPlan) -> "asyncio.Future[Worker]":
        """Request a new worker; one that arrives for a cancelled future is reaped."""
        if not self.is_gone and name not in self._prepared:
            self._send({"prepare": plan.to_json(), "name": name})
            self._prepared.add(name)
        return self._order({"fork": name}, plan)

    async def start_template(self, plan: WorkerPlan, run: tuple[str, ...]) -> Template:
        """A fork server that lets its template import the tool now; its workers may start these programs.

        Raises SourceGone, SandboxExhausted or SandboxBroken.
        """
        if self.is_gone:
            raise SourceGone
        ticket = next(self._tickets)
        self._send({"template": plan.to_json(is_template=True), "run": run, "ticket": ticket})
        opening: asyncio.Future[Template] = self._loop.create_future()
        self._opening[ticket] = opening
        template = await opening
        self._templates.add(template)
        return template

    async def close_template(self, template: Template) -> None:
        """End a template of this zygote and all its workers."""
        await template.close()
        self._templates.discard(template)

    @property
    def is_used(self) -> bool:
        """Whether a worker or a template of it lives, or was requested."""
        return super().is_used or bool(self._opening or self._templates)

    def _deliver(self, message: dict[str, Any], descriptors: list[int], *, is_cut: bool) -> None:
        opening = self._opening.pop(message["ticket"], None)
        if opening is None:
            super()._deliver(message, descriptors, is_cut=is_cut)
        elif not descriptors and not is_cut:
            fail(opening, SandboxBroken(message.get("broken") or message.get("exhausted", "")))
        elif is_cut or len(descriptors) != _OF_FORK_SERVER or opening.done():
            for descriptor in descriptors:
                os.close(descriptor)  # Its socket, too: it ends as soon as it notices.
            fail(opening, SandboxExhausted("this process has no file descriptor left"))
        else:
            control, pidfd = descriptors
            opening.set_result(Template(socket.socket(fileno=control), pidfd, self._memory_limits))

    def forget(self, name: str) -> None:
        """Drop a worker plan that will not be requested again."""
        if name in self._prepared and not self.is_gone:
            self._prepared.discard(name)
            with contextlib.suppress(SourceGone, SandboxExhausted):
                self._send({"forget": name})

    async def close(self) -> None:
        """Kill it and all its workers, and wait until they are gone."""
        self._mark_gone()
        with contextlib.suppress(ProcessLookupError):
            pidfd = os.pidfd_open(self._process.pid)
            try:
                await until_readable(self._loop, pidfd)
            finally:
                os.close(pidfd)
        self._process.wait()
        for template in self._templates:
            await template.close()
        await self._all_reaped()  # All are dead: PID 1 of their namespace is.

    def _kill_unready(self) -> None:
        """Kill it before it is ready, without an await at which the caller could be cancelled again."""
        self._mark_gone()
        self._process.kill()
        self._process.wait()

    def discard(self) -> None:
        """Kill it after its loop was closed."""
        self.is_gone = True
        self._close_control()
        self._process.wait()
        for template in self._templates:
            template.discard()

    def _mark_gone(self) -> None:
        super()._mark_gone()
        opening, self._opening = self._opening, {}
        for template in opening.values():
            fail(template, SourceGone())

    def _close_control(self) -> None:
        super()._close_control()
        self._mounts.close()

    def leave_to_parent(self) -> None:
        """The same in a fork of the host."""
        super().leave_to_parent()
        self._mounts.close()


def _mounts_inside(plan: ZygotePlan) -> MountWatch:
    try:
        return MountWatch(plan.shown)
    except OSError as error:
        raise SandboxExhausted(f"no descriptor for a zygote: {error.strerror}") from error
