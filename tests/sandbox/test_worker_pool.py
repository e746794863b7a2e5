"""The pool: deadlines, cancellation, hostile frames, dead zygotes, and nothing left behind."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.sandbox.workers import (
    HERE,
    LEVELS,
    Caller,
    caller,
    descendants,
    mounts,
    open_descriptors,
    recipe,
    until,
)
from toolkeep.sandbox.errors import SandboxBroken, SandboxExhausted
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.memory_limits import MemoryLimits
from toolkeep.sandbox.plan import NotThere, Recipe, ZygotePlan
from toolkeep.sandbox.worker_exchange import Ending, Reply
from toolkeep.sandbox.worker_pool import PoolSize
from toolkeep.sandbox.zygote_process import Zygote

ROOT = Path(__file__).resolve().parents[2]


# --- killing -----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("tool", "arguments"), [("spin", {}), ("sleep", {"seconds": 60})])
@pytest.mark.spec("EXE-4")
def test_a_tool_is_killed_at_its_deadline(level: Isolation, tool: str, arguments: dict[str, Any]) -> None:
    async def main() -> tuple[Reply, set[int]]:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            await here.call(recipe(level, "echo"), value=1)
            await until(lambda: len(descendants(os.getpid())) == 2)
            before = descendants(os.getpid())
            here.deadline_s = 0.3
            reply = await here.call(recipe(level, tool), **arguments)
            return reply, descendants(os.getpid()) - before

    assert asyncio.run(main()) == (Reply(Ending.TIMED_OUT), set())


@pytest.mark.parametrize("level", [Isolation.STANDARD, Isolation.STRICT])
@pytest.mark.spec("EXE-4")
def test_a_tree_of_processes_is_gone_when_the_call_returns(level: Isolation) -> None:
    async def main() -> tuple[Reply, int, set[int]]:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            await here.call(recipe(level, "echo", may_spawn=True), value=1)
            await until(lambda: len(descendants(os.getpid())) == 2)
            before = descendants(os.getpid())
            here.deadline_s = 3.0
            call = asyncio.ensure_future(here.call(recipe(level, "fork_tree", may_spawn=True), depth=3))
            await until(lambda: len(descendants(os.getpid()) - before) > 5, 2.9)
            grown = len(descendants(os.getpid()) - before)
            return await call, grown, descendants(os.getpid()) - before

    reply, grown, left = asyncio.run(main())
    assert (reply, left) == (Reply(Ending.TIMED_OUT), set())
    assert grown > 5


@pytest.mark.spec("EXE-4")
def test_a_cancelled_call_leaves_no_process() -> None:
    async def main() -> set[int]:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            await here.call(recipe(Isolation.STRICT, "echo"), value=1)
            await until(lambda: len(descendants(os.getpid())) == 2)
            before = descendants(os.getpid())
            call = asyncio.ensure_future(here.call(recipe(Isolation.STRICT, "spin")))
            await until(lambda: bool(descendants(os.getpid()) - before))
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            return descendants(os.getpid()) - before

    assert asyncio.run(main()) == set()


def test_a_worker_that_answered_but_goes_on_is_killed() -> None:
    async def main() -> tuple[Reply, bool]:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            reply = await here.call(recipe(Isolation.STANDARD, "linger"))
            return reply, await until(lambda: len(descendants(os.getpid())) == 2)

    assert asyncio.run(main()) == (Reply(Ending.OK, value="early"), True)


def test_a_signal_to_its_group_reaches_nobody_but_the_worker() -> None:
    async def main() -> tuple[Reply, bool]:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            await here.call(recipe(Isolation.STANDARD, "echo"), value=1)
            await until(lambda: len(descendants(os.getpid())) == 2)
            before = descendants(os.getpid())
            here.deadline_s = 1.0
            reply = await here.call(recipe(Isolation.STANDARD, "signal_group"))
            is_replaced = await until(lambda: not before <= descendants(os.getpid()), 0.5)
            return reply, not is_replaced

    # The first process of a pid namespace does not hear its own SIGKILL.
    reply, is_zygote_alive = asyncio.run(main())
    assert (reply.ending in (Ending.OK, Ending.DIED), is_zygote_alive) == (True, True)


HOST = """
import asyncio, os, sys
from tests.sandbox.workers import caller, descendants, recipe, until
from toolkeep.sandbox.isolation_levels import Isolation
async def main():
    async with caller() as here:
        await here.call(recipe(Isolation.STANDARD, "echo"), value=1)
        call = asyncio.ensure_future(here.call(recipe(Isolation.STANDARD, "fork_tree"), depth=2))
        await until(lambda: len(descendants(os.getpid())) > 5)
        print("running", flush=True)
        await call
