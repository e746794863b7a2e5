"""Says why a tool failed: a sentence for the model, a diagnosis for the operator.

Input: what a tool was denied or which limit it exceeded, and its traceback or standard error, all of it
untrusted. The sentence is ours; it names an argument of the call at most, never a path, a host or a value.
The diagnosis names everything; secrets are redacted from it, and control characters escaped.
"""

import errno
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec.structs import replace

from toolkeep.calls import Denied, Diagnosis, RecordedCall
from toolkeep.errors import Code
from toolkeep.execution.redact import redacted
from toolkeep.execution.runner import RunRefused
from toolkeep.json_values.pointers import pointer
from toolkeep.limits import MIB
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.plan import SCRATCH, ResourceLimits
from toolkeep.sandbox.tool_exception import ToolException
from toolkeep.text.display import excerpt, visible_lines

_DETAIL_CHARS: Final = 8000
"""Characters of a traceback or standard error, from the end: what failed stands last."""
_SUBJECT_CHARS: Final = 500
"""Characters of a path, host or program in a line of its own."""
_LEAVES: Final = 10_000
"""Values of a call that are compared with what was denied."""

_NOUNS: Final = {
    Denied.FILE: "a file or folder",
    Denied.HOST: "a network connection",
    Denied.PROGRAM: "a program",
    Denied.SYSTEM_CALL: "a system call",
    Denied.PROCESSES: "a new process",
}
_EXCEEDED: Final = {
    Denied.PROCESSES: "started more than {} processes or threads",
    Denied.MEMORY: "took more memory than {}",
    Denied.PROCESSOR_TIME: "took more processor time than {}",
    Denied.OPEN_FILES: "opened more than {} files",
    Denied.FILE_SIZE: "wrote a file larger than {}",
    Denied.DISK_SPACE: "wrote more than fits: its scratch folder has {}",
    Denied.OUTPUT_SIZE: "returned more than {}",
    Denied.TIME: "took longer than {}",
}
_ASK: Final = {
    Denied.FILE: "Name what is granted, or ask the operator for fs.read or fs.write of it.",
    Denied.HOST: "Name a host that is granted, or ask the operator for net.read or net.write of it.",
    Denied.PROGRAM: "Do without it, or ask the operator for process.spawn of it.",
    Denied.PROCESSES: "Do without it, or ask the operator for process.spawn.",
}
_OTHERWISE: Final = "Try another way, or tell the operator."
_LESS: Final = "Ask for less, or tell the operator."
_REMEDIES: Final = {
    Denied.FILE: "let an argument name it, or grant tool and agent fs.read or fs.write of its folder",
    Denied.HOST: "let an argument name it, or grant tool and agent net.read or net.write of it",
    Denied.PROGRAM: "grant tool and agent process.spawn of it",
    Denied.SYSTEM_CALL: "no grant allows it at this isolation level",
    Denied.PROCESSES: "grant tool and agent process.spawn",
    Denied.MEMORY: "raise resource_bounds.max_memory",
    Denied.PROCESSOR_TIME: "raise resource_bounds.max_cpu or constraints.max_execution_time",
    Denied.TIME: "raise constraints.max_execution_time",
    Denied.DISK_SPACE: "free space where it writes, or let it write to a granted folder",
    Denied.OUTPUT_SIZE: "the limit is fixed: let it give less, or write a file",
}
_MACHINE: Final = "at this isolation level only the operating system's permissions apply"
_RESTRICTED: Final = (
    "isolation restricted grants no file, host or process: require strict, and grant it there"
)
_NO_GRANTS: Final = {Isolation.STANDARD: _MACHINE, Isolation.RESTRICTED: _RESTRICTED}
_FIXED: Final = "the limit is fixed"
_RELATIVE: Final = (
    "its working folder is an empty scratch folder, not the project: let it use the absolute path, and grant "
    "tool and agent fs.read or fs.write of it, or let an argument with Touches name it"
)

_PARENT: Final = "it is granted, but its parent folder is missing: create it, or let the tool create it"


