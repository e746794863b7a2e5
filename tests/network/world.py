"""An internet of our own: network and mount namespaces with public-looking addresses, DNS and TLS.

Scenarios are async functions named `test_…` in a module below `tests/network/inside/`. All scenarios of one
module run in one process inside the namespaces (`python -m tests.network.world MODULE`), each with a fresh
`World`; the test module outside reports them one by one.
"""

import asyncio
import contextlib
import importlib
import inspect
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.network.authority import Authority

ROOT = Path(__file__).resolve().parents[2]

PUBLIC = "93.184.216.34"
OTHER_PUBLIC = "93.184.216.35"
PUBLIC_6 = "2606:2800:220:1::34"
PRIVATE = "10.0.0.5"
METADATA = "169.254.169.254"
MAPPED = f"::ffff:{PRIVATE}"
LOCAL = "127.0.0.1"
RESOLVER = "127.0.0.53"

_ADDRESSES = (f"{PUBLIC}/32", f"{OTHER_PUBLIC}/32", f"{PUBLIC_6}/128", f"{PRIVATE}/32", f"{METADATA}/32")

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class World:
    """What one scenario sees: names that it sets, servers that it starts."""

    def __init__(self, authority: Authority) -> None:
        self.names: dict[str, list[list[str]]] = {}
        """The answers for a name; each list of addresses is given once, the last one for ever."""
        self.asked: list[str] = []
        """The names that the resolver was asked for, in order."""
        self.authority = authority
        self._stack = contextlib.AsyncExitStack()

    def name(self, name: str, *answers: list[str]) -> None:
        """What a name resolves to: one list of addresses after the other."""
        self.names[name] = list(answers)

    async def serve(self, serve: Serve, address: str, port: int, *, names: list[str] | None = None) -> None:
        """Serve on an address, with TLS for `names` where they are given."""
        context = None
        if names is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.authority.certificate(names))
        server = await asyncio.start_server(_closing(serve), address, port, ssl=context)
        self._stack.push_async_callback(_stop, server)

    async def hold(self, held: AbstractAsyncContextManager[Any]) -> None:
        """Have something closed when the scenario ends."""
        await self._stack.enter_async_context(held)

    async def resolve(self) -> None:
        """Answer for the names, over UDP."""
        transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: _Resolver(self), local_addr=(RESOLVER, 53)
        )
        self._stack.callback(transport.close)

    async def end(self) -> None:
        await self._stack.aclose()


async def _stop(server: asyncio.Server) -> None:
    server.close()


def _closing(serve: Serve) -> Serve:
    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError, asyncio.CancelledError):
            await serve(reader, writer)
        writer.close()

    return served


class _Resolver(asyncio.DatagramProtocol):
    """Enough of RFC 1035 to answer questions for A and AAAA."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._given: dict[str, int] = {}

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, address: Any) -> None:
        end = data.index(0, 12)
        labels, at = [], 12
        while at < end:
            labels.append(data[at + 1 : at + 1 + data[at]].decode())
            at += 1 + data[at]
        name, kind = ".".join(labels).lower(), int.from_bytes(data[end + 1 : end + 3], "big")
        found = self._addresses(name, kind)
        status = 3 if found is None else 0
        records = b"".join(
            b"\xc0\x0c"
            + kind.to_bytes(2, "big")
            + b"\0\1"
            + bytes(4)
            + len(packed).to_bytes(2, "big")
            + packed
            for packed in found or ()
        )
        head = (
            data[:2] + bytes((0x81, 0x80 | status)) + b"\0\1" + len(found or ()).to_bytes(2, "big") + bytes(4)
        )
        self._transport.sendto(head + data[12 : end + 5] + records, address)

    def _addresses(self, name: str, kind: int) -> list[bytes] | None:
        import ipaddress

        if kind == 1:
            self._world.asked.append(name)
        if name not in self._world.names:
            return None
        answers = self._world.names[name]
        turn = f"{name}/{kind}"
        given = self._given.get(turn, 0)
        self._given[turn] = given + 1
        addresses = [ipaddress.ip_address(text) for text in answers[min(given, len(answers) - 1)]]
        return [address.packed for address in addresses if address.version == (4 if kind == 1 else 6)]


# --- outside -------------------------------------------------------------------------------------


def scenarios(module: ModuleType) -> list[str]:
    """The names of the scenarios of a module."""
    return [name for name in vars(module) if name.startswith("test_")]


def run_inside(module: ModuleType, seconds: float = 120) -> dict[str, str]:
    """What is wrong with each scenario of a module; empty where nothing is."""
    missing = [program for program in ("unshare", "ip", "mount") if shutil.which(program) is None]
    if missing:
        _missing(f"there is no program {missing[0]}")
    as_root = [] if os.geteuid() == 0 else ["-Ur"]
    command = ["unshare", *as_root, "-n", "-m", "--propagation", "private"]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        _missing("namespaces cannot be made here")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [*command, sys.executable, "-m", "tests.network.world", module.__name__, folder],
            capture_output=True, text=True, timeout=seconds, check=False, cwd=ROOT,
            env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin", "PYTHONWARNINGS": "error"},
        )  # fmt: skip
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    results: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return results


def _missing(what: str) -> None:
    if os.environ.get("CI"):
        pytest.fail(what)
    pytest.skip(what)


# --- inside --------------------------------------------------------------------------------------


def _set_up(folder: Path) -> None:
    def run(*words: str) -> None:
        subprocess.run(words, check=True)

    run("ip", "link", "set", "lo", "up")
    for address in _ADDRESSES:
        run("ip", "addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
    files = {
        "/etc/resolv.conf": f"nameserver {RESOLVER}\nsearch corp.example\noptions timeout:1 attempts:1\n",
        "/etc/nsswitch.conf": "hosts: files dns\n",
    }
    for name, text in files.items():
        copy = folder / Path(name).name
        copy.write_text(text)
        run("mount", "--bind", str(copy), os.path.realpath(name))


@contextlib.asynccontextmanager
async def _world(authority: Authority) -> AsyncIterator[World]:
    world = World(authority)
    await world.resolve()
    try:
        yield world
    finally:
        await world.end()


async def _result(
    scenario: Callable[[World], Awaitable[None]], authority: Authority, seconds: float = 30
) -> str:
    try:
        async with asyncio.timeout(seconds), _world(authority) as world:
            await scenario(world)
    except Exception:  # noqa: BLE001 -- whatever it is, it is reported
        return traceback.format_exc()
    return ""


def main() -> None:
    module, folder = importlib.import_module(sys.argv[1]), Path(sys.argv[2])
    _set_up(folder)
    authority = Authority(folder)
    os.environ["SSL_CERT_FILE"] = str(authority.file)
    os.environ["HOME"] = str(folder)
    results = {}
    for name in scenarios(module):
        scenario = getattr(module, name)
        if not inspect.iscoroutinefunction(scenario):
            raise TypeError(f"{name} is not async")
        seconds = getattr(module, "SECONDS", 30)
        results[name] = asyncio.run(_result(scenario, authority, seconds))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
