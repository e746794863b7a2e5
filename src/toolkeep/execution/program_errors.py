"""Says what a program was denied, from the end of its standard error.

A program reports a denial in its own words: `cat: /srv/a: Permission denied`, `[Errno 2] No such file or
directory: '/srv/a'`. They are read as the exception of a function tool is, and are as untrusted: they decide
which of our sentences the operator reads. A path counts as denied only where this machine has it.
"""

import errno
import os
import re
import shutil
import signal
from typing import Final

from msgspec.structs import replace

from toolkeep.calls import Denied, Diagnosis, RecordedCall
from toolkeep.execution.diagnosis import raised
from toolkeep.limits import MODEL_TEXT_CHARS
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.plan import ResourceLimits
from toolkeep.sandbox.tool_exception import ToolException
from toolkeep.sandbox.trusted_paths import search_path

_DENIALS: Final = {
    "permission denied": errno.EACCES,
    "operation not permitted": errno.EPERM,
    "read-only file system": errno.EROFS,
    "no such file or directory": errno.ENOENT,
    "no such file": errno.ENOENT,  # dash
}
_LIMITS: Final = {
    "cannot allocate memory": errno.ENOMEM,
    "too many open files": errno.EMFILE,
    "file too large": errno.EFBIG,
    "no space left on device": errno.ENOSPC,
}
"""What the C library says of an error, in the locale C that programs are started with."""
_PHRASE: Final = "|".join((*_DENIALS, *_LIMITS))
_FAILED: Final = re.compile(
    rf"(?:(?<![^\s:'])(?P<before>[^\s:']{{1,255}})'?: )?"  # cat: /srv/a: Permission denied
    rf"(?P<phrase>{_PHRASE})"
    rf"(?:[:,] [a-z ]{{0,20}}'(?P<after>[^'\n]{{1,255}})')?",  # Permission denied: '/srv/a'
    re.IGNORECASE,
)
_OTHERS: Final = (
    (re.compile(r"\bMemoryError\b|\bout of memory\b", re.IGNORECASE), "memory"),
    (re.compile(r"can't start new thread|\bfork: ", re.IGNORECASE), "thread"),
    (
        re.compile(
            r"could not resolve host:? ?(?P<host>[\w.-]{0,253})|failure in name resolution"
            r"|name or service not known|getaddrinfo E[A-Z_]+ (?P<name>[\w.-]{1,253})|network is unreachable",
            re.IGNORECASE,
        ),
        "network",
    ),
)
_SIGNALED: Final = re.compile(r"\bended by signal (\d+)")
_SIGNALS: Final[dict[int, ToolException]] = {
    signal.SIGXCPU: ToolException(during="processor"),
    signal.SIGXFSZ: ToolException(during="file", errno=errno.EFBIG),
}


def program_diagnosis(
    call: RecordedCall, words: str, limits: ResourceLimits, level: Isolation
) -> Diagnosis | None:
    """What a program was denied or exceeded, by the words with which it ended.

    None if nothing says so, and the model reads all of them.
    """
    detail = words if len(words) > MODEL_TEXT_CHARS // 2 else ""
    found = _signaled(words) or _denial(words) or _other(words)
    told = None if found is None else raised(call, found, limits, level).diagnosis
    if found is None or told is None or told.denied is None:
        return Diagnosis(detail=detail) if detail else None
    remedy = told.remedy
    if told.denied is Denied.PROGRAM and level is not Isolation.STANDARD:
        program = shutil.which(found.subject, path=search_path())
        remedy = f"add process.spawn:{program} to the capabilities of the tool, and of the agent"
    return replace(told, remedy=remedy, detail=detail)


def _signaled(words: str) -> ToolException | None:
    match = _SIGNALED.search(words)
    return _SIGNALS.get(int(match[1])) if match else None


def _denial(words: str) -> ToolException | None:
    """The last failed system call that the words name."""
    for match in reversed(list(_FAILED.finditer(words))):
        phrase, subject = match["phrase"].lower(), match["after"] or match["before"] or ""
        if phrase in _LIMITS:
            return ToolException(during="file", errno=_LIMITS[phrase])
        number = _DENIALS[phrase]
        if number != errno.ENOENT and shutil.which(subject, path=search_path()):
            return ToolException(during="process", errno=number, subject=subject)
        if os.path.isabs(subject) and (number != errno.ENOENT or os.path.lexists(subject)):
            return ToolException(during="file", errno=number, subject=subject)
    return None


def _other(words: str) -> ToolException | None:
    for pattern, during in _OTHERS:
        if match := pattern.search(words):
            return ToolException(during=during, subject=next(filter(None, match.groups()), ""))
    return None
