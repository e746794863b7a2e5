"""Tools for the soak: plain functions that a configuration names, so that a worker imports little."""

import ctypes
import os
import signal
import sys
import time

PR_SET_NAME = 15


def behave(kind: str) -> str:
    """Do something well or badly."""
    if kind == "spin":
        _spin()
    elif kind == "sleep":
        time.sleep(60)
    elif kind == "crash":
        os.kill(
            os.getpid(), signal.SIGKILL
        )  # the first process of a namespace does not die of its own signal
        os._exit(9)
    elif kind == "raise":
        raise ValueError(kind)
    elif kind == "flood":
        sys.stdout.write("x" * 2_000_000)
        return "y" * 2_000_000
    return kind


def spin_as_a_tree(mark: str, processes: int) -> None:
    """Fork processes that spin, each in a session of its own, all under one name."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, mark.encode(), 0, 0, 0)
    for _ in range(processes - 1):
        if os.fork() == 0:
            os.setsid()
            _spin()
    _spin()


def _spin() -> None:
    while True:
        pass
