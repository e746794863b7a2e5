"""The zygote: enters its namespaces, builds its root, then forks one-shot workers on demand.

Trusted code alone runs here; it never sees a secret, an argument or a line of a tool. Comes in over the
control socket: one plan, then worker plans and orders to fork. Goes out: the pipes and the pidfd of each
worker. It is PID 1 of its pid namespace and ends when the control socket does: nothing outlives the host.
"""

import base64
import contextlib
import errno
import functools
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from . import kernel, landlock, load, root, worker

_MESSAGE_BYTES: Final = 1 << 17
_NAMESPACES: Final = (
    kernel.CLONE_NEWUSER
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWPID
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
    | kernel.CLONE_NEWCGROUP
)
_LIMITS: Final = {
    "memory_bytes": resource.RLIMIT_AS,
    "data_bytes": resource.RLIMIT_DATA,
    "cpu_s": resource.RLIMIT_CPU,
    "file_bytes": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
_BACKLOG: Final = 64
_EXHAUSTED: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})
_NOTHING: Final = (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE)
_SIGNALS: Final = 256
"""Signals that wait, and timers. They are counted by user: a worker leaves some to the user's programs."""

_ACCESSES: Final = {"read": landlock.READ, "write": landlock.WRITE, "run": landlock.RUN}
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def main(arguments: Sequence[str]) -> None:
    """Be the zygote that the plan on the control socket describes."""
    control = socket.socket(fileno=int(arguments[0]))
    try:
        plan = json.loads(control.recv(_MESSAGE_BYTES))
        pid_namespace = _settle(plan, control)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the host must hear of it
        control.send(_encoded({"error": f"{type(error).__name__}: {error}"}))
        os._exit(1)
    try:
        _Zygote(control, plan, pid_namespace).serve()
    except ConnectionError:
        os._exit(0)  # the host is gone
    except Exception as error:  # noqa: BLE001 -- the host replaces it, and says why
        control.send(_encoded({"error": f"{type(error).__name__}: {error}"}))
        os._exit(1)


# --- becoming it -------------------------------------------------------------------------------


def _settle(plan: dict[str, Any], control: socket.socket) -> int:
    """Enter the namespaces and the root; gives back a descriptor of the new pid namespace."""
    os.umask(0o022)
    kernel.forbid_new_privileges()
    ordinary_id = plan["ordinary_id"] if os.geteuid() == 0 else None
    if ordinary_id is not None:
        _build_as_root(plan, ordinary_id)
    _enter_namespaces(closes_network=plan["closes_network"])
    _become_first_process(control)
    pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    if ordinary_id is None:
        root.build(plan, ordinary_id=None)
    plan["has_proc"] = root.enter(has_proc=plan["has_proc"])
    socket.sethostname("toolkeep")
    kernel.drop_bounding_set()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    kernel.set_dumpable(is_dumpable=False)  # only now: before, the uid map could not have been written
    return pid_namespace


def _build_as_root(plan: dict[str, Any], ordinary_id: int) -> None:
    """Mount as root, who may read what is to be shown; then be root no longer."""
    kernel.unshare(kernel.CLONE_NEWNS)
    root.build(plan, ordinary_id=ordinary_id)
    os.setgroups([])
    os.setresgid(ordinary_id, ordinary_id, ordinary_id)
    os.setresuid(ordinary_id, ordinary_id, ordinary_id)
    kernel.set_dumpable(is_dumpable=True)  # changing user took it away, and with it /proc/self