def denied(
    call: RecordedCall,
    kind: Denied,
    subject: str = "",
    *,
    is_absent: bool = False,
    detail: str = "",
    remedy: str = "",
) -> RunRefused:
    """The failure of a tool that was denied something; `is_absent` if it may as well not exist."""
    if is_absent and (without_parent := _pointer_without_parent(call, subject)):
        diagnosis = Diagnosis(denied=kind, subject=subject, remedy=_PARENT, detail=detail)
        reason = f"Tool '{call.tool.name}' failed: the parent folder of this file does not exist"
        ask = "Name a file in a folder that exists, or tell the operator."
        return RunRefused(Code.TOOL_FAILED, reason, ask, diagnosis, path=without_parent)
    at = _argument_of(call, kind, subject)
    noun = f"the {kind} that this argument names" if at else _NOUNS[kind]
    said = f"it was denied {noun}"
    if is_absent:
        said = f"{noun if at else f'{noun} that it uses'} does not exist, or was not granted"
    diagnosis = Diagnosis(denied=kind, subject=subject, remedy=remedy or _REMEDIES[kind], detail=detail)
    reason = f"Tool '{call.tool.name}' failed: {said}"
    ask = _OTHERWISE if remedy in _NO_GRANTS.values() else _ASK.get(kind, _OTHERWISE)
    return RunRefused(Code.TOOL_FAILED, reason, ask, diagnosis, path=at)


def exceeded(
    call: RecordedCall, kind: Denied, limit: str, *, code: Code = Code.TOOL_FAILED, detail: str = ""
) -> RunRefused:
    """The failure of a tool that exceeded a limit."""
    is_fixed = kind is Denied.PROCESSES or kind not in _REMEDIES
    remedy = _FIXED if is_fixed else _REMEDIES[kind]
    diagnosis = Diagnosis(denied=kind, limit=limit, remedy=remedy, detail=detail)
    return RunRefused(code, f"Tool '{call.tool.name}' {_EXCEEDED[kind].format(limit)}", _LESS, diagnosis)


def unexpected(call: RecordedCall, exception: ToolException) -> RunRefused:
    """The failure of a tool that raised an exception for a reason of its own."""
    reason = f"Tool '{call.tool.name}' failed unexpectedly"
    return RunRefused(
        Code.TOOL_FAILED,
        reason,
        "Try another way, or tell the user.",
        Diagnosis(detail=_traceback(call, exception)),
        is_unexplained=True,
    )


def raised(
    call: RecordedCall, exception: ToolException, limits: ResourceLimits, level: Isolation
) -> RunRefused:
    """The failure of a confined tool that raised an exception."""
    # At standard a worker sees the machine as its user does.
    is_granted = level is not Isolation.STANDARD
    remedy = _NO_GRANTS.get(level, "")
    detail = _traceback(call, exception)
    if (limit := _limit(exception, limits)) is not None:
        return exceeded(call, *limit, detail=detail)
    number, subject, is_absent = exception.errno, exception.subject, exception.errno == errno.ENOENT
    if exception.during == "network" and is_granted:
        return denied(call, Denied.HOST, subject, detail=detail, remedy=remedy)
    if not exception.during and number in (*_DENIALS, errno.ENOSYS) and is_granted:
        return denied(call, Denied.SYSTEM_CALL, detail=detail)
    kind = Denied.FILE
    if exception.during == "process":
        kind = Denied.PROGRAM if subject else Denied.PROCESSES
    elif is_absent and subject.startswith(f"{SCRATCH}/") and not remedy:
        # As the tool wrote it: a relative path is that of its author's project, which is not here.
        relative = subject.removeprefix(f"{SCRATCH}/")
        return denied(call, kind, relative, is_absent=True, detail=detail, remedy=_RELATIVE)
    elif exception.during != "file" or (_is_scratch(subject) and level is not Isolation.RESTRICTED):
        return unexpected(call, exception)
    # ENOSYS: a filter says so where a program would otherwise ask for the same in another way.
    if number not in (*_DENIALS, errno.ENOENT, errno.ENOSYS):
        return unexpected(call, exception)
    return denied(call, kind, subject, is_absent=is_absent and bool(subject), detail=detail, remedy=remedy)


def without_hosts(call: RecordedCall, reason: str) -> str:
    """A reason of the network for the model: hosts that no argument names are not named."""
    return _QUOTED.sub(
        lambda host: host[0] if _argument_of(call, Denied.HOST, host[1]) else "its server", reason
    )


