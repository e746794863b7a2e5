"""The client scenarios of the official conformance suite, driven through the product's own commands.

Run by `tests/mcp_client/test_conformance.py`. The suite starts a server for each scenario and runs a client, which
here only hands the scenario over to this process.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.mcp_server.environments import node_with_packages
from tests.network.inside.driver import Scenario, drive
from tests.network.inside.front import serve_front
from tests.network.world import World

SECONDS = 240
HERE = Path(__file__).resolve().parent
_ALONE = ThreadPoolExecutor(1)
"""The suite runs all of its clients at once; they are driven one after the other."""
_FOUND = re.compile(r"^([✓✗]) ([a-z0-9_/-]+): (\d+) passed, (\d+) failed", re.MULTILINE)


def _handed_over(asked: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return drive(Scenario(**asked), Path(folder))


async def _serve_clients(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    asked = json.loads(await reader.readline())
    said = await asyncio.get_running_loop().run_in_executor(_ALONE, _handed_over, asked)
    writer.write(json.dumps(said).encode() + b"\n")
    await writer.drain()
    writer.close()


async def _run(world: World, revision: str) -> dict[str, str]:
    await serve_front(world)
    node, packages = node_with_packages()
    suite = packages / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
    with tempfile.TemporaryDirectory() as folder:
        socket = f"{folder}/driver"
        server = await asyncio.start_unix_server(_serve_clients, socket)
        words = [str(node), str(suite), "client", "--requirements", revision, "--timeout", "120000"]
        words += ["--command", f"{sys.executable} -I -S {HERE / 'handing_over.py'} {socket}"]
        words += ["-o", f"{folder}/results"]
        done = await asyncio.create_subprocess_exec(
            *words, cwd=folder, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "NO_COLOR": "1"},
        )  # fmt: skip
        out, _ = await done.communicate()
        server.close()
    text = out.decode()
    assert done.returncode == 0, text
    return {name: f"{mark} {passed} {failed}" for mark, name, passed, failed in _FOUND.findall(text)}


EXTENSIONS = {
    "auth/client-credentials-jwt", "auth/enterprise-managed-authorization", "auth/dpop", "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
}  # fmt: skip
"""Optional extensions of MCP that are not spoken; no revision requires them."""


async def test_2025_11_25(world: World) -> None:
    found = await _run(world, "2025-11-25")
    assert {name for name, how in found.items() if not how.endswith(" 0")} == EXTENSIONS
    assert len(found) == 25


async def test_2026_07_28(world: World) -> None:
    found = await _run(world, "2026-07-28")
    assert {name for name, how in found.items() if not how.endswith(" 0")} == EXTENSIONS
    assert len(found) == 39
