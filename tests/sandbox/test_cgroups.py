"""A cgroup for each worker that may start processes, on a real cgroup v2: made, filled, swept and removed.

Where cgroup v2 has no memory controller (it is used by version 1 there), groups are made without bounds; what
only the memory controller can show is skipped by name.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.workers import caller, descendants, open_to_all, recipe, until
from toolkeep.sandbox import cgroups
from toolkeep.sandbox.cgroups import Bounds, Cgroups, NoCgroup
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.plan import Recipe, ResourceLimits
from toolkeep.sandbox.proc_stats import host_pid
from toolkeep.sandbox.worker_exchange import Ending, Reply
from toolkeep.sandbox.worker_pool import PoolSize

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = Bounds(memory_bytes=256 << 20, processes=16)
SMALL = ResourceLimits(memory_bytes=256 << 20, processes=16)
SPAWNING = (Isolation.STANDARD, Isolation.STRICT)


def why_not() -> str:
    """Why this machine has no cgroup with a memory controller for us; empty if it has one."""
    groups = Cgroups()
    try:
        groups.open()
    except NoCgroup as error:
        return str(error)
    groups.close()
    return ""


def without_memory_controller() -> None:
    """Make groups that bound nothing, wherever groups can be made."""
    cgroups._give_controllers = lambda base: None
    Bounds.settings = lambda self: iter(())  # type: ignore[method-assign]


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> str:
    """How groups are made here: `full`, or `bare` where there is no memory controller."""
    if not why_not():
        return "full"
    monkeypatch.setattr(cgroups, "_give_controllers", cgroups._give_controllers)
    monkeypatch.setattr(Bounds, "settings", Bounds.settings)
    without_memory_controller()
    if reason := why_not():
        pytest.skip(f"no cgroup v2 can be made here: {reason}")
    return "bare"


@pytest.fixture
def memory_controller() -> None:
    if reason := why_not():
        pytest.skip(f"no memory controller in a cgroup v2 here: {reason}")


def grouped(level: Isolation, tool: str, limits: ResourceLimits = SMALL) -> Recipe:
    return recipe(level, tool, may_spawn=True, limits=limits, tree_bound=Mechanism.MEMORY_CGROUP)


def left_behind() -> list[Path]:
    return [path for base in cgroups._bases() for path in base.glob("toolkeep-*")]


@pytest.fixture
def sleeper() -> Iterator[int]:
    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        pidfd = os.pidfd_open(process.pid)
        yield pidfd
        os.close(pidfd)
        process.kill()


# --- groups --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
def test_a_process_is_put_into_a_group_that_goes_when_it_does(sleeper: int) -> None:
    groups = Cgroups()
    group = groups.add(sleeper, BOUNDS)
    (inside,) = (group.folder / "cgroup.procs").read_text().split()
    assert f"/{group.folder.parent.name}/{group.folder.name}" in Path(f"/proc/{inside}/cgroup").read_text()
    signal.pidfd_send_signal(sleeper, signal.SIGKILL)
    group.release()
    assert asyncio.run(until(groups.tidy))
    groups.close()
    assert left_behind() == []


@pytest.mark.usefixtures("way")
def test_a_process_that_is_gone_is_put_nowhere_and_leaves_no_group() -> None:
    groups = Cgroups()
    with subprocess.Popen(["/bin/true"]) as gone:
        pidfd = os.pidfd_open(gone.pid)
    with pytest.raises(SandboxBroken):
        groups.add(pidfd, BOUNDS)
    os.close(pidfd)
    groups.close()
    assert left_behind() == []


def test_groups_of_a_process_that_was_killed_are_swept_and_those_of_a_living_one_are_not(way: str) -> None:
    command = [sys.executable, "-m", "tests.sandbox.dies_with_groups", way]
    hosts = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)]
    try:
        folders = [Path(host.stdout.readline().decode().strip()) for host in hosts if host.stdout]
        assert all(folder.is_dir() for folder in folders)
        hosts[0].kill()
        hosts[0].wait()

        def is_swept() -> bool:
            groups = Cgroups()
            groups.open()
            groups.close()
            return not folders[0].parent.exists()

        assert asyncio.run(until(is_swept))
        assert folders[1].is_dir()
    finally:
        for host in hosts:
            host.kill()
            host.communicate()
    assert asyncio.run(until(lambda: is_swept() and left_behind() == []))


@pytest.mark.usefixtures("way")
def test_a_slice_of_the_service_manager_is_not_ours_to_use(monkeypatch: pytest.MonkeyPatch) -> None:
    root = Path("/sys/fs/cgroup")
    own = root / "user.slice" / "app.slice" / "app.scope"
    monkeypatch.setattr(cgroups, "_mounted", lambda: iter([(root, own)]))
    monkeypatch.setattr(cgroups, "_is_root_of_all", lambda _: False)
    assert list(cgroups._bases()) == [own]


# --- workers -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("level", SPAWNING)
def test_a_worker_and_what_it_starts_are_in_a_group_and_none_is_left(level: Isolation) -> None:
    async def main() -> tuple[Reply, int, int]:
        async with caller(PoolSize(warm_per_kind=1)) as here:
            call = asyncio.ensure_future(
                here.call(grouped(level, "take_memory_in_children"), children=3, megabytes=1)
            )
            most, groups = 0, 0
            while not call.done():
                counts = [len(_processes(folder)) for home in left_behind() for folder in home.glob("*/")]
                most, groups = max(most, *counts, 0), max(groups, len(counts))
                await asyncio.sleep(0.01)
            return await call, most, groups

    reply, most, groups = asyncio.run(main())
    assert (reply, most) == (Reply(Ending.OK, value=3), 4)
    assert groups >= 1
    assert (left_behind(), descendants(os.getpid())) == ([], set())


def _processes(folder: Path) -> list[str]:
    try:
        return (folder / "cgroup.procs").read_text().split()
    except OSError:
        return []


@pytest.mark.usefixtures("way")
def test_a_tool_is_not_imported_before_its_worker_is_in_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts processes when it is imported, which would stay outside."""
    held, started = Cgroups.add, []

    def late(self: Cgroups, pidfd: int, bounds: Bounds) -> Any:
        time.sleep(0.5)
        started.append(len(descendants(host_pid(pidfd))))
        return held(self, pidfd, bounds)

    async def main() -> Reply:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            here.deadline_s = 5.0
            return await here.call(grouped(Isolation.STRICT, "takes_at_import:never"))

    monkeypatch.setattr(Cgroups, "add", late)
    assert asyncio.run(main()).ending in (Ending.TIMED_OUT, Ending.OUT_OF_MEMORY)
    assert started == [0]


