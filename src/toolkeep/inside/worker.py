"""What a fork of the zygote does: narrows itself for good, imports the tool, answers one call and ends.

The order is the protection: everything is given up before the first line of the tool runs, so that a thread
which the tool starts at import never holds more than the call does. The tool's output streams lead to
/dev/null. Protects the host from the tool, never the tool's own call from the tool.
"""

import fcntl
import gc
import json
import os
import resource
import signal
import struct
import sys
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from . import answer, kernel, root

REQUEST: Final = 3
REPLY: Final = 4
_RULES: Final = 5
_PARKED: Final = 32
"""Descriptors are put aside above this one before they get their numbers."""

_READ_BYTES: Final = 1 << 16
_SAID_CHARS: Final = 1000


@dataclass(frozen=True, slots=True)
class Prepared:
    """A worker's plan with everything made that many workers can share."""

    tool: str
    import_paths: tuple[str, ...]
    packages: tuple[str, ...]
    environment: dict[str, str]
    rules: int
    """A descriptor of Landlock rules, or -1 where the level has none."""
    filter_code: bytes
    """Empty where the level has no filter."""
    pid_marks: tuple[int, ...]
    limits: tuple[tuple[int, int], ...]
    veils: int
    """A descriptor of JSON: folders that the zygote shows and this worker has only parts of, each with these
    parts. Not in memory, which every worker of the zygote has a copy of. -1 for none."""
    scratch: str
    """Options of the scratch tmpfs; empty for none."""
    has_proc: bool


@dataclass(frozen=True, slots=True)
class Ends:
    """The descriptors of one worker."""

    request: int
    reply: int
    null: int


def run(plan: Prepared, ends: Ends) -> NoReturn:
    """Be the worker. Never returns, and never lets an exception out into the zygote's code."""
    try:
        veils = _veils(plan)
        _keep_only(ends, plan.rules)
        if _is_narrowed(plan, veils):
            _answer_once(plan)
    finally:
        os._exit(0)


def _veils(plan: Prepared) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if plan.veils >= 0:
        found = json.loads(os.pread(plan.veils, os.fstat(plan.veils).st_size, 0))
    return found


def _is_narrowed(plan: Prepared, veils: dict[str, list[str]]) -> bool:
    try:
        _narrow(plan, veils)
    except Exception as error:  # noqa: BLE001 -- a protection that cannot be put on: no tool is run
        _say({"unprepared": str(error)[:_SAID_CHARS]})
        return False
    _say({"narrowed": True})  # before the tool's first line: what is said from here on may be the tool's
    return True


def _keep_only(ends: Ends, rules: int) -> None:
    wanted = {0: ends.null, 1: ends.null, 2: ends.null, REQUEST: ends.request, REPLY: ends.reply}
    if rules >= 0:
        wanted[_RULES] = rules
    parked = {
        number: fcntl.fcntl(source, fcntl.F_DUPFD_CLOEXEC, _PARKED) for number, source in wanted.items()
    }
    for number, source in parked.items():
        os.dup2(source, number, inheritable=number < REQUEST)
    kernel.close_from(max(wanted) + 1)


def _narrow(plan: Prepared, veils: dict[str, list[str]]) -> None:
    os.setpgid(0, 0)  # a signal to the group must not reach the zygote; setsid takes a millisecond more
    os.umask(0o077)
    _mount_own(plan, veils)
    kernel.unshare(kernel.CLONE_NEWUSER)  # after the mounts: they need the zygote's namespace
    for kind, most in plan.limits:
        resource.setrlimit(kind, (most, most))
    kernel.drop_bounding_set()  # a new user namespace begins with a full one
    kernel.drop_capabilities()
    kernel.set_dumpable(is_dumpable=False)
    kernel.die_with_parent(signal.SIGKILL)  # after the credentials: changing them forgets it
    if plan.rules >= 0:
        kernel.landlock_restrict(_RULES)
        os.close(_RULES)  # whoever holds it could widen what later workers get
    if plan.filter_code:
        kernel.install_filter(_for_this_process(plan))


def _mount_own(plan: Prepared, veils: dict[str, list[str]]) -> None:
    kernel.unshare(kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC)
    for folder, shown in veils.items():
        root.veil(folder, shown)
    if plan.has_proc:
        root.mount_proc()
    if plan.scratch:
        flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
        kernel.mount("tmpfs", root.SCRATCH, "tmpfs", flags, plan.scratch)
        os.chdir(root.SCRATCH)


def _for_this_process(plan: Prepared) -> bytes:
    """The filter with this process's id where it may signal only itself."""
    code = bytearray(plan.filter_code)
    for mark in plan.pid_marks:
        struct.pack_into("=I", code, mark, os.getpid())
    return bytes(code)


def _answer_once(plan: Prepared) -> None:
    os.environ.clear()
    os.environ.update(plan.environment)
    sys.path[:0] = plan.import_paths
    answer.show_packages(plan.packages)
    gc.enable()
    answer.rehearse()
    try:
        function = answer.load(plan.tool)
    except BaseException as error:  # noqa: BLE001 -- whatever the tool's own code raises at import
        # Nothing of a call is here yet, so that the text can be said.
        _say({"unloaded": {**answer.describe(error), "text": str(error)[:_SAID_CHARS]}})
        return
    _say({"ready": True})
    request = _hear()
    if request is not None:
        _send(answer.answer(function, request))


def _hear() -> bytes | None:
    """The request; nothing if the host does not need this worker any more."""
    heard = bytearray(os.read(REQUEST, _READ_BYTES))
    while heard and len(heard) < 4 + int.from_bytes(heard[:4], "big"):
        more = os.read(REQUEST, _READ_BYTES)
        if not more:
            return None
        heard += more
    return bytes(heard[4:]) if heard else None


def _say(message: dict[str, Any]) -> None:
    _send(answer.encode(message))


def _send(body: bytes) -> None:
    rest = memoryview(len(body).to_bytes(4, "big") + body)
    while rest:
        rest = rest[os.write(REPLY, rest) :]
