"""Workers that are forked from a sealed template: what they share (nothing), what they see, how it ends."""

import asyncio
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.sandbox.workers import Caller, descendants, until
from toolkeep.sandbox.errors import SandboxBroken
from toolkeep.sandbox.isolation_levels import Isolation, Mechanism
from toolkeep.sandbox.memory_limits import MemoryLimits
from toolkeep.sandbox.plan import Grant, Recipe, WorkerPlan, ZygotePlan
from toolkeep.sandbox.proc_stats import host_pid
from toolkeep.sandbox.seccomp_filters import for_level, templated
from toolkeep.sandbox.template_pool import TemplateLimits
from toolkeep.sandbox.template_process import Template
from toolkeep.sandbox.worker_exchange import Ending, Reply
from toolkeep.sandbox.worker_pool import Pool, PoolSize, _LoopPool

pytestmark = pytest.mark.spec("SBX-2")

LEVELS = (Isolation.STANDARD, Isolation.STRICT, Isolation.RESTRICTED)
ABOUT_ITSELF = """
import os, random, secrets, time, uuid
born, calls = uuid.uuid4().hex, []
def go(**said):
    calls.append(said)
    return {"born": born, "calls": len(calls), "pid": os.getpid(), "fds": sorted(os.listdir("/proc/self/fd"))
            if os.path.exists("/proc/self/fd") else [], "random": [random.random(), secrets.token_hex(4)],
            "cwd": os.getcwd()}
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder


def made(
    code: Path,
    source: str = ABOUT_ITSELF,
    level: Isolation = Isolation.STRICT,
    *,
    grant: Grant | None = None,
    read: tuple[str, ...] = (),
    write: tuple[str, ...] = (),
    may_spawn: bool = False,
) -> Recipe:
    """Workers of `subject:go` with this source, from a template if it can be sealed."""
    file = code / "subject.py"
    if not file.exists() or file.read_text() != source:
        file.write_text(source)
    has_processes = may_spawn or level is Isolation.STANDARD
    profile = for_level(level, may_spawn=may_spawn)
    return Recipe(
        zygote=ZygotePlan(level=level, code=(str(code),), read=read, write=write, has_proc=has_processes),
        worker=WorkerPlan(
            tool="subject:go",
            level=level,
            filter=profile.program(),
            template_filter=templated(profile).program(),
            import_paths=(str(code),),
            may_spawn=may_spawn,
            memory_by=Mechanism.MEMORY_WATCH if has_processes else Mechanism.MEMORY_LIMIT,
        ),
        grant=grant or Grant(read=read, write=write),
    )


@contextlib.asynccontextmanager
async def calling(limits: TemplateLimits | None = None) -> AsyncIterator[Caller]:
    pool = Pool(PoolSize(templates=limits or TemplateLimits()))
    try:
        yield Caller(pool)
    finally:
        await pool.close()


def part_of(caller: Caller) -> _LoopPool:
    (part,) = caller.pool._loops.values()
    return part


def why_unsealed(caller: Caller) -> list[str]:
    entries = part_of(caller)._templates._entries.values()
    return [str(entry.starting.exception()) for entry in entries if entry.starting.exception() is not None]


def living(caller: Caller) -> int:
    return sum(len(zygote._templates) for zygote in part_of(caller)._zygotes.values())


@pytest.mark.parametrize("level", LEVELS)
def test_calls_share_an_import_and_nothing_else(code: Path, level: Isolation) -> None:
    async def main() -> list[Any]:
        async with calling() as here:
            recipe = made(code, level=level)
            answers = [await here.call(recipe, said=number) for number in range(3)]
            assert why_unsealed(here) == []
            return [reply.value for reply in answers]

    first, second, third = asyncio.run(main())
    assert first["born"] == second["born"] == third["born"]
    assert [answer["calls"] for answer in (first, second, third)] == [1, 1, 1]
    assert [answer["pid"] for answer in (first, second, third)] == [1, 1, 1]
    for drawn in zip(*(answer["random"] for answer in (first, second, third)), strict=True):
        assert len(set(drawn)) == 3
    assert set(first["fds"]) <= {"0", "1", "2", "3", "4", "5"}  # 5 is the listing itself


def test_random_numbers_are_drawn_anew_in_each_call_and_hooks_of_a_fork_run(code: Path) -> None:
    packages = str(Path(np.__file__).parent.parent)
    source = (
        "import os, random\nimport numpy.random as drawn\nhooked = []\n"
        "drawn.standard_normal()  # makes two, and keeps one\n"
        "os.register_at_fork(after_in_child=lambda: hooked.append(drawn.random()))\n"
        "def go():\n"
        "    numbers = random.random(), drawn.standard_normal(), drawn.random(), hooked[-1]\n"
        "    return [*numbers, len(hooked)]\n"
    )

    async def main() -> list[list[float]]:
        async with calling() as here:
            recipe = made(code, source)
            recipe = replace(
                recipe,
                zygote=replace(recipe.zygote, code=(str(code), packages), preload=("random",)),
                worker=replace(recipe.worker, import_paths=(str(code), packages)),
            )
            answers = [(await here.call(recipe)).value for _ in range(3)]
            assert why_unsealed(here) == []
            return answers

    *drawn, hooks = zip(*asyncio.run(main()), strict=True)
    assert [len(set(numbers)) for numbers in drawn] == [3, 3, 3, 3]
    # Once when the threads of the import were left behind, and once in the worker.
    assert hooks == (2, 2, 2)


def test_limits_that_count_all_workers_of_a_template_are_set_for_each(code: Path) -> None:
    source = (
        "import resource\nKINDS = (resource.RLIMIT_NPROC, resource.RLIMIT_SIGPENDING, resource.RLIMIT_CORE)\n"
        "def go(): return [resource.getrlimit(kind) for kind in KINDS]\n"
    )

    async def main() -> tuple[Any, list[str]]:
        async with calling() as here:
            return (await here.call(made(code, source))).value, why_unsealed(here)

    (processes, signals, core), why = asyncio.run(main())
    assert (processes, core, why) == ([64, 64], [0, 0], [])
    assert signals[0] == signals[1] <= 256


KEPT = {
    "shared page": "import mmap; page = mmap.mmap(-1, 4096)\ndef put(s): page[:len(s)] = s.encode()\n"
    "def get(): return page[:9].decode(errors='replace')",
    "page that is read-only at first": "import ctypes, mmap\npage = mmap.mmap(-1, 4096, prot=mmap.PROT_READ)\n"
    "at = ctypes.CDLL(None)\nat.mmap.restype = ctypes.c_void_p\n"
    "place = at.mmap(None, 4096, 1, 0x21, -1, 0)\n"
    "def put(s):\n    at.mprotect(ctypes.c_void_p(place), 4096, 3); ctypes.memmove(place, s.encode(), len(s))\n"
    "def get(): return ctypes.string_at(place, 9).decode(errors='replace')",
    "pipe": "import os\nout, into = os.pipe(); os.set_blocking(out, False)\ndef put(s): os.write(into, s.encode())\n"
    "def get():\n    try: return os.read(out, 9).decode()\n    except OSError: return ''",
    "socket pair": "import socket\na, b = socket.socketpair(); a.setblocking(False)\n"
    "def put(s): b.send(s.encode())\ndef get():\n    try: return a.recv(9).decode()\n    except OSError: return ''",
    "open file": "import os\nfile = os.open('/dev/zero', os.O_RDONLY)\ndef put(s): os.lseek(file, 0, 0)\n"
    "def get(): return ''",
    "folder": "import os, pathlib\nfor place in ('/box/scratch', '/tmp', '/box', '/dev/shm', '.'):\n"
    "    try: os.chdir(place); pathlib.Path('probe').write_text('x'); break\n    except OSError: pass\n"
    "def put(s): pathlib.Path('kept').write_text(s)\n"
    "def get():\n    try: return pathlib.Path('kept').read_text()\n    except OSError: return ''",
    "thread": "import threading, time\nkept = []\ndef put(s): kept.append(s)\ndef get(): return ''.join(kept)\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "timer": "import signal\nkept = []\nsignal.signal(signal.SIGALRM, lambda *_: kept.append('rang'))\n"
    "signal.setitimer(signal.ITIMER_REAL, 0.5, 0.5)\ndef put(s): kept.append(s)\ndef get(): return ''.join(kept)",
}
LATE = {
    "threads": "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
    "pending signals": "import signal; signal.pthread_sigmask(0, {10}); os.kill(os.getpid(), 10)",
    "queued signals": "import ctypes; ctypes.CDLL(None).timer_create(1, None, ctypes.byref(ctypes.c_void_p()))",
}
"""What a handler of the template's own forks does after the first one has shed what the import started."""
KEPT |= {
    name: "import os\ndef late():\n    if os.getpid() != 1: " + act + "\n"
    "os.register_at_fork(after_in_child=late)\nkept = []\ndef put(s): kept.append(s)\n"
    "def get(): return ''.join(kept)"
    for name, act in LATE.items()
}
SEALED = {"thread", "timer"}
"""What a fork leaves behind; the others cannot be sealed."""


