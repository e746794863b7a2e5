"""Runs one call of a tool in a process of its own, without any confinement (SBX-1: `unconfined`).

Started where this machine cannot confine a tool and the operator named it. The tool can do whatever this user
can. Its host kills it and its process group after the call; a process that left the group goes on. Limits of
memory and processor time bound accidents.
"""

import contextlib
import gc
import json
import os
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any, Final

from . import call_handler, load

_SAID_CHARS: Final = 1000
"""Characters of an import error: escaped, they fit into what the host reads before a worker is ready."""


def main(_: Sequence[str]) -> None:
    """Read a plan and a request from standard input, and answer on standard output."""
    pipes = _Pipes()
    plan = json.loads(pipes.receive() or b"{}")
    _limit(plan["limits"])
    # After the standard library, as in any Python: an installed package must not shadow a standard module.
    sys.path += plan["import_paths"]
    load.Packages(plan["packages"]).install()
    gc.enable()
    try:
        call = load.load(plan["tool"])
    except BaseException as error:  # noqa: BLE001 -- whatever the tool's own code raises at import
        # The request was not read yet, so the text cannot hold an argument and may be reported.
        said = {"why": load.import_failure_kind(error), "text": str(error)[:_SAID_CHARS]}
        pipes.send(call_handler.encode({"unloaded": {**call_handler.describe(error), **said}}))
        return
    pipes.send(call_handler.encode({"ready": True}))
    request = pipes.receive()
    if request:
        pipes.send(call_handler.answer(call, request, pipes.send))
    # Without atexit handlers or threads of the tool: the answer is given.
    os._exit(0)


class _Pipes:
    """Frames from and to the host. The tool's own standard streams lead nowhere: it cannot spoil these."""

    def __init__(self) -> None:
        self._requests: IO[bytes] = os.fdopen(os.dup(0), "rb")
        self._replies: IO[bytes] = os.fdopen(os.dup(1), "wb", buffering=0)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(nowhere, stream)
        os.close(nowhere)
        self._sending = threading.Lock()

    def receive(self) -> bytes:
        """The next frame; empty at the end."""
        return self._requests.read(int.from_bytes(self._requests.read(4), "big"))

    def send(self, body: bytes) -> None:
        """Send a frame; threads of a tool may do so at once."""
        rest = memoryview(len(body).to_bytes(4, "big") + body)
        with self._sending:
            while rest:
                rest = rest[self._replies.write(rest) :]


def _limit(limits: dict[str, Any]) -> None:
    try:
        import resource
    except ImportError:  # Windows
        return
    for name, most in (("RLIMIT_AS", limits["memory_bytes"]), ("RLIMIT_CPU", limits["cpu_s"])):
        # macOS has no RLIMIT_AS; none of them is promised here.
        with contextlib.suppress(AttributeError, ValueError, OSError):
            resource.setrlimit(getattr(resource, name), (most, most))
