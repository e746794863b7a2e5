"""Runs one program until it ends, in a worker that has narrowed itself already, and says how it ended.

The worker is the first process of its namespace: it takes in the orphans of the program, and everything that
the program started ends with it. The program has the standard streams to itself; what the worker says to the
host goes through a pipe that the program does not have.
"""

import os
import subprocess
from collections.abc import Callable
from typing import Any

Say = Callable[[dict[str, Any]], None]


def stay(order: dict[str, Any], say: Say) -> None:
    """Start the program of an order, and wait for its end."""
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
    say({"ended": _ending(process.pid)})


def _let_go_of_streams() -> None:
    """The program's output ends when the program closes it, not when this process does."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for stream in range(3):
        os.dup2(null, stream)
    os.close(null)


def _ending(program: int) -> int:
    """The exit status of the program, or minus its signal; whatever else ends meanwhile is taken in."""
    while True:
        process, status = os.wait()
        if process == program:
            return os.waitstatus_to_exitcode(status)


def _reason(error: OSError | ValueError) -> str:
    return os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it holds a NUL"
