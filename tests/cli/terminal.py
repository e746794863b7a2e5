"""Runs the command as a person does, on a terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Sequence


def on_a_terminal(arguments: Sequence[str], answer: str = "", *, cwd: str = "/", **environment: str) -> str:
    """What a person sees who runs the command on a terminal and types an answer."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "toolkeep", *arguments]
    variables = {**os.environ, **environment}
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=variables
    ) as process:
        os.close(slave)
        os.write(master, answer.encode())
        shown = b""
        while True:
            try:
                shown += os.read(master, 65536)
            except OSError:  # the terminal closed
                break
        process.wait()
    os.close(master)
    return shown.decode()