asyncio.run(main())
"""


@pytest.mark.spec("EXE-4")
def test_nobody_outlives_a_host_that_is_killed() -> None:
    host = subprocess.Popen([sys.executable, "-c", HOST], cwd=ROOT, stdout=subprocess.PIPE)
    with host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"running\n"
        started = descendants(host.pid)
        host.kill()
    assert len(started) > 4
    assert asyncio.run(until(lambda: not _alive(started), 2.0))


def test_closing_does_not_wait_for_a_fork_of_the_host() -> None:
    async def main() -> bool:
        async with asyncio.timeout(10):
            async with caller(PoolSize(warm_per_kind=0)) as here:
                await here.call(recipe(Isolation.STANDARD, "echo"), value=1)
                child = os.fork()
                if child == 0:
                    signal.pause()
                before = descendants(os.getpid()) - {child}
            return not _alive(before)

    children = descendants(os.getpid())
    try:
        assert asyncio.run(main())
    finally:
        for child in descendants(os.getpid()) - children:
            os.kill(child, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(child, 0)


FORKING_HOST = """
import asyncio, os, signal
from tests.sandbox.workers import caller, recipe
from toolkeep.sandbox.isolation_levels import Isolation
async def main():
    async with caller() as here:
        await here.call(recipe(Isolation.STANDARD, "echo"), value=1)
        child = os.fork()
        if child == 0:
            signal.pause()
        print(child, flush=True)
        await asyncio.Event().wait()
