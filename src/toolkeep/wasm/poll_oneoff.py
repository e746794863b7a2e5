"""Interruptible `poll_oneoff`, the only WASI function that blocks.

wasmtime's own sleeps as long as the module asks, and epoch interruption does not reach it there: a module
could outlive its deadline in one call. This one supports clocks with a relative timeout; everything else
(files, standard streams) is always ready.
"""

import struct
from typing import TYPE_CHECKING, Any, Final

from toolkeep.wasm.run_watch import of_thread

if TYPE_CHECKING:
    from wasmtime import Caller, Linker

_SUBSCRIPTION: Final = struct.Struct("<QB7xI4xQQH6x")
_EVENT: Final = struct.Struct("<QHB21x")
_MOST: Final = 64
"""Maximum subscriptions; a tool has three streams and one clock."""

_OK, _INVALID, _IO, _NOT_SUPPORTED = 0, 28, 29, 58
_CLOCK: Final = 0
_ABSOLUTE: Final = 1
_NANOSECONDS: Final = 1e9


def define_poll_oneoff(linker: "Linker") -> None:
    """Replace wasmtime's implementation."""
    from wasmtime import FuncType, ValType

    linker.allow_shadowing = True
    form = FuncType([ValType.i32()] * 4, [ValType.i32()])
    linker.define_func("wasi_snapshot_preview1", "poll_oneoff", form, _poll, access_caller=True)
    linker.allow_shadowing = False


def _poll(caller: "Caller", asked: int, told: int, count: int, number: int) -> int:
    """Returns a WASI errno. Must never raise: wasmtime-py hands exceptions to whichever run ends next."""
    try:
        return _answer(caller, asked & 0xFFFFFFFF, told & 0xFFFFFFFF, count, number & 0xFFFFFFFF)
    except Exception:  # noqa: BLE001 -- see above
        return _IO


def _answer(caller: "Caller", asked: int, told: int, count: int, number: int) -> int:
    memory: Any = caller.get("memory")
    watch = of_thread.watch
    # All values come from the module: bound the count before its memory is read.
    if memory is None or watch is None or not 0 < count <= _MOST:
        return _INVALID
    body = memory.read(caller, asked, asked + count * _SUBSCRIPTION.size)
    if len(body) != count * _SUBSCRIPTION.size:
        return _INVALID
    subscriptions = list(_SUBSCRIPTION.iter_unpack(body))
    clocks = [one for one in subscriptions if one[1] == _CLOCK]
    # Relative timeouts only: an absolute one depends on which of several clocks the module meant.
    if any(one[5] & _ABSOLUTE for one in clocks):
        return _NOT_SUPPORTED
    ready = [one for one in subscriptions if one[1] != _CLOCK]
    if not ready:
        first = min(one[3] for one in clocks)
        watch.pause(first / _NANOSECONDS)
        ready = [one for one in clocks if one[3] == first]
    events = b"".join(_EVENT.pack(one[0], _OK, one[1]) for one in ready)
    memory.write(caller, events, told)
    memory.write(caller, struct.pack("<I", len(ready)), number)
    return _OK