@pytest.mark.parametrize("kept", KEPT)
def test_nothing_that_an_import_keeps_reaches_the_next_call(code: Path, kept: str) -> None:
    source = f"{KEPT[kept]}\ndef go(secret):\n    found = get()\n    try: put(secret)\n    except OSError: pass\n    return found\n"

    async def main() -> tuple[list[Any], list[str]]:
        async with calling() as here:
            recipe = made(code, source, may_spawn=kept in LATE)
            found = [await here.call(recipe, secret=f"secret {number}") for number in range(3)]
            return [reply.value for reply in found], why_unsealed(here)

    found, why = asyncio.run(main())
    assert not any("secret" in str(value) for value in found)
    assert len(found) == 3
    assert bool(why) == (kept not in SEALED)
    assert kept not in LATE or kept in why[0]


def test_a_process_that_an_import_starts_never_runs(code: Path, tmp_path: Path) -> None:
    source = (
        "import os, subprocess\nsaid = []\n"
        "for start in (os.fork, lambda: subprocess.run(['/usr/bin/true'])):\n"
        "    try:\n        if start() == 0: os._exit(0)\n        said.append('started')\n"
        "    except OSError as error: said.append(error.errno)\ndef go(): return said\n"
    )

    async def main() -> tuple[Any, list[str]]:
        async with calling() as here:
            return (await here.call(made(code, source))).value, why_unsealed(here)

    said, why = asyncio.run(main())
    assert (said, why) == ([1, 1], [])