asyncio.run(main())
"""


@pytest.mark.spec("EXE-4")
def test_nobody_outlives_a_host_that_is_killed_and_leaves_a_fork() -> None:
    host = subprocess.Popen([sys.executable, "-c", FORKING_HOST], cwd=ROOT, stdout=subprocess.PIPE)
    with host:
        assert host.stdout is not None
        fork = int(host.stdout.readline())
        started = descendants(host.pid) - {fork}
        host.kill()
    try:
        assert len(started) > 1
        assert asyncio.run(until(lambda: not _alive(started), 5.0))
    finally:
        os.kill(fork, signal.SIGKILL)


def _alive(processes: set[int]) -> set[int]:
    return {pid for pid in processes if _state(pid) not in ("", "Z", "X")}


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# --- frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tool", "arguments", "ending"),
    [
        ("echo", {"value": "x" * 200_000}, Ending.TOO_BIG),
        ("promise_and_stall", {"length": 1 << 31}, Ending.TOO_BIG),
        ("promise_and_stall", {"length": 50}, Ending.TIMED_OUT),
        ("send_raw", {"hexadecimal": "000000"}, Ending.DIED),
        ("send_raw", {"hexadecimal": "0000000a7b"}, Ending.DIED),
        ("send_raw", {"hexadecimal": "00000002ffff"}, Ending.BROKEN),
        ("send_raw", {"hexadecimal": "000000027b7d"}, Ending.BROKEN),
        ("send_raw", {"hexadecimal": "000000025b5d"}, Ending.BROKEN),
        ("send_raw", {"hexadecimal": "00000000"}, Ending.BROKEN),
        ("send_raw", {"hexadecimal": "0000000a" + b'{"ok":NaN}'.hex()}, Ending.BROKEN),
        ("send_raw", {"hexadecimal": "00000013" + b'{"ok":1,"failed":1}'.hex()}, Ending.BROKEN),
    ],
)
def test_a_frame_that_is_none_is_told_apart(tool: str, arguments: dict[str, Any], ending: Ending) -> None:
    async def main() -> Reply:
        async with caller() as here:
            here.deadline_s = 3.0
            here.output_bytes = 100_000
            return await here.call(recipe(Isolation.STRICT, tool), **arguments)

    assert asyncio.run(main()).ending is ending


def test_what_a_worker_says_of_its_failure_forges_no_line_of_a_log() -> None:
    async def main() -> Reply:
        body = b'{"raised":"E\\n2026-01-01 all is well \\u001b[2J","where":"x"}'
        async with caller() as here:
            told = (len(body).to_bytes(4, "big") + body).hex()
            return await here.call(recipe(Isolation.RESTRICTED, "send_raw"), hexadecimal=told)

    assert asyncio.run(main()).text == "E\\n2026-01-01 all is well \\u001b[2J at x"


def test_ten_megabytes_of_brackets_are_refused_without_parsing() -> None:
    async def main() -> Reply:
        async with caller() as here:
            here.output_bytes = 20 << 20
            return await here.call(recipe(Isolation.STRICT, "brackets"), count=3_000_000)

    assert asyncio.run(main()) == Reply(Ending.BROKEN, text="it holds more than 1000000 values")


# --- between calls -----------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.spec("SBX-2")
def test_between_calls_no_process_has_imported_the_tool(level: Isolation, tmp_path: Path) -> None:
    """Its threads would run with the grant, also after that was revoked."""
    granted = (str(tmp_path),) if level is Isolation.STRICT else ()

    async def main() -> tuple[list[Reply], set[int]]:
        async with caller(PoolSize(warm_per_kind=1)) as here:
            made = recipe(level, "thread_at_import:count_threads", write=granted)
            replies = [await here.call(made) for _ in range(3)]
            await until(here.is_settled)
            return replies, {_threads(pid) for pid in descendants(os.getpid())}

    assert asyncio.run(main()) == ([Reply(Ending.OK, value=2)] * 3, {1})


def _threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


# --- zygotes and the pool ----------------------------------------------------------------------


def test_a_dead_zygote_is_replaced() -> None:
    async def main() -> tuple[Reply, Reply]:
        async with caller() as here:
            made = recipe(Isolation.STRICT, "add")
            first = await here.call(made, first=1, second=1)
            for pid in descendants(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await until(lambda: not descendants(os.getpid()))
            return first, await here.call(made, first=2, second=2)

    assert asyncio.run(main()) == (Reply(Ending.OK, value=2), Reply(Ending.OK, value=4))


def test_a_caller_who_gives_up_twice_while_a_zygote_starts_leaves_nobody() -> None:
    async def main() -> set[int]:
        async with caller() as here:
            call = asyncio.ensure_future(here.call(recipe(Isolation.STRICT, "echo"), value=1))
            await until(lambda: bool(descendants(os.getpid())))
            for _ in range(2):
                call.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await call
            await until(lambda: not descendants(os.getpid()))
            return descendants(os.getpid())

    assert asyncio.run(main()) == set()


def test_a_used_up_zygote_is_replaced_and_ended() -> None:
    async def main() -> tuple[set[Ending], bool]:
        async with caller(PoolSize(warm_per_kind=1, forks_per_zygote=5)) as here:
            made = recipe(Isolation.STRICT, "add")
            await here.call(made, first=1, second=1)
            first = min(descendants(os.getpid()))
            endings = set()
            for _ in range(500):
                endings.add((await here.call(made, first=1, second=1)).ending)
                if first not in descendants(os.getpid()):
                    return endings, True
            return endings, False

    assert asyncio.run(main()) == ({Ending.OK}, True)


def test_what_shows_a_folder_that_was_moved_away_is_replaced(tmp_path: Path) -> None:
    """Its mounts hold the folder and not its name; what waits is ended with it, whatever its key."""
    folder = tmp_path / "folder"

    def fill(text: str) -> None:
        folder.mkdir()
        (folder / "file").write_text(text)

    async def main() -> tuple[list[Any], bool]:
        fill("before")
        made = recipe(Isolation.STRICT, "read", read=(str(folder),))
        other = recipe(Isolation.STRICT, "exists", read=(str(folder),))
        async with caller(PoolSize(warm_per_kind=1)) as here:
            await here.call(other, path=str(folder))
            await until(here.is_settled)
            first = await here.call(made, path=str(folder / "file"))
            shown = descendants(os.getpid())
            folder.rename(tmp_path / "elsewhere")
            fill("after")
            second = await here.call(made, path=str(folder / "file"))
            is_gone = await until(lambda: shown.isdisjoint(descendants(os.getpid())))
            return [first.value, second.value], is_gone

    assert asyncio.run(main()) == (["before", "after"], True)


def test_a_folder_that_is_replaced_while_it_is_mounted_is_not_granted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    monkeypatch.setattr(ZygotePlan, "identities", lambda _: next(looks))

    async def main() -> bool:
        async with caller() as here:
            with pytest.raises(NotThere):
                await here.call(recipe(Isolation.STRICT, "names", read=(str(tmp_path),)), path=str(tmp_path))
            return not descendants(os.getpid())

    assert asyncio.run(main())


def test_code_is_not_looked_for_behind_a_link_that_was_put_there_since(tmp_path: Path) -> None:
    """The folder around it may be one that another call writes in."""
    for name in ("project", "private"):
        (tmp_path / name / "code").mkdir(parents=True)
    (tmp_path / "private" / "code" / "secret").touch()
    code = tmp_path / "project" / "code"
    made = recipe(Isolation.STRICT, "exists")
    made = replace(made, zygote=replace(made.zygote, code=(HERE, str(code))))
    (tmp_path / "project").rename(tmp_path / "away")
    (tmp_path / "project").symlink_to(tmp_path / "private")

    async def main() -> None:
        async with caller() as here:
            with pytest.raises(SandboxBroken):
                await here.call(made, path=str(code / "secret"))

    asyncio.run(main())


def test_a_worker_that_died_while_it_waited_is_not_used() -> None:
    async def main() -> list[Reply]:
        async with caller(PoolSize(warm_per_kind=2)) as here:
            made = recipe(Isolation.STANDARD, "add")
            replies = [await here.call(made, first=1, second=1)]
            await until(here.is_settled)
            (part,) = here.pool._loops.values()
            ((waiting,),) = part._idle.values()
            waiting.kill()
            await until(lambda: not waiting.is_alive())
            return [*replies, await here.call(made, first=1, second=2)]

    assert asyncio.run(main()) == [Reply(Ending.OK, value=2), Reply(Ending.OK, value=3)]


def test_calls_beyond_the_bound_wait_and_then_say_so() -> None:
    async def main() -> None:
        async with caller(PoolSize(warm_per_kind=0, calls=1)) as here:
            made = recipe(Isolation.STRICT, "sleep")
            await here.call(made, seconds=0)
            slow = asyncio.ensure_future(here.call(made, seconds=20))
            await asyncio.sleep(0.2)
            here.deadline_s = 0.2
            with pytest.raises(SandboxExhausted):
                await here.call(made, seconds=0)
            slow.cancel()
            await asyncio.wait({slow})

    asyncio.run(main())


def test_calls_that_sleep_do_not_keep_other_owners_out() -> None:
    async def main() -> tuple[Reply, bool]:
        async with caller(PoolSize(warm_per_kind=0, calls=2, calls_each=1)) as here:
            made = recipe(Isolation.STRICT, "sleep")
            key = here.key(made)
            slow = json.dumps({"arguments": {"seconds": 60}}).encode()
            sleeping = [
                asyncio.ensure_future(here.pool.run(key, slow, 60, 1024, owner="greedy")) for _ in range(3)
            ]
            quick = b'{"arguments":{"seconds":0}}'
            reply = await here.pool.run(key, quick, 20, 1024, owner="other")
            is_anyone_done = any(one.done() for one in sleeping)
            for one in sleeping:
                one.cancel()
            await asyncio.wait(sleeping)
            return reply, is_anyone_done

    assert asyncio.run(main()) == (Reply(Ending.OK), False)


def test_a_host_without_descriptors_gets_an_error_and_recovers() -> None:
    import resource

    async def main() -> Reply:
        async with caller(PoolSize(warm_per_kind=0)) as here:
            made = recipe(Isolation.STRICT, "add")
            await here.call(made, first=1, second=1)
            hoard = [os.open("/dev/null", os.O_RDONLY)]
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (hoard[0] + 2, hard))
            try:
                with pytest.raises(SandboxExhausted):
                    await here.call(made, first=1, second=1)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
                os.close(hoard[0])
            return await here.call(made, first=1, second=1)

    assert asyncio.run(main()) == Reply(Ending.OK, value=2)


def test_several_event_loops_share_a_pool() -> None:
    from toolkeep.sandbox.worker_pool import Pool

    here = Caller(Pool(PoolSize(warm_per_kind=1)))
    made = recipe(Isolation.STRICT, "add")
    replies: list[Reply] = []

    async def main() -> None:
        replies.extend([await here.call(made, first=n, second=0) for n in range(3)])
        await here.pool.close()

    threads = [threading.Thread(target=asyncio.run, args=(main(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(reply.value for reply in replies) == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_a_loop_that_was_closed_without_the_pool_leaves_nobody() -> None:
    from toolkeep.sandbox.worker_pool import Pool

    here = Caller(Pool(PoolSize(warm_per_kind=1)))
    made = recipe(Isolation.STRICT, "add")

    async def careless() -> None:
        await here.call(made, first=1, second=1)
        await asyncio.sleep(0.05)

    async def careful() -> bool:
        await here.call(made, first=1, second=1)
        await here.pool.close()
        return await until(lambda: not descendants(os.getpid()))

    asyncio.run(careless())
    assert asyncio.run(careful())


def test_a_forgotten_key_keeps_no_worker() -> None:
    async def main() -> bool:
        async with caller(PoolSize(warm_per_kind=2)) as here:
            made = recipe(Isolation.STRICT, "add")
            await here.call(made, first=1, second=1)
            await until(here.is_settled)
            assert len(descendants(os.getpid())) == 3
            here.pool.forget(here.key(made))
            return await until(lambda: len(descendants(os.getpid())) == 2)

    assert asyncio.run(main())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.spec("EXE-4")
def test_forty_calls_leave_no_process_descriptor_or_mount(level: Isolation) -> None:
    """Some at once; `scripts/soak` makes thousands."""

    async def many(here: Caller, made: Recipe) -> set[Ending]:
        replies = [here.call(made, first=n, second=0) for n in range(20)]
        return {reply.ending for reply in await asyncio.gather(*replies)}

    async def main() -> tuple[set[Ending], int, int]:
        async with caller(PoolSize(warm_per_kind=1)) as here:
            made = recipe(level, "add")
            await here.call(made, first=1, second=1)
            await until(here.is_settled)
            descriptors, mounted = open_descriptors(), mounts()
            endings: set[Ending] = set()
            for _ in range(2):
                endings |= await many(here, made)
            await until(here.is_settled)
            return endings, open_descriptors() - descriptors, mounts() - mounted

    before = open_descriptors()
    assert asyncio.run(main()) == ({Ending.OK}, 0, 0)
    assert (descendants(os.getpid()), open_descriptors()) == (set(), before)


def test_a_zygote_that_is_given_up_while_it_starts_is_gone_at_once() -> None:
    async def scenario() -> None:
        slow = ZygotePlan(level=Isolation.STANDARD, code=(HERE,), import_paths=(HERE,), preload=("sleeps",))
        starting = asyncio.ensure_future(Zygote.start(slow, MemoryLimits()))
        assert await until(lambda: len(descendants(os.getpid())) > 1)
        starting.cancel()
        await asyncio.wait({starting}, timeout=20.0)
        assert starting.cancelled()
        assert await until(lambda: not descendants(os.getpid()))

    asyncio.run(scenario())
