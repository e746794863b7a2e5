"""A worker: a fork of the zygote that confines itself, imports one tool, handles one call and exits.

A persistent worker runs a program instead (`persistent_program`).

The order is the protection: every privilege is dropped before the first line of the tool runs. A thread that
the tool starts at import time therefore never holds more than the call does. The grant arrives through the
worker's own pipe: it is derived from the call's arguments, and all workers are copies of the zygote, which
must never have read them.

Protects the host from the tool. Does not protect a call from its own tool.
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from . import call_handler, exception_report, linux, load, persistent_program, rootfs, supervisor

REQUEST: Final = 3
REPLY: Final = 4
_PARKED: Final = 32
"""Descriptors are duplicated above this number before they move to their final numbers."""

_sending: Final = threading.Lock()
"""Several threads of a tool may send progress, or a reply, at once; frames must not interleave."""

PROXY_PORT: Final = 3128
"""Port of the egress proxy for workers of a template, each in a network namespace of its own."""

_PROXIES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
"""Environment variables by which HTTP clients find the egress proxy."""

_READ_BYTES: Final = 1 << 16
"""Bytes read at once: the default capacity of a pipe (pipe(7))."""
_TWISTER_BYTES: Final = 624 * 4
"""Numbers of numpy's Mersenne Twister."""
_USED_UP: Final = (624).to_bytes(4, sys.byteorder)
"""Its position after the last of them."""
_SAID_CHARS: Final = 1000
"""Characters of an error's text: escaped, they fit into the 16 KiB that the host reads before a worker is
ready."""


Grant = dict[str, list[str]]
"""Granted paths by access: read, write, run; and inside them those that are frozen or hidden."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A worker plan with everything prebuilt that all workers of the plan can share."""

    tool: str
    import_paths: tuple[str, ...]
    packages: load.Packages
    environment: dict[str, str]
    filter: linux.Filter | None
    """None if the plan names none; every level of a tool has a seccomp filter."""
    limits: tuple[tuple[int, int], ...]
    allow_common: Callable[[], int] | None
    """Builds the Landlock rules that every worker of the plan has; None at levels without Landlock."""
    allow_templated: Callable[[], int] | None
    """The same for a template, whose rules hold for all its workers."""
    allow_granted: Callable[[int, Grant, tuple[int, ...]], None]
    """Masks what is not granted, and adds the granted paths and these ports to the rules."""
    scratch: str
    """Mount options of the scratch tmpfs; empty for none."""
    shared_memory: str
    """Target of /dev/shm, to be covered by a tmpfs with the same options; empty for none."""
    has_proc: bool
    connects: bool
    """Whether it gets an egress proxy, served by the host."""
    ports: tuple[int, ...]
    """Ports of granted hosts, in a network namespace of its own."""
    is_persistent: bool
    """Whether it is persistent: it runs a program until that exits, instead of handling one call."""
    supervisor: dict[str, Any] | None = None
    """What the supervisor of its program has to know; None for none."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Descriptors of one worker."""

    request: int
    reply: int
    streams: tuple[int, int, int] | None
    """Standard streams of a persistent program; other workers get /dev/null."""
    ports: tuple[int, ...] = ()
    """TCP ports that it may connect to, that of the egress proxy first; none without one."""


def run(plan: Prepared, ends: Ends) -> NoReturn:
    """Worker main. Never returns: an exception must not unwind into the zygote's code."""
    try:
        _close_other_descriptors(ends)
        if _confine_for_call(plan, ends.ports):
            if plan.is_persistent:
                _run_program(plan)
            else:
                _answer_once(plan)
    finally:
        # Without atexit handlers or stream flushes: those are the tool's code by now.
        os._exit(0)


def _confine_for_call(plan: Prepared, ports: tuple[int, ...]) -> bool:
    """Confine this process; False if the host closed the pipe or a protection failed."""
    try:
        # Everything up to `_receive` runs while the worker waits idle, so its cost is not part of a call.
        _mount_private(plan)
        rules = plan.allow_common() if plan.allow_common else None
        set_variables(plan, ports[0] if ports else 0)
        # Run the code path of a call once now: the page faults of copy-on-write memory happen before the
        # call.
        call_handler.warm_up()
        load.warm_up()
        # Blocks until the pool assigns this worker to a call. Up to here it holds no grant.
        granted = _receive()
        if granted is None:
            return False
        if rules is not None:
            plan.allow_granted(rules, json.loads(granted), ports)
        _confine(plan, rules)
    except Exception as error:  # noqa: BLE001 -- fail closed: no protection, no tool
        _send_message({"unprepared": str(error)[:_SAID_CHARS]})
        return False
    # Sent before the tool's first line runs: every later frame may be forged by the tool.
    _send_message({"narrowed": True})
    return True


