"""Supervises a program: makes its connections, and notes what it names if it is observed.

The program's filter reports calls to this process (seccomp_unotify(2)), which reads their arguments from the
program's memory.

connect(2) is made here, on a copy of the program's socket and with a copy of the address: the program can
change its own between a check and a call. A path must lead to a socket in the worker's scratch folder, which
only its program can have made; sockets of the host are in other file systems, whatever the path. Everything
else is decided by the kernel as for the program: this process is in the same namespaces and has the same
Landlock rules and credentials.

Names are noted for a person, and the call continues. That protects nothing: the program can change the name
after it was read. Names are hostile text. Their number and length are bounded.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from . import linux, rootfs

Send = Callable[[dict[str, Any]], None]

_RECEIVE: Final = 0xC0502100
_ANSWER: Final = 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND."""
_NOTICE: Final = struct.Struct("=QIIiIQ6Q")
_CONTINUE: Final = 1
"""SECCOMP_USER_NOTIF_FLAG_CONTINUE."""
_HERE: Final = 2**32 - 100
"""AT_FDCWD in the low half of a register."""
_WRITES: Final = 0o3 | 0o1000 | 0o100
"""O_WRONLY, O_RDWR, O_TRUNC, O_CREAT."""
_ADDRESS_BYTES: Final = 128
"""Longest address that the kernel takes (struct sockaddr_storage)."""
_PAGE_BYTES: Final = 4096
_NAME_BYTES: Final = 1024
"""A longer name is left out: as JSON it would not fit into a message."""
_NAMES: Final = 4000
"""Names that are told; a program that names more is said to do so."""
_ADDRESS: Final[dict[int, tuple[socket.AddressFamily, int, int]]] = {
    socket.AF_INET: (socket.AF_INET, 4, 8),
    socket.AF_INET6: (socket.AF_INET6, 8, 24),
}


