"""Plans and pools for the tests of the sandbox, and a look at what is left on the machine."""

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.plan import Grant, Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.progress_frames import Listener, nobody
from toolkeep.sandbox.seccomp_bpf import Program
from toolkeep.sandbox.seccomp_filters import for_level
from toolkeep.sandbox.worker_exchange import Reply
from toolkeep.sandbox.worker_pool import Key, Pool, PoolSize

HERE = str(Path(__file__).resolve().parent)
LEVELS = (Isolation.STANDARD, Isolation.STRICT, Isolation.RESTRICTED)
OUTPUT_BYTES = 1 << 20
POORER = str(Path(HERE) / "poorer.py")
"""Runs a command as on a poorer machine."""


ALLOW_ALL = Program(struct.pack("<HBBI", 0x06, 0, 0, 0x7FFF0000))
"""For tests of what holds without the filter."""


def without_filter(made: Recipe) -> Recipe:
    return replace(made, worker=replace(made.worker, filter=ALLOW_ALL))


def recipe(
    level: Isolation,
    tool: str,
    *,
    read: tuple[str, ...] = (),
    write: tuple[str, ...] = (),
    limits: ResourceLimits | None = None,
    may_spawn: bool = False,
    has_proc: bool = False,
    tree_bound: Mechanism = Mechanism.MEMORY_WATCH,
) -> Recipe:
    """Workers that run a function of `subjects`."""
    has_processes = may_spawn or level is Isolation.STANDARD
    reference = tool if ":" in tool else f"subjects:{tool}"
    return Recipe(
        zygote=ZygotePlan(level=level, code=(HERE,), read=read, write=write, has_proc=has_proc),
        worker=WorkerPlan(
            tool=reference,
            level=level,
            filter=for_level(level, may_spawn=may_spawn).program(),
            import_paths=(HERE,),
            may_spawn=may_spawn,
            memory_by=tree_bound if has_processes else Mechanism.MEMORY_LIMIT,
            limits=limits or ResourceLimits(),
        ),
        grant=Grant(read=read, write=write, run=("/usr",) if may_spawn else ()),
    )


class Caller:
    """A pool with the recipes of one test."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.deadline_s = 20.0
        self.output_bytes = OUTPUT_BYTES

    def key(self, made: Recipe) -> Key:
        key = Key(made.worker.tool, made.worker.level, repr(made))
        self.pool.admit(key, made)
        return key

    def is_settled(self) -> bool:
        """Whether one warm worker waits, and no other is alive or on its way."""
        (part,) = self.pool._loops.values()
        waiting = sum(map(len, part._idle.values()))
        living = sum(zygote.workers for zygote in part._zygotes.values())
        return (waiting, living, len(part._ordered)) == (1, 1, 0)

    async def call(self, made: Recipe, **arguments: Any) -> Reply:
        return await self.ask(made, {"arguments": arguments})

    async def ask(self, made: Recipe, request: dict[str, Any], on_progress: Listener = nobody) -> Reply:
        body = json.dumps(request).encode()
        return await self.pool.run(self.key(made), body, self.deadline_s, self.output_bytes, on_progress)


@asynccontextmanager
async def caller(size: PoolSize | None = None) -> AsyncIterator[Caller]:
    pool = Pool(size or PoolSize(warm_per_kind=1))
    try:
        yield Caller(pool)
    finally:
        await pool.close()


def descendants(ancestor: int) -> set[int]:
    """The processes below one, in whatever namespace."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                after_name = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if after_name[0] not in "ZX":  # dead, reaped or not
                parents[int(entry.name)] = int(after_name[1])
    found = {ancestor}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {ancestor}


def open_to_all(folder: Path) -> None:
    """Let any user enter a folder and those above it; what they allow already stays allowed."""
    for place in (folder, *folder.parents):
        mode = place.stat().st_mode
        if mode & 0o055 != 0o055:
            place.chmod(mode | 0o055)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def mounts() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


async def until(is_true: Callable[[], bool], most_s: float = 60.0) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + most_s
    while not is_true():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.01)
    return True
