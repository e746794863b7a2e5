"""A target process: reports its identity, then its state on each input line."""

import ctypes
import json
import os
import resource
import signal
import sys

_NEWUSER = 0x10000000
_SET_PTRACER = 0x59616D61


def main(secret: str, key: str) -> None:
    """Hold the secret in memory and the key open, and wait."""
    hits: list[int] = []
    signal.signal(signal.SIGURG, lambda number, _: hits.append(number))
    libc = ctypes.CDLL(None, use_errno=True)
    # Allow everybody to trace it: only the sandbox must prevent it, not Yama.
    libc.prctl(_SET_PTRACER, ctypes.c_ulong(2**64 - 1), 0, 0, 0)
    buffer = ctypes.create_string_buffer(secret.encode(), 64)
    told, tell = os.pipe()
    namespaced = os.fork()
    if namespaced == 0:
        libc.unshare(_NEWUSER)
        os.write(tell, b"1")
        signal.pause()
    os.read(told, 1)
    descriptor = os.open(key, os.O_RDONLY)
    _say(
        {
            "pid": os.getpid(),
            "group": os.getpgrp(),
            "address": ctypes.addressof(buffer),
            "length": 64,
            "descriptor": descriptor,
            "namespaced": namespaced,
        }
    )
    for _ in sys.stdin:
        _say(_state(hits, buffer.raw))
    os.kill(namespaced, signal.SIGKILL)


def _say(data: object) -> None:
    sys.stdout.write(json.dumps(data) + "\n")
    sys.stdout.flush()


def _state(hits: list[int], memory: bytes) -> list[object]:
    with open("/proc/self/oom_score_adj") as file:
        score = file.read()
    return [
        hits,
        memory.hex(),
        score,
        os.getpriority(os.PRIO_PROCESS, 0),
        sorted(os.sched_getaffinity(0)),
        os.sched_getscheduler(0),
        resource.getrlimit(resource.RLIMIT_NOFILE),
    ]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
