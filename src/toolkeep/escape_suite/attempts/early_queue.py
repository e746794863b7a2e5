"""Makes objects at import that outlive whoever made them: shared memory and a message queue, by their ids."""

import contextlib
import ctypes

from .declare import attempt, is_inside
from .system import call, libc

_BYTES = 16
"""Length of a secret (`baits.py`)."""
_CREATE = 0o1600
_NO_WAIT = 0o4000
_REMOVE = 0
libc.shmat.restype = ctypes.c_void_p


@attempt("ipc-closed", "leaked", calls=2, needs="System V shared memory or message queues")
def read_objects_of_an_earlier_call(earlier_secret: str) -> list[str]:
    found = []
    for way in (_through_segment, _through_queue):
        with contextlib.suppress(OSError):
            found.append(way(earlier_secret.encode()).decode("ascii", "replace"))
    return found


def _through_segment(left: bytes) -> bytes:
    place = libc.shmat(_SEGMENT, None, 0)
    if place in (None, 2**64 - 1):
        raise OSError("shmat")
    found = ctypes.string_at(place, _BYTES)
    ctypes.memmove(place, left, len(left))
    if not left:
        call("shmctl", _SEGMENT, _REMOVE, None)
    return found


def _through_queue(left: bytes) -> bytes:
    message = ctypes.create_string_buffer((1).to_bytes(8, "little") + left.ljust(_BYTES, b" "))
    if left:
        call("msgsnd", _QUEUE, message, _BYTES, _NO_WAIT)
    else:
        call("msgrcv", _QUEUE, message, _BYTES, 0, _NO_WAIT)
        call("msgctl", _QUEUE, _REMOVE, None)
    return b"" if left else message.raw[8:]


_SEGMENT = _QUEUE = -1
if is_inside(__name__):
    with contextlib.suppress(OSError):
        _SEGMENT = call("shmget", 0, _BYTES, _CREATE)
    with contextlib.suppress(OSError):
        _QUEUE = call("msgget", 0, _CREATE)
