"""Attempts on other processes, to outlive the call, and to exceed resource limits."""

import contextlib
import ctypes
import fcntl
import mmap
import os
import resource
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import NoReturn

from .declare import attempt
from .system import CLONE_PARENT, SIGCHLD, call, libc, raw, take_name

_MIB = 1 << 20
_WAITING_S = 2.0
"""How long a concurrent call waits to be hit: longer than an attempt takes to start on a busy machine."""


def _sleep_for_good() -> NoReturn:
    while True:
        time.sleep(60)


# SIGURG: ignored by default, so it harms nobody.


@attempt("ipc-closed", "hit")
def signal_a_process(victim: dict[str, int]) -> None:
    os.kill(victim["pid"], signal.SIGURG)


@attempt("ipc-closed", "hit")
def signal_everyone(victim: dict[str, int]) -> None:
    """Everyone in this pid namespace: see `enclosure.py`."""
    os.kill(-1, signal.SIGURG)


@attempt("ipc-closed", "hit")
def signal_every_number(victim: dict[str, int]) -> None:
    for pid in range(max(2, victim["pid"] - 500), victim["pid"] + 500):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGURG) if pid == victim["pid"] else os.kill(pid, 0)


@attempt("ipc-closed", "hit")
def signal_a_group(victim: dict[str, int]) -> None:
    os.killpg(victim["group"], signal.SIGURG)


@attempt("ipc-closed", "hit")
def signal_by_handle(victim: dict[str, int]) -> None:
    signal.pidfd_send_signal(os.pidfd_open(victim["pid"]), signal.SIGURG)


@attempt("ipc-closed", "hit")
def signal_a_thread(victim: dict[str, int]) -> None:
    raw("tgkill", victim["pid"], victim["pid"], signal.SIGURG)


@attempt("ipc-closed", "hit")
def signal_through_file_owner(victim: dict[str, int]) -> None:
    """The kernel sends the signal when data arrives in a pipe (F_SETOWN)."""
    out, into = os.pipe()
    fcntl.fcntl(out, fcntl.F_SETOWN, victim["pid"])
    fcntl.fcntl(out, fcntl.F_SETSIG, signal.SIGURG)
    fcntl.fcntl(out, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
    os.write(into, b"x")
    time.sleep(0.05)


@attempt("ipc-closed", "hit")
def signal_another_call(other_call_pid: int) -> None:
    """Another worker of the same user and zygote, by its host pid."""
    os.kill(other_call_pid, signal.SIGURG)


@attempt("ipc-closed", "hit")
def set_flags_on_the_streams_of_another_call() -> None:
    """Status flags belong to the open file description, shared by all that inherit it."""
    for stream in range(3):
        flags = fcntl.fcntl(stream, fcntl.F_GETFL)
        fcntl.fcntl(stream, fcntl.F_SETFL, flags ^ os.O_NONBLOCK)
    time.sleep(0.1)


# --- looking into, and steering ------------------------------------------------------------------


@attempt("ipc-closed", "leaked")
def trace_a_process(victim: dict[str, int]) -> str:
    pid, address = victim["pid"], victim["address"]
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(ctypes.c_long(16), ctypes.c_long(pid), None, None) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, 0)
    words = [
        libc.ptrace(ctypes.c_long(2), ctypes.c_long(pid), ctypes.c_void_p(address + at), None) % 2**64
        for at in range(0, victim["length"], 8)
    ]
    libc.ptrace(ctypes.c_long(17), ctypes.c_long(pid), None, None)
    return b"".join(word.to_bytes(8, "little") for word in words).decode("ascii", "replace")


def _vectors(buffer: ctypes.Array[ctypes.c_char], victim: dict[str, int]) -> tuple[bytes, bytes]:
    length = victim["length"].to_bytes(8, "little")
    here = ctypes.addressof(buffer).to_bytes(8, "little") + length
    return here, victim["address"].to_bytes(8, "little") + length


@attempt("ipc-closed", "leaked")
def read_memory_across(victim: dict[str, int]) -> str:
    buffer = ctypes.create_string_buffer(victim["length"])
    here, there = _vectors(buffer, victim)
    call("process_vm_readv", victim["pid"], here, 1, there, 1, 0)
    return buffer.raw.decode()


@attempt("ipc-closed", "hit")
def write_memory_across(victim: dict[str, int]) -> None:
    buffer = ctypes.create_string_buffer(b"owned" * 10, victim["length"])
    here, there = _vectors(buffer, victim)
    call("process_vm_writev", victim["pid"], here, 1, there, 1, 0)