CLONE = {"x86_64": 56, "aarch64": 220}[os.uname().machine]
VFORK, UNTRACED = 0x4000, 0x0080_0000
"""Flags of clone: the parent waits; a tracer does not follow."""


def test_a_process_that_an_import_may_start_is_killed_before_its_first_instruction(code: Path) -> None:
    source = (
        "import ctypes, os\nlibc, (out, into), said = ctypes.CDLL(None), os.pipe(), []\n"
        f"def clone(flags): return libc.syscall({CLONE}, ctypes.c_long(flags | 17), 0, 0, 0, 0)\n"
        f"for start in (os.fork, lambda: clone(0), lambda: clone({VFORK}), lambda: clone({UNTRACED})):\n"
        "    said.append(child := start())\n    if child == 0:\n        os.write(into, b'ran'); os._exit(0)\n"
        "os.close(into); said.append(os.read(out, 3).decode()); os.close(out)\ndef go(): return said\n"
    )

    async def main() -> tuple[Any, list[str]]:
        async with calling() as here:
            return (await here.call(made(code, source, may_spawn=True))).value, why_unsealed(here)

    (*started, untraced, ran), why = asyncio.run(main())
    assert (min(started) > 0, untraced, ran, why) == (True, -1, "", [])


@pytest.mark.parametrize("level", LEVELS)
def test_an_import_gets_no_more_than_a_call(code: Path, level: Isolation) -> None:
    left_file = Path(f"/dev/shm/toolkeep-{os.urandom(4).hex()}")  # noqa: S108 -- that is the point
    source = (
        "import ctypes, os, resource, threading\nlibc, halt, made = ctypes.CDLL(None), threading.Event(), [0, 0]\n"
        "threading.stack_size(1 << 17)\ntry:\n    while made[0] < 100:\n"
        "        threading.Thread(target=halt.wait, daemon=True).start(); made[0] += 1\n"
        "except RuntimeError: pass\nhalt.set()\n"
        "timer = ctypes.c_void_p()\n"
        "while made[1] < 1000 and libc.timer_create(1, None, ctypes.byref(timer)) == 0: made[1] += 1\n"
        f"try: open('{left_file}', 'w').close(); made.append('left')\nexcept OSError: pass\n"
        "made.append([n for n in range(64) if libc.fcntl(n, 1) >= 0])\ndef go(): return made\n"
    )
    many = source.replace("made[0] < 100", "made[0] < 9")

    async def main() -> list[Any]:
        async with calling() as here:
            here.deadline_s = 60.0
            few = (await here.call(made(code, many, level))).value
            assert why_unsealed(here) == []
            (code / "subject.py").write_text(source)
            await here.call(made(code, source, level))
            assert why_unsealed(here) == ["its import starts more threads and processes than a call may have"]
            return list(few)

    threads, timers, *left, open_files = asyncio.run(main())
    assert (threads, timers < 1000, left, open_files) == (9, True, [], [0, 1, 2])
    assert not left_file.exists()


