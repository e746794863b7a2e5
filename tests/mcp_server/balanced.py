"""Servers of `tests.mcp_server.everything` on one PostgreSQL behind haproxy, which sends requests to each in turn."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.deploy.balancer import QUICK, Balancer, balancer, free_port
from tests.mcp_server.served import ROOT, everything_served, wait_for
from tests.storage.cluster import cluster

CONFIGURATION = """
database: {{url: "{url}", single: true, key: "the same on all of these servers"}}
"""
IN_TURN = QUICK.replace("balance leastconn", "balance roundrobin")


class Balanced:
    """The servers, and what stands before them."""

    def __init__(self, folder: Path, processes: "list[subprocess.Popen[bytes]]", ports: list[int]) -> None:
        self._folder = folder
        self.processes = processes
        self.addresses = [f"127.0.0.1:{port}" for port in ports]
        self.front: Balancer

    @property
    def effects(self) -> list[str]:
        """The lines that `append_line` wrote."""
        return (self._folder / "effects").read_text().splitlines()

    def kill(self, number: int) -> None:
        """End a server without a word."""
        self.processes[number].kill()
        self.processes[number].communicate()


@contextlib.contextmanager
def balanced(folder: Path, url: str, count: int = 2) -> Iterator[Balanced]:
    """Servers that run, on the database of a URL."""
    ports = [free_port() for _ in range(count)]
    processes = []
    try:
        for number, port in enumerate(ports):
            home = folder / f"server-{number}"
            (home / ".agent").mkdir(parents=True, mode=0o700)
            (home / ".agent" / "config.yml").write_text(CONFIGURATION.format(url=url))
            own = {
                "HOME": str(home),
                "TOOLKEEP_HOME": str(home / "state"),
                "EFFECTS": str(folder / "effects"),
            }
            command = [sys.executable, "-m", "tests.mcp_server.everything", str(port), "shipped"]
            process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, **own}, stderr=subprocess.PIPE)
            processes.append(process)
        for process, port in zip(processes, ports, strict=True):
            wait_for(process, port)
        made = Balanced(folder, processes, ports)
        more = "".join(f"    server keep-{n} {made.addresses[n - 1]}\n" for n in range(3, count + 1))
        with balancer(folder, made.addresses[:2], f"{IN_TURN}\n{more}") as made.front:
            made.front.await_statuses(*["UP"] * count)
            yield made
    finally:
        said = b""
        for process in processes:
            process.terminate()
            said += process.communicate(timeout=60)[1] or b""
    assert not re.search(rb"Traceback|Error", said), said.decode()


@contextlib.contextmanager
def served(folder: Path, layer: str) -> Iterator[str]:
    """The URL of a server, or as the environment says: LAYER is another layer, or a number of servers."""
    wanted: Any = os.environ.get("LAYER", layer)
    if not wanted.isdigit():
        with everything_served(folder / "home", wanted) as url:
            yield url
        return
    with cluster() as postgres, balanced(folder, postgres.clean(), int(wanted)) as servers:
        yield f"{servers.front.url}/mcp"
