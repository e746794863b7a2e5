"""Describes an exception for the operator: the chain with its frames, and what the kernel denied.

Texts and paths in it may hold argument values and secrets: the host redacts them, and never shows them to a
model. Sizes are bounded here, and again by the host, which trusts none of it.
"""

import contextlib
import dis
import os
import signal
from types import CodeType, FrameType
from typing import Any, Final

with contextlib.suppress(ImportError):  # Windows has none, and the host imports this module there too
    import resource

CHAINED: Final = 4
"""Exceptions of a chain; the last ones say most."""
FRAMES: Final = 20
"""Frames of an exception, the innermost; a recursion has a thousand."""
NAME_CHARS: Final = 300
"""Characters of a type or a frame: a path with a line and a function."""
TEXT_CHARS: Final = 1000
"""Characters of the text of an exception: some lines of it."""
PATH_CHARS: Final = 4096
"""PATH_MAX."""

_OURS: Final = os.path.join(os.path.dirname(__file__).removesuffix("/sandbox/guest"), "")
"""toolkeep's own folder."""
_STARTS: Final = frozenset(
    {"fork", "forkpty", "fork_exec", "_fork_exec", "posix_spawn", "posix_spawnp", "execv", "execve"}
)
_CONNECTS: Final = frozenset({"connect", "sendto", "sendmsg"})


class ProcessorTimeExceeded(Exception):
    """The process reached its soft limit of processor time."""


def lower_processor_limit() -> None:
    """Put the soft limit of processor time a second below the hard one.

    At the hard limit the kernel kills without a word; at the soft one it sends SIGXCPU, which says why.
    """
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    # At restricted the filter refuses to change a limit: there the kernel kills.
    if most > 1:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_CPU, (most - 1, most))


def raise_at_processor_limit() -> None:
    """Have this process raise ProcessorTimeExceeded at its soft limit; programs that it starts just end."""
    with contextlib.suppress(ValueError, OSError):  # not the main thread
        signal.signal(signal.SIGXCPU, _raise)
    lower_processor_limit()


def _raise(_: int, __: FrameType | None) -> None:
    raise ProcessorTimeExceeded


def report(error: BaseException) -> dict[str, Any]:
    """The chain of an exception, oldest first, and the operation that a limit or the kernel ended.

    Empty if the exception cannot be described: its methods are code of the tool.
    """
    try:
        chain = _chain(error)
        told = [[_name(type(one)), _text(str(one)), _places(one)] for one in reversed(chain)]
        return {"chain": told, **next(filter(None, map(_operation, chain)), {})}
    except BaseException:  # noqa: BLE001 -- also what a tool's own __str__ raises
        return {}


def _chain(error: BaseException) -> list[BaseException]:
    """An exception and those that led to it, as Python prints them."""
    found: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and len(found) < CHAINED and all(one is not other for other in found):
        found.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    return found


def _name(kind: type) -> str:
    return _text(kind.__qualname__)[:NAME_CHARS]


def _text(said: str) -> str:
    """At most a few lines; a lone surrogate would not pass as UTF-8."""
    return said[:TEXT_CHARS].encode("utf-8", "backslashreplace").decode()


def _places(error: BaseException) -> list[str]:
    """The frames of the tool, outermost first; ours around it tell its author nothing."""
    found: list[str] = []
    trace = error.__traceback__
    while trace is not None and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    while trace is not None:
        code = trace.tb_frame.f_code
        found.append(
            _text(f'File "{code.co_filename}", line {trace.tb_lineno}, in {code.co_name}')[:NAME_CHARS]
        )
        del found[:-FRAMES]
        trace = trace.tb_next
    return found


def _operation(error: BaseException) -> dict[str, Any]:
    """What the exception says about a limit or a denial; empty if nothing."""
    if isinstance(error, MemoryError):
        return {"during": "memory"}
    if isinstance(error, ProcessorTimeExceeded):
        return {"during": "processor"}
    if isinstance(error, RuntimeError) and str(error) == "can't start new thread":
        return {"during": "thread"}
    if not isinstance(error, OSError) or type(error.errno) is not int:
        return {}
    during, subject = _denied(error, error.errno)
    return {"errno": error.errno, "during": during, "subject": _text(subject)}


def _denied(error: OSError, number: int) -> tuple[str, str]:
    """The operation, and the path, program or host that it was about, as far as the frames tell."""
    frames, called = _frames(error)
    path = _path(error.filename)
    if frames and frames[-1].f_code.co_name == "_execute_child":  # of subprocess
        return "process", path or _path(frames[-1].f_locals.get("executable"), is_relative=True)
    if called in _STARTS:
        return "process", path
    # Negative: an error of getaddrinfo.
    if number < 0 or (not path and (called in _CONNECTS or any(map(_is_of_socket, frames)))):
        return "network", next(filter(None, map(_address, reversed(frames))), "")
    return "file" if path else "", path


def _frames(error: BaseException) -> tuple[list[FrameType], str]:
    """The frames of an exception, and the function of C that the innermost called: that has no frame."""
    found: list[FrameType] = []
    trace, at = error.__traceback__, 0
    while trace is not None:
        found.append(trace.tb_frame)
        at = trace.tb_lasti
        trace = trace.tb_next
    return found, _called(found[-1].f_code, at) if found else ""


def _called(code: CodeType, at: int) -> str:
    """Name of the function that the instruction calls: in the source its name begins where the call does."""
    instructions = [one for one in dis.get_instructions(code) if one.offset <= at and one.positions]
    if not instructions:
        return ""
    begin = instructions[-1].positions
    names = (
        one.argval
        for one in instructions[:-1]
        if isinstance(one.argval, str) and one.positions and one.positions[0::2] == (begin and begin[0::2])
    )
    return next(reversed([*names]), "")


def _path(name: object, *, is_relative: bool = False) -> str:
    """A path as an absolute one: the host has another working directory."""
    if not isinstance(name, (str, bytes)):
        return ""
    path = os.fsdecode(name)[:PATH_CHARS]
    return path if is_relative or not path else os.path.abspath(path)


def _is_of_socket(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__") == "socket"


def _address(frame: FrameType) -> str:
    """The host and port that a function of `socket` was called with."""
    known = frame.f_locals if _is_of_socket(frame) else {}
    address = known.get("address") or (known.get("host"), known.get("port"))
    if not isinstance(address, tuple) or len(address) < 2 or not isinstance(address[0], str):
        return ""
    return f"{address[0]}:{address[1]}"
