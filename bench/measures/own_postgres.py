"""A PostgreSQL of the system's package for one run, with its default durability: every commit is synced."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from measures.mcp_load import free_port


class OwnPostgres(NamedTuple):
    """Where it is, and its process."""

    url: str
    process_id: int


@contextlib.contextmanager
def own_postgres() -> Iterator[OwnPostgres]:
    """Start it in a scratch folder, as an ordinary user, and remove it in the end."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    user = pwd.getpwnam("postgres").pw_uid if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="toolkeep-pg-"))
    if user is not None:
        os.chown(folder, user, -1)
    try:
        make: list[str | Path] = [
            programs / "initdb",
            "--pgdata",
            folder / "data",
            "--username",
            "keep",
            "--auth",
            "trust",
        ]
        subprocess.run(make, user=user, check=True, capture_output=True, cwd="/")
        port = free_port()
        options = ["-c", "listen_addresses=127.0.0.1", "-c", "log_min_messages=fatal"]
        process = subprocess.Popen(
            [programs / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder, *options],
            user=user,
            cwd="/",
            stderr=subprocess.DEVNULL,
        )
        try:
            ready: list[str | Path] = [
                programs / "pg_isready",
                "--host",
                folder,
                "--port",
                str(port),
                "--quiet",
            ]
            while subprocess.run(ready, check=False).returncode:
                if process.poll() is not None:
                    raise RuntimeError("PostgreSQL did not start")
                time.sleep(0.05)
            yield OwnPostgres(f"postgresql://keep@127.0.0.1:{port}/postgres", process.pid)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
