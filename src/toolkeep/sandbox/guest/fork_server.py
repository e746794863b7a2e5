"""Fork server: traces one template and makes a one-shot worker of it for each call.

It is a fork of the zygote and trusted: it never runs a line of a tool, and its memory is in no worker, so it
may be told grants. It is PID 1 of a pid namespace with the template and all its workers, which end with it.

A template has run hostile code. No promise of a call depends on what it does or says:

  1. it confined itself to code before its import, with a filter that the fork server's own calls pass by
     SECCOMP_RET_TRACE; while it imports, its threads are counted, and a process that it starts is killed
     before its first instruction;
  2. when its import is over it is held inside a fork, for ever, and checked once by facts of the kernel
     (`seal`): one thread, no descriptor, no writable memory that a fork would share, no capability,
     nothing by which the kernel or a file would make it execute something else than this fork;
  3. for each call the held fork is let run with flags of our choice. The child is stopped before its first
     instruction, furnished from outside (mounts, pipes, limits, network), stripped of the capabilities that
     its new user namespace brought, read back, and let go. The template is put back in front of its fork.

What two calls of one template share: address layout, hash seed and everything computed at import.
"""

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from . import linux, rootfs, seal, template, tracing, worker

_MESSAGE_BYTES: Final = 1 << 17
"""Receive buffer for one order, as in the zygote: a grant with its paths."""
_FORK_FLAGS: Final = 0x0120_0000 | signal.SIGCHLD
"""What glibc's fork passes to clone: CHILD_SETTID, CHILD_CLEARTID and the signal at exit."""
_NEW_NAMESPACES: Final = (
    linux.CLONE_NEWUSER | linux.CLONE_NEWNS | linux.CLONE_NEWPID | linux.CLONE_NEWIPC | linux.CLONE_PARENT
)
"""CLONE_NEWIPC, although the filter refuses the calls that need it: a mistake there would join all calls.
CLONE_PARENT: workers are the fork server's children, which spares the template their signals."""
_ROOM: Final = 1024
"""How far below the stack pointer the data of injected calls lie: below the red zone of 128 bytes."""
_REQUEST: Final = f"{rootfs.SCRATCH}/in"
_REPLY: Final = f"{rootfs.SCRATCH}/out"
_OPENED: Final = ((_REQUEST, os.O_RDONLY), (_REPLY, os.O_WRONLY), (os.devnull, os.O_RDWR))
"""What a worker gets as descriptors 0, 1 and 2. The pipes have a name only until it has them."""
_PATH_BYTES: Final = 32
"""Room for each of these paths and a zero; a multiple of eight, because memory is written by words."""
_PR_SET_DUMPABLE: Final = 4
_CAPABILITIES: Final = struct.pack("=Ii24x", 0x2008_0522, 0)
"""Header and empty sets of capset(2), for the calling process."""
TRACED_DIRECTORY: Final = -1094
"""Directory argument of the openat calls that are injected; no descriptor, and ignored for absolute paths."""
_EPERM: Final = -1


def run(plan: worker.Prepared, zygote: Mapping[str, Any], control: socket.socket) -> NoReturn:
    """Fork server main: seal a template, then fork workers until the host closes the socket."""
    try:
        linux.die_with_parent(signal.SIGKILL)
        server = ForkServer(plan, zygote, control)
        try:
            server.start()
        except (seal.Unsealed, tracing.Unexpected, OSError) as error:
            server.reply({"unsealed": str(error)})
            os._exit(0)
        server.reply({"ready": True})
        server.serve()
    except ConnectionError:
        os._exit(0)
    except Exception as error:  # noqa: BLE001 -- the host goes the cold way, and says why
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"}).encode())
    finally:
        os._exit(1)


@dataclass(frozen=True, slots=True)
class _Worker:
    """A worker that waits for its grant."""

    pid: int
    pidfd: int
    ends: list[int]
    """The host's ends of its pipes, and of its proxy's listener."""
    mounts: int
    """Its mount namespace."""


