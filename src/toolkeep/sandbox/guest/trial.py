"""Capability trials: runs each kernel mechanism in a throw-away fork and reports whether it has an effect.

`start.py trial <mechanism>…` prints one JSON line per mechanism. Nothing that could outlive its process is
tried. A mechanism whose system calls succeed has shown nothing: each trial attempts what the mechanism must
prevent.
"""

import errno
import json
import os
import resource
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NoReturn

from . import landlock_rules, linux, supervisor

_WITHOUT_PRIVILEGES: Final = 65534
_TREE: Final = "memory-tree"
_PROBED: Final = "/usr"
"""A folder that exists on every Linux system and that everybody may read."""


_TAKEN_BYTES: Final = 16 << 20
"""Memory that a process of the trial takes: much more than a Python process changes by itself."""
_NAME: Final = b"\0toolkeep-trial"
"""An abstract unix socket that does not exist."""
_DISCARD: Final = 9
"""A port other than the allowed one."""


class NoEffect(Exception):
    """The system calls succeeded, but nothing was prevented."""


def main(arguments: Sequence[str]) -> None:
    """Try the named mechanisms in parallel forks: starting Python takes longer than all of them."""
    if list(arguments) == [_TREE]:
        # Not forked: the host puts this very process into a cgroup, or watches it.
        _run_memory_tree()
        return
    for name in arguments:
        if os.fork() == 0:
            linux.die_with_parent(signal.SIGKILL)
            _try(name)
    for _ in arguments:
        os.wait()


def _try(name: str) -> NoReturn:
    said: dict[str, str | bool] = {"mechanism": name, "works": True, "reason": ""}
    try:
        _TRIALS[name]()
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is the answer
        said |= {"works": False, "reason": f"{error}"[:300]}
    finally:
        # One write(2): lines of parallel processes must not interleave.
        os.write(1, json.dumps(said).encode() + b"\n")
        os._exit(0)


def _enter_user_namespace(others: int = 0) -> None:
    """Enter a user namespace as an ordinary user, with its own id mapped, and optional other namespaces."""
    if os.geteuid() == 0:  # Test what the unprivileged user can do that workers run as.
        os.setgroups([])
        os.setresgid(_WITHOUT_PRIVILEGES, _WITHOUT_PRIVILEGES, _WITHOUT_PRIVILEGES)
        os.setresuid(_WITHOUT_PRIVILEGES, _WITHOUT_PRIVILEGES, _WITHOUT_PRIVILEGES)
        linux.set_dumpable(is_dumpable=True)
    user, group = os.getuid(), os.getgid()
    linux.unshare(linux.CLONE_NEWUSER | others)
    # The kernel demands this before an unprivileged process may write gid_map.
    Path("/proc/self/setgroups").write_text("deny", encoding="utf-8")
    Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
    Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="utf-8")


def _try_user_namespace() -> None:
    _enter_user_namespace()
    linux.unshare(linux.CLONE_NEWUTS)
    socket.sethostname("toolkeep-trial")  # Needs CAP_SYS_ADMIN in the namespace.
    linux.unshare(linux.CLONE_NEWUSER)  # Workers nest theirs in the zygote's.


def _try_pid_namespace() -> None:
    """Killing PID 1 of a pid namespace must kill its descendants too."""
    _enter_user_namespace(linux.CLONE_NEWPID)
    told, tell = os.pipe()
    life, alive = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(alive)
        if os.fork() == 0:
            os.setsid()
            os.write(tell, b"%d" % os.getppid())
            signal.pause()
        os.read(life, 1)  # End of file: the trial was ended meanwhile, and nobody else would end these two.
        os._exit(0)
    os.close(tell)
    parent = os.read(told, 20)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    if parent != b"1":
        raise NoEffect("a process in a new pid namespace is not its first")
    if os.read(told, 1):  # End of file: no process holds the pipe any more.
        raise NoEffect("a process outlived its pid namespace")


def _try_mount_namespace() -> None:
    _enter_user_namespace(linux.CLONE_NEWNS)
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    tree = linux.clone_tree(_PROBED)
    linux.set_tree_attributes(tree, linux.ATTR_RDONLY | linux.ATTR_NOSUID)
    base = "/tmp"  # noqa: S108 -- only a mount point, in a mount namespace of our own
    linux.mount("tmpfs", base, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, "size=64k,mode=755")
    Path(base + _PROBED).mkdir()
    linux.attach_tree(tree, base + _PROBED)
    linux.enter_root(base)
    if os.listdir("/") != [_PROBED[1:]]:
        raise NoEffect("the old root is still seen")
    _must_fail(lambda: os.close(os.open(_PROBED + "/x", os.O_CREAT | os.O_WRONLY)), errno.EROFS, "read-only")


def _try_network_namespace() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    _enter_user_namespace(linux.CLONE_NEWNET)
    with socket.socket() as outward:
        outward.settimeout(1)
        _must_fail(lambda: outward.connect(("127.0.0.1", port)), errno.ENETUNREACH, "a new network")


def _try_ipc_namespace() -> None:
    before = Path("/proc/self/ns/ipc").readlink()
    _enter_user_namespace(linux.CLONE_NEWIPC)
    if Path("/proc/self/ns/ipc").readlink() == before:
        raise NoEffect("the ipc namespace is the old one")


