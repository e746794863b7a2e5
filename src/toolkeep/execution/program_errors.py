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
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from toolkeep.calls import Denied, Diagnosis, RecordedCall
from toolkeep.execution.diagnosis import raised
from toolkeep.limits import MODEL_TEXT_CHARS
from toolkeep.sandbox.isolation_levels import Isolation
from toolkeep.sandbox.plan import ResourceLimits
from toolkeep.sandbox.tool_exception import ToolException
from toolkeep.sandbox.trusted_paths import search_path

if TYPE_CHECKING:
    from toolkeep.network.egress_proxy import Contact

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
    rf"(?:[:,] (?P<act>[a-z ]{{0,20}})'(?P<after>[^'\n]{{1,255}})')?"  # Permission denied: '/srv/a'
    r"|\bspawn (?P<spawned>[^\s:']{1,255}) (?P<code>EACCES|EPERM)\b",  # node: spawn /srv/a EACCES
    re.IGNORECASE,
)
_WRITES: Final = ("mkdir", "rename", "unlink", "rmdir", "copyfile", "symlink", "truncate", "utime", "chmod")
"""What node calls operations that change files."""
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


class Denial(NamedTuple):
    """One thing that a program was denied, and the capability that would allow it."""

    kind: Denied
    subject: str
    """Path, program or host."""
    capability: str
    """Empty where no grant allows it."""


def denials(words: str, contacts: "Iterable[Contact]" = ()) -> tuple[Denial, ...]:
    """Everything that a program was denied: by its words, and by the contacts of its egress proxy."""
    found = [
        Denial(Denied.HOST, _host(one), "" if one.remedy else _net(one))
        for one in contacts
        if one.is_denied and one.host
    ]
    for failed in _denials(words):
        if failed.during == "process":
            program = shutil.which(failed.subject, path=search_path()) or failed.subject
            found.append(Denial(Denied.PROGRAM, program, f"process.spawn:{program}"))
        else:
            kind = "fs.write" if failed.is_write else "fs.read"
            found.append(Denial(Denied.FILE, failed.subject, f"{kind}:{failed.subject}"))
    if (other := _other(words)) is not None and other.during == "network" and other.subject:
        found.append(Denial(Denied.HOST, other.subject, f"net.write:{other.subject}"))
    return tuple(dict.fromkeys(found))


def _host(contact: "Contact") -> str:
    return f"{contact.host}:{contact.port}" if contact.port else contact.host


def _net(contact: "Contact") -> str:
    port = "" if contact.port in (0, 80, 443) else f":{contact.port}"
    return f"{'net.read' if contact.method in ('GET', 'HEAD') else 'net.write'}:{contact.host}{port}"


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


class _Failed(NamedTuple):
    """A system call that failed, by the words of a program."""

    during: str
    number: int
    subject: str
    is_write: bool = False


def _denial(words: str) -> ToolException | None:
    """The last failed system call that the words name."""
    for match in reversed(list(_FAILED.finditer(words))):
        if (phrase := (match["phrase"] or "").lower()) in _LIMITS:
            return ToolException(during="file", errno=_LIMITS[phrase])
        if (failed := _failed(match)) is not None:
            return ToolException(during=failed.during, errno=failed.number, subject=failed.subject)
    return None


def _denials(words: str) -> Iterator[_Failed]:
    """All denied files and programs that the words name."""
    return filter(None, map(_failed, _FAILED.finditer(words)))


def _failed(match: re.Match[str]) -> _Failed | None:
    subject = match["after"] or match["before"] or match["spawned"] or ""
    number = getattr(errno, (match["code"] or "").upper(), 0) or _DENIALS.get((match["phrase"] or "").lower())
    if number is None:
        return None
    if number != errno.ENOENT and shutil.which(subject, path=search_path()):
        return _Failed("process", number, subject)
    if os.path.isabs(subject) and (number != errno.ENOENT or os.path.lexists(subject)):
        is_write = number == errno.EROFS or (match["act"] or "").strip().lower() in _WRITES
        return _Failed("file", number, subject, is_write)
    return None


def _other(words: str) -> ToolException | None:
    for pattern, during in _OTHERS:
        if match := pattern.search(words):
            return ToolException(during=during, subject=next(filter(None, match.groups()), ""))
    return None
