"""Runs the command as on a system without what only Linux has: elsewhere.py PLATFORM WORD…

Modules and functions that the system lacks are hidden, and so is /proc. For `win32` those of POSIX are hidden too.
The rest is this machine's: it shows that nothing needs what is missing, not that everything works there.
"""

import importlib.abc
import os
import runpy
import select
import signal
import socket
import sys
import types
from collections.abc import Callable
from typing import Any

LINUX = [
    "O_PATH",
    "O_TMPFILE",
    "O_DIRECT",
    "memfd_create",
    "pidfd_open",
    "unshare",
    "setns",
    "pipe2",
    "sched_getaffinity",
    "sched_setaffinity",
    "eventfd",
    "preadv",
    "pwritev",
    "posix_fadvise",
    "fdatasync",
    "getxattr",
    "setxattr",
    "listxattr",
    "copy_file_range",
    "splice",
]
POSIX = [
    "geteuid",
    "getuid",
    "getegid",
    "getgid",
    "fork",
    "forkpty",
    "killpg",
    "setsid",
    "fchown",
    "chown",
    "fchmod",
    "pread",
    "pwrite",
    "openpty",
    "register_at_fork",
    "statvfs",
    "uname",
    "O_NOFOLLOW",
    "O_CLOEXEC",
    "O_DIRECTORY",
    "O_NONBLOCK",
]
POSIX_MODULES = frozenset(("fcntl", "resource", "termios", "pwd", "grp", "pty", "tty"))


class Hidden(importlib.abc.MetaPathFinder):
    """Finds no module of these names."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(self, name: str, *_: Any) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def hide(platform: str) -> None:
    names = frozenset(("uvloop",)) | (POSIX_MODULES if platform == "win32" else frozenset())
    for name in names:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Hidden(names))
    for name in [*LINUX, *(POSIX if platform == "win32" else ())]:
        if hasattr(os, name):
            delattr(os, name)
    for home, name in ((signal, "pidfd_send_signal"), (select, "epoll"), (socket, "SOCK_SEQPACKET")):
        delattr(home, name)
    if platform == "darwin":
        # What the standard library itself asks that system for.
        proxies = types.ModuleType("_scproxy")
        proxies.__dict__.update(_get_proxy_settings=dict, _get_proxies=dict)
        sys.modules["_scproxy"] = proxies
    for function in ("stat", "lstat", "readlink", "open", "listdir", "scandir"):
        setattr(os, function, without_proc(getattr(os, function)))
    sys.addaudithook(refuse_proc)
    sys.platform = platform


def without_proc(function: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
        if not isinstance(path, int) and os.fsdecode(path).startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *args, **kwargs)

    return wrapped


def refuse_proc(event: str, args: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(args[0], str) and args[0].startswith("/proc"):
        raise FileNotFoundError(2, "No such file or directory", args[0])


if __name__ == "__main__":
    import asyncio  # noqa: F401 -- before its platform is another
    import subprocess  # noqa: F401 -- the same
    import sysconfig

    sysconfig.get_config_vars()
    hide(sys.argv[1])
    sys.argv = sys.argv[1:]
    if sys.argv[1] == "-c":
        exec(sys.argv[2])  # noqa: S102 -- a program of the tests
    else:
        runpy.run_module("toolkeep", run_name="__main__")
