"""Tools that the workers of the tests run: ordinary ones, and ones that take whatever they can."""

import asyncio
import contextlib
import errno
import fcntl
import json
import logging
import os
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

OUTSIDE_CAPABILITIES = 64
SEGMENT = 0x746B


class ToolFailed(Exception):
    """Looks like toolkeep's, which this file cannot import in a worker."""


ToolFailed.__module__ = "toolkeep.definitions.tool_context"


def add(first: int, second: int) -> int:
    return first + second


async def add_later(first: int, second: int) -> int:
    await asyncio.sleep(0)
    return first + second


def echo(value: Any) -> Any:
    return value


def give_bytes() -> bytes:
    return b"\x00\xff"


def give_set() -> Any:
    return {1, 2}


def fail(text: str) -> None:
    raise ToolFailed(text)


def divide(by: int) -> float:
    return 1 / by


def leave() -> None:
    sys.exit(3)


def vanish() -> None:
    os._exit(0)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)
    import ctypes

    ctypes.string_at(0)


def signal_group() -> None:
    os.kill(0, signal.SIGKILL)


def spin() -> None:
    while True:
        pass


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def shout() -> int:
    print("x" * 1_000_000)
    return len(list(Path().iterdir()))


def fork_tree(depth: int) -> None:
    """Two children each, in sessions of their own, that ignore what they can and never end."""
    for _ in range(depth):
        for _ in range(2):
            if os.fork() == 0:
                os.setsid()
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)
                break
    spin()


def forks_until_refused() -> int:
    _watcher.join()  # a thread counts as a process
    children = 0
    try:
        while children < 1000:
            if os.fork() == 0:
                time.sleep(30)
                os._exit(0)
            children += 1
    except OSError:
        return children
    return children


def take_memory(megabytes: int) -> int:
    return len(bytearray(megabytes << 20))


def take_memory_in_children(children: int, megabytes: int, kind: str = "own", hold_s: float = 0.3) -> int:
    """Children that take so much each and keep it a while; `first` takes it once, before they are there."""
    ready, tell = os.pipe()
    held = bytearray(b"x") * (megabytes << 20) if kind == "first" else b""
    for _ in range(children):
        if os.fork() == 0:
            taken = held or _taken(megabytes << 20, kind)
            os.write(tell, b"." if taken else b"")
            time.sleep(60)
            os._exit(0)
    os.close(tell)
    got = 0
    while got < children:
        got += len(os.read(ready, children))
    time.sleep(hold_s)
    return got


def _taken(size: int, kind: str) -> Any:
    if kind == "own":
        return bytearray(b"x") * size
    import mmap

    shared = mmap.mmap(-1, size)
    for _ in range(size >> 20):
        shared.write(b"x" * (1 << 20))
    return shared


