"""wasmtime's C API as a run uses it, without the classes of wasmtime-py.

Those look up types and convert values anew in each call, and each of some sixty C functions of a run gives
up the interpreter lock, for which other threads then wait. Here short functions keep it; those that run code
of a module give it up. A run takes 0.4 times the processor time, and beside 63 others 0.15 times.

Exceptions do not pass through C: what a callback raises would be printed and lost. So callbacks never raise.
"""

import ctypes
import itertools
from typing import TYPE_CHECKING, Any, Final, Protocol

from toolkeep.wasm.errors import Ending, WasmEnded

if TYPE_CHECKING:
    from wasmtime import Engine, InstancePre

_FUNCTION, _MEMORY = 0, 3
"""Kinds of exports (`wasmtime_extern_kind_t`)."""
_I32, _I64 = 0, 1
"""Kinds of values (`wasmtime_valkind_t`)."""
_IO: Final = -5

_SHORT: Final = (
    "wasmtime_store_new",
    "wasmtime_store_context",
    "wasmtime_store_delete",
    "wasmtime_store_limiter",
    "wasmtime_context_set_fuel",
    "wasmtime_context_set_epoch_deadline",
    "wasmtime_store_epoch_deadline_callback",
    "wasi_config_new",
    "wasi_config_delete",
    "wasi_config_set_argv",
    "wasi_config_set_stdin_bytes",
    "wasi_config_set_stdout_custom",
    "wasi_config_set_stderr_custom",
    "wasmtime_context_set_wasi",
    "wasmtime_instance_export_get",
    "wasmtime_memory_data",
    "wasmtime_memory_data_size",
)
_LONG: Final = ("wasi_config_preopen_dir", "wasmtime_instance_pre_instantiate", "wasmtime_func_call")
"""They run code of a module, or open files: other threads go on meanwhile."""


class Host(Protocol):
    """What a run does when its module calls out."""

    @property
    def is_over(self) -> bool:
        """Whether the module must end now."""

    def take_output(self, body: bytes) -> int:
        """Take what it writes to standard output: how much was taken, or a negative errno."""

    def take_errors(self, body: bytes) -> int:
        """Take what it writes to standard error, likewise."""


class CApi:
    """The functions, with their types, and the callbacks of all runs."""

    def __init__(self) -> None:
        from wasmtime import _ffi as ffi

        self.types: Any = ffi
        released = ffi.dll
        held = ctypes.PyDLL(released._name)  # noqa: SLF001 -- the file that wasmtime-py loaded
        for name in _LONG:
            setattr(self, name, getattr(released, name))
        for name in _SHORT:
            function, typed = getattr(held, name), getattr(released, name)
            function.argtypes, function.restype = typed.argtypes, typed.restype
            setattr(self, name, function)
        self.wasmtime_memory_data.restype = ctypes.c_void_p  # an address, without a pointer around it
        self._hosts: dict[int, Host] = {}
        self._numbers = itertools.count(1)  # 0 would arrive as None
        # Made once: wasmtime holds only their addresses.
        tick = self.wasmtime_store_epoch_deadline_callback.argtypes
        write = self.wasi_config_set_stdout_custom.argtypes
        self.tick = tick[1](self._tick)
        self.write_output = write[1](self._write_output)
        self.write_errors = write[1](self._write_errors)
        self.nothing_to_free = ctypes.cast(0, tick[3])

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def add(self, host: Host) -> int:
        """The number by which callbacks find a run."""
        number = next(self._numbers)
        self._hosts[number] = host
        return number

    def remove(self, number: int) -> None:
        """Forget a run, whose store is gone."""
        self._hosts.pop(number, None)

    def _tick(self, _: Any, number: int | None, delta: Any, __: Any) -> int:
        try:
            if not self._hosts[number or 0].is_over:
                delta[0] = 1
                return 0
        except Exception:  # noqa: BLE001, S110 -- see above: then it ends
            pass
        return ctypes.cast(self.types.wasmtime_error_new(b"over"), ctypes.c_void_p).value or 0

    def _write_output(self, number: int | None, body: Any, size: int) -> int:
        try:
            return self._hosts[number or 0].take_output(ctypes.string_at(body, size))
        except Exception:  # noqa: BLE001 -- see above
            return _IO

    def _write_errors(self, number: int | None, body: Any, size: int) -> int:
        try:
            return self._hosts[number or 0].take_errors(ctypes.string_at(body, size))
        except Exception:  # noqa: BLE001 -- see above
            return _IO

    def check(self, error: Any, trap: Any = None) -> None:
        """Raise what a function returned: `WasmtimeError`, `ExitTrap` or `Trap`."""
        if error or trap:
            from wasmtime import Trap, WasmtimeError

            # They take ownership.
            raise WasmtimeError._from_ptr(error) if error else Trap._from_ptr(trap)  # noqa: SLF001

    def instantiate(self, store: "OpenStore", linked: "InstancePre") -> "Guest":
        """A fresh instance."""
        made, trap = self.types.wasmtime_instance_t(), ctypes.POINTER(self.types.wasm_trap_t)()
        error = self.wasmtime_instance_pre_instantiate(
            linked.ptr(), store.context, ctypes.byref(made), ctypes.byref(trap)
        )
        self.check(error, trap)
        return Guest(self, store, made)