CODE = {
    "x86_64": "b838000000 bf11002001 31f6 31d2 4531d2 4531c0 0f05 c3",
    "aarch64": "881b80d2 200280d2 0024a0f2 010080d2 020080d2 030080d2 040080d2 010000d4 c0035fd6",
}[os.uname().machine]
"""A function that forks by a system call of its own."""
SPIN = {"x86_64": "ebfe", "aarch64": "00000014"}[os.uname().machine]
OWN_FORK = (
    f"import ctypes, os, sys\nlibc, code, spin = ctypes.CDLL(None), bytes.fromhex('{CODE}'), bytes.fromhex('{SPIN}')\n"
    "libc.mmap.restype, born = ctypes.c_void_p, os.urandom(4).hex()\n"
    "def fork():\n    ready()\n    return ctypes.CFUNCTYPE(ctypes.c_long)(place)()\n"
    "if os.getpid() != 1: sys.modules['_toolkeep_inside.template']._fork = fork\n"
)
"""A tool that has its template held in a fork of its own, at `place`."""
RSEQ = {"x86_64": 334, "aarch64": 293}[os.uname().machine]
INSTRUCTION = CODE.replace(" ", "").index({"x86_64": "0f05", "aarch64": "010000d4"}[os.uname().machine]) // 2
HELD = {
    "protect(5)": "",
    "protect(7)": "a fork in writable memory",
    "protect(5); libc.madvise(ctypes.c_void_p(place), 4096, 18)  # wiped by a fork": "a fork in writable memory",
    f"protect(5); libc.syscall({RSEQ}, ctypes.c_long(area), 32, 0, 1)": "a restartable sequence",
}
"""What a tool does to its code before the fork in which it is held, and why it then cannot be."""


