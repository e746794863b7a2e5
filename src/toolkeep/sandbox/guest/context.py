"""The `ToolContext` of a call inside a worker, built from values in the request.

toolkeep's own class if the tool imported it, else a class with the same attributes. There is no cancellation
here: the host kills the worker. Progress is rate-limited to what the host accepts, because a frame too many
ends the call.
"""

import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

_FREELY: Final = 500
_INTERVAL_S: Final = 1.5
"""The first 500 progress reports are sent, then one per interval: fewer than 1,000 in ten minutes, which is
the longest call and the most that the host accepts."""

_MESSAGE_CHARS: Final = 200
"""Characters of a progress message: escaped, with two numbers, they fit into the host's `PROGRESS_BYTES`."""
_LARGEST: Final = 1 << 63
"""Integers beyond 64 bits are sent as floats: thousands of digits would exceed the host's
`PROGRESS_BYTES`."""

Send = Callable[[bytes], None]


def _discard(done: float, total: float | None, message: str) -> None:
    """Default progress listener: drops it."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Same attributes as toolkeep's ToolContext, for a tool that does not import toolkeep."""

    agent: str = "local"
    correlation_id: str = ""
    conversation_id: str = ""
    session_id: str = ""
    data: Mapping[str, Any] = field(default_factory=dict, repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_progress: Callable[[float, float | None, str], None] = field(default=_discard, repr=False)
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Report progress to the caller."""
        self.on_progress(done, total, message)

    def check_cancelled(self) -> None:
        """Does nothing: a cancelled call is killed with its process."""

    def secret(self, name: str) -> str:
        """The secret that the operator gave to this tool; LookupError if there is none."""
        if name not in self.secrets:
            raise LookupError(f"no secret named {name!r} was given to this call")
        return self.secrets[name]


def make_context(values: Mapping[str, Any], send: Send) -> Any:
    """The context of a call."""
    kind = getattr(sys.modules.get("toolkeep.definitions.tool_context"), "ToolContext", Context)
    return kind(**values, on_progress=Progress(send).report)


class Progress:
    """Sends progress frames, from any thread. Child processes are silenced."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._sent = 0
        self._last = -math.inf

    def report(self, done: float, total: float | None, message: str) -> None:
        """Send one report, unless the rate limit is reached."""
        said = [_number(done), None if total is None else _number(total), _text(message)]
        body = json.dumps({"progress": said}, ensure_ascii=False, separators=(",", ":")).encode()
        # A forked child shares the pipe but not the lock: its frames could interleave with the parent's.
        if os.getpid() != self._process:
            return
        with self._lock:
            now = time.monotonic()
            if self._sent >= _FREELY and now - self._last < _INTERVAL_S:
                return
            self._sent += 1
            self._last = now
            self._send(body)


def _number(value: float) -> float:
    found = value if isinstance(value, int) and abs(value) < _LARGEST else float(value)
    if not math.isfinite(found):
        raise ValueError("progress must be a finite number")
    return found


def _text(message: str) -> str:
    return str(message)[:_MESSAGE_CHARS].encode("utf-8", "replace").decode()
