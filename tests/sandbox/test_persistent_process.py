"""A confined program that stays: what it says, how it ends, and that nothing of it is left."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.sandbox.workers import HERE
from toolkeep.sandbox.executables import executables
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.launch import interpreter
from toolkeep.sandbox.persistent_process import ExitReason, PersistentProcess, ProcessExited, Program
from toolkeep.sandbox.plan import Grant, Recipe, ResourceLimits, WorkerPlan, ZygotePlan
from toolkeep.sandbox.seccomp_filters import for_level
from toolkeep.sandbox.worker_pool import Pool

SCRIPT = f"{HERE}/staying.py"
MEMORY_BYTES = 256 << 20
LINE_BYTES = 1000

pytestmark = pytest.mark.spec("SBX-1")


def recipe(level: Isolation = Isolation.STRICT) -> Recipe:
    return Recipe(
        zygote=ZygotePlan(level=level, code=(SCRIPT,)),
        worker=WorkerPlan(
            tool="",
            is_persistent=True,
            level=level,
            filter=for_level(level, may_spawn=True).program(),
            may_spawn=True,
            memory_by=Mechanism.MEMORY_WATCH,
            limits=ResourceLimits(memory_bytes=MEMORY_BYTES, reserved_bytes=1 << 30),
        ),
        grant=Grant(run=tuple(executables(interpreter()))) if level is Isolation.STRICT else Grant(),
    )


@asynccontextmanager
async def staying(
    *,
    level: Isolation = Isolation.STRICT,
    environment: tuple[tuple[str, str], ...] = (),
    path: str = "",
) -> AsyncIterator[PersistentProcess]:
    argv = (interpreter(), "-I", "-S", SCRIPT)
    program = Program(path=path or argv[0], argv=argv, environment=environment)
    pool = Pool()
    try:
        resident = await PersistentProcess.start(pool, recipe(level), program, line_bytes=LINE_BYTES)
        try:
            yield resident
        finally:
            await resident.close()
    finally:
        await pool.close()


async def ask(resident: PersistentProcess, text: str) -> str:
    await resident.send(f"{text}\n".encode())
    return (await resident.line()).decode()


async def over(resident: PersistentProcess, text: str) -> ProcessExited:
    with pytest.raises(ProcessExited) as raised:
        await ask(resident, text)
    return raised.value


@pytest.mark.parametrize("level", [Isolation.STANDARD, Isolation.STRICT])
def test_one_program_answers_line_after_line(level: Isolation) -> None:
    async def main() -> list[str]:
        async with staying(level=level) as resident:
            return [await ask(resident, text) for text in ("one", "two", "three")]

    assert asyncio.run(main()) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("told", "why", "status"),
    [
        ("leave 3", ExitReason.ENDED, 3),
        ("leave 0", ExitReason.ENDED, 0),
        ("kill 11", ExitReason.ENDED, -11),
        ("close", ExitReason.CLOSED, None),
        (f"flood {LINE_BYTES * 3}", ExitReason.TOO_LONG, None),
        (f"take {MEMORY_BYTES + (64 << 20)}", ExitReason.OUT_OF_MEMORY, None),
    ],
)
def test_what_ends_it_is_known(told: str, why: ExitReason, status: int | None) -> None:
    async def main() -> ProcessExited:
        async with staying() as resident:
            return await over(resident, told)

    found = asyncio.run(main())
    assert (found.why, found.status) == (why, status)


def test_the_end_of_its_standard_error_is_kept_and_a_flood_of_it_harms_nobody() -> None:
    async def main() -> str:
        async with staying() as resident:
            await ask(resident, "complain " + "x" * 50_000 + "the end")
            return (await over(resident, "leave 1")).last_words

    found = asyncio.run(main())
    assert found.endswith("xthe end")
    assert len(found) <= 8_000


def test_its_last_words_are_whole_however_soon_it_ends_after_others() -> None:
    """After each piece of standard error the host waits, and a program ends meanwhile."""

    async def main() -> str:
        async with staying() as resident:
            await ask(resident, "complain first")
            await ask(resident, "die " + "last" * 200)
            return (await over(resident, "")).last_words

    assert asyncio.run(main()) == "first" + "last" * 200


def test_a_program_that_is_not_there_is_not_started() -> None:
    async def main() -> ProcessExited:
        with pytest.raises(ProcessExited) as raised:
            async with staying(path="/usr/bin/there-is-no-such-program"):
                pass
        return raised.value

    found = asyncio.run(main())
    assert (found.why, found.text) == (ExitReason.UNSTARTED, "No such file or directory")


def test_its_environment_is_what_it_is_given_and_nothing_of_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OF_THE_HOST", "secret")

    async def main() -> list[str]:
        async with staying(environment=(("KEY", "given"),)) as resident:
            return [await ask(resident, f"variable {name}") for name in ("KEY", "OF_THE_HOST")]

    assert asyncio.run(main()) == ["given", "none"]


def test_what_it_was_started_with_is_in_no_argv_of_the_machine() -> None:
    async def main() -> bool:
        async with staying(environment=(("KEY", "a-secret-of-this-test"),)) as resident:
            await ask(resident, "one")
            return any(b"a-secret-of-this-test" in word for words in _argvs().values() for word in words)

    assert not asyncio.run(main())
    assert "a-secret-of-this-test" not in repr(
        Program(path="/x", argv=("x",), environment=(("KEY", "a-secret-of-this-test"),))
    )


def test_its_limit_on_memory_cannot_be_raised() -> None:
    async def main() -> str:
        async with staying() as resident:
            return await ask(resident, "raise")

    assert asyncio.run(main()) == "refused"


def test_everything_that_it_started_ends_with_it() -> None:
    async def main() -> tuple[set[int], set[int]]:
        async with staying() as resident:
            await ask(resident, "beget")
            before = _ours()
            await resident.close()
            return before, _ours()

    before, after = asyncio.run(main())
    assert len(before) == 2  # the program and its child
    assert not after


def test_a_child_that_holds_the_output_does_not_hide_the_end_of_the_program() -> None:
    async def main() -> ProcessExited:
        async with staying() as resident:
            await ask(resident, "beget")
            return await over(resident, "leave 7")

    found = asyncio.run(main())
    assert (found.why, found.status) == (ExitReason.ENDED, 7)


def test_it_is_gone_when_its_pool_is() -> None:
    async def main() -> tuple[ProcessExited, set[int]]:
        pool = Pool()
        argv = (interpreter(), "-I", "-S", SCRIPT)
        program = Program(path=argv[0], argv=argv)
        resident = await PersistentProcess.start(pool, recipe(), program, line_bytes=LINE_BYTES)
        await ask(resident, "one")
        await pool.close()
        found, left = await over(resident, "two"), _ours()
        await resident.close()
        return found, left

    found, left = asyncio.run(main())
    assert found.why is ExitReason.ENDED
    assert not left


def test_nothing_is_left_when_its_host_is_killed() -> None:
    script = "import tests.sandbox.test_persistent_process as t; t.wait_to_be_killed()"

    async def main() -> set[int]:
        host = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", script), stdout=asyncio.subprocess.PIPE, cwd=Path(HERE).parent.parent
        )
        assert host.stdout is not None
        assert await host.stdout.readline() == b"ready\n"
        (staying_one,) = _ours()
        ended = os.pidfd_open(staying_one)
        host.kill()
        await host.wait()
        gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().add_reader(ended, gone.cancel)
        await asyncio.wait({gone}, timeout=20)
        asyncio.get_running_loop().remove_reader(ended)
        os.close(ended)
        return _ours()

    assert not asyncio.run(main())


def wait_to_be_killed() -> None:
    """Be a host that holds a program, until it is killed."""

    async def main() -> None:
        async with staying() as resident:
            await ask(resident, "one")
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    asyncio.run(main())


def test_a_worker_has_a_tool_or_a_program_and_never_both() -> None:
    worker = recipe().worker
    with pytest.raises(ValueError, match="has a tool, or is told a program"):
        WorkerPlan(tool="", level=Isolation.STRICT, filter=worker.filter)
    with pytest.raises(ValueError, match="has a tool, or is told a program"):
        WorkerPlan(
            tool="a:b",
            is_persistent=True,
            level=Isolation.STRICT,
            filter=worker.filter,
            may_spawn=True,
            memory_by=Mechanism.MEMORY_WATCH,
        )


def test_at_restricted_no_program_stays() -> None:
    with pytest.raises(ValueError, match="takes a level that starts processes"):
        WorkerPlan(
            tool="",
            is_persistent=True,
            level=Isolation.RESTRICTED,
            filter=for_level(Isolation.RESTRICTED).program(),
        )


def _ours() -> set[int]:
    """The processes on this machine that run the script of these tests."""
    return {process for process, words in _argvs().items() if words[3:4] == [SCRIPT.encode()]}


def _argvs() -> dict[int, list[bytes]]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found[int(path.parent.name)] = path.read_bytes().split(b"\0")
    return found