@attempt("ipc-closed", "leaked")
def steal_a_descriptor(victim: dict[str, int]) -> str:
    stolen = raw("pidfd_getfd", os.pidfd_open(victim["pid"]), victim["descriptor"], 0)
    return os.pread(stolen, 200, 0).decode()


@attempt("ipc-closed", "hit")
def limit_a_process(victim: dict[str, int]) -> None:
    resource.prlimit(victim["pid"], resource.RLIMIT_NOFILE, (17, 17))


@attempt("ipc-closed", "hit")
def slow_a_process(victim: dict[str, int]) -> None:
    os.setpriority(os.PRIO_PROCESS, victim["pid"], 19)


@attempt("ipc-closed", "hit")
def slow_all_of_the_user(victim: dict[str, int]) -> None:
    """By process group, which is the victim's alone; by user it would reach whoever runs this."""
    os.setpriority(os.PRIO_PGRP, victim["group"], 19)


@attempt("ipc-closed", "hit", needs="a second processor")
def pin_a_process(victim: dict[str, int]) -> None:
    os.sched_setaffinity(victim["pid"], {min(os.sched_getaffinity(0))})


@attempt("ipc-closed", "hit")
def idle_a_process(victim: dict[str, int]) -> None:
    os.sched_setscheduler(victim["pid"], os.SCHED_IDLE, os.sched_param(0))


@attempt("ipc-closed", "done")
def delay_disk_of_a_process(victim: dict[str, int]) -> str:
    raw("ioprio_set", 1, victim["pid"], 3 << 13)
    return "done"


@attempt("ipc-closed", "hit")
def offer_a_process_to_the_memory_killer(victim: dict[str, int]) -> None:
    Path(f"/proc/{victim['pid']}/oom_score_adj").write_text("1000")


@attempt("ipc-closed", "done", needs="kcmp")
def compare_with_a_process(victim: dict[str, int]) -> str:
    raw("kcmp", victim["pid"], os.getpid(), 0, 0, 1)
    return "done"


@attempt("kernel-surface", "done", only_for="root", needs="real-time scheduling in this control group")
def take_real_time_priority() -> str:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    return "done"


@attempt("kernel-surface", "done", only_for="root")
def raise_own_priority() -> str:
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    return "done"


# --- outliving the call --------------------------------------------------------------------------


@attempt("tree-kill", "left", deadline_s=2.0)
def sleep_past_the_deadline(mark: str) -> None:
    take_name(mark)
    _sleep_for_good()


@attempt("tree-kill", "left", deadline_s=2.0)
def spin_past_the_deadline(mark: str) -> None:
    take_name(mark)
    while True:
        pass


@attempt("tree-kill", "left", deadline_s=2.0)
def ignore_every_signal(mark: str) -> None:
    take_name(mark)
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    _sleep_for_good()


@attempt("tree-kill", "left")
def leave_a_daemon(mark: str) -> str:
    """Double fork and setsid; then the call is answered normally."""
    take_name(mark)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _sleep_for_good()
        os._exit(0)
    os.wait()
    return "answered"


@attempt("tree-kill", "left")
def leave_a_child_of_the_parent(mark: str) -> str:
    """CLONE_PARENT: the child would belong to whoever started the worker."""
    take_name(mark)
    if raw("clone", CLONE_PARENT | SIGCHLD, 0, 0, 0, 0) == 0:
        _sleep_for_good()
    return "answered"


@attempt("tree-kill", "left")
def leave_a_program(mark: str, work: str) -> str:
    """A program carries the name it is started under: a symlink with the mark, for the host to find."""
    link = Path(work) / mark
    with contextlib.suppress(OSError):
        link.symlink_to("/bin/sleep")
    os.posix_spawn(link, [mark, "60"], {})
    return "answered"


@attempt("tree-kill", "left")
def leave_a_stopped_child(mark: str) -> str:
    take_name(mark)
    told, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.write(tell, b"1")
        _sleep_for_good()
    os.read(told, 1)
    os.kill(child, signal.SIGSTOP)
    return "answered"


@attempt("tree-kill", "left", deadline_s=2.0)
def go_on_after_answering(mark: str) -> None:
    take_name(mark)
    body = b'{"ok":"early"}'
    os.write(4, len(body).to_bytes(4, "big") + body)
    _sleep_for_good()


