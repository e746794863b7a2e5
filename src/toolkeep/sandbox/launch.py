"""Starts the programs of `guest/`: by path, with the interpreter of this process and none of its environment.

A trial and a zygote that was given no plan yet can be started before the rest of the sandbox is imported
(`EarlyStart`). Neither has seen a grant or a line of a tool then, and both are checked as any other.
"""

import json
import socket
import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Final

from toolkeep.errors import ToolkeepError
from toolkeep.host.after_fork import register_after_fork
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.isolation_levels import TREE_BOUNDS, Isolation, Mechanism, needed
from toolkeep.sandbox.trusted_paths import INTERPRETER

START_FILE: Final = str(Path(__file__).resolve().parent / "guest" / "start.py")
_ENVIRONMENT: Final = {"LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
_TRIAL_SECONDS: Final = 20.0
"""Time limit of a trial; a loaded machine needs one or two seconds."""


def interpreter() -> str:
    """The real file of this interpreter; an embedded Python has none."""
    if not INTERPRETER:
        raise SandboxBroken("this Python has no executable of its own, which zygotes are started with")
    return INTERPRETER


def _command(*words: str) -> list[str]:
    # -I -S -E: no working directory, user site, site-packages or PYTHON* variables, each of which could put
    # foreign code into the trusted zygote.
    return [interpreter(), "-I", "-S", "-E", START_FILE, *words]


class Trial:
    """A process that tries kernel mechanisms; see `guest/trial.py`."""

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        self.mechanisms = tuple(mechanisms)
        self._process: subprocess.Popen[bytes] | None = None
        self._reason = "the trial ended without an answer"
        try:
            self._process = subprocess.Popen(  # noqa: S603 -- our own file, by our own interpreter
                _command("trial", *mechanisms),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # As a zygote's: the trial also shows that nothing else gets in.
                env=_ENVIRONMENT,
                cwd="/",
            )
        except OSError as error:
            self._reason = f"the trial could not be started: {error.strerror}"

    def answers(self) -> tuple[dict[str, Any], str]:
        """The answers by mechanism, and the reason for missing ones; waits for them. Ends the process."""
        process, self._process = self._process, None
        reason, said = self._reason, b""
        if process is not None:
            try:
                said = process.communicate(timeout=_TRIAL_SECONDS)[0]
            except subprocess.TimeoutExpired as error:
                reason, said = f"the trial took longer than {_TRIAL_SECONDS:.0f} s", error.stdout or b""
                process.kill()
                process.communicate()
        return {answer["mechanism"]: answer for answer in map(json.loads, said.splitlines())}, reason

    def end(self) -> None:
        """End the process, unless its answers were read."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.communicate()


class LaunchedZygote:
    """A zygote that waits for its plan; `guest/zygote.py` does nothing before."""

    def __init__(self) -> None:
        self._taken: tuple[subprocess.Popen[bytes], socket.socket] | None = _launched()
        register_after_fork(self)

    def take(self) -> "tuple[subprocess.Popen[bytes], socket.socket]":
        """The process and its control socket, which belong to the caller from now on."""
        taken, self._taken = self._taken, None
        if taken is None:
            raise SandboxBroken("a zygote has one plan")
        return taken

    def end(self) -> None:
        """End it, unless it was taken."""
        taken, self._taken = self._taken, None
        if taken is not None:
            process, control = taken
            control.close()
            process.kill()
            process.wait()

    def leave_to_parent(self) -> None:
        """After fork(), in the child: close our copy of its socket, or it would outlive the parent."""
        if self._taken is not None:
            self._taken[1].close()


def _launched() -> "tuple[subprocess.Popen[bytes], socket.socket]":
    try:
        # SEQPACKET keeps message boundaries and passes descriptors. The zygote reads end of file when this
        # process dies, even by SIGKILL, and then exits with all its workers.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise SandboxExhausted(f"no socket for a zygote: {error.strerror}") from error
    with theirs:
        try:
            process = subprocess.Popen(  # noqa: S603 -- our own file, by our own interpreter
                _command("zygote", str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # Not the host's environment: it may hold credentials, and every worker is a copy of this
                # process. No restartable sequences (rseq(2)): by one, the kernel would lead a held template
                # to other code.
                env={**_ENVIRONMENT, "GLIBC_TUNABLES": "glibc.pthread.rseq=0"},
                cwd="/",
                # All other descriptors are closed: an inherited database or log descriptor would reach the
                # tools.
                pass_fds=[theirs.fileno()],
                # Own session: Ctrl-C in the terminal must not kill it before the host has ended its calls.
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise SandboxExhausted(f"a zygote could not be started: {error.strerror}") from error
        except BaseException:
            ours.close()
            raise
    return process, ours


class EarlyStart:
    """The trial and the zygote of a first call, started while its pipeline is imported: either takes as much
    processor time as the imports."""

    def __init__(self, level: Isolation, *, has_processes: bool) -> None:
        """Raises `SandboxBroken` or `SandboxExhausted`, as the call itself will."""
        self.trial = Trial(tried_alone(needed(level, has_processes=has_processes)))
        try:
            self.zygote = LaunchedZygote()
        except ToolkeepError:
            self.trial.end()
            raise

    def end(self) -> None:
        """End what nobody has used."""
        self.trial.end()
        self.zygote.end()


def tried_alone(mechanisms: Collection[Mechanism]) -> tuple[Mechanism, ...]:
    """The mechanisms that a trial tries, in their order; memory bounds of a process tree need a tree."""
    return tuple(one for one in Mechanism if one in mechanisms and one not in TREE_BOUNDS)