def write_file(path: str, size: int) -> int:
    with Path(path).open("wb") as file:
        file.writelines(bytes(65536) for _ in range(size // 65536))
    return Path(path).stat().st_size


def fill_scratch(files: int, size: int) -> int:
    for number in range(files):
        Path(f"f{number}").write_bytes(bytes(size))
    return files


def open_files() -> int:
    opened: list[int] = []
    try:
        while len(opened) < 5000:
            opened.append(os.open("/dev/null", os.O_RDONLY))
    except OSError:
        return len(opened)
    return len(opened)


def environment() -> dict[str, str]:
    return dict(os.environ)


def initial_environment() -> str:
    return Path("/proc/self/environ").read_bytes().decode()


def read(path: str) -> str:
    return Path(path).read_text()


def exists(path: str) -> bool:
    return os.path.lexists(path)


def names(path: str) -> list[str]:
    return sorted(entry.name for entry in Path(path).iterdir())


def append(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(text)


def run_program(path: str) -> str:
    return subprocess.run([path], capture_output=True, text=True, check=True).stdout


def connect(port: int) -> str:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return "connected"
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, type(error).__name__)


def tries(kind: str) -> str:
    """The error's name, or "done"."""
    try:
        _ATTEMPTS[kind]()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")
    return "done"


def _unshare() -> None:
    _kernel("unshare", 0x10000000)


def _mount() -> None:
    _kernel("mount", b"tmpfs", b"/box/scratch", b"tmpfs", 0, None)


def _trace() -> None:
    _kernel("ptrace", 0, 0, 0, 0)


def _bind_socket() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()


def _unix_socket() -> None:
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close()


def _send_datagram() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outward:
        outward.sendto(b"out", ("127.0.0.1", 9))


def _raise_limit() -> None:
    try:
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            resource.setrlimit(kind, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError as error:
        raise PermissionError(errno.EPERM, str(error)) from error


def _write_cgroups(name: str, value: str) -> None:
    """Into every group that the host made."""
    for folder in Path("/sys/fs/cgroup").glob("**/toolkeep-*/*/"):
        (folder / name).write_text(value)


_ATTEMPTS: dict[str, Callable[[], None]] = {
    "unshare": _unshare,
    "mount": _mount,
    "ptrace": _trace,
    "udp": _bind_socket,
    "unix": _unix_socket,
    "datagram": _send_datagram,
    "leave_segment": lambda: _kernel("shmget", SEGMENT, 4096, 0o1600),
    "find_segment": lambda: _kernel("shmget", SEGMENT, 0, 0),
    "raise_limit": _raise_limit,
    "kill_all": lambda: os.kill(-1, signal.SIGKILL),
    "setuid": lambda: os.setuid(0),
    "chroot": lambda: os.chroot("/box"),
    "write_cgroup": lambda: _write_cgroups("cgroup.procs", "1"),
    "write_root": lambda: Path("/new").mkdir(),
}


def _kernel(name: str, *arguments: Any) -> None:
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def leaves(kind: str, folder: str, readable: str) -> str:
    """Leave something in a folder for others to trip over: the error's name, or "done"."""
    os.umask(0)
    made = Path(folder) / "left"
    if kind in ("setuid", "setgid", "immutable", "attribute", "owner"):
        made.write_text("#!/bin/sh\n")
    acts: dict[str, Callable[[], Any]] = {
        "setuid": lambda: made.chmod(0o4755),
        "setgid": lambda: made.chmod(0o2755),
        "immutable": lambda: fcntl.ioctl(os.open(made, os.O_RDONLY), 0x40086602, struct.pack("l", 0x10)),
        "attribute": lambda: os.setxattr(made, "user.note", b"x"),
        "owner": lambda: os.chown(made, 65534, 65534),
        "pipe": lambda: os.mkfifo(made),
        "socket": lambda: os.mknod(made, 0o666 | stat.S_IFSOCK),
        "device": lambda: os.mknod(made, 0o666 | stat.S_IFCHR, os.makedev(1, 3)),
        "second name": lambda: os.link(readable, made),
        "link": lambda: made.symlink_to("/etc/shadow"),
        "closed folder": lambda: made.mkdir(mode=0),
        "closed file": lambda: os.close(os.open(made, os.O_CREAT | os.O_WRONLY, 0)),
    }
    try:
        acts[kind]()
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")
    return "done"


def standing() -> dict[str, Any]:
    """What this process is and holds."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    data = (ctypes.c_uint32 * 6)()
    library.capget((ctypes.c_uint32 * 2)(0x20080522, 0), data)
    return {
        "pid": os.getpid(),
        "capabilities": list(data),
        "bounding": [c for c in range(OUTSIDE_CAPABILITIES) if library.prctl(23, c, 0, 0, 0) == 1],
        "no_new_privileges": library.prctl(39, 0, 0, 0, 0),
        "is_dumpable": library.prctl(3, 0, 0, 0, 0),
        "groups": os.getgroups(),
    }


def descriptors() -> list[int]:
    found = []
    for number in range(256):
        try:
            os.fstat(number)
        except OSError:
            continue
        found.append(number)
    return found


def send_raw(hexadecimal: str, repeat: int = 1) -> None:
    """Speak past the frame."""
    data = bytes.fromhex(hexadecimal)
    for _ in range(repeat):
        os.write(4, data)
    os._exit(0)


def brackets(count: int) -> None:
    """A frame of nothing but small arrays."""
    body = b'{"ok":[' + b"[]," * count + b"[]]}"
    data = memoryview(len(body).to_bytes(4, "big") + body)
    while data:
        data = data[os.write(4, data) :]
    os._exit(0)


def promise_and_stall(length: int) -> None:
    """The head of a frame, then nothing."""
    os.write(4, length.to_bytes(4, "big") + b"{")
    time.sleep(60)


class Counter:
    """An agent-tool class that knows nothing of toolkeep."""

    TOOL_NAME = "counter"

    def __init__(self, logger: logging.Logger, start: int = 0) -> None:
        self.logger = logger
        self.count = start

    async def execute(self, arguments_json: str, context: Any) -> Any:
        arguments = json.loads(arguments_json)
        for number in range(arguments["to"]):
            context.progress(number + 1, arguments["to"], f"at {number}")
        context.check_cancelled()
        if arguments.get("fails"):
            return SimpleNamespace(successful=False, error_message="told to")
        told = {
            "kind": type(context).__name__,
            "agent": context.agent,
            "ids": [context.correlation_id, context.conversation_id, context.session_id],
            "secret": context.secret("key") if context.secrets else None,
            "logger": self.logger.name,
            "start": self.count,
        }
        return SimpleNamespace(successful=True, result_json=json.dumps(told))


class Talker:
    """Tells progress in every way that a tool can."""

    TOOL_NAME = "talker"

    async def execute(self, arguments_json: str, context: Any) -> Any:
        getattr(self, json.loads(arguments_json)["how"])(context)
        return SimpleNamespace(successful=True, result_json='"done"')

    def often(self, context: Any) -> None:
        for number in range(5_000):
            context.progress(number)

    def in_threads(self, context: Any) -> None:
        threads = [threading.Thread(target=self._some, args=(context,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _some(self, context: Any) -> None:
        for number in range(100):
            context.progress(number, 100, "x" * 500)

    def in_a_child(self, context: Any) -> None:
        child = os.fork()
        if child == 0:
            context.progress(1, None, "from a child")
            os._exit(0)
        os.waitpid(child, 0)

    def at_length(self, context: Any) -> None:
        for number in (10**400, -(10**30), 1e300, 1):
            with contextlib.suppress(OverflowError):
                context.progress(number, number, "\x01" * 5_000)

    def oddly(self, context: Any) -> None:
        context.progress(1, 2, "half \ud800, \u202eback")

    def endlessly(self, context: Any) -> None:
        while True:
            context.progress(1)

    def with_nan(self, context: Any) -> None:
        context.progress(float("nan"))


_seen_by_thread: list[str] = []


def _watch() -> None:
    while len(_seen_by_thread) < 3:
        _seen_by_thread.append(tries("unshare"))


def thread_at_import() -> list[str]:
    _watcher.join()
    return _seen_by_thread


_watcher = threading.Thread(target=_watch, daemon=True)
if os.getpid() == 1:
    _watcher.start()


def linger() -> None:
    """Answers, and goes on in the background."""
    body = b'{"ok":"early"}'
    os.write(4, len(body).to_bytes(4, "big") + body)
    spin()


def block_streams() -> list[int]:
    """The flags of the standard streams as they were, before they are changed."""
    found = [fcntl.fcntl(stream, fcntl.F_GETFL) for stream in range(3)]
    for stream in range(3):
        fcntl.fcntl(stream, fcntl.F_SETFL, os.O_NONBLOCK)
    return found


def fill_shared_memory(megabytes: int) -> int:
    """How many of these found room in /dev/shm."""
    for number in range(megabytes):
        try:
            Path(f"/dev/shm/{number}").write_bytes(bytes(1 << 20))  # noqa: S108 -- its own
        except OSError:
            return number
    return megabytes


def pooled_squares(numbers: list[int]) -> list[int]:
    import multiprocessing

    with multiprocessing.Pool(2) as pool:
        return pool.map(_square, numbers)


def executor_squares(numbers: list[int]) -> list[int]:
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(2) as executor:
        return list(executor.map(_square, numbers))


def _square(number: int) -> int:
    return number * number


def lock_and_wait(path: str, seconds: float) -> None:
    with Path(path).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(seconds)


def make_folder(path: str) -> None:
    Path(path).mkdir()


def who() -> list[str]:
    import getpass
    import grp
    import pwd

    return [
        getpass.getuser(),
        pwd.getpwuid(os.getuid()).pw_dir,
        grp.getgrgid(os.getgid()).gr_name,
        *(entry.pw_name for entry in pwd.getpwall()),
    ]
