"""Lanes for one call in a process: fresh confined workers of the pool, and what one could have instead."""

import asyncio
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from toolkeep.sandbox.isolation_levels import Isolation, memory_bound
from toolkeep.sandbox.plan import Grant, Recipe, WorkerPlan, ZygotePlan
from toolkeep.sandbox.seccomp_filters import for_level
from toolkeep.sandbox.worker_exchange import Ending
from toolkeep.sandbox.worker_pool import Key, Pool, PoolSize

Lane = Callable[[], Awaitable[None]]

REQUEST = json.dumps({"arguments": {"value": [1, "a"]}}).encode()
_HERE = str(Path(__file__).resolve().parent.parent / "workloads")
_LIVE = """
import sys, json
while line := sys.stdin.buffer.readline():
    request = json.loads(line)
    sys.stdout.buffer.write(json.dumps({"ok": request["arguments"]["value"]}).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""


class Lanes:
    """Makes the lanes of one run, and ends what they started."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._real = os.path.realpath(self._folder.name)
        self._warm = Pool()
        self._cold = Pool(PoolSize(warm_per_kind=0))
        self._files = iter(range(10**6))
        self._live: asyncio.subprocess.Process | None = None

    async def open(self) -> dict[str, Lane]:
        """Every lane, by name."""
        self._live = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-S", "-E", "-c", _LIVE, stdin=-1, stdout=-1
        )
        folder = self._real
        lanes: dict[str, Lane] = {
            "live reused process": self._live_call,
            "restricted, pooled": self._pooled(self._warm, Isolation.RESTRICTED),
            "strict, pooled, same grant": self._pooled(self._warm, Isolation.STRICT, folder),
            "strict, pooled, narrows to another grant": lambda: self._narrowed(folder),
            "strict, forked on demand": self._pooled(self._cold, Isolation.STRICT, folder),
            "bare os.fork": _fork,
            "cold python -I -S -E": _cold,
        }
        if shutil.which("bwrap"):
            lanes["bwrap and cold python"] = _bwrap
        if importlib.util.find_spec("sandlock"):
            lanes["sandlock and cold python"] = _sandlock
        return lanes

    async def close(self) -> None:
        """End everything."""
        await self._warm.close()
        await self._cold.close()
        if self._live is not None:
            self._live.terminate()
            await self._live.wait()
        self._folder.cleanup()

    async def _live_call(self) -> None:
        if self._live is None or self._live.stdin is None or self._live.stdout is None:
            raise RuntimeError("nobody is there")
        self._live.stdin.write(REQUEST + b"\n")
        if json.loads(await self._live.stdout.readline())["ok"] != [1, "a"]:
            raise RuntimeError("a wrong answer")

    def _pooled(self, pool: Pool, level: Isolation, folder: str = "") -> Lane:
        key = Key(f"same {folder}", level, "")
        pool.admit(key, _recipe(level, (folder,) if folder else (), Grant(read=(folder,) if folder else ())))
        return lambda: _run(pool, key)

    async def _narrowed(self, folder: str) -> None:
        file = Path(folder) / str(next(self._files))
        file.touch()
        key = Key("another", Isolation.STRICT, str(file))
        self._warm.admit(key, _recipe(Isolation.STRICT, (folder,), Grant(read=(str(file),))))
        await _run(self._warm, key)


def _recipe(level: Isolation, read: tuple[str, ...], grant: Grant) -> Recipe:
    return Recipe(
        zygote=ZygotePlan(level=level, code=(_HERE,), read=read),
        worker=WorkerPlan(
            tool="echo:echo",
            level=level,
            filter=for_level(level).program(),
            import_paths=(_HERE,),
            memory_by=memory_bound(level),
        ),
        grant=grant,
    )


async def _run(pool: Pool, key: Key) -> None:
    reply = await pool.run(key, REQUEST, 30.0, 1 << 20)
    if reply.ending is not Ending.OK or reply.value != [1, "a"]:
        raise RuntimeError(f"a wrong answer: {reply}")


async def _fork() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)  # noqa: ASYNC222 -- that is what is timed


async def _cold() -> None:
    await _started(sys.executable, "-I", "-S", "-E", "-c", "pass")


async def _bwrap() -> None:
    flags = ("--ro-bind", "/", "/", "--dev", "/dev", "--unshare-all", "--die-with-parent")
    await _started("bwrap", *flags, sys.executable, "-I", "-S", "-E", "-c", "pass")


async def _sandlock() -> None:
    from sandlock import Sandbox

    box = Sandbox(fs_readable=["/"], max_memory="512M", max_processes=10)
    result = await asyncio.to_thread(box.run, [sys.executable, "-I", "-S", "-E", "-c", "pass"])
    if not result.success:
        raise RuntimeError("sandlock failed")


async def _started(*command: str) -> None:
    process = await asyncio.create_subprocess_exec(*command)
    if await process.wait():
        raise RuntimeError(f"{command[0]} failed")
