"""What a tool can do and see at each level; each attempt works where nothing forbids it."""

import asyncio
import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.sandbox.workers import (
    HERE,
    LEVELS,
    caller,
    descendants,
    open_to_all,
    recipe,
    until,
    without_filter,
)
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.plan import Recipe, ResourceLimits
from toolkeep.sandbox.worker_exchange import Ending, Reply

CONFINED = (Isolation.STRICT, Isolation.RESTRICTED)


def called(made: Recipe, **arguments: Any) -> Reply:
    async def main() -> Reply:
        async with caller() as here:
            return await here.call(made, **arguments)

    return asyncio.run(main())


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that any user may enter, as pytest's own may not be."""
    open_to_all(tmp_path)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "secret.txt").chmod(0o644)
    return tmp_path


# --- standing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_a_worker_holds_nothing_when_the_tool_is_imported(level: Isolation) -> None:
    standing = called(recipe(level, "standing")).value
    assert standing | {"groups": []} == {
        "pid": 1,
        "capabilities": [0] * 6,
        "bounding": [],
        "no_new_privileges": 1,
        "is_dumpable": 0,
        "groups": [],
    }


@pytest.mark.parametrize("level", LEVELS)
def test_a_worker_holds_only_its_pipes(level: Isolation) -> None:
    assert called(recipe(level, "descriptors")) == Reply(Ending.OK, value=[0, 1, 2, 3, 4])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "attempt", ["unshare", "mount", "ptrace", "raise_limit", "setuid", "chroot", "write_root"]
)
def test_nothing_more_can_be_gained(level: Isolation, attempt: str) -> None:
    assert called(recipe(level, "tries"), kind=attempt).value in ("EPERM", "EROFS", "EINVAL", "EACCES")


@pytest.mark.parametrize("level", LEVELS)
def test_a_thread_started_at_import_gains_nothing(level: Isolation) -> None:
    assert called(recipe(level, "thread_at_import")) == Reply(Ending.OK, value=["EPERM"] * 3)


# --- environment -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
def test_no_variable_of_the_host_is_seen(level: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "hush")
    assert called(recipe(level, "environment")).value == {
        "HOME": "/box/scratch",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "TMPDIR": "/box/scratch",
    }


def variables_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


def test_no_launcher_keeps_the_variables_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "hush")

    async def main() -> list[bytes]:
        async with caller() as here:
            await here.call(recipe(Isolation.STANDARD, "add"), first=1, second=1)
            await until(here.is_settled)
            return [variables_of(pid) for pid in descendants(os.getpid())]

    if os.geteuid() != 0:
        pytest.skip("only root can look into processes that are not dumpable")
    assert all(b"hush" not in variables for variables in asyncio.run(main()))


def test_a_worker_sees_only_its_own_processes() -> None:
    made = recipe(Isolation.STANDARD, "names", has_proc=True)
    numbers = [name for name in called(made, path="/proc").value if name.isdigit()]
    assert numbers == ["1"]


# --- files -------------------------------------------------------------------------------------


def test_standard_reads_what_an_ordinary_user_may(shared: Path) -> None:
    reply = called(recipe(Isolation.STANDARD, "read"), path=str(shared / "secret.txt"))
    assert reply == Reply(Ending.OK, value="secret")


@pytest.mark.parametrize("level", CONFINED)
def test_a_file_that_is_not_granted_cannot_be_read_or_seen(level: Isolation, shared: Path) -> None:
    path = str(shared / "secret.txt")
    assert called(recipe(level, "read"), path=path).ending is Ending.RAISED
    assert called(recipe(level, "exists"), path=path) == Reply(Ending.OK, value=False)


@pytest.mark.parametrize("level", CONFINED)
@pytest.mark.parametrize(
    "path", ["/etc/shadow", "/proc/self/status", "/proc/1/environ", "/root", "/sys/kernel"]
)
def test_the_host_is_not_there(level: Isolation, path: str) -> None:
    if path == "/root" and "/root/" in os.path.realpath(os.__file__):
        pytest.skip("the interpreter lives there")
    assert called(recipe(level, "exists"), path=path) == Reply(Ending.OK, value=False)


def test_a_granted_folder_can_be_read_and_not_written(shared: Path) -> None:
    granted = (str(shared),)
    path = str(shared / "secret.txt")
    assert called(recipe(Isolation.STRICT, "read", read=granted), path=path) == Reply(
        Ending.OK, value="secret"
    )
    assert (
        called(recipe(Isolation.STRICT, "append", read=granted), path=path, text="!").ending is Ending.RAISED
    )
    assert (shared / "secret.txt").read_text() == "secret"


def test_a_folder_granted_for_writing_is_written_as_its_owner(shared: Path) -> None:
    reply = called(
        recipe(Isolation.STRICT, "append", write=(str(shared),)), path=str(shared / "new.txt"), text="!"
    )
    assert reply == Reply(Ending.OK)
    assert ((shared / "new.txt").read_text(), (shared / "new.txt").stat().st_uid) == ("!", os.getuid())