@pytest.mark.usefixtures("way")
def test_a_worker_that_cannot_be_put_into_a_group_runs_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError(13, "not yours")

    async def main() -> None:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            monkeypatch.setattr(cgroups, "host_pid", refuse)
            with pytest.raises(SandboxBroken):
                await here.call(grouped(Isolation.STANDARD, "append"), path=f"{tmp_path}/ran", text="!")

    open_to_all(tmp_path)
    tmp_path.chmod(0o777)
    asyncio.run(main())
    assert (list(tmp_path.iterdir()), left_behind(), descendants(os.getpid())) == ([], [], set())


@pytest.mark.usefixtures("way")
def test_a_worker_at_standard_cannot_write_its_own_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the group belongs to the user that it runs as."""
    held = Cgroups.add

    def open_to_all(self: Cgroups, pidfd: int, bounds: Bounds) -> Any:
        group = held(self, pidfd, bounds)
        (group.folder / "cgroup.procs").chmod(0o666)
        return group

    monkeypatch.setattr(Cgroups, "add", open_to_all)

    async def main() -> Any:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            return (await here.call(grouped(Isolation.STANDARD, "tries"), kind="write_cgroup")).value

    assert asyncio.run(main()) == "EROFS"


# --- bounds --------------------------------------------------------------------------------------


@pytest.mark.spec("SBX-1")
@pytest.mark.usefixtures("memory_controller")
@pytest.mark.parametrize("level", SPAWNING)
@pytest.mark.parametrize("kind", ["own", "shared"])
def test_children_that_take_too_much_together_are_killed_by_the_kernel(level: Isolation, kind: str) -> None:
    async def main() -> list[Reply]:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            made = grouped(level, "take_memory_in_children")
            return [
                await here.call(made, children=2, megabytes=40, kind=kind),
                await here.call(made, children=4, megabytes=100, kind=kind),
            ]

    assert asyncio.run(main()) == [Reply(Ending.OK, value=2), Reply(Ending.OUT_OF_MEMORY)]
    assert left_behind() == []


@pytest.mark.usefixtures("memory_controller")
def test_memory_that_processes_share_counts_once() -> None:
    async def main() -> Reply:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            made = grouped(
                Isolation.STRICT, "take_memory_in_children", ResourceLimits(memory_bytes=400 << 20)
            )
            return await here.call(made, children=4, megabytes=150, kind="first")

    assert asyncio.run(main()) == Reply(Ending.OK, value=4)
