"""Runs one program until it ends, in a worker that has narrowed itself already, and says how it ended.

Meanwhile it stops and continues all processes of the program, as the host orders (SBX-2).

The worker is the first process of its namespace: it takes in the orphans of the program, and everything that
the program started ends with it. The program has the standard streams to itself; what the worker says to the
host goes through a pipe that the program does not have.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Final

Say = Callable[[dict[str, Any]], None]
Hear = Callable[[], bytes | None]

_ALL: Final = -1
"""Every process of the namespace but the first, which is this one."""
_WAKE_BYTES: Final = 4096


def stay(order: dict[str, Any], say: Say, hear: Hear, orders: int) -> None:
    """Start the program of an order, and wait for its end; `hear` gives what comes from `orders`."""
    try:
        process = subprocess.Popen(  # noqa: S603 -- the program that the host names, in a sandbox
            order["argv"],
            executable=order["program"],
            cwd=order["folder"],
            env={**os.environ, **order["environment"]},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        say({"unstarted": _reason(error)})
        return
    order.clear()
    _let_go_of_streams()
    say({"started": True})
    say({"ended": _ending(process.pid, say, hear, orders)})


def _let_go_of_streams() -> None:
    """The program's output ends when the program closes it, not when this process does."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in range(3):
        os.dup2(null, stream)
    os.close(null)


def _ending(program: int, say: Say, hear: Hear, orders: int) -> int:
    """The exit status of the program, or minus its signal; until then orders are obeyed."""
    waiting = select.poll()
    waiting.register(orders, select.POLLIN)
    waiting.register(ended := _descriptor_of_endings(), select.POLLIN)
    while (status := _reaped(program)) is None:
        for descriptor, _ in waiting.poll():
            if descriptor == ended:
                os.read(ended, _WAKE_BYTES)
            elif (order := hear()) is None:
                waiting.unregister(orders)  # the host is gone, and this process soon
            else:
                _obey(json.loads(order), say)
    return status


def _descriptor_of_endings() -> int:
    """A descriptor that can be read whenever a child has ended."""
    ended, wakes = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ended


def _reaped(program: int) -> int | None:
    """Take in whatever has ended; how the program did, if it is among that."""
    with contextlib.suppress(ChildProcessError):
        while True:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == program:
                return os.waitstatus_to_exitcode(status)
            if process == 0:
                break
    return None


def _obey(order: dict[str, Any], say: Say) -> None:
    """Stop or continue all processes of the program.

    One signal to all: the kernel sends it under the lock that each fork takes, so that a process which forks
    without end is stopped together with the child that it was about to have.
    """
    is_suspending = bool(order["suspend"])
    with contextlib.suppress(ProcessLookupError):  # the program has ended
        os.kill(_ALL, signal.SIGSTOP if is_suspending else signal.SIGCONT)
    if is_suspending:
        say({"suspended": True})


def _reason(error: OSError | ValueError) -> str:
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it holds a NUL"
