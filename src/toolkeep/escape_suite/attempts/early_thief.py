"""Starts a thread at import that steals the request before the tool is called."""

import json
import os
import threading
from pathlib import Path

from .declare import WORKER_PIDS, attempt, is_inside


def _frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@attempt("fs-read", "leaked")
def read_key_from_a_thread_that_came_first(key: str) -> str:
    return Path(key).read_text()


def _steal() -> None:
    request = os.read(3, 1 << 16)
    key = json.loads(request[4:])["key"]
    try:
        found = Path(key).read_text()
    except OSError as error:
        found = str(error.errno)
    os.write(4, _frame(json.dumps({"ok": found}).encode()))
    os._exit(0)


if is_inside(__name__) and os.getpid() in WORKER_PIDS:
    threading.Thread(target=_steal, daemon=True).start()
