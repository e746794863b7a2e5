"""A template: a process that confines itself to code, imports one tool, and is then held for ever.

It is a child of its fork server (`fork_server`), which traces it. From the first line of the tool on it is
hostile, and so is whatever it says: the fork server goes by what the kernel says of it. It holds no grant,
has seen no argument and no secret, and after its import never runs again: workers return from the second
`fork` below, each in a process of its own that was furnished from outside.
"""

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
        # To be held.
        if _fork():
            os._exit(1)
        worker.answer_from_template(call, hooks)
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
