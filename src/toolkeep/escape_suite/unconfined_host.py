"""A naive host: runs an attempt unconfined and believes everything it reads (control)."""

import contextlib
import functools
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from toolkeep.escape_suite.baits import HERE, Stage

_MOST_BYTES: Final = 8 << 20
_MANY_ARRAYS: Final = 100_000
_MANY_VALUES: Final = 900_000
"""Signs of a flood in the control: more bytes than any attempt may answer with, twice the arrays that a host
accepts (`BRACKETS`), and nearly as many values (`OUTPUT_VALUES`), which take long to parse."""
_HEADER: Final = 4


@dataclass
class Heard:
    """What was read, and how it ended."""

    reply: bytearray
    printed: int
    is_ended: bool
    process: "subprocess.Popen[bytes]"

    def frames(self) -> list[bytes]:
        """The first whole frames; two are too many already."""
        found: list[bytes] = []
        start = 0
        while len(found) < 2 and len(self.reply) >= start + _HEADER:
            end = start + _HEADER + int.from_bytes(self.reply[start : start + _HEADER], "big")
            if end > len(self.reply):
                break
            found.append(bytes(self.reply[start + _HEADER : end]))
            start = end
        return found

    def value(self) -> Any:
        """Value of the first frame; its error if it has none."""
        with contextlib.suppress(ValueError, IndexError, RecursionError, AttributeError):
            said = json.loads(self.frames()[0])
            return said["ok"] if "ok" in said else f"{said.get('raised')}: {said.get('where')}"
        return None

    def harm(self) -> list[str]:
        """What would have happened to this host."""
        found = []
        if not self.is_ended:
            found.append("hung")
        if len(self.reply) + self.printed > _MOST_BYTES or self.reply.count(b"[]") > _MANY_ARRAYS:
            found.append("swamped")
        if self.reply.count(b",") > _MANY_VALUES:
            found.append("stalled")
        if len(self.frames()) > 1:
            found.append("doubled")
        if self.is_ended and not self._is_understood():
            found.append("confused")
        return found

    def _is_understood(self) -> bool:
        try:
            said = json.loads(self.frames()[0])
            json.dumps(said, ensure_ascii=False, allow_nan=False).encode()
        except (ValueError, IndexError, RecursionError):
            return False
        return list(said) == ["ok"] and _depth(said) < 100


def _depth(value: Any) -> int:
    depth, layer = 0, [value]
    while layer:
        depth += 1
        inside: list[Any] = []
        for one in layer:
            inside += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        layer = inside
    return depth


@functools.cache
def _input() -> int:
    """Standard input of all children, opened once."""
    return os.open(os.devnull, os.O_RDWR)


def listen(code: Path, module: str, name: str, arguments: dict[str, Any], until: float, **how: Any) -> Heard:
    """Run until it exits (`to_the_end`: until end of file), sends too much, or times out."""
    out, into = os.pipe()
    os.set_inheritable(into, True)  # noqa: FBT003 -- its only argument
    process = subprocess.Popen(  # noqa: S603 -- our own file
        [
            *(sys.executable, "-I", "-S", str(HERE / "control.py")),
            *(str(into), str(code.parent), module, name, json.dumps(arguments)),
        ],
        stdin=_input(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # As a careless host would: the control shows what leaks without the sandbox.
        close_fds=False,
        # The host's whole environment, secret included.
        env=dict(os.environ) | how.get("env", {}),
        process_group=0,
    )
    os.close(into)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, out)
        if process.stdout is not None:
            stack.callback(process.stdout.close)
        return _heard(process, out, until, to_the_end=how.get("to_the_end", False))


def _heard(process: "subprocess.Popen[bytes]", out: int, until: float, *, to_the_end: bool) -> Heard:
    stream = process.stdout.fileno() if process.stdout is not None else -1
    waiting = selectors.DefaultSelector()
    waiting.register(out, selectors.EVENT_READ)
    waiting.register(stream, selectors.EVENT_READ)
    heard = Heard(bytearray(), 0, is_ended=False, process=process)
    end = time.monotonic() + until
    while time.monotonic() < end and len(heard.reply) + heard.printed < 2 * _MOST_BYTES:
        for key, _ in waiting.select(0.02):
            more = os.read(key.fd, 1 << 20)
            if not more:
                waiting.unregister(key.fd)
            if key.fd == out:
                heard.reply += more
                heard.is_ended = heard.is_ended or not more
            else:
                heard.printed += len(more)
        if heard.is_ended or (not to_the_end and (heard.frames() or process.poll() is not None)):
            break
    waiting.close()
    return heard


def end(process: "subprocess.Popen[bytes]", left: list[int]) -> None:
    """Kill what the control left; all of it was started here."""
    for pid in left:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    process.kill()
    process.wait()


def start_concurrent_call(
    code: Path, module: str, name: str, given: dict[str, Any], stage: Stage, arguments: dict[str, Any]
) -> "subprocess.Popen[bytes]":
    """A concurrent unconfined call; exit status 0 means that it was hit."""
    script = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import importlib;"
        "f = getattr(importlib.import_module('attempts.' + sys.argv[2]), sys.argv[3]);"
        "sys.exit(0 if f(**json.loads(sys.argv[4])) == 'hit' else 1)"
    )
    command = [sys.executable, "-I", "-S", "-B", "-c", script, str(code.parent), module, name]
    process = subprocess.Popen([*command, json.dumps(given)], stdin=_input())  # noqa: S603 -- our own code
    while process.poll() is None and not stage.left():
        time.sleep(0.01)
    arguments["other_call_pid"] = process.pid
    if name not in ("wait_to_be_hit", "wait_to_be_answered_for"):
        del arguments["other_call_pid"]
    return process