@pytest.mark.parametrize("held", HELD)
def test_a_template_is_held_where_nothing_else_can_be_executed(code: Path, held: str) -> None:
    source = (
        f"{OWN_FORK}place = libc.mmap(None, 4096, 3, 0x22, -1, 0); ctypes.memmove(place, code, len(code))\n"
        "held = ctypes.create_string_buffer(128); area = ctypes.addressof(held) + 63 & ~63\n"
        "def protect(access): libc.mprotect(ctypes.c_void_p(place), 4096, access)\n"
        f"def ready(): {held}\ndef go(): return born\n"
    )

    async def main() -> tuple[list[bool], str]:
        async with calling() as here:
            replies = [await here.call(made(code, source)) for _ in range(2)]
            return [reply.is_templated for reply in replies], "".join(why_unsealed(here))

    templated_ones, why = asyncio.run(main())
    assert templated_ones == [not HELD[held]] * 2
    assert bool(HELD[held]) == bool(why)
    assert HELD[held] in why


def test_a_file_that_changes_does_not_change_what_a_held_template_executes(code: Path) -> None:
    """At standard a tool may map code from a file that its calls can write."""
    folder = Path(tempfile.mkdtemp(prefix="toolkeep-held-"))
    folder.chmod(0o777)
    source = (
        f"{OWN_FORK}name, ready = '{folder}/code', lambda: None\n"
        "if os.getpid() != 1:\n    with open(name, 'wb') as file: file.write(code.ljust(4096))\n"
        "    file = os.open(name, os.O_RDONLY); place = libc.mmap(None, 4096, 5, 2, file, 0); os.close(file)\n"
        "def go():\n    with open(name, 'r+b') as file:\n"
        f"        file.seek({INSTRUCTION}); file.write(spin)\n    return born\n"
    )

    async def main() -> set[Any]:
        async with calling() as here:
            here.deadline_s = 5.0
            replies = [await here.call(made(code, source, Isolation.STANDARD)) for _ in range(3)]
            return {(reply.value, reply.is_templated) for reply in replies}

    try:
        ((_, is_templated),) = asyncio.run(main())
    finally:
        shutil.rmtree(folder)
    assert is_templated


def test_a_template_sees_code_alone_and_each_worker_its_own_grant(code: Path, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "inner").mkdir(parents=True)
    (top / "inner" / "file").write_text("granted")
    (top / "frozen").write_text("frozen")
    (top / "state").mkdir()
    (top / "state" / "key").write_text("key")
    source = (
        "import os\nTOP = " + repr(str(top)) + "\n"
        "def look(way):\n"
        "    try:\n"
        "        with open(f'{TOP}/{way}') as file: return file.read()\n"
        "    except OSError as error: return type(error).__name__\n"
        "def leave(way):\n"
        "    try:\n"
        "        with open(f'{TOP}/{way}', 'w') as file: file.write('left')\n"
        "        return 'left'\n"
        "    except OSError as error: return type(error).__name__\n"
        "at_import = [look('inner/file'), leave('inner/new')]\n"
        "def go(): return [at_import, look('inner/file'), leave('inner/new'), leave('frozen'), look('state/key')]\n"
    )
    roots = (str(top),)
    grants = [
        Grant(),
        Grant(read=(f"{top}/inner",)),
        Grant(read=(str(top),)),
        Grant(write=(f"{top}/inner",)),
        Grant(write=(str(top),), frozen=(f"{top}/frozen",), hidden=(f"{top}/state",)),
        Grant(),
    ]

    async def main() -> list[Any]:
        async with calling() as here:
            answers = [
                (await here.call(made(code, source, grant=grant, read=roots, write=roots))).value
                for grant in grants
            ]
            assert (why_unsealed(here), living(here)) == ([], 1)
            return answers

    nothing = ["FileNotFoundError", "FileNotFoundError"]
    absent, read_only = "FileNotFoundError", "OSError"
    none, inner_read, all_read, inner_write, all_write, none_again = asyncio.run(main())
    assert none == none_again
    assert none[1] == absent
    assert none[2] in (absent, read_only)
    assert [answer[0][0] for answer in (none, inner_read, all_read, all_write)] == [nothing[0]] * 4
    assert inner_read[1:3] == ["granted", read_only]
    assert all_read[1:3] == ["granted", read_only]
    assert (all_read[3], all_read[4]) == (read_only, "key")
    assert inner_write[1:3] == ["granted", "left"]
    assert inner_write[4] == absent
    assert all_write[1:] == ["granted", "left", read_only, "PermissionError"]
    assert (top / "frozen").read_text() == "frozen"