def test_a_private_folder_of_root_can_be_granted(shared: Path) -> None:
    shared.chmod(0o700)
    reply = called(recipe(Isolation.STRICT, "read", read=(str(shared),)), path=str(shared / "secret.txt"))
    assert reply == Reply(Ending.OK, value="secret")


def test_a_worker_has_only_its_own_part_of_what_its_zygote_shows(shared: Path) -> None:
    for name in ("mine", "other"):
        (shared / name).mkdir()
        (shared / name / "a.txt").write_text(name)
    folders = (str(shared / "mine"), str(shared / "other"))
    shown = recipe(Isolation.STRICT, "read", read=folders)
    made = replace(shown, grant=replace(shown.grant, read=folders[:1]))
    assert called(made, path=f"{folders[0]}/a.txt") == Reply(Ending.OK, value="mine")
    assert called(made, path=f"{folders[1]}/a.txt").ending is Ending.RAISED


@pytest.mark.parametrize("level", LEVELS)
def test_code_cannot_be_changed(level: Isolation, shared: Path) -> None:
    (shared / "secret.txt").chmod(0o666)
    made = without_filter(recipe(level, "append"))
    made = replace(made, zygote=replace(made.zygote, code=(HERE, str(shared))))
    assert called(made, path=str(shared / "secret.txt"), text="#").ending is Ending.RAISED


def test_programs_run_only_where_spawning_is_granted() -> None:
    assert (
        called(recipe(Isolation.STRICT, "run_program", may_spawn=True), path="/usr/bin/id").ending
        is Ending.OK
    )
    assert called(recipe(Isolation.STRICT, "run_program"), path="/usr/bin/id").ending is Ending.RAISED


@pytest.mark.spec("EXE-4")
def test_the_scratch_folder_is_new_for_each_call() -> None:
    async def main() -> tuple[Reply, Reply]:
        async with caller() as here:
            wrote = await here.call(recipe(Isolation.STRICT, "write_file"), path="left.bin", size=65536)
            return wrote, await here.call(recipe(Isolation.STRICT, "names"), path=".")

    assert asyncio.run(main()) == (Reply(Ending.OK, value=65536), Reply(Ending.OK, value=[]))


@pytest.mark.parametrize("level", LEVELS)
def test_each_call_has_standard_streams_of_its_own(level: Isolation) -> None:
    """Flags belong to what was opened: one call could set them for another."""

    async def main() -> list[Any]:
        async with caller() as here:
            return [(await here.call(recipe(level, "block_streams"))).value for _ in range(2)]

    first, second = asyncio.run(main())
    assert first == second
    assert not any(flags & os.O_NONBLOCK for flags in first)


@pytest.mark.parametrize("level", [Isolation.STANDARD, Isolation.STRICT])
def test_shared_memory_has_a_size_and_is_gone_with_the_call(level: Isolation) -> None:
    limits = ResourceLimits(scratch_bytes=8 << 20)

    async def main() -> list[Any]:
        async with caller() as here:
            made = recipe(level, "fill_shared_memory", limits=limits)
            return [(await here.call(made, megabytes=16)).value for _ in range(2)]

    shared_memory = Path("/dev/shm")  # noqa: S108 -- what is looked at
    assert asyncio.run(main()) == [8, 8]
    assert not [path for path in shared_memory.iterdir() if path.name.isdecimal()]  # as the call named them


@pytest.mark.parametrize("tool", ["pooled_squares", "executor_squares"])
def test_a_tool_that_may_start_processes_has_pools_of_them(tool: str) -> None:
    made = recipe(Isolation.STRICT, tool, may_spawn=True)
    assert called(made, numbers=[1, 2, 3]) == Reply(Ending.OK, value=[1, 4, 9])


def test_no_installed_package_stands_in_for_a_module_of_the_standard_library(shared: Path) -> None:
    (shared / "colorsys.py").write_text("def rgb_to_hsv(r, g, b): return 'another'")
    made = recipe(Isolation.STRICT, "colorsys:rgb_to_hsv")
    made = replace(
        made,
        zygote=replace(made.zygote, code=(str(shared),)),
        worker=replace(made.worker, import_paths=(str(shared),)),
    )
    assert called(made, r=0, g=0, b=0) == Reply(Ending.OK, value=[0.0, 0.0, 0])


@pytest.mark.parametrize("level", CONFINED)
def test_a_tool_has_a_name_and_learns_no_other(level: Isolation) -> None:
    reply = called(recipe(level, "who"))
    assert reply == Reply(Ending.OK, value=["toolkeep", "/box/scratch", "toolkeep", "toolkeep"])


# --- what docs/threats.md says is not promised -------------------------------------------------