def _close_other_descriptors(ends: Ends) -> None:
    """Move the five descriptors to their numbers and close all others."""
    # Each worker opens /dev/null itself. A descriptor inherited from the zygote shares its open file
    # description with every worker, so O_NONBLOCK set by one tool would be seen by another.
    streams = ends.streams or (os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC),) * 3
    wanted = {**dict(enumerate(streams)), REQUEST: ends.request, REPLY: ends.reply}
    # Duplicated upwards first: a direct dup2 could overwrite a source that is still needed.
    parked = {
        number: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _PARKED) for number, source in wanted.items()
    }
    for number, source in parked.items():
        # Only the standard streams survive execve. A program that the tool starts must not inherit the
        # request and reply pipes, or it could answer the call.
        os.dup2(source, number, inheritable=number < REQUEST)
    # Without this the worker would keep the zygote's control socket and other workers' pipes.
    linux.close_from(max(wanted) + 1)


def _mount_private(plan: Prepared) -> None:
    """Mounts that only this worker sees; none of them depends on the call."""
    # A signal to its process group must not reach the zygote. setsid would do too, but takes 1 ms more.
    os.setpgid(0, 0)
    # Files that a tool creates are private to the user until the tool says otherwise.
    os.umask(0o077)
    # Own mount namespace: masks and frozen paths of this call must not show in another worker. Own IPC
    # namespace: SysV shared memory and message queues would let two calls talk.
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
    rootfs.show_proc(is_shown=plan.has_proc)
    if plan.scratch:
        # noexec: otherwise a tool downloads or writes a binary and runs it, past the program grants.
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount("tmpfs", rootfs.SCRATCH, "tmpfs", flags, plan.scratch)
        os.chdir(rootfs.SCRATCH)
    if plan.shared_memory:
        # The host's /dev/shm would keep this worker's files after it is gone, and charge them to nobody.
        flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
        linux.mount("tmpfs", plan.shared_memory, "tmpfs", flags, plan.scratch)


def _confine(plan: Prepared, rules: int | None) -> None:
    """Drop all privileges, in the only order in which each step still has the rights that it needs."""
    # After the mounts: they need the capabilities of the zygote's user namespace. In the new one, with no id
    # mapped, the worker owns nothing of what was mounted and cannot unmount it.
    linux.unshare(linux.CLONE_NEWUSER)
    for kind, most in plan.limits:
        # Soft and hard limit alike, so that the tool cannot raise the soft one.
        resource.setrlimit(kind, (most, most))
    # A new user namespace starts with full capability and bounding sets; drop both.
    linux.drop_bounding_set()
    linux.drop_capabilities()
    # Other workers have the same uid. Dumpable, they could ptrace this one or read its /proc/PID/mem.
    linux.set_dumpable(is_dumpable=False)
    # After the credential changes above: they clear the parent death signal. Without it the worker outlives a
    # killed zygote.
    linux.die_with_parent(signal.SIGKILL)
    if rules is not None:
        # Landlock before seccomp: the filter refuses the landlock_* calls.
        linux.landlock_restrict(rules)
        # An open ruleset descriptor could still take rules.
        os.close(rules)
    # A worker that supervises cannot do so under the filter; its program puts it on before it starts.
    if plan.filter is not None and plan.supervisor is None:
        # Last: the filter takes away mount, unshare, setns, seccomp and the other calls used above.
        plan.filter.install()


def set_variables(plan: Prepared, port: int) -> None:
    """Replace the environment: variables of the host may hold credentials."""
    os.environ.clear()
    os.environ.update(plan.environment)
    if port:
        os.environ.update(dict.fromkeys(_PROXIES, f"http://127.0.0.1:{port}"))


def _run_program(plan: Prepared) -> None:
    """Receive the program and run it; its environment may hold secrets, which only this worker gets."""
    order = _receive()
    if order is not None:
        by = None
        if plan.supervisor is not None and plan.filter is not None:
            by = supervisor.Supervisor(plan.supervisor, plan.filter)
        persistent_program.run_until_exit(json.loads(order), _send_message, _receive, REQUEST, by)