def _enter_namespaces(*, closes_network: bool) -> None:
    user, group = os.getuid(), os.getgid()
    kernel.unshare(_NAMESPACES | (kernel.CLONE_NEWNET if closes_network else 0))
    myself = Path("/proc/self")
    (myself / "setgroups").write_text("deny", encoding="utf-8")
    (myself / "uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
    (myself / "gid_map").write_text(f"{group} {group} 1", encoding="utf-8")


def _become_first_process(control: socket.socket) -> None:
    """Go on as PID 1 of the new pid namespace; the parent only waits for it to end."""
    child = os.fork()
    if child == 0:
        kernel.die_with_parent(signal.SIGKILL)
        return
    control.close()
    kernel.set_dumpable(is_dumpable=False)
    _, status = os.waitpid(child, 0)
    os._exit(1 if status else 0)


# --- being it ----------------------------------------------------------------------------------


class _Zygote:
    """Serves the control socket until it closes."""

    def __init__(self, control: socket.socket, plan: dict[str, Any], pid_namespace: int) -> None:
        self._control = control
        self._plan = plan
        self._pid_namespace = pid_namespace
        self._prepared: dict[str, worker.Prepared] = {}
        self._sources = select.poll()
        self._children: dict[int, int] = {}
        """The process ids of living workers, by pidfd."""

    def serve(self) -> None:
        """Answer every message."""
        self._sources.register(self._control, select.POLLIN)
        _warm(self._plan)
        self._tell({"ready": True})
        while True:
            for descriptor, _ in self._sources.poll():
                if descriptor in self._children:
                    self._reap(descriptor)
                    continue
                message = self._control.recv(_MESSAGE_BYTES)
                if not message:
                    os._exit(0)
                self._obey(json.loads(message))

    def _reap(self, pidfd: int) -> None:
        self._sources.unregister(pidfd)
        os.close(pidfd)
        os.waitpid(self._children.pop(pidfd), 0)

    def _obey(self, order: dict[str, Any]) -> None:
        if "prepare" in order:
            self._prepared[order["name"]] = self._worker_plan(order["prepare"])
        elif "forget" in order:
            self._prepared.pop(order["forget"], None)
        else:
            self._answer_fork(order["fork"], order["ticket"])

    def _answer_fork(self, name: str, ticket: int) -> None:
        try:
            self._fork(self._prepared[name], ticket)
        except ConnectionError:
            raise
        except OSError as error:
            kind = "exhausted" if error.errno in _EXHAUSTED else "broken"
            self._tell({"ticket": ticket, kind: str(error)})

    def _tell(self, message: dict[str, Any]) -> None:
        self._control.send(_encoded(message))

    def _worker_plan(self, plan: dict[str, Any]) -> worker.Prepared:
        load.list_folders(plan["import_paths"])
        limits = [(_LIMITS[name], most) for name, most in plan["limits"].items() if name in _LIMITS]
        return worker.Prepared(
            tool=plan["tool"],
            import_paths=tuple(plan["import_paths"]),
            packages=load.Packages(plan["packages"]),
            environment=plan["environment"],
            filter=kernel.Filter(base64.b64decode(plan["filter"])) if plan["filter"] else None,
            limits=(*limits, (resource.RLIMIT_SIGPENDING, _signals()), *((kind, 0) for kind in _NOTHING)),
            allow_common=functools.partial(_allow_common, self._common(plan)) if plan["has_rules"] else None,
            allow_granted=self._allow_granted,
            scratch=_scratch_options(plan["limits"]),
            shared_memory=self._shared_memory(plan["limits"]),
            has_proc=self._plan["has_proc"],
            connects=plan["connects"],
            stays=plan["stays"],
        )

    def _shared_memory(self, limits: dict[str, int]) -> str:
        return root.shared_memory(sees_host=self._plan["sees_host"]) if limits["scratch_bytes"] else ""

    def _common(self, plan: dict[str, Any]) -> tuple[tuple[str, int], ...]:
        """What every worker of a plan may reach, whatever it is granted."""
        code = {*map(os.path.realpath, self._plan["system"]), *self._plan["code"]}
        common = [(path, landlock.READ) for path in sorted(code)]
        common += [(path, landlock.READ) for path in (root.USERS, root.GROUPS)]
        common += [(path, landlock.USE_DEVICE) for path in _DEVICES]
        if plan["limits"]["scratch_bytes"]:
            common.append((root.BOX, landlock.WRITE))
        return tuple(common)

    def _allow_granted(self, rules: int, grant: worker.Grant, port: int) -> None:
        """In the worker: hide what is not granted, and allow what is."""
        for folder, shown in _veils(self._plan, grant):
            root.veil(folder, shown)
        root.hide(grant["hidden"])
        root.freeze(grant["frozen"])
        for kind, access in _ACCESSES.items():
            for path in grant[kind]:
                landlock.allow(rules, path, access)
        if port:
            landlock.allow_port(rules, port)

    def _fork(self, prepared: worker.Prepared, ticket: int) -> None:
        opened: list[int] = []
        try:
            request_out, request_in = _pipe(opened)
            reply_out, reply_in = _pipe(opened)
            way_out, port = _listener(opened) if prepared.connects else ([], 0)
            theirs, ours = _streams(opened) if prepared.stays else (None, ())
            child = self._forked(prepared, worker.Ends(request_out, reply_in, theirs, port))
            pidfd = self._watched(child)
            message = _encoded({"ticket": ticket})
            socket.send_fds(self._control, [message], [request_in, reply_out, pidfd, *way_out, *ours])
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _watched(self, child: int) -> int:
        try:
            pidfd = os.pidfd_open(child)
        except OSError:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        self._children[pidfd] = child
        self._sources.register(pidfd, select.POLLIN)
        return pidfd

    def _forked(self, prepared: worker.Prepared, ends: worker.Ends) -> int:
        """The worker as PID 1 of a pid namespace of its own."""
        kernel.unshare(kernel.CLONE_NEWPID)
        try:
            child = os.fork()
            if child == 0:
                worker.run(prepared, ends)
            return child
        finally:
            kernel.setns(self._pid_namespace, kernel.CLONE_NEWPID)


def _allow_common(common: Sequence[tuple[str, int]]) -> int:
    """In the worker, before it is known for which call: rules of its own, since a set can be added to."""
    rules = landlock.make_ruleset()
    for path, access in common:
        with contextlib.suppress(FileNotFoundError):  # not every system has all of these
            landlock.allow(rules, path, access)
    return rules


def _veils(zygote: dict[str, Any], grant: worker.Grant) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The folders of the zygote that this worker is granted parts of at most."""
    granted = {*grant["read"], *grant["write"]}
    shown = granted | {*zygote["code"], *zygote["system"]}
    folders = {*zygote["read"], *zygote["write"]}
    for folder in sorted(folders):
        is_granted = any(_is_within(folder, path) for path in granted)
        is_inside_another = any(_is_within(folder, other) for other in folders - {folder})
        if not is_granted and not is_inside_another and os.path.isdir(folder):
            yield folder, _outermost(path for path in shown if _is_within(path, folder))


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Those that lie in none of the others: a tree brings along what is mounted in it."""
    found = set(paths)
    return tuple(
        sorted(path for path in found if not any(_is_within(path, other) for other in found - {path}))
    )


def _is_within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}/")