# --- more than a share ---------------------------------------------------------------------------


def _children(count: int, mark: str) -> int:
    take_name(mark)
    made = 0
    with contextlib.suppress(OSError):
        while made < count:
            if os.fork() == 0:
                _sleep_for_good()
            made += 1
    return made


@attempt("bounded", "more")
def fork_without_end(more_processes: int, mark: str) -> int:
    return _children(more_processes, mark)


@attempt("tree-kill", "left", deadline_s=2.0)
def fork_a_growing_tree(mark: str) -> None:
    take_name(mark)
    for _ in range(5):
        with contextlib.suppress(OSError):
            if os.fork() == 0:
                os.setsid()
    _sleep_for_good()


@attempt("bounded", "more")
def start_threads_without_end(more_processes: int) -> int:
    threading.stack_size(256 * 1024)  # ARM needs at least 128 KiB.
    halt = threading.Event()
    made = 0
    with contextlib.suppress(RuntimeError):
        while made < more_processes:
            threading.Thread(target=halt.wait, daemon=True).start()
            made += 1
    halt.set()
    return made


@attempt("bounded", "more")
def open_files_without_end(more_files: int) -> int:
    opened: list[int] = []
    with contextlib.suppress(OSError):
        while len(opened) < more_files:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    return len(opened)


@attempt("bounded", "more")
def make_timers_without_end(more_timers: int) -> int:
    """Timers are limited per user: taking all of them starves the user's other programs."""
    timer = ctypes.c_void_p()
    made = 0
    with contextlib.suppress(OSError):
        while made < more_timers:
            call("timer_create", time.CLOCK_MONOTONIC, None, ctypes.byref(timer))
            made += 1
    return made


@attempt("memory-bound", "more")
def take_memory(more_bytes: int) -> int:
    return len(bytearray(more_bytes))


@attempt("memory-bound", "more")
def take_memory_in_pieces(more_bytes: int) -> int:
    held: list[bytearray] = []
    with contextlib.suppress(MemoryError):
        while len(held) * _MIB < more_bytes:
            held.append(bytearray(_MIB))
    return len(held) * _MIB


def _mapped(more_bytes: int, flags: int) -> int:
    held: list[mmap.mmap] = []
    with contextlib.suppress(OSError, ValueError):
        while len(held) * 16 * _MIB < more_bytes:
            held.append(mmap.mmap(-1, 16 * _MIB, flags=flags))
    return len(held) * 16 * _MIB


@attempt("memory-bound", "more")
def take_shared_memory(more_bytes: int) -> int:
    return _mapped(more_bytes, mmap.MAP_SHARED | mmap.MAP_ANONYMOUS)


@attempt("memory-bound", "more")
def take_memory_that_is_not_reserved(more_bytes: int) -> int:
    return _mapped(more_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)


@attempt("memory-bound", "more", needs="memfd")
def take_memory_in_files_without_names(more_bytes: int) -> int:
    """No rlimit of the process counts memfds."""
    held = 0
    with contextlib.suppress(OSError):
        while held < more_bytes:
            descriptor = os.memfd_create("held")
            os.ftruncate(descriptor, 16 * _MIB)
            held += os.pwrite(descriptor, b"x" * _MIB, 15 * _MIB) * 16
    return held


@attempt("memory-bound", "more", needs="System V shared memory")
def take_memory_in_segments(more_bytes: int) -> int:
    held: list[int] = []
    with contextlib.suppress(OSError):
        while len(held) * 16 * _MIB < more_bytes:
            held.append(call("shmget", 0, 16 * _MIB, 0o1600))
    for segment in held:
        call("shmctl", segment, 0, None)
    return len(held) * 16 * _MIB


@attempt("memory-bound", "more", needs="so much room in /dev/shm")
def take_memory_in_shared_files(more_bytes: int) -> int:
    """No rlimit of the process counts these either."""
    made: list[Path] = []
    held = 0
    with contextlib.suppress(OSError):
        while held < more_bytes:
            made.append(Path(f"/dev/shm/held-{os.getpid()}-{len(made)}"))
            held += made[-1].write_bytes(bytes(32 * _MIB))
    for path in made:
        path.unlink(missing_ok=True)
    return held


@attempt("memory-bound", "changed")
def leave_memory_in_a_shared_file(outside_memory: str) -> None:
    """It is held after the call, and charged to nobody."""
    Path(outside_memory).write_bytes(bytes(_MIB))


