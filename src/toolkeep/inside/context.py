"""What a tool may ask of its one call, made from the values that came with the request.

toolkeep's own `ToolContext` where the tool has imported it, and else a twin of it. Nothing is ever cancelled
here: a worker is killed. Progress goes out as frames before the reply, no more of them than the host takes.
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
"""Of progress the first 500 are all told, then one in so many seconds: fewer than 1,000 in ten minutes, which
is the longest call and the most that the host hears."""

_MESSAGE_CHARS: Final = 200
_LARGEST: Final = 1 << 63

Send = Callable[[bytes], None]


def _discard(done: float, total: float | None, message: str) -> None:
    """Nobody listens for progress."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """As toolkeep's ToolContext, for a tool that knows nothing of toolkeep."""

    agent: str = "local"
    correlation_id: str = ""
    conversation_id: str = ""
    session_id: str = ""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_progress: Callable[[float, float | None, str], None] = field(default=_discard, repr=False)
    is_cancelled: Callable[[], bool] = field(default=_never, repr=False)

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Tell the caller how far the work is."""
        self.on_progress(done, total, message)

    def check_cancelled(self) -> None:
        """Nothing: whoever gives up kills this process."""

    def secret(self, name: str) -> str:
        """The secret that the operator gave to this tool; LookupError if there is none."""
        if name not in self.secrets:
            raise LookupError(f"no secret named {name!r} was given to this call")
        return self.secrets[name]


def make_context(values: Mapping[str, Any], send: Send) -> Any:
    """The context of the call."""
    kind = getattr(sys.modules.get("toolkeep.definitions.context"), "ToolContext", Context)
    return kind(**values, on_progress=Progress(send).tell)


class Progress:
    """Tells progress, from any thread of this process; one that the tool forks off has no voice."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._told = 0
        self._last = -math.inf

    def tell(self, done: float, total: float | None, message: str) -> None:
        """Send it, unless too much was told already."""
        said = [_number(done), None if total is None else _number(total), _text(message)]
        body = json.dumps({"progress": said}, ensure_ascii=False, separators=(",", ":")).encode()
        if os.getpid() != self._process:
            return
        with self._lock:
            now = time.monotonic()
            if self._told >= _FREELY and now - self._last < _INTERVAL_S:
                return
            self._told += 1
            self._last = now
            self._send(body)


def _number(value: float) -> float:
    found = value if isinstance(value, int) and abs(value) < _LARGEST else float(value)
    if not math.isfinite(found):
        raise ValueError("progress is told in finite numbers")
    return found


def _text(message: str) -> str:
    return str(message)[:_MESSAGE_CHARS].encode("utf-8", "replace").decode()