def test_a_file_that_may_be_read_can_be_locked_until_the_call_ends(shared: Path) -> None:
    async def main() -> tuple[bool, bool]:
        async with caller() as here:
            made = recipe(Isolation.STRICT, "lock_and_wait", read=(str(shared),))
            call = asyncio.ensure_future(here.call(made, path=str(shared / "secret.txt"), seconds=60))
            was_locked = await until(lambda: not _can_lock(shared / "secret.txt"))
            call.cancel()
            await asyncio.wait({call})
            return was_locked, await until(lambda: _can_lock(shared / "secret.txt"))

    assert asyncio.run(main()) == (True, True)


def _can_lock(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_a_pipe_in_a_granted_folder_reaches_its_reader(shared: Path) -> None:
    pipe = shared / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        called(recipe(Isolation.STRICT, "write_file", write=(str(shared),)), path=str(pipe), size=65536)
        assert os.read(reader, 100) == bytes(100)
    finally:
        os.close(reader)


def test_a_folder_that_is_made_in_one_with_a_set_group_id_bit_inherits_it(shared: Path) -> None:
    shared.chmod(0o2777)
    reply = called(recipe(Isolation.STRICT, "make_folder", write=(str(shared),)), path=str(shared / "made"))
    assert (reply.ending, (shared / "made").stat().st_mode & 0o6000) == (Ending.OK, 0o2000)


def test_restricted_has_no_folder_to_write_in() -> None:
    assert (
        called(recipe(Isolation.RESTRICTED, "append"), path="/box/scratch/a", text="!").ending
        is Ending.RAISED
    )


# --- network -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "outcome"),
    [(Isolation.STANDARD, "connected"), (Isolation.STRICT, "EACCES"), (Isolation.RESTRICTED, "EPERM")],
)
def test_the_network_is_closed_above_standard(level: Isolation, outcome: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        reply = called(recipe(level, "connect"), port=server.getsockname()[1])
    assert reply.ending is Ending.OK
    assert (reply.value == "connected") == (outcome == "connected")


@pytest.mark.parametrize("level", CONFINED)
@pytest.mark.parametrize("kind", ["udp", "unix"])
def test_no_socket_can_be_made(level: Isolation, kind: str) -> None:
    assert called(recipe(level, "tries"), kind=kind).value in ("EACCES", "EPERM")


@pytest.mark.parametrize("level", CONFINED)
def test_no_datagram_leaves_even_without_the_filter(level: Isolation) -> None:
    assert called(without_filter(recipe(level, "tries")), kind="datagram").value == "ENETUNREACH"


def test_one_call_leaves_no_shared_memory_to_the_next() -> None:
    made = without_filter(recipe(Isolation.STRICT, "tries"))

    async def main() -> tuple[Any, Any]:
        async with caller() as here:
            left = await here.call(made, kind="leave_segment")
            return left.value, (await here.call(made, kind="find_segment")).value

    assert asyncio.run(main()) == ("done", "ENOENT")


# --- limits ------------------------------------------------------------------------------------

SMALL = ResourceLimits(
    memory_bytes=256 << 20,
    cpu_s=1,
    file_bytes=1 << 20,
    open_files=32,
    processes=8,
    scratch_bytes=2 << 20,
    scratch_files=20,
)


@pytest.mark.parametrize(
    ("tool", "arguments", "within"),
    [
        ("take_memory", {"megabytes": 400}, {"megabytes": 10}),
        ("write_file", {"path": "big", "size": 3 << 20}, {"path": "big", "size": 65536}),
        ("fill_scratch", {"files": 5, "size": 700_000}, {"files": 2, "size": 1000}),
        ("fill_scratch", {"files": 50, "size": 1}, {"files": 5, "size": 1}),
    ],
)
def test_a_tool_that_takes_more_than_its_share_fails(
    tool: str, arguments: dict[str, Any], within: dict[str, Any]
) -> None:
    made = recipe(Isolation.STRICT, tool, limits=SMALL)
    assert called(made, **within).ending is Ending.OK
    assert called(made, **arguments).ending is Ending.RAISED


def test_open_files_are_bounded() -> None:
    assert called(recipe(Isolation.STRICT, "open_files", limits=SMALL)).value == 32 - 5


@pytest.mark.parametrize("level", [Isolation.STANDARD, Isolation.STRICT])
def test_processes_are_bounded_for_each_worker(level: Isolation) -> None:
    made = recipe(level, "forks_until_refused", limits=SMALL, may_spawn=True)

    async def main() -> list[Any]:
        async with caller() as here:
            return [reply.value for reply in await asyncio.gather(*[here.call(made) for _ in range(4)])]

    # The worker is one of eight; a thread that just ended may still count as another.
    assert set(asyncio.run(main())) <= {6, 7}


def test_a_spinner_is_stopped_by_its_processor_time() -> None:
    assert called(recipe(Isolation.STRICT, "spin", limits=SMALL)) == Reply(Ending.DIED)
