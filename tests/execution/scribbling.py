"""A program that stays and goes on writing between calls, for the tests: by a thread, a child, or a fork bomb.

A call begins that, or waits until more was written than before.
"""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any


def append(path: Path) -> None:
    with path.open("a") as file:
        while True:
            file.write("x")
            file.flush()
            time.sleep(0.001)


def by_thread(path: Path) -> None:
    threading.Thread(target=append, args=(path,), daemon=True).start()


def by_child(path: Path) -> None:
    """A grandchild in a session of its own, whose parent is gone."""
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            append(path)
        os._exit(0)
    os.waitpid(child, 0)


def by_successors(path: Path) -> None:
    """A process that writes once and leaves the rest to its child, so that no number lasts."""
    if os.fork():
        return
    while True:
        with path.open("a") as file:
            file.write("x")
        if os.fork():
            os._exit(0)


def by_mutual_help(path: Path) -> None:
    """Two that continue each other without end."""
    first = os.getpid()
    second = os.fork()
    if second == 0:
        by_thread(path)
        while True:
            os.kill(first, signal.SIGCONT)
    threading.Thread(target=_continue, args=(second,), daemon=True).start()


def _continue(process: int) -> None:
    while True:
        os.kill(process, signal.SIGCONT)


class _Event(ctypes.Structure):
    """The kernel's `struct sigevent`."""

    _fields_ = (("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int))


def by_timer(path: Path) -> None:
    """Timers of the kernel that continue it, one after the other for some seconds."""
    libc = ctypes.CDLL(None, use_errno=True)
    event = (ctypes.c_char * 64)()
    ctypes.memmove(event, ctypes.byref(_Event(None, signal.SIGCONT, 0)), ctypes.sizeof(_Event))
    create, settime = (222, 223) if os.uname().machine == "x86_64" else (107, 110)
    for number in range(1, 100):
        timer = ctypes.c_int()
        if libc.syscall(create, 1, event, ctypes.byref(timer)) == 0:
            seconds, twentieths = divmod(number, 20)
            once = (ctypes.c_long * 4)(0, 0, seconds, twentieths * 50_000_000)
            libc.syscall(settime, timer, 0, once, None)
    by_thread(path)


WAYS = {
    "thread": by_thread,
    "child": by_child,
    "successors": by_successors,
    "mutual help": by_mutual_help,
    "timer": by_timer,
}


def answer(arguments: dict[str, Any]) -> int:
    path = Path(arguments["path"])
    if arguments["how"] in WAYS:
        path.touch()
        WAYS[arguments["how"]](path)
    before = path.stat().st_size
    while path.stat().st_size <= before:
        time.sleep(0.001)
    return os.getpid()


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"id": request["id"], "result": answer(request["arguments"])}), flush=True)
