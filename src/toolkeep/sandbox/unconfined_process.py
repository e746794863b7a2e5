"""Processes without confinement, for what the operator named and this machine cannot confine (SBX-1).

A tool for one call, or a program for many. Each gets a clean environment and a temporary folder, and its
process group is killed at the end. If the host is root, it is an ordinary user, as confined workers are.
Nothing else is promised: it can read, change and reach whatever its user can. A process that leaves the group
goes on, and so does a tool whose host is killed.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, NamedTuple, Self

from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.frames import frame
from toolkeep.sandbox.launch import START_FILE, interpreter
from toolkeep.sandbox.persistent_process import (
    LEAVING_SECONDS,
    ExitReason,
    LineProcess,
    LineStreams,
    PersistentProcess,
    ProcessExited,
    Program,
)
from toolkeep.sandbox.plan import ORDINARY_ID, SCRATCH, Recipe, ResourceLimits
from toolkeep.sandbox.worker_exchange import Exchange, Reply, Request, Serve
from toolkeep.sandbox.worker_pool import Pool

UNCONFINED: Final = "unconfined"
"""What a result says instead of the mechanisms that confine its tool."""

_PROXIES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")


class UnconfinedPlan(NamedTuple):
    """A tool, and where its code is."""

    tool: str
    import_paths: tuple[str, ...]
    packages: tuple[str, ...]
    limits: ResourceLimits
    environment: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        """The first frame to its process."""
        limits = {"memory_bytes": self.limits.memory_bytes, "cpu_s": self.limits.cpu_s}
        named = {"tool": self.tool, "import_paths": self.import_paths, "packages": self.packages}
        return {**named, "limits": limits}


async def run_unconfined(plan: UnconfinedPlan, request: Request) -> Reply:
    """One call of a tool in a process of its own. Raises SandboxExhausted if it cannot be started."""
    async with AsyncExitStack() as held:
        proxies = await _served(held, request.serve)
        words = (interpreter(), "-I", "-S", "-E", START_FILE, UNCONFINED)
        process = await _launched(words, dict(plan.environment) | proxies, errors=subprocess.DEVNULL)
        held.push_async_callback(process.end)
        exchange = _Exchange(process, request, frame(json.dumps(plan.to_json()).encode()))
        return await exchange.run()


class _Exchange(Exchange):
    """The exchange with a tool that nothing confines, and that does not claim it."""

    def __init__(self, process: "_Launched", request: Request, plan: bytes) -> None:
        super().__init__(process, request, plan)
        self._is_confined = True


class UnconfinedProgram(LineStreams):
    """A running program for many calls; the counterpart of `PersistentProcess`."""

    def __init__(self, process: "_Launched", held: AsyncExitStack, line_bytes: int) -> None:
        super().__init__(process.reply, process.errors, process.request, line_bytes)
        self._process = process
        self._held = held
        self._is_closed = False

    @classmethod
    async def start(cls, program: Program, *, line_bytes: int, serve: Serve | None = None) -> Self:
        """Start a program. Raises ProcessExited or SandboxExhausted on failure."""
        held = AsyncExitStack()
        try:
            environment = dict(program.environment) | await _served(held, serve)
            folder = "" if program.folder == SCRATCH else program.folder
            try:
                process = await _launched(
                    program.argv, environment, program=program.path, folder=folder, errors=subprocess.PIPE
                )
            except SandboxExhausted as error:
                raise ProcessExited(ExitReason.UNSTARTED, text=error.message) from error
            held.push_async_callback(process.end)
            return cls(process, held, line_bytes)
        except BaseException:
            await held.aclose()
            raise

    @property
    def is_alive(self) -> bool:
        """Whether it can still be talked to."""
        return not self._is_closed and self._process.is_alive()

    def set_active(self, *, is_active: bool) -> None:
        """Nothing: no limit watches it."""

    async def suspend(self) -> None:
        """Refused: without namespaces nobody can show that none of its processes runs."""
        raise SandboxBroken("a program that is not confined cannot be stopped between calls")

    async def resume(self) -> None:
        """Nothing: it is never suspended."""

    async def _exit_error(self) -> ProcessExited:
        status = None if self._is_closed else await self._process.exit_status(LEAVING_SECONDS)
        is_over = self._is_closed or status is not None
        why = ExitReason.ENDED if is_over else ExitReason.CLOSED
        return ProcessExited(why, status=status, last_words=self.last_words)

    async def close(self) -> None:
        """Kill it and its process group."""
        if not self._is_closed:
            self._is_closed = True
            self._close_streams()
            await self._held.aclose()

    def discard(self) -> None:
        """Kill it when no event loop is left."""
        if not self._is_closed:
            self._is_closed = True
            self._process.kill()
            self._process.release()


async def start_program(
    pool: Pool, recipe: Recipe | None, program: Program, *, line_bytes: int, serve: Serve | None = None
) -> LineProcess:
    """Start a persistent program, confined by a recipe; without one it is unconfined."""
    if recipe is None:
        return await UnconfinedProgram.start(program, line_bytes=line_bytes, serve=serve)
    return await PersistentProcess.start(pool, recipe, program, line_bytes=line_bytes, serve=serve)


class _Launched:
    """A process, the host ends of its streams, and its temporary folder."""

    is_furnished = False

    def __init__(self, process: "subprocess.Popen[bytes]", folder: str) -> None:
        self._process = process
        self._folder = folder
        streams = (process.stdin, process.stdout, process.stderr)
        self.request, self.reply, self.errors = (-1 if one is None else one.fileno() for one in streams)
        for descriptor in (self.request, self.reply):
            os.set_blocking(descriptor, False)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    async def exit_status(self, patience_s: float) -> int | None:
        """Its exit status, or minus the signal; None if it goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return await asyncio.to_thread(self._process.wait, patience_s)
        return None

    def kill(self) -> None:
        """Kill its process group, whose id stays reserved until it is reaped."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def release(self) -> None:
        """Reap it, close its streams and remove its folder."""
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def end(self) -> None:
        """Kill it and release what it held."""
        self.kill()
        await asyncio.to_thread(self.release)


async def _served(held: AsyncExitStack, serve: Serve | None) -> dict[str, str]:
    """The egress proxy at a port of this machine, and the variables that name it to HTTP clients.

    It reaches the hosts of the call and no others; nothing makes the process use it.
    """
    if serve is None:
        return {}
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    await held.enter_async_context(serve((listener,)))
    return dict.fromkeys(_PROXIES, f"http://127.0.0.1:{port}")


async def _launched(
    argv: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    program: str = "",
    folder: str = "",
    errors: int,
) -> _Launched:
    # In a thread: `Popen` waits until the program was executed.
    work = asyncio.to_thread(_launch, argv, environment, program or argv[0], folder, errors)
    launching = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(launching)
    except asyncio.CancelledError:
        launching.add_done_callback(_abandon)
        raise


def _abandon(launching: "asyncio.Future[_Launched]") -> None:
    """End a process whose call was cancelled while it started."""
    if not launching.cancelled() and launching.exception() is None:
        launching.result().kill()
        launching.result().release()


def _launch(
    argv: tuple[str, ...], environment: Mapping[str, str], program: str, folder: str, errors: int
) -> _Launched:
    if sys.platform == "win32":
        raise SandboxExhausted("there is no process group to end on Windows; use a container")
    # Never root: a tool that nothing confines would own the machine.
    ids: dict[str, Any] = {}
    scratch = tempfile.mkdtemp(prefix="toolkeep-unconfined-")
    if os.geteuid() == 0:
        ids = {"user": ORDINARY_ID, "group": ORDINARY_ID, "extra_groups": ()}
        os.chown(scratch, ORDINARY_ID, ORDINARY_ID)
    # Not the host's environment: it may hold credentials.
    clean = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin", **environment, "HOME": scratch, "TMPDIR": scratch}
    try:
        process = subprocess.Popen(  # noqa: S603 -- what the operator named, unconfined
            argv,
            executable=program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=clean,
            cwd=folder or scratch,
            # Own session: Ctrl-C in the terminal must not reach it, and its group is killed as a whole.
            start_new_session=True,
            **ids,
        )
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(scratch, ignore_errors=True)
        reason = getattr(error, "strerror", "") or str(error)
        raise SandboxExhausted(f"it could not be started: {reason}") from error
    return _Launched(process, scratch)
