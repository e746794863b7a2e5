"""A template: a process that confines itself to code, imports one tool, and is then held for ever.

It is a child of its fork server (`fork_server`), which traces it. From the first line of the tool on it is
hostile, and so is whatever it says: the fork server goes by what the kernel says of it. It holds no grant,
has seen no argument and no secret, and after its import never runs again: workers return from the second
`fork` below, each in a process of its own that was furnished from outside.
"""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Final, NoReturn

from . import exception_report, linux, load, rootfs, tracing, worker

IMPORTED: Final = 0x5EA1
"""First argument of the capset call that says that the import is over. A tool that says so too early only
spoils its own template."""
FAILED: Final = 3
"""Exit status of a template whose tool cannot be imported here: a cold worker will say why."""

LATER_LIMITS: Final = (resource.RLIMIT_NPROC, resource.RLIMIT_SIGPENDING)
"""Set for each worker from outside: in the template they count all its workers together."""
_SIGNALS_TOGETHER: Final = 2
"""How many times the queued signals and timers of one worker all workers of a template may have."""

_HUGE_BYTES: Final = 2 << 20
_MADV_COLLAPSE: Final = 25
_DENSE: Final = 0.9
"""How much of an area must be in use: a huge page is all taken, and counts as the tool's memory."""

_libc: Final = ctypes.CDLL(None, use_errno=True)

_fork: Final = ctypes.PyDLL(None).fork
"""fork(2) without Python's preparations for a child of several threads. There is one thread then, and it
holds no lock: renewing those of `threading` and `logging` would copy some 200 pages in each worker."""


def run(plan: worker.Prepared, cover: Callable[[], None], tell: int, go: int) -> NoReturn:
    """Template main. `cover` hides every granted folder; `tell` and `go` are the fork server's pipes."""
    try:
        rules = _prepare(plan, cover)
        # Its id map is the fork server's to write. Without one, no further user namespace could be made in
        # this one, and each worker gets one of its own.
        linux.unshare(linux.CLONE_NEWUSER)
        # Only a dumpable process can be traced by another one of its user. Nobody else sees this one.
        linux.set_dumpable(is_dumpable=True)
        os.write(tell, b"1")
        if os.read(go, 1) != b"1":
            os._exit(1)
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        _confine(plan, rules)
        linux.close_from(3)
        hooks = _record_fork_hooks()
        call = _imported(plan)
        hooks = [hook for hook in hooks if not _is_done(hook)]
        twister = worker.twister_state()
        exception_report.raise_at_processor_limit()
        gc.collect()
        # A collection in a worker would write to every object header, and so copy every page.
        gc.freeze()
        # An open file is shared by all forks, with its offset, flags and locks, be it /dev/null. What the
        # tool itself holds open the fork server sees.
        for number in range(3):
            os.close(number)
        _libc.syscall(tracing.this_machine().capset, IMPORTED, 0)
        # To leave the threads of the import behind.
        if os.fork():
            os._exit(1)
        _collapse_pages()
        # To be held.
        if _fork():
            os._exit(1)
        worker.answer_from_template(call, hooks, twister)
    finally:
        os._exit(FAILED)


def _prepare(plan: worker.Prepared, cover: Callable[[], None]) -> int | None:
    """Mounts and rules, while it still may. Above `standard`, no folder that it can write to exists."""
    os.setpgid(0, 0)
    os.umask(0o077)
    linux.unshare(linux.CLONE_NEWNS | linux.CLONE_NEWIPC)
    rootfs.show_proc(is_shown=plan.has_proc)
    rules = plan.allow_templated() if plan.allow_templated else None
    cover()
    if plan.shared_memory:
        # At `standard` it is the host's, where an import would leave files that are counted for nobody.
        linux.mount("tmpfs", plan.shared_memory, "tmpfs", linux.MS_RDONLY, "size=4k,mode=700")
    os.chdir("/")
    worker.set_variables(plan, worker.PROXY_PORT if plan.connects else 0)
    return rules


def _confine(plan: worker.Prepared, rules: int | None) -> None:
    """As a worker does, but for two limits that the kernel counts for all processes of a user namespace."""
    for kind, most in plan.limits:
        if kind == resource.RLIMIT_SIGPENDING:
            most = min(_SIGNALS_TOGETHER * most, resource.getrlimit(kind)[1])  # noqa: PLW2901
        if kind != resource.RLIMIT_NPROC:  # Its threads are counted by the fork server.
            resource.setrlimit(kind, (most, most))
    linux.drop_bounding_set()
    linux.drop_capabilities()
    linux.die_with_parent(signal.SIGKILL)
    if rules is not None:
        linux.landlock_restrict(rules)
    if plan.filter is not None:
        plan.filter.install()


def _imported(plan: worker.Prepared) -> load.Call:
    sys.path += plan.import_paths
    plan.packages.install()
    gc.enable()
    return load.load(plan.tool)


def _record_fork_hooks() -> list[Callable[[], object]]:
    """What the tool and its packages will ask to have called in a child: workers do so themselves."""
    hooks: list[Callable[[], object]] = []
    register = os.register_at_fork

    def record(**wanted: Callable[[], object]) -> None:
        register(**wanted)
        if "after_in_child" in wanted:
            hooks.append(wanted["after_in_child"])

    os.register_at_fork = record  # type: ignore[assignment]  # its signature names each keyword
    return hooks


def _is_done(hook: Callable[[], object]) -> bool:
    """Whether a worker can do without it.

    The template's own fork renews the locks of `logging` and the like, and nothing takes one afterwards;
    `random` is seeded for each worker anyway. Together they would copy some 70 pages.
    """
    is_lock = getattr(hook, "__name__", "") == "_at_fork_reinit"
    return is_lock or getattr(hook, "__module__", "") in ("logging", "random")


def _collapse_pages() -> None:
    """Have the heap in huge pages, of which a fork copies one entry instead of 512.

    A fork of pandas, and its end, take a tenth less. Where the kernel cannot do it (before Linux 6.1), or
    where this process sees no /proc, nothing changes.
    """
    with contextlib.suppress(OSError), open("/proc/self/smaps", encoding="utf-8") as lines:
        first = end = 0
        for line in lines:
            words = line.split()
            if "-" in words[0]:
                first, end = (int(address, 16) for address in words[0].split("-"))
                # Private and writable; of a file, there is little that is its own.
                if words[1] != "rw-p" or words[5:] not in ([], ["[heap]"]):
                    end = first
            elif words[0] == "Anonymous:" and int(words[1]) << 10 > (end - first) * _DENSE:
                begin, until = -(-first // _HUGE_BYTES) * _HUGE_BYTES, end // _HUGE_BYTES * _HUGE_BYTES
                if begin < until:
                    _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(until - begin), _MADV_COLLAPSE)