def _answer_once(plan: Prepared) -> None:
    """Import the tool, report readiness, handle one request."""
    # Only now: a module imported from here on may be the tool's, whatever its name. The paths go after the
    # standard library, as in any Python: an installed package must not shadow a standard module.
    sys.path += plan.import_paths
    plan.packages.install()
    gc.enable()
    try:
        call = load.load(plan.tool)
    except BaseException as error:  # noqa: BLE001 -- whatever the tool's own code raises at import
        # The request was not read yet, so the text cannot hold an argument and may be reported.
        why = load.import_failure_kind(error)
        _send_message(
            {"unloaded": {**call_handler.describe(error), "why": why, "text": str(error)[:_SAID_CHARS]}}
        )
        return
    _send_message({"ready": True})
    exception_report.raise_at_processor_limit()
    _handle_request(call)


def answer_from_template(
    call: load.Call, fork_hooks: Iterable[Callable[[], object]], twister: "ctypes.Array[ctypes.c_char] | None"
) -> None:
    """Handle one request in a fork of a template; it was furnished and confined from outside.

    Descriptors 0 and 1 are its pipes, 2 is /dev/null, and there are no others.
    """
    os.dup2(0, REQUEST, inheritable=False)
    os.dup2(1, REPLY, inheritable=False)
    os.dup2(2, 0)
    os.dup2(2, 1)
    with contextlib.suppress(OSError):  # Restricted workers have none.
        os.chdir(rootfs.SCRATCH)
    _renew_random_state(twister)
    for hook in fork_hooks:
        with contextlib.suppress(Exception):  # as after any fork
            hook()
    _handle_request(call)
    os._exit(0)


def _handle_request(call: load.Call) -> None:
    """Receive the request, reply, and wait to be killed: the host reads what this process took first."""
    request = _receive()
    if request is not None:
        _send(call_handler.answer(call, request, _send))
        with contextlib.suppress(OSError):  # The tool may have closed the pipe.
            _receive()


def twister_state() -> "ctypes.Array[ctypes.c_char] | None":
    """Where numpy has its global generator: 624 numbers and a position. None if it cannot be found.

    Without numpy's own code a worker renews it at the cost of one page, instead of a hundred.
    """
    with contextlib.suppress(Exception):  # whatever a tool has put there
        module = sys.modules["numpy.random"]
        module.seed()  # It may hold a normal number for the next draw, which this drops.
        generator = module.get_bit_generator()
        if type(generator).__name__ == "MT19937":
            return (ctypes.c_char * (_TWISTER_BYTES + len(_USED_UP))).from_address(
                generator.ctypes.state_address
            )
    return None


def _renew_random_state(twister: "ctypes.Array[ctypes.c_char] | None") -> None:
    """Otherwise all workers of a template would draw the same numbers."""
    modules = sys.modules
    with contextlib.suppress(Exception):  # whatever a tool has put there
        if "random" in modules:
            modules["random"].seed()
    with contextlib.suppress(Exception):
        if twister is not None:
            twister.raw = os.urandom(_TWISTER_BYTES) + _USED_UP
        elif "numpy.random" in modules:
            # As good as `seed()`, at half the page faults.
            state = modules["numpy"].frombuffer(os.urandom(_TWISTER_BYTES), "uint32")
            modules["numpy.random"].set_state(("MT19937", state, len(state)))


def _receive() -> bytes | None:
    """Next frame from the host; None at end of file: the host does not need this worker any more."""
    header = _read(4)
    return None if header is None else _read(int.from_bytes(header, "big"))


def _read(count: int) -> bytes | None:
    heard = os.read(REQUEST, min(count, _READ_BYTES))
    if len(heard) == count:
        return heard
    parts = [heard]
    while heard and (left := count - sum(map(len, parts))):
        heard = os.read(REQUEST, min(left, _READ_BYTES))
        parts.append(heard)
    return b"".join(parts) if heard else None


def _send_message(message: dict[str, Any]) -> None:
    _send(call_handler.encode(message))


def _send(body: bytes) -> None:
    rest = memoryview(len(body).to_bytes(4, "big") + body)
    with _sending:
        while rest:
            rest = rest[os.write(REPLY, rest) :]
