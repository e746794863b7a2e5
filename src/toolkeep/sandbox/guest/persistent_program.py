"""Runs one persistent program in a confined worker, and reports how it exits.

On request of the host it suspends and resumes all processes of the program (SBX-2).

The worker stays PID 1 of its pid namespace: it reaps orphans, and when it exits the kernel kills everything
that the program started. The program owns the standard streams. The worker talks to the host through a pipe
that the program does not inherit, so a program cannot forge its own exit status.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Final

from .exception_report import lower_processor_limit
from .supervisor import Supervisor

Send = Callable[[dict[str, Any]], None]
Receive = Callable[[], bytes | None]

_ALL: Final = -1
"""kill(-1): every process of the pid namespace except PID 1, which is this one."""
_WAKE_BYTES: Final = 4096
"""Bytes drained from the self-pipe at once, one per signal. What is left makes the next poll return at
once."""


def run_until_exit(
    order: dict[str, Any], send: Send, receive: Receive, orders: int, supervisor: Supervisor | None = None
) -> None:
    """Start the program of an order, then wait for its exit; `receive` reads frames from `orders`."""
    lower_processor_limit()
    if supervisor is not None:
        supervisor.start(send)
    try:
        process = subprocess.Popen(  # noqa: S603 -- the program that the host names, in a sandbox
            order["argv"],
            executable=order["program"],
            cwd=order["folder"],
            env={**os.environ, **order["environment"]},
            # Own session: the program must not signal the worker's process group.
            start_new_session=True,
            preexec_fn=None if supervisor is None else supervisor.before_exec,  # noqa: PLW1509 -- the thread holds no lock it needs
        )
    except subprocess.SubprocessError:
        # before_exec() failed: nothing of the program has run.
        send({"unprepared": "the system calls of a program cannot be supervised on this machine"})
        return
    except (OSError, ValueError) as error:
        send({"unstarted": _reason(error)})
        return
    # The environment may hold secrets; do not keep a copy in this process.
    order.clear()
    _release_streams()
    send({"started": True})
    send({"ended": _wait_for_exit(process.pid, send, receive, orders)})


def _release_streams() -> None:
    """Drop our copies of the standard streams: the host sees end of file when the program closes its own."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in range(3):
        os.dup2(null, stream)
    os.close(null)


def _wait_for_exit(program: int, send: Send, receive: Receive, orders: int) -> int:
    """Wait for the exit status (or minus the signal), obeying orders meanwhile."""
    waiting = select.poll()
    waiting.register(orders, select.POLLIN)
    waiting.register(ended := _sigchld_descriptor(), select.POLLIN)
    while (status := _reaped(program)) is None:
        for descriptor, _ in waiting.poll():
            if descriptor == ended:
                os.read(ended, _WAKE_BYTES)
            elif (order := receive()) is None:
                # End of file: the host is gone, and PDEATHSIG ends this process soon.
                waiting.unregister(orders)
            else:
                _handle_order(json.loads(order), send)
    return status


def _sigchld_descriptor() -> int:
    """A descriptor that becomes readable on SIGCHLD (self-pipe trick)."""
    ended, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ended


def _reaped(program: int) -> int | None:
    """Reap all exited children; the exit status of the program if it is among them."""
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == program:
                return os.waitstatus_to_exitcode(status)
            if process == 0:
                break
    return None


def _handle_order(order: dict[str, Any], send: Send) -> None:
    """Suspend or resume all processes of the program, by SIGSTOP or SIGCONT to all.

    One kill(-1) instead of one signal per process: the kernel holds the tasklist lock meanwhile, which fork
    takes too. A fork bomb is stopped together with the child that it was about to create.
    """
    is_suspending = bool(order["suspend"])
    with contextlib.suppress(ProcessLookupError):  # the program has ended
        os.kill(_ALL, signal.SIGSTOP if is_suspending else signal.SIGCONT)
    if is_suspending:
        send({"suspended": True})


def _reason(error: OSError | ValueError) -> str:
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it contains a NUL"