@attempt("memory-bound", "done")
def raise_own_limits(more_bytes: int) -> str:
    # Address space of a single process, writable memory of one that may start others.
    for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
        if resource.getrlimit(kind)[1] != resource.RLIM_INFINITY:
            resource.setrlimit(kind, (more_bytes, more_bytes))
    return "done"


@attempt("memory-bound", "more")
def take_memory_in_a_program(more_bytes: int, interpreter: str) -> int:
    """execve inherits the rlimits."""
    script = f"print(len(bytearray({more_bytes})))"
    done = subprocess.run(
        [interpreter, "-I", "-S", "-c", script], capture_output=True, text=True, check=False
    )
    return int(done.stdout or 0)


@attempt("bounded", "left", deadline_s=60.0, endings=("died",))
def spin_past_the_processor_time(mark: str, cpu_s: int) -> None:
    """The deadline is later than the granted CPU seconds, on a busy machine too."""
    take_name(mark)
    signal.signal(signal.SIGXCPU, signal.SIG_IGN)
    while True:
        pass


# --- programs ------------------------------------------------------------------------------------


def _output(*command: str) -> str:
    return subprocess.run([*command], capture_output=True, text=True, check=True).stdout


@attempt("fs-read", "leaked")
def read_key_by_a_shell(key: str) -> str:
    return _output("/bin/sh", "-c", f"cat '{key}'")


@attempt("kernel-surface", "done", may_spawn=False)
def run_a_shell_without_leave() -> str:
    return _output("/bin/sh", "-c", "echo done").strip()


@attempt("kernel-surface", "done", may_spawn=False)
def fork_without_leave() -> str:
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return "done"


@attempt("kernel-surface", "done", only_for="ordinary", needs="a setuid program, which only root can make")
def gain_root_by_a_setuid_program(setuid_id: str) -> str:
    return "done" if _output(setuid_id, "-u").strip() == "0" else "ordinary"


@attempt("kernel-surface", "done", may_spawn=False)
def replace_oneself_by_a_shell(mark: str) -> None:
    """The shell's output is the answer."""
    body = '{"ok":"done"}'
    print_it = f"printf '\\000\\000\\000\\{len(body):03o}%s' '{body}' >&4"
    os.set_inheritable(4, True)  # noqa: FBT003 -- its only argument
    os.execv("/bin/sh", ["/bin/sh", "-c", print_it])


@attempt("ipc-closed", "hit")
def answer_for_another_call(other_call_pid: int) -> None:
    """Through its reply pipe, which is descriptor 4: by its name in /proc, or taken from the process."""
    body = b'{"ok":"hit"}'
    frame = len(body).to_bytes(4, "big") + body
    # Another number in the pid namespace of a worker. An unconfined control must not reach further.
    siblings = range(2, 64) if os.getpid() == 1 else ()
    for pid in (other_call_pid, *siblings):
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/fd/4").write_bytes(frame)
        with contextlib.suppress(OSError):
            os.write(raw("pidfd_getfd", os.pidfd_open(pid), 4, 0), frame)


def wait_to_be_answered_for(mark: str) -> str:
    """The concurrent call; in a control it notices by itself, in a worker the host does."""
    out = -1
    if os.getpid() != 1:
        out, into = os.pipe()
        os.set_blocking(out, False)
        os.dup2(into, 4)
    take_name(mark)
    end = time.monotonic() + _WAITING_S / 2
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if out >= 0 and os.read(out, 1):
                return "hit"
        time.sleep(0.01)
    return "untouched"


def wait_for_flags_on_streams(mark: str) -> str:
    """The concurrent call: reports whether the flags of its standard input changed."""
    before = fcntl.fcntl(0, fcntl.F_GETFL)
    take_name(mark)
    end = time.monotonic() + _WAITING_S
    while time.monotonic() < end and fcntl.fcntl(0, fcntl.F_GETFL) == before:
        time.sleep(0.01)
    return "untouched" if fcntl.fcntl(0, fcntl.F_GETFL) == before else "hit"


def wait_to_be_hit(mark: str) -> str:
    """The concurrent call: reports whether a signal arrived."""
    hits: list[int] = []
    signal.signal(signal.SIGURG, lambda number, _: hits.append(number))
    take_name(mark)
    end = time.monotonic() + _WAITING_S
    while time.monotonic() < end and not hits:
        time.sleep(0.01)
    return "hit" if hits else "untouched"
