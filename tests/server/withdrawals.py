"""How soon a revoked token, a disabled tool and a withdrawn grant count on another server.

    python -m tests.server.withdrawals --tries 200

Two servers on one PostgreSQL. Each try changes something through one of them, or by a process of its own, and
calls the other until it refuses; all of them must take less than a second.
"""

import argparse
import asyncio
import os
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.server.many_servers import KEY, Client, Server
from tests.storage.cluster import cluster
from toolkeep import open_keep
from toolkeep.config.settings import DatabaseSettings
from toolkeep.keep.keep import Keep
from toolkeep.storage.postgres.shared_state import open_shared_tokens
from toolkeep.stores.api_tokens import Tokens

CALL = {"arguments": {"line": "x"}}
MOST_S = 1.0


class Address:
    """Where a server is, for a client."""

    def __init__(self, server: Server) -> None:
        self.url = f"http://127.0.0.1:{server.port}"


class Tries:
    """The two servers, and who changes something."""

    def __init__(self, servers: list[Server], tokens: Tokens, keep: Keep) -> None:
        self._tokens = tokens
        self._keep = keep
        self._addresses = [Address(server) for server in servers]
        self._admin = self._client(0, tokens.make("admin", ["admin"], agent="operator").text)
        self._writer = self._client(1, tokens.make("writer", ["call"], agent="writer").text)

    def _client(self, number: int, token: str) -> Client:
        return Client(self._addresses[number], token)

    async def token(self) -> float:
        """A token that is revoked through the other server."""
        made = self._tokens.make("short", ["call"], agent="writer")
        client = self._client(1, made.text)
        await self._until(client, 200)
        await self._changed(f"/v1/tokens/{made.token.id}:revoke")
        return await self._until(client, 401)

    async def tool(self) -> float:
        """A tool that is disabled through the other server."""
        await self._changed("/v1/tools/append:disable")
        took = await self._until(self._writer, 0)
        await self._changed("/v1/tools/append:enable")
        await self._until(self._writer, 200)
        return took

    async def grant(self) -> float:
        """A grant that is withdrawn by a command."""
        await asyncio.to_thread(self._keep.withdraw, "writer")
        took = await self._until(self._writer, 0)
        await asyncio.to_thread(self._keep.restore, "writer")
        await self._until(self._writer, 200)
        return took

    async def _changed(self, path: str) -> None:
        status, said, _ = await self._admin.send("POST", path, {})
        if status not in (200, 204):
            raise RuntimeError(f"{path}: {status} {said}")

    @staticmethod
    async def _until(client: Client, wanted: int) -> float:
        """Seconds until a call is answered so; 0 stands for any refusal."""
        began = time.monotonic()
        while True:
            asked = time.monotonic()
            status, said, _ = await client.send("POST", "/v1/tools/append:call", CALL)
            if status == wanted or (not wanted and status != 200):
                return asked - began
            if asked - began > 10:
                raise RuntimeError(f"it never counted: {status} {said}")


def of(times: list[float], part: float) -> str:
    """A quantile in milliseconds."""
    return f"{1000 * sorted(times)[min(len(times) - 1, int(part * len(times)))]:.0f}"


Kinds = dict[str, Callable[[], Awaitable[float]]]


async def measure(tries: int, kinds: Kinds) -> dict[str, list[float]]:
    return {name: [await once() for _ in range(tries)] for name, once in kinds.items()}


def soak(tries: int) -> dict[str, list[float]]:
    """The seconds that each try took; raises where one took far longer than it may."""
    with tempfile.TemporaryDirectory() as name, cluster() as database:
        url, folder = database.clean(), Path(name)
        servers = [Server(number + 1, folder, folder / "effects") for number in range(3)]
        for server in servers:
            server.configure(url, is_single=True)
        *running, operator = servers
        given: dict[str, Any] = {"url": url, "key": KEY, "is_single": True}
        tokens = Tokens(open_shared_tokens(DatabaseSettings(**given), lambda: b"", None))
        try:
            for server in running:
                server.start()
            os.environ["HOME"] = str(folder / operator.name / "home")
            os.environ["TOOLKEEP_HOME"] = str(folder / operator.name / "state")
            with open_keep(project=folder / operator.name / "project", built_in=False) as keep:
                keep.declare_agent("writer")
                tried = Tries(running, tokens, keep)
                kinds: Kinds = {
                    "a revoked token": tried.token,
                    "a disabled tool": tried.tool,
                    "a withdrawn grant": tried.grant,
                }
                return asyncio.run(measure(tries, kinds))
        finally:
            tokens.close()
            for server in running:
                server.end(signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser(description="How soon withdrawals count on another server.")
    parser.add_argument("--tries", type=int, default=200)
    options = parser.parse_args()
    for name, times in soak(options.tries).items():
        spread = ", ".join(f"p{round(100 * part)} {of(times, part)}" for part in (0.5, 0.95, 0.99, 1.0))
        print(f"{name}: {spread} ms ({len(times)} tries)")
        if max(times) >= MOST_S:
            raise RuntimeError(f"{name} took {max(times):.2f} s")


if __name__ == "__main__":
    main()