class ForkServer:
    """One template and its workers."""

    def __init__(self, plan: worker.Prepared, zygote: Mapping[str, Any], control: socket.socket) -> None:
        self._plan = plan
        self._zygote = zygote
        self._control = control
        self._machine = tracing.this_machine()
        # Of its own pid namespace, and attached nowhere: nobody else can look into it.
        self._proc = linux.detached_proc()
        self._home = self._open_namespace(os.getpid(), "mnt")
        self._home_network = self._open_namespace(os.getpid(), "net")
        self._home_pids = self._open_namespace(os.getpid(), "pid")
        self._has_proc_option = True
        self._flags = _FORK_FLAGS | _NEW_NAMESPACES | (linux.CLONE_NEWNET if plan.connects else 0)
        self._later = [(kind, most) for kind, most in plan.limits if kind in template.LATER_LIMITS]
        self._most_tasks = dict(plan.limits)[resource.RLIMIT_NPROC]
        # One processor for this process and its template, which take turns: handing over to a process on
        # another one, asleep, takes longer than most of what is done meanwhile.
        self._processors = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {sorted(self._processors)[os.urandom(1)[0] % len(self._processors)]})
        self._template = 0
        self._children: dict[int, int] = {}
        """Pids of living workers, by pidfd."""
        self._unbounded: dict[int, int] = {}
        """Pids of those that are stopped until the host has bounded their memory, by ticket."""
        self._sources = select.poll()
        self._ahead: _Worker | None = None
        """A worker that waits for its grant, stopped before its first instruction."""

    def reply(self, message: dict[str, Any]) -> None:
        """Tell the host."""
        self._control.send(json.dumps(message).encode())

    # --- the template --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the template, let it import its tool, hold and check it."""
        self._template = self._start_template()
        self._run_to_fork()
        # The child of the first fork has one thread, whatever the import started.
        self._hold(_FORK_FLAGS | linux.CLONE_PARENT)
        before, self._template = self._template, self._release()
        _end(before)
        tracing.resume_to_syscall(self._template)
        self._run_to_fork(is_imported=True)
        seal.check(self._machine, self._template, self._proc)
        self._hold(self._flags)
        # In its memory, and so in each worker's: what injected calls point to.
        self._capset = (self._held.stack - _ROOM) & ~15
        self._paths = self._capset + len(_CAPABILITIES)
        paths = b"".join(os.fsencode(path).ljust(_PATH_BYTES, b"\0") for path, _ in _OPENED)
        tracing.write_memory(self._template, self._capset, _CAPABILITIES + paths)
        # Whatever this machine cannot do shows now, not in a call.
        self._ahead = self._made()

    def _start_template(self) -> int:
        told, tell = os.pipe()
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            template.run(self._plan, self._cover, tell, ready)
        os.close(tell)
        os.close(ready)
        try:
            if os.read(told, 1) != b"1":
                raise seal.Unsealed("it could not be confined")
            self._map_user(child)
            tracing.seize(child)
            os.write(go, b"1")
        finally:
            os.close(told)
            os.close(go)
        return child

    def _cover(self) -> None:
        """Runs in the template: what is granted to any call is hidden, except for the code in it."""
        for place in rootfs.outermost((*self._zygote["read"], *self._zygote["write"])):
            if os.path.isdir(place):
                rootfs.mask(place, rootfs.open_trees(self._code_inside(place)))
            else:
                linux.attach_tree(linux.clone_tree(os.devnull), place)

    def _code_inside(self, folder: str) -> list[str]:
        code = (*self._zygote["code"], *self._zygote["system"])
        return rootfs.outermost(path for path in code if rootfs.is_within(path, folder))

    def _map_user(self, pid: int) -> None:
        user, group = os.getuid(), os.getgid()
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in maps.items():
            opened = os.open(f"{pid}/{name}", os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._proc)
            try:
                os.write(opened, text.encode())
            finally:
                os.close(opened)

    def _run_to_fork(self, *, is_imported: bool = False) -> None:
        """Let the template run up to a fork after its import; refuse what is traced, kill its children."""
        refused: set[int] = set()
        threads, killed = {self._template}, 0
        while True:
            stop = tracing.wait_any()
            is_template = stop.pid == self._template
            if stop.has_ended:
                if is_template:
                    raise seal.Unsealed(_ended(stop.status))
                threads.discard(stop.pid)
                continue
            # The first stop of whatever it starts; the parent may report it later.
            if stop.event == tracing.EVENT_STOP and not is_template:
                if len(threads) + killed >= self._most_tasks:
                    raise seal.Unsealed("its import starts more threads and processes than a call may have")
                if not self._is_thread(stop.pid):
                    os.kill(stop.pid, signal.SIGKILL)
                    killed += 1  # As a zombie it counts on.
                    continue
                threads.add(stop.pid)
            passed = stop.signal
            if stop.event == tracing.EVENT_SECCOMP or stop.is_syscall:
                passed = 0
                registers = tracing.Registers(self._machine, stop.pid)
                if stop.pid in refused:  # The skipped call ends.
                    refused.discard(stop.pid)
                    registers.result = _EPERM
                    registers.write(stop.pid)
                elif is_template and is_imported and self._is_fork(registers):
                    return
                elif stop.event == tracing.EVENT_SECCOMP:
                    is_imported |= is_template and self._says_imported(registers)
                    registers.skip(stop.pid)
                    refused.add(stop.pid)
            to_syscall = stop.pid in refused or (is_template and is_imported)
            with contextlib.suppress(ProcessLookupError):  # a thread that was killed meanwhile
                (tracing.resume_to_syscall if to_syscall else tracing.resume)(stop.pid, passed)

    def _is_fork(self, registers: tracing.Registers) -> bool:
        """Whether a plain fork begins: on a stack of its own, a child would be no fork of ours."""
        is_clone = registers.stopped_number(self._template) == self._machine.clone
        return is_clone and (registers.argument(0), registers.argument(1)) == (_FORK_FLAGS, 0)

    def _says_imported(self, registers: tracing.Registers) -> bool:
        is_capset = registers.stopped_number(self._template) == self._machine.capset
        return is_capset and registers.argument(0) == template.IMPORTED

    def _is_thread(self, pid: int) -> bool:
        try:
            os.stat(f"{self._template}/task/{pid}", dir_fd=self._proc)
        except OSError:
            return False
        return True

    def _hold(self, flags: int) -> None:
        """Hold the fork that begins, with other flags; where the child finds its thread id stays.

        The arguments cannot be changed in place: on arm64 the filter judges the first one as the call began
        (orig_x0), which no tracer can write, and so would refuse a fork. The call is skipped and begun anew,
        by way of one that the filter always traces: it may kill for the number of no call at all.
        """
        self._held = tracing.Registers(self._machine, self._template)
        arguments = [flags, 0, 0, 0, 0]
        arguments[self._machine.child_id] = self._held.argument(self._machine.child_id)
        self._fork_arguments = tuple(arguments)
        self._held.copy().replace_call(self._template, self._machine.capset)
        tracing.resume(self._template)
        tracing.wait_for(self._template, tracing.EVENT_SECCOMP)
        tracing.Registers(self._machine, self._template).skip(self._template)
        tracing.resume_to_syscall(self._template)
        tracing.wait_for(self._template)
        self._hold_again()

    def _release(self) -> int:
        """Let the held fork run; the child is stopped before its first instruction."""
        tracing.resume_to_syscall(self._template)
        # 0 is the end of the call without a child.
        stop = tracing.wait_for(self._template, 0, tracing.EVENT_FORK, tracing.EVENT_CLONE)
        if not stop.event:
            number = -tracing.Registers(self._machine, self._template).result
            self._hold_again()
            raise OSError(number, f"clone: {os.strerror(number)}")
        child = tracing.event_child(self._template)
        tracing.wait_for(child, tracing.EVENT_STOP)
        return child

    def _rewind(self) -> None:
        """Put the template in front of its fork again; not one instruction of its own runs."""
        tracing.resume_to_syscall(self._template)
        tracing.wait_for(self._template)
        self._hold_again()

    def _hold_again(self) -> None:
        again = self._held.copy()
        again.set_call(self._machine.clone, self._fork_arguments)
        again.write(self._template)
        tracing.resume(self._template)
        tracing.wait_for(self._template, tracing.EVENT_SECCOMP)

    def _open_namespace(self, pid: int, kind: str) -> int:
        return os.open(f"{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)

    # --- workers -------------------------------------------------------------------------------

    def serve(self) -> None:
        """Event loop: orders of the host, exits of workers, and in between a worker for the next call."""
        self._sources.register(self._control, select.POLLIN)
        while True:
            for descriptor, _ in self._sources.poll(0 if self._ahead is None else None) or self._make_ahead():
                if descriptor in self._children:
                    self._reap(descriptor)
                    continue
                message = self._control.recv(_MESSAGE_BYTES)
                if not message:
                    os._exit(0)
                order = json.loads(message)
                if "bounded" in order:
                    self._let_run(order["bounded"])
                else:
                    self._answer(order)

    def _make_ahead(self) -> Sequence[tuple[int, int]]:
        """Make a worker ahead; where that fails, wait for the order that will say so."""
        try:
            self._ahead = self._made()
        except OSError:
            return self._sources.poll()
        return ()

    def _let_run(self, ticket: int) -> None:
        pid = self._unbounded.pop(ticket, None)
        with contextlib.suppress(ProcessLookupError):  # It was killed meanwhile.
            if pid is not None:
                tracing.detach(pid)

    def _reap(self, pidfd: int) -> None:
        self._sources.unregister(pidfd)
        os.close(pidfd)
        ended = self._children.pop(pidfd)
        self._unbounded = {ticket: pid for ticket, pid in self._unbounded.items() if pid != ended}
        os.waitpid(ended, 0)

    def _answer(self, order: Mapping[str, Any]) -> None:
        """Give a worker its grant, let it go, and hand its descriptors to the host."""
        ticket: int = order["ticket"]
        try:
            made, self._ahead = self._ahead or self._made(), None
        except OSError as error:
            is_killed = isinstance(error, ProcessLookupError)
            self.reply({"ticket": ticket, "exhausted": str(error), "is_over": is_killed})
            return
        try:
            self._grant(made.mounts, order["grant"])
        except OSError as error:  # A granted folder is gone. Other calls go on.
            self._kill(made.pid)
            os.close(made.pidfd)
            self.reply({"ticket": ticket, "broken": str(error)})
        else:
            os.sched_setaffinity(made.pid, self._processors)
            if order["waits"]:
                self._unbounded[ticket] = made.pid
            else:
                tracing.detach(made.pid)
            self._children[made.pidfd] = made.pid
            self._sources.register(made.pidfd, select.POLLIN)
            request, reply, *listener = made.ends
            message = json.dumps({"ticket": ticket}).encode()
            socket.send_fds(self._control, [message], [request, reply, made.pidfd, *listener])
        finally:
            for descriptor in (made.mounts, *made.ends):
                os.close(descriptor)

    def _made(self) -> "_Worker":
        """A worker without a grant, stopped before its first instruction; and the template held again.

        One that is not what it must be (`Unexpected`) never runs: this process ends with all that it made.
        """
        child = self._release()
        ends: list[int] = []
        try:
            # Kept open: after `_strip` nobody can look into it any more.
            ends.append(self._open_namespace(child, "mnt"))
            ends += self._furnish(child, ends[0])
            self._strip(child)
        except OSError:
            for descriptor in ends:
                os.close(descriptor)
            self._kill(child)
            self._rewind()
            raise
        self._rewind()
        mounts, *rest = ends
        return _Worker(child, os.pidfd_open(child), rest, mounts)

    def _kill(self, child: int) -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def _furnish(self, child: int, mounts: int) -> list[int]:
        """Give a worker what is its own; the host's ends of its pipes, and of its proxy's listener."""
        os.setpgid(child, child)
        for kind, most in self._later:
            resource.prlimit(child, kind, (most, most))
        proc = self._proc_of(child) if self._plan.has_proc else -1
        with self._inside(mounts):
            if proc >= 0:
                linux.attach_tree(proc, rootfs.PROC)
                os.close(proc)
            ends = self._mount_scratch(child)
        return [*ends, *(self._listen(child) if self._plan.connects else ())]

    def _grant(self, mounts: int, grant: worker.Grant) -> None:
        """Attach what is granted to a worker's mounts."""
        trees = self._granted_trees(grant)
        if trees:
            with self._inside(mounts):
                self._show(trees, grant)
        for tree in trees.values():
            os.close(tree)

    @contextlib.contextmanager
    def _inside(self, mounts: int) -> Iterator[None]:
        """Be in the mount namespace of a worker."""
        linux.setns(mounts, linux.CLONE_NEWNS)
        try:
            yield
        finally:
            linux.setns(self._home, linux.CLONE_NEWNS)

    def _proc_of(self, child: int) -> int:
        """A procfs of a worker's pid namespace, attached nowhere."""
        namespace = self._open_namespace(child, "pid")
        try:
            if self._has_proc_option:
                try:
                    return linux.detached_proc(namespace)
                except OSError as error:
                    if error.errno != errno.EINVAL:
                        raise
                    self._has_proc_option = False
            return self._proc_from_inside(namespace)
        finally:
            os.close(namespace)

    def _proc_from_inside(self, namespace: int) -> int:
        """The same before Linux 6.17, where a procfs is always that of the process that asks for it."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            linux.setns(namespace, linux.CLONE_NEWPID)
            try:
                helper = os.fork()
                if helper == 0:
                    try:
                        socket.send_fds(theirs, [b"1"], [linux.detached_proc()])
                    finally:
                        os._exit(0)
            finally:
                linux.setns(self._home_pids, linux.CLONE_NEWPID)
            theirs.close()
            _, descriptors, _, _ = socket.recv_fds(ours, 1, 1, socket.MSG_CMSG_CLOEXEC)
            os.waitpid(helper, 0)
        if len(descriptors) != 1:
            raise OSError("a worker could not be given its own /proc")
        return descriptors[0]

    def _granted_trees(self, grant: worker.Grant) -> dict[str, int]:
        """Detached mounts of what is granted, by path: the mount says whether it can be written.

        Not Landlock, whose rules the template made when there was no grant.
        """
        write = rootfs.outermost(grant["write"])
        read = [path for path in grant["read"] if not any(rootfs.is_within(path, place) for place in write)]
        trees = rootfs.open_trees([*rootfs.outermost(read), *write])
        for path, tree in trees.items():
            if path not in write:
                linux.set_tree_attributes(tree, linux.ATTR_RDONLY)
        return trees

    def _show(self, trees: dict[str, int], grant: worker.Grant) -> None:
        """In the worker's mounts: attach what is granted, over the template's empty folders."""
        roots = rootfs.outermost((*self._zygote["read"], *self._zygote["write"]))
        for root in roots:
            inside = {path: tree for path, tree in trees.items() if rootfs.is_within(path, root)}
            if root in inside or not inside or not os.path.isdir(root):
                rootfs.attach_all(inside)
            else:
                first = rootfs.outermost(inside)
                code = rootfs.open_trees(
                    [
                        path
                        for path in self._code_inside(root)
                        if not any(rootfs.is_within(path, one) for one in first)
                    ]
                )
                rootfs.mask(root, {**code, **{path: inside[path] for path in first}})
                rootfs.attach_all({path: tree for path, tree in inside.items() if path not in first})
                for tree in code.values():
                    os.close(tree)
        rootfs.hide(grant["hidden"])
        rootfs.freeze(grant["frozen"])

    def _mount_scratch(self, child: int) -> list[int]:
        """Mount the worker's scratch folder and its shared memory; open its pipes for both sides."""
        options = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount("tmpfs", rootfs.SCRATCH, "tmpfs", options, self._plan.scratch or "size=4k,mode=700")
        for path in (_REQUEST, _REPLY):
            os.mkfifo(path, 0o600)
        # A writer cannot open a pipe without a reader, which is this process at first.
        reader = os.open(_REQUEST, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            ends = [
                os.open(_REQUEST, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC),
                os.open(_REPLY, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC),
            ]
            registers = tracing.Registers(self._machine, child)
            for number, (_, flags) in enumerate(_OPENED):
                path_at = self._paths + number * _PATH_BYTES
                made = self._inject(child, registers, self._machine.openat, TRACED_DIRECTORY, path_at, flags)
                if made != number:
                    raise tracing.Unexpected(f"openat gave {made}")
            registers.write(child)
        finally:
            os.close(reader)
        for path in (_REQUEST, _REPLY):
            os.unlink(path)
        if not self._plan.scratch:
            linux.unmount(rootfs.SCRATCH)
        if self._plan.shared_memory:
            linux.mount("tmpfs", self._plan.shared_memory, "tmpfs", options, self._plan.scratch)
        return ends

    def _listen(self, child: int) -> list[int]:
        """Listening socket of the egress proxy, in the worker's own network namespace."""
        namespace = self._open_namespace(child, "net")
        try:
            linux.setns(namespace, linux.CLONE_NEWNET)
            try:
                linux.raise_loopback()
                listener = socket.create_server(("127.0.0.1", worker.PROXY_PORT), backlog=64)
            finally:
                linux.setns(self._home_network, linux.CLONE_NEWNET)
        finally:
            os.close(namespace)
        return [listener.detach()]

    def _strip(self, child: int) -> None:
        """Drop the capabilities that its user namespace brought; check that it is confined.

        The checks stand behind the seal: a worker that found a way to run before, by a restartable sequence
        for instance, could make other calls than these in its own name. It would be noticed here.
        """
        registers = tracing.Registers(self._machine, child)
        if registers.result != 0 or registers.counter != self._held.counter:
            raise tracing.Unexpected("a worker is not a fork of its template")
        calls = (
            (self._machine.capset, self._capset, self._capset + 8),
            (self._machine.prctl, _PR_SET_DUMPABLE, 0, 0, 0, 0),
        )
        for number, *arguments in calls:
            if (result := self._inject(child, registers, number, *arguments)) != 0:
                raise tracing.Unexpected(f"system call {number} gave {result}")
        registers.write(child)
        status = seal.status(child, self._proc)
        wanted = dict.fromkeys(("CapPrm", "CapEff", "CapInh"), seal.NOTHING)
        wanted |= {"Seccomp": "2", "NoNewPrivs": "1"}
        is_first = status["NSpid"].split()[-1] == "1"
        if not is_first or any(status[name] != value for name, value in wanted.items()):
            raise tracing.Unexpected("a worker is not confined")

    def _inject(self, child: int, registers: tracing.Registers, number: int, *arguments: int) -> int:
        return tracing.inject(self._machine, child, registers, number, *arguments)


def _end(traced: int) -> None:
    """Kill a process with all its threads, and wait until they are gone."""
    os.kill(traced, signal.SIGKILL)
    while (stop := tracing.wait_any()).pid != traced or not stop.has_ended:
        pass


def _ended(status: int) -> str:
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == template.FAILED:
        return "its tool cannot be imported without a folder to write to, or not at all"
    return f"it ended at its import, with status {status:#x}"
