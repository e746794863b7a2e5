"""The server of `tests.mcp_server.everything` as a process, over HTTP."""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tests.deploy.balancer import free_port

ROOT = Path(__file__).resolve().parent.parent.parent


@contextmanager
def everything_served(home: Path, layer: Literal["plain", "shipped"] = "plain") -> Iterator[str]:
    """The URL, once it answers: uvicorn alone, or the HTTP layer of `toolkeep serve` with a token."""
    port = free_port()
    home.mkdir(mode=0o700, exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.mcp_server.everything", str(port), layer],
        cwd=ROOT,
        env={**os.environ, "TOOLKEEP_HOME": str(home)},
        stderr=subprocess.PIPE,
    )
    try:
        wait_for(process, port)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=30)
    assert not re.search(rb"Traceback|Error", errors or b""), errors.decode()


def wait_for(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise RuntimeError("the server did not start")
