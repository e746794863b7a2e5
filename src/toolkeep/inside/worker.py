"""What a fork of the zygote does: it is told its grant and narrows itself to that for good, imports the tool,
answers one call and ends. One that stays runs a program instead (`resident`).

The order is the protection: everything is given up before the first line of the tool runs, so that a thread
which the tool starts at import never holds more than the call does. The grant comes through the worker's own
pipe: it is made from the arguments of a call, and each worker is a copy of the zygote, which must never have
read them. The tool's standard streams lead to /dev/null, which each worker opens for itself. Protects the
host from the tool, never the tool's own call from the tool.
"""

import fcntl
import gc
import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from . import answer, kernel, load, resident, root

REQUEST: Final = 3
REPLY: Final = 4
_PARKED: Final = 32
"""Descriptors are put aside above this one before they get their numbers."""

_sending: Final = threading.Lock()
"""A thread of the tool may tell progress while another tells it, or answers."""

_PROXIES: Final = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
"""The variables by which programs find the way out."""

_READ_BYTES: Final = 1 << 16
_SAID_CHARS: Final = 1000


Grant = dict[str, list[str]]
"""The paths that may be read, written and executed, and those inside them that may only be read."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A worker's plan with everything made that many workers can share."""

    tool: str
    import_paths: tuple[str, ...]
    packages: load.Packages
    environment: dict[str, str]
    filter: kernel.Filter | None
    """None where the level has none."""
    limits: tuple[tuple[int, int], ...]
    allow_common: Callable[[], int] | None
    """Makes the Landlock rules that every worker of the plan has; None where the level has none."""
    allow_granted: Callable[[int, Grant, int], None]
    """Hides what is not granted, and adds to the rules what is, and the port of the way out."""
    scratch: str
    """Options of the scratch tmpfs; empty for none."""
    shared_memory: str
    """Where /dev/shm leads, to be covered by a tmpfs of the same options; empty for nowhere."""
    has_proc: bool
    connects: bool
    """Whether it has a way out to the network, through the host."""
    stays: bool
    """Whether it is told a program, and runs that until it ends, instead of answering one call."""


@dataclass(frozen=True, slots=True)
class Ends:
    """The descriptors of one worker."""

    request: int
    reply: int
    streams: tuple[int, int, int] | None
    """The standard input, output and error of a program that stays; others have /dev/null."""
    port: int = 0
    """Of the way out, which listens in this network namespace; 0 where there is none."""


def run(plan: Prepared, ends: Ends) -> NoReturn:
    """Be the worker. Never returns, and never lets an exception out into the zygote's code."""
    try:
        _keep_only(ends)
        if _is_narrowed(plan, ends.port):
            if plan.stays:
                _stay()
            else:
                _answer_once(plan)
    finally:
        os._exit(0)


def _is_narrowed(plan: Prepared, port: int) -> bool:
    try:
        _mount_own(plan)
        rules = plan.allow_common() if plan.allow_common else None
        _set_variables(plan, port)
        answer.rehearse()
        load.rehearse()
        granted = _hear()
        if granted is None:
            return False
        if rules is not None:
            plan.allow_granted(rules, json.loads(granted), port)
        _narrow(plan, rules)
    except Exception as error:  # noqa: BLE001 -- a protection that cannot be put on: no tool is run
        _say({"unprepared": str(error)[:_SAID_CHARS]})
        return False
    _say({"narrowed": True})  # before the tool's first line: what is said from here on may be the tool's
    return True


def _keep_only(ends: Ends) -> None:
    # An open file description of its own: the flags of one that the zygote opened are shared by every worker,
    # so that O_NONBLOCK set in one call would be seen in another.
    streams = ends.streams or (os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC),) * 3
    wanted = {**dict(enumerate(streams)), REQUEST: ends.request, REPLY: ends.reply}
    parked = {
        number: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _PARKED) for number, source in wanted.items()
    }
    for number, source in parked.items():
        os.dup2(source, number, inheritable=number < REQUEST)
    kernel.close_from(max(wanted) + 1)


def _mount_own(plan: Prepared) -> None:
    """What can be done before it is known for which call: the mounts that this worker alone sees."""
    os.setpgid(0, 0)  # a signal to the group must not reach the zygote; setsid takes a millisecond more
    os.umask(0o077)
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    if plan.has_proc:
        root.mount_proc()
    if plan.scratch:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("tmpfs", root.SCRATCH, "tmpfs", flags, plan.scratch)
        os.chdir(root.SCRATCH)
    if plan.shared_memory:
        # The host's own would hold what this worker puts there after it is gone, and count it for nobody.
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("tmpfs", plan.shared_memory, "tmpfs", flags, plan.scratch)


def _narrow(plan: Prepared, rules: int | None) -> None:
    kernel.unshare(kernel.CLONE_NEWUSER)  # after the mounts: they need the zygote's namespace
    for kind, most in plan.limits:
        resource.setrlimit(kind, (most, most))
    kernel.drop_bounding_set()  # a new user namespace begins with a full one
    kernel.drop_capabilities()
    kernel.set_dumpable(is_dumpable=False)
    kernel.die_with_parent(signal.SIGKILL)  # after the credentials: changing them forgets it
    if rules is not None:
        kernel.landlock_restrict(rules)
        os.close(rules)
    if plan.filter is not None:
        plan.filter.install()


def _set_variables(plan: Prepared, port: int) -> None:
    os.environ.clear()
    os.environ.update(plan.environment)
    if port:
        os.environ.update(dict.fromkeys(_PROXIES, f"http://127.0.0.1:{port}"))


def _stay() -> None:
    """Run the program that the host names; what it was started with is told to nobody else."""
    order = _hear()
    if order is not None:
        resident.stay(json.loads(order), _say, _hear, REQUEST)


def _answer_once(plan: Prepared) -> None:
    # Only now: whatever is imported from here on may be the tool's, by whatever name.
    # After the standard library, as in any Python: an installed package must not stand in for a module of it.
    sys.path += plan.import_paths
    plan.packages.install()
    gc.enable()
    try:
        call = load.load(plan.tool)
    except BaseException as error:  # noqa: BLE001 -- whatever the tool's own code raises at import
        # Nothing of a call is here yet, so that the text can be said.
        why = load.why_unloaded(error)
        _say({"unloaded": {**answer.describe(error), "why": why, "text": str(error)[:_SAID_CHARS]}})
        return
    _say({"ready": True})
    request = _hear()
    if request is not None:
        _send(answer.answer(call, request, _send))


def _hear() -> bytes | None:
    """The next frame; nothing if the host does not need this worker any more."""
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


def _say(message: dict[str, Any]) -> None:
    _send(answer.encode(message))


def _send(body: bytes) -> None:
    rest = memoryview(len(body).to_bytes(4, "big") + body)
    with _sending:
        while rest:
            rest = rest[os.write(REPLY, rest) :]