_QUOTED: Final = re.compile(r"'([^']*)'")
_DENIALS: Final = (errno.EACCES, errno.EPERM, errno.EROFS)


def _limit(exception: ToolException, limits: ResourceLimits) -> tuple[Denied, str] | None:
    """The limit that ended an operation, if one did."""
    number, during = exception.errno, exception.during
    if during == "memory" or number == errno.ENOMEM:
        return Denied.MEMORY, in_mebibytes(limits.memory_bytes)
    if during == "processor":
        return Denied.PROCESSOR_TIME, f"{limits.cpu_s - 1} s"
    if during == "thread" or (during == "process" and number == errno.EAGAIN):
        return Denied.PROCESSES, str(limits.processes)
    if number == errno.EMFILE:
        return Denied.OPEN_FILES, str(limits.open_files)
    if number == errno.EFBIG:
        return Denied.FILE_SIZE, in_mebibytes(limits.file_bytes)
    if number in (errno.ENOSPC, errno.EDQUOT):
        return Denied.DISK_SPACE, in_mebibytes(limits.scratch_bytes)
    return None


def in_mebibytes(size: int) -> str:
    """A number of bytes with its unit."""
    return f"{size / MIB:g} MiB"


def _is_scratch(path: str) -> bool:
    return path == SCRATCH or path.startswith(f"{SCRATCH}/")


def _traceback(call: RecordedCall, exception: ToolException) -> str:
    # A text may quote an argument in a form that no search finds: none where an argument is secret.
    return exception.traceback(has_texts=not call.tool.arguments.secrecy.has_secrets)


def sanitized(call: RecordedCall, diagnosis: Diagnosis, secrets: Iterable[str]) -> Diagnosis:
    """A diagnosis without secrets, escaped and truncated. Everything that leaves a runner passes here."""
    known = [*secrets, *_secret_arguments(call)]
    subject, detail = (redacted(text, known, shortest=1) for text in (diagnosis.subject, diagnosis.detail))
    return replace(
        diagnosis,
        subject=excerpt(subject, _SUBJECT_CHARS),
        detail=visible_lines(detail[-_DETAIL_CHARS:].strip("\n")),
    )


def _secret_arguments(call: RecordedCall) -> list[str]:
    secrecy = call.tool.arguments.secrecy
    found: list[str] = []
    if secrecy.has_secrets:
        secrecy.replace(call.checked.arguments, lambda secret: found.extend(_texts(secret)))
    return [text for text in found if text]


def _texts(value: Any) -> Iterator[str]:
    yield from (str(leaf) for _, leaf in _leaves(value, ()) if leaf not in (None, True, False))


def _argument_of(call: RecordedCall, kind: Denied, subject: str) -> str:
    """JSON Pointer of the argument that names what was denied; empty if none does.

    Only what the caller itself wrote may come back to it: a path or host of the tool's own choice would be
    news to a model, or a message to it.
    """
    if not subject or call.tool.arguments.secrecy.has_secrets:
        return ""
    for one in call.approved.permitted.touched:
        if one.pointer and subject in (one.shown, one.found):
            return one.pointer
    for count, (steps, leaf) in enumerate(_leaves(call.checked.arguments, ())):
        if count >= _LEAVES:
            break
        if isinstance(leaf, str) and (leaf == subject or (kind is Denied.HOST and _is_host(leaf, subject))):
            return pointer(steps)
    return ""


def _pointer_without_parent(call: RecordedCall, subject: str) -> str:
    """JSON Pointer of the argument that names a granted file in a folder that is missing; empty if none."""
    for one in call.approved.permitted.touched:
        if one.kind == "fs.write" and one.pointer and subject in (one.shown, one.found):
            has_parent = os.path.isdir(os.path.dirname(one.shown))
            return "" if has_parent or call.tool.arguments.secrecy.has_secrets else one.pointer
    return ""


def _leaves(value: Any, steps: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(item, (*steps, name))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from _leaves(item, (*steps, number))
    else:
        yield steps, value


def _is_host(text: str, subject: str) -> bool:
    """Whether a URL or a host names the same host as another, whatever the ports."""
    named, host = _host(text), _host(subject)
    return named is not None and named == host


def _host(text: str) -> str | None:
    try:
        return urlsplit(text if "://" in text else f"//{text}").hostname
    except ValueError:
        return None