def test_a_write_root_inside_a_folder_that_is_read_stays_read_only(code: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    (outer / "out").mkdir(parents=True)
    source = f"def go():\n    open('{outer}/out/new', 'w').write('x')\n"

    async def main() -> list[Any]:
        async with calling() as here:
            read, write = (str(outer),), (f"{outer}/out",)
            return [
                await here.call(made(code, source, grant=grant, read=read, write=write))
                for grant in (Grant(read=read), Grant(read=read, write=write))
            ]

    denied, granted = asyncio.run(main())
    assert (denied.ending, granted.ending) == (Ending.RAISED, Ending.OK)


def test_a_granted_folder_that_is_gone_costs_its_own_call_alone(code: Path, tmp_path: Path) -> None:
    top = tmp_path / "top"
    (top / "inner").mkdir(parents=True)
    source = "import time\ndef go(seconds):\n    time.sleep(seconds)\n    return 'slept'\n"

    async def main() -> None:
        async with calling() as here:
            roots = (str(top),)
            await here.call(made(code, source, grant=Grant(), read=roots), seconds=0)
            (entry,) = part_of(here)._templates._entries.values()
            running = asyncio.ensure_future(
                here.call(made(code, source, grant=Grant(), read=roots), seconds=1)
            )
            await asyncio.sleep(0.2)
            gone = made(code, source, grant=Grant(read=(str(top / "inner"),)), read=roots)
            (top / "inner").rmdir()
            with pytest.raises(SandboxBroken):
                await entry.starting.result().template.fork(gone.worker, gone.grant)
            assert (await running).value == "slept"
            assert (
                await here.call(made(code, source, grant=Grant(), read=roots), seconds=0)
            ).value == "slept"
            assert living(here) == 1

    asyncio.run(main())


def test_a_worker_that_may_start_processes_has_its_own_proc_and_ends_with_them(code: Path) -> None:
    source = (
        "import os, subprocess\ndef go():\n"
        "    done = subprocess.run(['/usr/bin/cat', '/proc/self/stat'], capture_output=True, text=True)\n"
        "    return [done.stdout.split()[0], sorted(n for n in os.listdir('/proc') if n.isdigit())]\n"
    )

    async def main() -> tuple[Any, list[str]]:
        async with calling() as here:
            recipe = replace(made(code, source, may_spawn=True), grant=Grant(run=("/usr",)))
            return (await here.call(recipe)).value, why_unsealed(here)

    (pid, seen), why = asyncio.run(main())
    assert why == []
    assert (int(pid) <= 3, seen) == (True, ["1"])


def test_a_worker_is_closed_to_others_and_cannot_do_what_its_fork_server_did_to_it(code: Path) -> None:
    source = (
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\ndef go():\n"
        "    tried = [libc.prctl(4, 1, 0, 0, 0), libc.capset(None, None), libc.openat(-1094, b'/', 0),\n"
        f"             libc.syscall({CLONE}, ctypes.c_long(0x10000011), 0, 0, 0, 0)]\n"
        "    os.kill(0, 15)  # PID 1 does not get it: whoever is in its process group would\n"
        "    return [os.getpid(), os.getpgrp(), libc.prctl(3, 0, 0, 0, 0), tried]\n"
    )

    async def main() -> list[Any]:
        async with calling() as here:
            replies = [await here.call(made(code, source, may_spawn=True)) for _ in range(3)]
            assert living(here) == 1
            return [(reply.value, reply.is_templated) for reply in replies]

    assert asyncio.run(main()) == [([1, 1, 0, [-1, -1, -1, -1]], True)] * 3


def test_an_import_that_signals_its_group_ends_itself_alone(code: Path) -> None:
    """At standard, where no Landlock keeps signals inside."""
    source = "import os\nif os.getpid() != 1: os.kill(0, 9)\ndef go(): return 'served'\n"

    async def main() -> None:
        async with calling() as here:
            await here.call(made(code, level=Isolation.STANDARD))
            (zygote,) = part_of(here)._zygotes.values()
            assert (await here.call(made(code, source, Isolation.STANDARD))).value == "served"
            assert (zygote.is_gone, list(part_of(here)._zygotes.values())) == (False, [zygote])

    asyncio.run(main())


def test_a_worker_with_processes_runs_only_when_their_memory_is_bounded(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply = MemoryLimits.apply
    tracers: list[str] = []

    def noted(self: MemoryLimits, plan: WorkerPlan, pidfd: int) -> Any:
        status = Path(f"/proc/{host_pid(pidfd)}/status").read_text()
        tracers.extend(line for line in status.splitlines() if line.startswith("TracerPid:"))
        return apply(self, plan, pidfd)

    monkeypatch.setattr(MemoryLimits, "apply", noted)

    async def main() -> bool:
        async with calling() as here:
            reply = await here.call(made(code, level=Isolation.STANDARD))
            return reply.is_templated and reply.ending is Ending.OK

    assert asyncio.run(main())
    assert len(tracers) == 1
    assert "TracerPid:\t0" not in tracers


def test_changed_code_is_imported_anew_and_unchanged_code_is_not(code: Path) -> None:
    async def main() -> list[Any]:
        async with calling() as here:
            said = []
            (code / "helper.py").write_text("said = 'a'")
            source = "import helper\ndef go(): return helper.said\n"
            for text in ("said = 'a'", None, "said = 'b'"):
                if text is not None:
                    (code / "helper.py").write_text(text)
                said.append((await here.call(made(code, source))).value)
            # An editor replaces files.
            (code / "next").write_text("said = 'c'")
            (code / "next").rename(code / "helper.py")
            said.append((await here.call(made(code, source))).value)
            return said

    assert asyncio.run(main()) == ["a", "a", "b", "c"]


def test_a_killed_fork_server_costs_a_call_its_speed_and_nothing_else(code: Path) -> None:
    async def main() -> list[Any]:
        async with calling() as here:
            recipe = made(code)
            born = [(await here.call(recipe)).value["born"]]
            (entry,) = part_of(here)._templates._entries.values()
            signal.pidfd_send_signal(entry.starting.result().template._pidfd, signal.SIGKILL)
            born += [(await here.call(recipe)).value["born"] for _ in range(3)]
            return born

    first, *_, third, fourth = asyncio.run(main())
    assert first != third
    assert third == fourth


SLEEPS = "import os, time\nborn = os.urandom(4).hex()\ndef go(seconds):\n    time.sleep(seconds)\n    return born\n"


async def started(here: Caller, recipe: Recipe) -> "tuple[Template, asyncio.Future[Reply]]":
    """The template of a tool, and a call from it that runs."""
    await here.call(recipe, seconds=0)
    (entry,) = part_of(here)._templates._entries.values()
    template = entry.starting.result().template
    assert await until(lambda: template.workers == 0)
    running = asyncio.ensure_future(here.call(recipe, seconds=1))
    assert await until(lambda: template.workers == 1)
    return template, running


def test_a_killed_template_costs_no_call_and_is_made_anew(code: Path) -> None:
    async def main() -> None:
        async with calling() as here:
            recipe = made(code, SLEEPS)
            template, running = await started(here, recipe)
            below = descendants(host_pid(template._pidfd))
            namespaces = {pid: len(_ids(pid)) for pid in below}
            (held,) = (pid for pid, depth in namespaces.items() if depth == min(namespaces.values()))
            os.kill(held, signal.SIGKILL)
            # One was made ahead; the next finds out, and is imported anew.
            born = [(await here.call(recipe, seconds=0)).value for _ in range(4)]
            assert (await running).value == born[0]
            assert len(set(born)) == 3
            assert born[2] == born[3]

    asyncio.run(main())


def _ids(pid: int) -> list[str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line.split() for line in status.splitlines() if line.startswith("NSpid:"))


@pytest.mark.parametrize("killed", ["fork server", "zygote"])
def test_a_call_whose_fork_server_is_killed_fails_and_the_next_is_served(code: Path, killed: str) -> None:
    async def main() -> None:
        async with calling() as here:
            recipe = made(code, SLEEPS)
            template, running = await started(here, recipe)
            (zygote,) = part_of(here)._zygotes.values()
            if killed == "zygote":
                zygote._process.kill()
            else:
                signal.pidfd_send_signal(template._pidfd, signal.SIGKILL)
            reply = await running
            assert (reply.ending, reply.text) == (Ending.DIED, "")
            assert [(await here.call(recipe, seconds=0)).ending for _ in range(2)] == [Ending.OK] * 2

    asyncio.run(main())


def test_one_ends_when_its_time_or_its_forks_are_over_or_another_needs_the_room(code: Path) -> None:
    async def main() -> None:
        async with calling(TemplateLimits(most=2, forks=2)) as here:
            recipe = made(code)
            born = [(await here.call(recipe)).value["born"] for _ in range(4)]
            assert (born[0], born[2]) == (born[1], born[3])
            assert born[0] != born[2]
            key = here.key(recipe)
            for owner in ("one", "two", "one", "two", "three", "three"):
                body = b'{"arguments":{}}'
                assert (await here.pool.run(key, body, 20.0, 1 << 20, owner=owner)).ending is Ending.OK
            assert await until(lambda: living(here) == 2)
            here.pool.end_templates()
            assert await until(lambda: living(here) == 0)
        async with calling(TemplateLimits(seconds=0.0)) as here:
            born = [(await here.call(made(code))).value["born"] for _ in range(2)]
            assert born[0] != born[1]

    asyncio.run(main())


def test_a_tool_that_cannot_be_imported_says_so_as_without_a_template(code: Path) -> None:
    async def main() -> Any:
        async with calling() as here:
            return await here.call(made(code, "import no_such_module_anywhere\n"))

    reply = asyncio.run(main())
    assert reply.ending is Ending.UNLOADED
    assert "ModuleNotFoundError" in reply.text


def test_an_import_without_end_costs_its_own_call_and_is_killed(code: Path) -> None:
    async def main() -> None:
        async with calling() as here:
            here.deadline_s = 1.0
            reply = await here.call(made(code, "import time\ntime.sleep(600)\n"))
            assert reply.ending is Ending.TIMED_OUT
            assert await until(lambda: living(here) == 0)

    asyncio.run(main())


def test_nobody_sees_a_worker_that_was_ordered_for_nothing(code: Path) -> None:
    async def main() -> None:
        async with calling() as here:
            recipe = made(code, "import os\ndef go(): return sorted(os.environ)\n")
            call = asyncio.ensure_future(here.call(recipe))
            await asyncio.sleep(0.05)
            call.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await call
            reply = await here.call(recipe)
            assert reply.value == ["HOME", "LANG", "PATH", "TMPDIR"]
            assert await until(lambda: not any(z.workers for z in part_of(here)._zygotes.values()))
            (entry,) = part_of(here)._templates._entries.values()
            assert await until(lambda: entry.starting.result().template.workers == 0)

    asyncio.run(main())