def _pipe(opened: list[int]) -> tuple[int, int]:
    ends = os.pipe()
    opened += ends
    return ends


def _streams(opened: list[int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """The standard streams of a program that stays: its own ends, and those of the host."""
    input_out, input_in = _pipe(opened)
    output_out, output_in = _pipe(opened)
    errors_out, errors_in = _pipe(opened)
    return (input_out, output_in, errors_in), (input_in, output_out, errors_out)


def _listener(opened: list[int]) -> tuple[list[int], int]:
    """A socket that listens in this network namespace, for the host to serve; and its port."""
    kernel.raise_loopback()  # only where somebody needs it
    listener = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
    port: int = listener.getsockname()[1]
    opened.append(listener.detach())
    return opened[-1:], port


def _signals() -> int:
    """How many may wait: no more than this process itself may have."""
    most = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
    return _SIGNALS if most == resource.RLIM_INFINITY else min(_SIGNALS, most)


def _scratch_options(limits: dict[str, int]) -> str:
    if not limits["scratch_bytes"]:
        return ""
    return f"size={limits['scratch_bytes']},nr_inodes={limits['scratch_files']},mode=700"


def _warm(plan: dict[str, Any]) -> None:
    """Do once what every worker would do, and let forks share its memory."""
    sys.dont_write_bytecode = True
    if not plan["warms"]:
        return
    import asyncio  # half of the time that a start takes

    asyncio.new_event_loop().close()
    sys.path += plan["import_paths"]
    load.Packages(plan["packages"]).install()
    for name in plan["preload"]:
        with contextlib.suppress(Exception):  # the worker that needs it will say what is wrong
            importlib.import_module(name)
    gc.collect()
    gc.disable()
    gc.freeze()


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()
