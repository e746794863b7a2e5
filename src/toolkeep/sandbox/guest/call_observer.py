"""Observes what a program names: paths, programs, addresses (seccomp_unotify(2)).

The program is started under a filter that reports such calls to this process, which reads the name from the
program's memory, notes it and lets the call continue. It is a record for a person and protects nothing: the
program can change the name after it was read. Names are hostile text. Their number and length are bounded.
"""

import base64
import contextlib
import fcntl
import os
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

from . import linux

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
_PAGE_BYTES: Final = 4096
_NAME_BYTES: Final = 1024
"""A longer name is left out: as JSON it would not fit into a message."""
_NAMES: Final = 4000
"""Names that are told; a program that names more is said to do so."""
_ADDRESS: Final[dict[int, tuple[socket.AddressFamily, int, int]]] = {
    socket.AF_INET: (socket.AF_INET, 4, 8),
    socket.AF_INET6: (socket.AF_INET6, 8, 24),
}


class Observer:
    """Starts one program under observation, and tells what it names."""

    def __init__(self, told: dict[str, Any], own: linux.Filter | None) -> None:
        """`told` is the order of the host, `own` the worker's filter, which the program gets too."""
        self._calls = {int(number): tuple(where) for number, where in told["calls"].items()}
        self._shown = tuple(f"{folder}/" for folder in told["shown"])
        self._reports = linux.Filter(base64.b64decode(told["filter"]))
        self._own = own
        self._ours, self._theirs = socket.socketpair()
        self._seen: set[tuple[str, str]] = set()

    def before_exec(self) -> None:
        """In the child: report to the parent from here on, then put on the worker's own filter."""
        listener = self._reports.install_with_listener()
        socket.send_fds(self._theirs, [b"1"], [listener])
        if self._own is not None:
            self._own.install()

    def watch(self, send: Send) -> None:
        """In the parent, before the child starts: answer in a thread, since the child waits in execve."""
        threading.Thread(target=self._serve, args=(send,), daemon=True).start()

    def _serve(self, send: Send) -> None:
        _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        if not descriptors:
            return
        waiting = select.poll()
        waiting.register(descriptors[0], select.POLLIN)
        while any(events & select.POLLIN for _, events in waiting.poll()):
            with contextlib.suppress(FileNotFoundError):  # killed meanwhile
                self._answer(descriptors[0], send)

    def _answer(self, listener: int, send: Send) -> None:
        notice = bytearray(_NOTICE.size)
        fcntl.ioctl(listener, _RECEIVE, notice)
        number, process, _, call, _, _, *arguments = _NOTICE.unpack(notice)
        try:
            if len(self._seen) <= _NAMES:
                for one in self._named(process, self._calls[call], arguments):
                    self._tell(one, send)
        finally:
            fcntl.ioctl(listener, _ANSWER, struct.pack("=QqiI", number, 0, 0, _CONTINUE))

    def _tell(self, one: tuple[str, str], send: Send) -> None:
        if one in self._seen:
            return
        self._seen.add(one)
        send({"named": list(one) if len(self._seen) <= _NAMES else ["more", ""]})

    def _named(self, process: int, where: tuple[Any, ...], arguments: list[int]) -> Iterator[tuple[str, str]]:
        what, folder_at, name_at, flags_at = where
        if what == "connect":
            if address := _address(_read(process, arguments[name_at], min(arguments[2], 110))):
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


def _address(raw: bytes) -> str:
    """Host and port of a socket address; the path of a unix socket; empty for anything else."""
    if len(raw) < 2:
        return ""
    family = int.from_bytes(raw[:2], "little")
    if family == socket.AF_UNIX:
        path, _, _ = raw[2:].partition(b"\0")
        return f"unix:{path.decode('utf-8', 'replace')}" if path else ""
    if family not in _ADDRESS or len(raw) < _ADDRESS[family][2]:
        return ""
    kind, start, end = _ADDRESS[family]
    host = socket.inet_ntop(kind, raw[start:end])
    port = int.from_bytes(raw[2:4], "big")
    return f"[{host}]:{port}" if kind == socket.AF_INET6 else f"{host}:{port}"
