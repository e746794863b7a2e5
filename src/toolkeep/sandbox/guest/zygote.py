"""Zygote: a pre-initialised process that enters namespaces, builds the root, and forks one-shot workers.

Only trusted code runs here; it never sees a secret, an argument or a line of a tool, because every worker is
a copy of its memory. Input over the control socket: one plan, then worker plans and fork orders. Output: the
pipes and pidfd of each worker. It is PID 1 of its pid namespace and exits when the control socket closes, so
no worker outlives the host.
"""

import base64
import contextlib
import dataclasses
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from . import fork_server, landlock_rules, linux, load, rootfs, worker

_MESSAGE_BYTES: Final = 1 << 17
"""Receive buffer for one message of the host, which cuts off a longer one. A plan without paths has 3 KB;
the rest is room for paths."""
_NAMESPACES: Final = (
    linux.CLONE_NEWUSER
    | linux.CLONE_NEWNS
    | linux.CLONE_NEWPID
    | linux.CLONE_NEWIPC
    | linux.CLONE_NEWUTS
    | linux.CLONE_NEWCGROUP
)
_LIMITS: Final = {
    "memory_bytes": resource.RLIMIT_AS,
    "data_bytes": resource.RLIMIT_DATA,
    "cpu_s": resource.RLIMIT_CPU,
    "file_bytes": resource.RLIMIT_FSIZE,
    "open_files": resource.RLIMIT_NOFILE,
    "processes": resource.RLIMIT_NPROC,
}
"""The rlimits of a worker by their name in the plan."""
_BACKLOG: Final = 64
_NAME_SERVER: Final = 53
"""Port of DNS, over TCP."""
_EXHAUSTED: Final = frozenset({errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ENOSPC})
"""Errors that mean a full machine, not a broken sandbox: the host reports them differently."""
_ZERO_LIMITS: Final = (resource.RLIMIT_CORE, resource.RLIMIT_MEMLOCK, resource.RLIMIT_MSGQUEUE)
"""Set to 0: core dumps (they hold secrets), locked memory (it cannot be reclaimed) and POSIX message queues
(counted per user, not per worker)."""
_SIGNALS: Final = 256
"""RLIMIT_SIGPENDING is counted per user: a worker must leave some queue to the user's other programs."""

_ACCESSES: Final = {"read": landlock_rules.READ, "write": landlock_rules.WRITE, "run": landlock_rules.RUN}
_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def main(arguments: Sequence[str]) -> None:
    """Zygote main: read the plan from the control socket, set up, serve."""
    control = socket.socket(fileno=int(arguments[0]))
    # PID 1 ignores what it has no handler for, and Python has one for this signal.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        plan = json.loads(control.recv(_MESSAGE_BYTES))
        namespaces = _set_up(plan, control)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the host must hear of it
        control.send(_encoded({"error": f"{type(error).__name__}: {error}"}))
        os._exit(1)
    try:
        _Zygote(control, plan, namespaces).serve()
    except ConnectionError:
        os._exit(0)  # the host is gone
    except Exception as error:  # noqa: BLE001 -- the host replaces it, and says why
        control.send(_encoded({"error": f"{type(error).__name__}: {error}"}))
        os._exit(1)


# --- set-up ---------------------------------------------------------------------------------------