class Supervisor:
    """Starts one program under a filter that reports calls, and answers them."""

    def __init__(self, told: dict[str, Any], reporting: linux.Filter) -> None:
        """`told` is the order of the host, `reporting` the program's filter."""
        self._calls = {int(number): tuple(where) for number, where in told["calls"].items()}
        self._is_observed = told["shown"] is not None
        self._shown = tuple(f"{folder}/" for folder in told["shown"] or ())
        self._filter = reporting
        self._own_device = os.stat(rootfs.SCRATCH).st_dev
        self._ours, self._theirs = socket.socketpair()
        self._seen: set[tuple[str, str]] = set()

    def before_exec(self) -> None:
        """In the child: put on the filter, and give its listener to the parent."""
        listener = self._filter.install_with_listener()
        socket.send_fds(self._theirs, [b"1"], [listener])

    def start(self, send: Send) -> None:
        """In the parent, before the child starts: answer in a thread, since the child may wait in execve."""
        threading.Thread(target=self._serve, args=(send,), daemon=True).start()

    def _serve(self, send: Send) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        if not descriptors:
            return
        waiting = select.poll()
        waiting.register(descriptors[0], select.POLLIN)
        try:
            while any(events & select.POLLIN for _, events in waiting.poll()):
                with contextlib.suppress(FileNotFoundError):  # killed meanwhile
                    self._receive(descriptors[0], send)
        finally:
            # Without a listener every reported call fails with ENOSYS.
            os.close(descriptors[0])

    def _receive(self, listener: int, send: Send) -> None:
        number, thread, call, arguments = next_call(listener)
        where = self._calls[call]
        if self._is_observed and len(self._seen) <= _NAMES:
            for one in self._named(thread, where, arguments):
                self._tell(one, send)
        if where[0] != "connect":
            answer(listener, number, 0, _CONTINUE)
            return
        try:
            # In a thread of its own: a connection may wait.
            work = threading.Thread(
                target=lambda: answer(listener, number, -self._connect(thread, arguments)), daemon=True
            )
            work.start()
        except RuntimeError:  # The program has as many threads as it may.
            answer(listener, number, -errno.EAGAIN)

    def _connect(self, thread: int, arguments: list[int]) -> int:
        """Make a connection for the program; the error number, or 0."""
        descriptor, length = (ctypes.c_int(arguments[at]).value for at in (0, 2))
        if not 0 <= length <= _ADDRESS_BYTES:
            return errno.EINVAL
        address = linux.read_memory(thread, arguments[1], length)
        if len(address) < length:
            return errno.EFAULT
        with contextlib.ExitStack() as opened:
            try:
                made = linux.descriptor_of(thread, descriptor)
                opened.callback(os.close, made)
                if path := _path(address):
                    address = self._own_socket(thread, path, opened)
                linux.connect(made, address)
            except OSError as error:
                return error.errno or errno.EACCES
        return 0

    def _own_socket(self, thread: int, path: bytes, opened: contextlib.ExitStack) -> bytes:
        """The address of a socket in the scratch folder: a path to an open file, which nobody can swap."""
        folder = None
        if not path.startswith(b"/"):
            folder = os.open(f"/proc/{thread}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, folder)
        found = os.open(path, os.O_PATH | os.O_CLOEXEC, dir_fd=folder)
        opened.callback(os.close, found)
        # A granted folder may hold a socket of the host, through which programs outside act for whoever asks.
        if os.fstat(found).st_dev != self._own_device:
            raise PermissionError(errno.EACCES, "this is no socket of the program")
        return struct.pack("=H", socket.AF_UNIX) + b"/proc/self/fd/%d\0" % found

    def _tell(self, one: tuple[str, str], send: Send) -> None:
        if one in self._seen:
            return
        self._seen.add(one)
        send({"named": list(one) if len(self._seen) <= _NAMES else ["more", ""]})

    def _named(self, process: int, where: tuple[Any, ...], arguments: list[int]) -> Iterator[tuple[str, str]]:
        what, folder_at, name_at, flags_at = where
        if what == "connect":
            length = min(arguments[2], _ADDRESS_BYTES)
            if address := _host(linux.read_memory(process, arguments[name_at], length)):
                yield what, address
            return
        raw, end, _ = _read(process, arguments[name_at], _NAME_BYTES + 1).partition(b"\0")
        if not raw or not end:
            return
        if flags_at >= 0 and arguments[flags_at] & _WRITES:
            what = "write"
        elif flags_at >= 0 and arguments[flags_at] & os.O_DIRECTORY:
            what = "list"
        with contextlib.suppress(OSError):  # A descriptor that is not open, or no /proc.
            folder = b"" if raw.startswith(b"/") else _folder(process, folder_at, arguments)
            path = os.path.normpath(os.path.join(folder, raw)).decode("utf-8", "replace")
            if what == "run" or not f"{path}/".startswith(self._shown):
                yield what, path


def _folder(process: int, at: int, arguments: list[int]) -> bytes:
    descriptor = _HERE if at < 0 else arguments[at] & 0xFFFF_FFFF
    name = "cwd" if descriptor == _HERE else f"fd/{descriptor}"
    return os.fsencode(os.readlink(f"/proc/{process}/{name}"))


def _read(process: int, address: int, count: int) -> bytes:
    """Memory of a process, up to the first page that it does not have."""
    found = b""
    while len(found) < count and b"\0" not in found[:_NAME_BYTES]:
        size = min(count - len(found), _PAGE_BYTES - (address + len(found)) % _PAGE_BYTES)
        piece = linux.read_memory(process, address + len(found), size)
        found += piece
        if len(piece) < size:
            break
    return found


def next_call(listener: int) -> tuple[int, int, int, list[int]]:
    """The next reported call: its id, its thread, its number and its arguments."""
    notice = bytearray(_NOTICE.size)
    fcntl.ioctl(listener, _RECEIVE, notice)
    number, thread, _, call, _, _, *arguments = _NOTICE.unpack(notice)
    return number, thread, call, arguments


def answer(listener: int, number: int, error: int, flags: int = 0) -> None:
    """Let a reported call return with minus an error number or 0, or continue."""
    with contextlib.suppress(OSError):  # The process was killed meanwhile.
        fcntl.ioctl(listener, _ANSWER, struct.pack("=QqiI", number, 0, error, flags))


def _path(address: bytes) -> bytes:
    """The path of a unix socket; empty for an abstract name and for other families."""
    if int.from_bytes(address[:2], "little") != socket.AF_UNIX:
        return b""
    return address[2:].partition(b"\0")[0]


def _host(raw: bytes) -> str:
    """Host and port of a socket address; empty for anything else."""
    family = int.from_bytes(raw[:2], "little")
    if family not in _ADDRESS or len(raw) < _ADDRESS[family][2]:
        return ""
    kind, start, end = _ADDRESS[family]
    host = socket.inet_ntop(kind, raw[start:end])
    port = int.from_bytes(raw[2:4], "big")
    return f"[{host}]:{port}" if kind == socket.AF_INET6 else f"{host}:{port}"