def _try_landlock() -> None:
    linux.forbid_new_privileges()
    rules = landlock_rules.make_ruleset()
    landlock_rules.allow(rules, "/dev/null", landlock_rules.USE_DEVICE)
    os.close(os.open(_PROBED, os.O_RDONLY))
    linux.landlock_restrict(rules)
    os.close(os.open("/dev/null", os.O_RDONLY))
    _must_fail(lambda: os.close(os.open(_PROBED, os.O_RDONLY)), errno.EACCES, "Landlock")


def _try_landlock_ports() -> None:
    """Whether a single port can be allowed; nothing needs to listen there."""
    linux.forbid_new_privileges()
    with socket.socket() as held, socket.socket() as outward:
        held.bind(("127.0.0.1", 0))
        allowed = held.getsockname()
        rules = landlock_rules.make_ruleset()
        landlock_rules.allow_port(rules, allowed[1])
        linux.landlock_restrict(rules)
        _must_fail(lambda: outward.connect((allowed[0], _DISCARD)), errno.EACCES, "Landlock")
        _must_fail(lambda: outward.connect(allowed), errno.ECONNREFUSED, "an open port")


def _try_seccomp() -> None:
    """Install a filter that denies getppid."""
    numbers = {"x86_64": 110, "aarch64": 173}
    number = numbers.get(os.uname().machine)
    if number is None:
        raise OSError(f"no system call filter is made for {os.uname().machine}")
    denied = 0x0005_0000 | errno.EXDEV
    program = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, denied), (0x06, 0, 0, 0x7FFF_0000))
    linux.forbid_new_privileges()
    linux.Filter(b"".join(struct.pack("<HBBI", *step) for step in program)).install()
    if os.getppid() >= 0:
        raise NoEffect("the filter let through what it denies")


def _try_seccomp_supervisor() -> None:
    """Answer a connect(2) of another process, with its socket and its address at hand."""
    number = {"x86_64": 42, "aarch64": 203}.get(os.uname().machine, -1)
    program = ((0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x7FC0_0000), (0x06, 0, 0, 0x7FFF_0000))
    reporting = linux.Filter(b"".join(struct.pack("<HBBI", *step) for step in program))
    _enter_user_namespace()
    linux.forbid_new_privileges()
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        linux.die_with_parent(signal.SIGKILL)
        _connect_supervised(reporting, theirs)
    theirs.close()
    _, listeners, _, _ = socket.recv_fds(ours, 1, 1)
    if not listeners:
        raise OSError("a filter cannot report calls to another process")
    reported, thread, _, (descriptor, address, length, *_) = supervisor.next_call(listeners[0])
    os.close(linux.descriptor_of(thread, descriptor))
    if linux.read_memory(thread, address, length) != struct.pack("=H", socket.AF_UNIX) + _NAME:
        raise OSError("the memory of another process cannot be read")
    supervisor.answer(listeners[0], reported, -errno.EXDEV)
    if os.wait()[1]:
        raise NoEffect("a reported call was made nevertheless")


def _connect_supervised(reporting: linux.Filter, parent: socket.socket) -> NoReturn:
    result = 1
    try:
        socket.send_fds(parent, [b"1"], [reporting.install_with_listener()])
        parent.close()

        def connect() -> None:
            nonlocal result
            with socket.socket(socket.AF_UNIX) as made:
                result = int(made.connect_ex(_NAME) != errno.EXDEV)

        # Not the first thread of its process: programs connect from others too.
        started = threading.Thread(target=connect)
        started.start()
        started.join()
    finally:
        os._exit(result)


def _try_memory_limit() -> None:
    most = 256 << 20
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    try:
        bytearray(2 * most)
    except MemoryError:
        return
    raise NoEffect("more memory was given than the limit allows")


def _run_memory_tree() -> None:
    """A tree of three processes, two of which allocate memory, for the trial of a tree-wide memory bound."""
    _enter_user_namespace(linux.CLONE_NEWPID)
    linux.set_dumpable(is_dumpable=False)
    sys.stdin.readline()  # Wait until the host has applied the bound.
    if os.fork() == 0:
        if os.fork() == 0:
            _take_memory()
        _take_memory()
    sys.stdin.read()


def _take_memory() -> None:
    taken = bytearray(os.urandom(1)) * _TAKEN_BYTES
    os.write(sys.stdout.fileno(), b".")
    sys.stdin.read()
    os._exit(len(taken) & 0)


def _try_clean_start() -> None:
    """Started as zygotes are, this process must see only the variables that it was given."""
    if set(os.environ) - {"LANG", "PATH", "LC_CTYPE"}:
        raise NoEffect("there are variables that were not given")


def _must_fail(act: Callable[[], None], number: int, what: str) -> None:
    try:
        act()
    except OSError as error:
        if error.errno == number:
            return
        raise
    raise NoEffect(f"{what} did not stop what it must stop")


_TRIALS: Final[dict[str, Callable[[], None]]] = {
    "user-namespace": _try_user_namespace,
    "pid-namespace": _try_pid_namespace,
    "mount-namespace": _try_mount_namespace,
    "network-namespace": _try_network_namespace,
    "ipc-namespace": _try_ipc_namespace,
    "landlock": _try_landlock,
    "landlock-ports": _try_landlock_ports,
    "seccomp": _try_seccomp,
    "seccomp-supervisor": _try_seccomp_supervisor,
    "memory-limit": _try_memory_limit,
    "clean-start": _try_clean_start,
}