def _set_up(plan: dict[str, Any], control: socket.socket) -> tuple[int, int]:
    """Enter the namespaces and the root; returns descriptors of the new pid and network namespaces."""
    os.umask(0o022)
    # First, and inherited by all workers: a setuid program in /usr must not give anything back. Landlock and
    # unprivileged seccomp also require it.
    linux.forbid_new_privileges()
    ordinary_id = plan["ordinary_id"] if os.geteuid() == 0 else None
    # Root mounts before it enters the user namespace: it can open what is granted (folders of other users),
    # and mounts made outside the user namespace are locked inside it.
    if ordinary_id is not None:
        _build_as_root(plan, ordinary_id)
    _enter_namespaces(closes_network=plan["closes_network"])
    _become_init(control)
    # Opened before the root changes: the new root may have no /proc.
    pid_namespace, network = (
        os.open(f"/proc/self/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC) for kind in ("pid", "net")
    )
    if ordinary_id is None:
        rootfs.build(plan, ordinary_id=None)
    # Always, if the kernel allows it: a fork server, too, needs one of its own, which it is given only then.
    # Workers that are to have none take it away.
    is_mounted = rootfs.enter()
    plan["has_proc"] &= is_mounted
    # What a tool starts with it finds the same packages as the tool.
    sys.executable = rootfs.interpreter_of(plan)
    socket.sethostname(rootfs.HOST_NAME)
    # After the mounts, which need capabilities. Programs started by workers can then gain none.
    linux.drop_bounding_set()
    # A core dump of a crashed worker would write its memory, secrets included, to the host's disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Only now: a non-dumpable process does not own its /proc/self, so writing the uid map would have failed.
    linux.set_dumpable(is_dumpable=False)
    return pid_namespace, network


def _build_as_root(plan: dict[str, Any], ordinary_id: int) -> None:
    """Build the root while still root, which may read what is granted; then drop to an ordinary user."""
    linux.unshare(linux.CLONE_NEWNS)
    rootfs.build(plan, ordinary_id=ordinary_id)
    # Groups before uid: after setresuid there is no permission left to drop them.
    os.setgroups([])
    os.setresgid(ordinary_id, ordinary_id, ordinary_id)
    os.setresuid(ordinary_id, ordinary_id, ordinary_id)
    # A uid change clears it, and /proc/self/uid_map would belong to root.
    linux.set_dumpable(is_dumpable=True)


def _enter_namespaces(*, closes_network: bool) -> None:
    """Enter new namespaces with a one-to-one id map."""
    user, group = os.getuid(), os.getgid()
    # One unshare: the user namespace comes first and gives the capabilities for the others. An empty network
    # namespace is what closes the network; seccomp alone could not judge addresses.
    linux.unshare(_NAMESPACES | (linux.CLONE_NEWNET if closes_network else 0))
    myself = Path("/proc/self")
    # The kernel demands "deny" before an unprivileged gid_map: a process that could drop a group might pass a
    # file mode that denies access to that group.
    (myself / "setgroups").write_text("deny", encoding="utf-8")
    (myself / "uid_map").write_text(f"{user} {user} 1", encoding="utf-8")
    (myself / "gid_map").write_text(f"{group} {group} 1", encoding="utf-8")


def _become_init(control: socket.socket) -> None:
    """Continue as PID 1 of the new pid namespace; the parent only waits for it."""
    # unshare(CLONE_NEWPID) puts children, not the caller, into the new namespace.
    child = os.fork()
    if child == 0:
        # If the host kills the parent, PID 1 dies, and with it every process of the namespace.
        linux.die_with_parent(signal.SIGKILL)
        return
    # A copy of the socket here would keep the host from seeing that the zygote is gone.
    control.close()
    linux.set_dumpable(is_dumpable=False)
    _, status = os.waitpid(child, 0)
    os._exit(1 if status else 0)


# --- serving --------------------------------------------------------------------------------------


class _Zygote:
    """Serves the control socket until it closes."""

    def __init__(self, control: socket.socket, plan: dict[str, Any], namespaces: tuple[int, int]) -> None:
        self._control = control
        self._plan = plan
        self._pid_namespace, self._network = namespaces
        self._prepared: dict[str, worker.Prepared] = {}
        self._sources = select.poll()
        self._children: dict[int, int] = {}
        """Pids of living workers, by pidfd."""

    def serve(self) -> None:
        """Event loop: orders of the host, and exits of workers."""
        self._sources.register(self._control, select.POLLIN)
        _warm(self._plan)
        self._reply({"ready": True})
        while True:
            for descriptor, _ in self._sources.poll():
                if descriptor in self._children:
                    self._reap(descriptor)
                    continue
                message = self._control.recv(_MESSAGE_BYTES)
                if not message:
                    os._exit(0)
                self._handle_order(json.loads(message))

    def _reap(self, pidfd: int) -> None:
        self._sources.unregister(pidfd)
        os.close(pidfd)
        os.waitpid(self._children.pop(pidfd), 0)

    def _handle_order(self, order: dict[str, Any]) -> None:
        if "prepare" in order:
            self._prepared[order["name"]] = self._worker_plan(order["prepare"])
        elif "forget" in order:
            self._prepared.pop(order["forget"], None)
        else:
            self._answer(order, order["ticket"])

    def _answer(self, order: dict[str, Any], ticket: int) -> None:
        try:
            if "template" in order:
                self._start_fork_server(self._template_plan(order["template"], order["run"]), ticket)
            else:
                self._fork(self._prepared[order["fork"]], ticket)
        except ConnectionError:
            raise
        except OSError as error:
            kind = "exhausted" if error.errno in _EXHAUSTED else "broken"
            self._reply({"ticket": ticket, kind: str(error)})

    def _reply(self, message: dict[str, Any]) -> None:
        self._control.send(_encoded(message))

    def _worker_plan(self, plan: dict[str, Any]) -> worker.Prepared:
        load.list_folders(plan["import_paths"])
        limits = [(_LIMITS[name], most) for name, most in plan["limits"].items() if name in _LIMITS]
        return worker.Prepared(
            tool=plan["tool"],
            import_paths=tuple(plan["import_paths"]),
            packages=load.Packages(plan["packages"]),
            environment=plan["environment"],
            filter=linux.Filter(base64.b64decode(plan["filter"])) if plan["filter"] else None,
            limits=(*limits, (resource.RLIMIT_SIGPENDING, _signals()), *((kind, 0) for kind in _ZERO_LIMITS)),
            allow_common=functools.partial(_allow_common, self._common(plan)) if plan["has_rules"] else None,
            allow_templated=None,
            allow_granted=self._apply_grant,
            scratch=_scratch_options(plan["limits"]),
            shared_memory=self._shared_memory(plan["limits"]),
            has_proc=self._plan["has_proc"],
            connects=plan["connects"],
            ports=tuple(plan["ports"]),
            is_persistent=plan["stays"],
            supervisor=plan["supervisor"],
        )

    def _template_plan(self, plan: dict[str, Any], run: list[str]) -> worker.Prepared:
        """The plan of a template, whose workers may start these programs."""
        rules = [("/", landlock_rules.READ)]
        # Mounts are what narrows a worker to its grant: a rule refers to what exists when it is made.
        if self._plan["write"]:
            rules.append(("/", landlock_rules.WRITE))
        rules += [(path, landlock_rules.RUN) for path in run]
        rules += [(path, landlock_rules.USE_DEVICE) for path in _DEVICES]
        has_scratch = bool(plan["limits"]["scratch_bytes"])
        rules.append((rootfs.BOX, landlock_rules.WRITE if has_scratch else landlock_rules.USE_DEVICE))
        port = worker.PROXY_PORT if plan["connects"] else 0
        allow = functools.partial(_allow_templated, rules, port) if plan["has_rules"] else None
        return dataclasses.replace(self._worker_plan(plan), allow_templated=allow)

    def _shared_memory(self, limits: dict[str, int]) -> str:
        """Target of /dev/shm for workers that have a scratch folder; empty for others."""
        return rootfs.shared_memory(sees_host=self._plan["sees_host"]) if limits["scratch_bytes"] else ""

    def _common(self, plan: dict[str, Any]) -> tuple[tuple[str, int], ...]:
        """Landlock rules that every worker of a plan has, whatever its grant."""
        code = {*map(os.path.realpath, self._plan["system"]), *self._plan["code"]}
        common = [(path, landlock_rules.READ) for path in sorted(code)]
        common += [(path, landlock_rules.READ) for path in rootfs.ETC_FILES]
        # No rule for a terminal, the GPU or any other device of the host.
        common += [(path, landlock_rules.USE_DEVICE) for path in _DEVICES]
        if plan["limits"]["scratch_bytes"]:
            # Sockets only here, in file systems that the worker alone sees: in a granted folder, programs
            # outside the sandbox would connect to them.
            sockets = landlock_rules.MAKE_SOCKET if plan["supervisor"] else 0
            common.append((rootfs.BOX, landlock_rules.WRITE | sockets))
        return tuple(common)

    def _apply_grant(self, rules: int, grant: worker.Grant, ports: Sequence[int]) -> None:
        """Runs in the worker: mask what is not granted, allow what is."""
        for folder, shown in _masks(self._plan, grant):
            trees = rootfs.open_trees(shown)
            rootfs.mask(folder, trees)
            for tree in trees.values():
                os.close(tree)
        # Mask, hide, freeze, then Landlock rules: a rule refers to an inode, and a mount that is put over it
        # afterwards would not be covered by the rule.
        self._hide(grant["hidden"])
        rootfs.freeze(grant["frozen"])
        for kind, access in _ACCESSES.items():
            for path in grant[kind]:
                landlock_rules.allow(rules, path, access)
        for port in ports:
            landlock_rules.allow_port(rules, port)

    def _hide(self, folders: list[str]) -> None:
        """Hide toolkeep's state, except for the code of an installed server in it."""
        for folder in folders:
            trees = rootfs.open_trees(path for path in self._plan["code"] if rootfs.is_within(path, folder))
            if trees:
                rootfs.mask(folder, trees)
            else:
                rootfs.hide([folder])
            for tree in trees.values():
                os.close(tree)

    def _fork(self, prepared: worker.Prepared, ticket: int) -> None:
        """Create pipes, fork a worker, and pass the host's ends over the control socket (SCM_RIGHTS)."""
        opened: list[int] = []
        try:
            request_out, request_in = _pipe(opened)
            reply_out, reply_in = _pipe(opened)
            has_own = bool(prepared.ports or prepared.supervisor)
            with self._own_network() if has_own else contextlib.nullcontext():
                egress, ports = _listeners(opened, prepared)
                theirs, ours = _streams(opened) if prepared.is_persistent else (None, ())
                ends = worker.Ends(request_out, reply_in, theirs, ports)
                child = self._forked(functools.partial(worker.run, prepared, ends))
            pidfd = self._open_pidfd(child)
            message = _encoded({"ticket": ticket})
            socket.send_fds(self._control, [message], [request_in, reply_out, pidfd, *egress, *ours])
        finally:
            # The zygote keeps none of them. A descriptor left open here would be inherited by the next
            # worker, and a pipe would never reach end of file.
            for descriptor in opened:
                os.close(descriptor)

    @contextlib.contextmanager
    def _own_network(self) -> Iterator[None]:
        """A network namespace of its own for the worker that is forked meanwhile.

        It connects to well-known ports, and Landlock tells no addresses apart: in a shared namespace it would
        reach the listeners of other workers, and by them the hosts of others. Abstract unix sockets belong to
        a network namespace too.
        """
        linux.unshare(linux.CLONE_NEWNET)
        try:
            linux.raise_loopback()
            linux.route_all_to_loopback()
            yield
        finally:
            linux.setns(self._network, linux.CLONE_NEWNET)

    def _start_fork_server(self, plan: worker.Prepared, ticket: int) -> None:
        """Fork a fork server as PID 1 of its own pid namespace, and pass the host its control socket."""
        opened: list[int] = []
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            opened += ours.detach(), theirs.fileno()
            child = self._forked(functools.partial(self._be_fork_server, plan, theirs))
            theirs.detach()
            pidfd = self._open_pidfd(child)
            socket.send_fds(self._control, [_encoded({"ticket": ticket})], [opened[0], pidfd])
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _be_fork_server(self, plan: worker.Prepared, control: socket.socket) -> NoReturn:
        # Not the zygote's own socket, nor the pidfds of its workers.
        kept = os.dup2(control.detach(), worker.REQUEST, inheritable=False)
        linux.close_from(kept + 1)
        fork_server.run(plan, self._plan, socket.socket(fileno=kept))

    def _open_pidfd(self, child: int) -> int:
        """Open a pidfd and watch it for the worker's exit."""
        try:
            pidfd = os.pidfd_open(child)
        except OSError:
            # Without a pidfd the host could not end this worker.
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        self._children[pidfd] = child
        self._sources.register(pidfd, select.POLLIN)
        return pidfd

    def _forked(self, run: Callable[[], NoReturn]) -> int:
        """Fork a worker or a fork server as PID 1 of its own pid namespace, which ends with it."""
        linux.unshare(linux.CLONE_NEWPID)
        try:
            child = os.fork()
            if child == 0:
                run()
            return child
        finally:
            # Back to our own namespace for children. If the worker died first, the next fork into its
            # namespace would fail with ENOMEM; and two workers must not share one.
            linux.setns(self._pid_namespace, linux.CLONE_NEWPID)


def _allow_common(common: Sequence[tuple[str, int]]) -> int:
    """Runs in the idle worker: a ruleset of its own, because rules of a call are added to it later."""
    rules = landlock_rules.make_ruleset()
    for path, access in common:
        with contextlib.suppress(FileNotFoundError):  # Not every distribution has all of them.
            landlock_rules.allow(rules, path, access)
    return rules


def _allow_templated(rules: Sequence[tuple[str, int]], port: int) -> int:
    """Runs in a template: the ruleset of all its workers."""
    made = _allow_common(rules)
    if port:
        landlock_rules.allow_port(made, port)
    return made


def _masks(zygote: dict[str, Any], grant: worker.Grant) -> Iterator[tuple[str, list[str]]]:
    """Zygote folders to mask for this worker, with the granted paths to show in each.

    One zygote serves calls with different grants. Its folders are visible to all workers until masked.
    """
    granted = {*grant["read"], *grant["write"]}
    shown = granted | {*zygote["code"], *zygote["system"]}
    folders = {*zygote["read"], *zygote["write"]}
    for folder in sorted(folders):
        is_granted = any(rootfs.is_within(folder, path) for path in granted)
        is_inside_another = any(rootfs.is_within(folder, other) for other in folders - {folder})
        if not is_granted and not is_inside_another and os.path.isdir(folder):
            yield folder, rootfs.outermost(path for path in shown if rootfs.is_within(path, folder))


def _pipe(opened: list[int]) -> tuple[int, int]:
    ends = os.pipe()
    opened += ends
    return ends


def _streams(opened: list[int]) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Standard streams of a persistent program: its own ends, and the host's."""
    input_out, input_in = _pipe(opened)
    output_out, output_in = _pipe(opened)
    errors_out, errors_in = _pipe(opened)
    return (input_out, output_in, errors_in), (input_in, output_out, errors_out)


def _listeners(opened: list[int], plan: worker.Prepared) -> tuple[list[int], tuple[int, ...]]:
    """Listening sockets of the egress proxy in this network namespace, and their ports; its own first.

    The host accepts on them from outside: a socket belongs to the namespace it was created in. They are the
    only connection between the empty network namespace and the world.
    """
    if not plan.connects:
        return [], ()
    # Down elsewhere: workers that share this namespace must not talk over loopback.
    linux.raise_loopback()
    direct = (_NAME_SERVER, *plan.ports) if plan.ports else ()
    # Any free port in a namespace that workers share.
    places = [("127.0.0.1", worker.PROXY_PORT if direct else 0), *(("0.0.0.0", port) for port in direct)]  # noqa: S104 -- in a namespace without a network
    made: list[int] = []
    ports: list[int] = []
    for place in places:
        listener = socket.create_server(place, backlog=_BACKLOG)
        ports.append(listener.getsockname()[1])
        made.append(listener.detach())
        opened.append(made[-1])
    return made, tuple(ports)


def _signals() -> int:
    """RLIMIT_SIGPENDING for workers, at most what this process has itself."""
    most = resource.getrlimit(resource.RLIMIT_SIGPENDING)[1]
    return _SIGNALS if most == resource.RLIM_INFINITY else min(_SIGNALS, most)


def _scratch_options(limits: dict[str, int]) -> str:
    """tmpfs options. nr_inodes bounds the number of files, which take kernel memory even when empty."""
    if not limits["scratch_bytes"]:
        return ""
    return f"size={limits['scratch_bytes']},nr_inodes={limits['scratch_files']},mode=700"


def _warm(plan: dict[str, Any]) -> None:
    """Do once in the zygote what every worker would do; forks share the memory copy-on-write."""
    sys.dont_write_bytecode = True
    sys.path += plan["import_paths"]
    load.Packages(plan["packages"]).install()
    for name in plan["preload"]:
        with contextlib.suppress(Exception):  # The worker that needs it reports the error.
            importlib.import_module(name)
    gc.collect()
    gc.disable()
    # Collect, then freeze: a garbage collection in a fork would write to every object header and so copy
    # every page.
    gc.freeze()


def _encoded(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()