class OpenStore:
    """What one run makes in wasmtime, until it is closed."""

    def __init__(self, c: CApi, engine: "Engine") -> None:
        self._c = c
        self.ptr = c.wasmtime_store_new(engine.ptr(), None, c.nothing_to_free)
        self.context = c.wasmtime_store_context(self.ptr)

    def close(self) -> None:
        """Free everything; nothing of it may be used afterwards."""
        self._c.wasmtime_store_delete(self.ptr)
        self.ptr = self.context = None


class Guest:
    """An instance in its store."""

    def __init__(self, c: CApi, store: OpenStore, instance: Any) -> None:
        self._c = c
        self._context = store.context
        self._instance = instance
        self._memory: Any = None

    def _export(self, name: bytes, kind: int) -> Any:
        found = self._c.types.wasmtime_extern_t()
        is_there = self._c.wasmtime_instance_export_get(
            self._context, ctypes.byref(self._instance), name, len(name), ctypes.byref(found)
        )
        # To read one kind as another would be unsafe; the module was checked when it was loaded.
        if not is_there or found.kind != kind:
            raise WasmEnded(Ending.UNUSABLE, "its module lacks what it exported before")
        return found.of

    def call(self, name: bytes, *words: int) -> int:
        """Call a function of 32-bit words that returns an integer or nothing; raises what it ends with."""
        types = self._c.types
        function = self._export(name, _FUNCTION).func
        given = (types.wasmtime_val_t * len(words))()
        for place, word in enumerate(words):
            given[place].kind = _I32
            given[place].of.i32 = word  # ctypes takes the lower 32 bits
        has_result = name not in (b"_start", b"_initialize")
        result, trap = types.wasmtime_val_t(), ctypes.POINTER(types.wasm_trap_t)()
        error = self._c.wasmtime_func_call(
            self._context,
            ctypes.byref(function),
            given,
            len(words),
            ctypes.byref(result) if has_result else None,
            int(has_result),
            ctypes.byref(trap),
        )
        self._c.check(error, trap)
        if not has_result:
            return 0
        return int(result.of.i64 if result.kind == _I64 else result.of.i32)

    def write(self, place: int, body: bytes) -> bool:
        """Write into its memory; whether the place is inside."""
        start = self._address(place, len(body))
        if start is None:
            return False
        ctypes.memmove(start, body, len(body))
        return True

    def read(self, place: int, length: int) -> bytes | None:
        """Read from its memory; None if the place is outside."""
        start = self._address(place, length)
        return None if start is None else ctypes.string_at(start, length)

    def _address(self, place: int, length: int) -> int | None:
        """Where a range of its memory lies, which may move with each call."""
        if self._memory is None:
            self._memory = self._export(b"memory", _MEMORY).memory
        memory = ctypes.byref(self._memory)
        if place < 0 or place + length > self._c.wasmtime_memory_data_size(self._context, memory):
            return None
        return (self._c.wasmtime_memory_data(self._context, memory) or 0) + place
