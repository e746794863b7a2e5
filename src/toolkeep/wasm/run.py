"""Runs a WASM module once, in a fresh instance.

Input: a loaded module, the request bytes, the preopened folders. Output: the answer bytes, or `WasmEnded`.
The module can access its own memory, these folders, clocks and random numbers. It has no environment,
network, processes or other files.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from toolkeep.calls import Denied
from toolkeep.limits import STDERR_BYTES, TABLE_ELEMENTS, TABLES
from toolkeep.wasm.errors import Ending, WasmEnded
from toolkeep.wasm.modules import Form, LoadedModule
from toolkeep.wasm.open_file_limit import INSTANCES
from toolkeep.wasm.run_watch import Watch, of_thread
from toolkeep.wasm.runtime import Runtime

if TYPE_CHECKING:
    from wasmtime import Instance, Store, WasiConfig

_ERRNO_NO_SPACE: Final = 28
_WORD: Final = 0xFFFFFFFF
_TRAP_CHARS: Final = 1000
"""Characters of a trap's message: it may hold a whole backtrace, with names from the module."""


class OpenFolder(NamedTuple):
    """A preopened folder."""

    path: str
    """By descriptor (/proc/self/fd/N), so that it is the folder that was checked."""
    guest: str
    """Its name inside the module."""
    is_writable: bool


class Bounds(NamedTuple):
    """Limits of one run."""

    memory_bytes: int
    fuel: int
    output_bytes: int


class Answer(NamedTuple):
    """Output of a module, and the tail of its standard error."""

    body: bytes
    stderr: bytes


class _Stream:
    """Receives what a module writes. Must never raise: wasmtime-py would print the error and go on."""

    def __init__(self) -> None:
        self.taken = bytearray()

    def take(self, body: bytes) -> int | None:
        raise NotImplementedError


class _Output(_Stream):
    """Standard output; exceeding the limit ends the run."""

    def __init__(self, most: int, watch: Watch) -> None:
        super().__init__()
        self._most = most
        self._watch = watch
        self.is_full = False

    def take(self, body: bytes) -> int | None:
        if len(self.taken) + len(body) > self._most:
            self.is_full = True
            # Ends the run: a module that ignores the write error would spin until its deadline.
            self._watch.stop()
            return -_ERRNO_NO_SPACE
        self.taken += body
        return None


class _Errors(_Stream):
    """Standard error; only the tail is kept."""

    def take(self, body: bytes) -> int | None:
        # Cut before it is appended: one huge write must not be buffered whole.
        self.taken += body[-STDERR_BYTES:]
        del self.taken[:-STDERR_BYTES]
        return None


class Run:
    """One run of one module."""

    def __init__(self, runtime: Runtime, module: LoadedModule, bounds: Bounds, watch: Watch) -> None:
        self._runtime = runtime
        self._module = module
        self._bounds = bounds
        self._watch = watch
        self._output = _Output(bounds.output_bytes, watch)
        self._errors = _Errors()

    def answer(self, name: str, request: bytes, folders: Sequence[OpenFolder]) -> Answer:
        """The module's answer. Blocks; only its watch ends it early."""
        from wasmtime import Store

        store = Store(self._runtime.engine)
        of_thread.watch = self._watch
        try:
            with self._runtime.ticking():
                callback = self._limit(store)
                store.set_wasi(self._wasi(name, request, folders))
                body = self._guarded(store, request, has_folders=bool(folders))
                # wasmtime holds only its address; Python must keep it alive until here.
                del callback
        finally:
            of_thread.watch = None
            store.close()
        return Answer(body, bytes(self._errors.taken))

    def _limit(self, store: "Store") -> Any:
        """Apply the limits; returns what must live as long as the store."""
        from wasmtime import _ffi as ffi

        store.set_limits(
            memory_size=self._bounds.memory_bytes,
            table_elements=TABLE_ELEMENTS,
            instances=INSTANCES,
            tables=TABLES + 1,
            # One memory, so that memory_size bounds all of it.
            memories=1,
        )
        # Fuel bounds CPU work deterministically; the epoch bounds wall-clock time and cancellation.
        store.set_fuel(self._bounds.fuel)
        store.set_epoch_deadline(1)

        def tick(_: Any, __: Any, delta: Any, ___: Any) -> int:
            if self._watch.is_over:
                error = ffi.wasmtime_error_new(b"over")
                return ctypes.cast(error, ctypes.c_void_p).value or 0
            delta[0] = 1
            return 0

        context, number = ctypes.POINTER(ffi.wasmtime_context_t), ctypes.POINTER(ctypes.c_uint64)
        kind = ctypes.POINTER(ffi.wasmtime_update_deadline_kind_t)
        callback = ctypes.CFUNCTYPE(ctypes.c_size_t, context, ctypes.c_void_p, number, kind)(tick)
        nothing_to_free = ctypes.cast(0, ctypes.CFUNCTYPE(None, ctypes.c_void_p))
        ffi.wasmtime_store_epoch_deadline_callback(store.ptr(), callback, None, nothing_to_free)
        return callback

    def _wasi(self, name: str, request: bytes, folders: Sequence[OpenFolder]) -> "WasiConfig":
        from wasmtime import WasiConfig, WasmtimeError
        from wasmtime import _ffi as ffi

        wasi = WasiConfig()
        # No environment, no inherited streams: WasiConfig starts empty, and nothing of the host is added.
        wasi.argv = [name]
        if self._module.form is Form.COMMAND:
            ffi.wasi_config_set_stdin_bytes(wasi.ptr(), ctypes.byref(ffi.bytes_to_capi(request)))
        wasi.stdout_custom = self._output.take
        wasi.stderr_custom = self._errors.take
        for folder in folders:
            try:
                wasi.preopen_dir(folder.path, folder.guest, folder.is_writable)
            except WasmtimeError as error:
                raise WasmEnded(Ending.UNUSABLE, "a folder that it was granted cannot be opened") from error
        return wasi

    def _guarded(self, store: "Store", request: bytes, *, has_folders: bool) -> bytes:
        """The answer; every way in which wasmtime ends a run becomes a `WasmEnded`."""
        from wasmtime import ExitTrap, Trap, WasmtimeError

        try:
            instance = self._instance(store, has_folders=has_folders)
            self._check_going_on()
            if self._module.form is Form.COMMAND:
                _function(store, instance, "_start")(store)
                self._check_going_on()
                return bytes(self._output.taken)
            return self._call(store, instance, request)
        except ExitTrap as ended:
            self._check_going_on()
            return self._left(ended.code)
        except (Trap, WasmtimeError) as error:
            self._check_going_on()
            raise self._died(error) from error

    def _instance(self, store: "Store", *, has_folders: bool) -> "Instance":
        """A fresh instance; with folders, one whose open files are counted."""
        if has_folders:
            return self._runtime.gate.instantiate(store, self._module.module)
        return self._module.linked.instantiate(store)

    def _check_going_on(self) -> None:
        """Report first why a run was ended, whatever error it ended with."""
        if self._output.is_full:
            limit = f"{self._bounds.output_bytes} bytes"
            text = f"returned more than {limit}; let it give less, or write a file"
            raise WasmEnded(Ending.TOO_BIG, text, denied=Denied.OUTPUT_SIZE, limit=limit)
        if self._watch.is_over:
            raise WasmEnded(Ending.STOPPED, "was stopped: it timed out or was cancelled")

    def _left(self, code: int) -> bytes:
        """Answer of a module that called `proc_exit`."""
        if code:
            raise WasmEnded(Ending.FAILED, self._last_words() or f"it ended with the exit status {code}")
        if self._module.form is Form.LIBRARY:
            raise WasmEnded(Ending.BROKEN, "ended without an answer")
        return bytes(self._output.taken)

    def _last_words(self) -> str:
        lines = bytes(self._errors.taken).decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _died(self, error: Exception) -> WasmEnded:
        from wasmtime import Trap, TrapCode

        code = error.trap_code if isinstance(error, Trap) else None
        # A backtrace with names from the module, and what it wrote: for the operator.
        detail = f"{bytes(self._errors.taken).decode(errors='replace')}\n{str(error)[:_TRAP_CHARS]}"
        died = partial(WasmEnded, Ending.DIED, detail=detail)
        if code is TrapCode.OUT_OF_FUEL:
            text = "used up its fuel; ask for less, or grant more under run.wasm"
            return died(text, denied=Denied.PROCESSOR_TIME, limit=f"{self._bounds.fuel} units of fuel")
        if code is TrapCode.STACK_OVERFLOW:
            return died("overflowed its stack; ask for less")
        if code is not None:
            what = code.name.lower().replace("_", " ")
            return died(f"trapped ({what}): a bug of its own, or a limit that it ran into")
        if "exceeds memory limits" in str(error):
            limit = f"{self._bounds.memory_bytes} bytes"
            text = f"needs more memory than {limit}; grant more as resource_bounds.max_memory"
            return died(text, denied=Denied.MEMORY, limit=limit)
        return died("could not be started, or broke; the log says why")

    def _call(self, store: "Store", instance: "Instance", request: bytes) -> bytes:
        """Call a library; every address that it returns is checked against its memory."""
        memory: Any = instance.exports(store)["memory"]
        if self._module.has_initialize:
            _function(store, instance, "_initialize")(store)
        # The module chooses the address; masked to 32 bits and checked before the host writes there.
        place = _function(store, instance, "alloc")(store, len(request)) & _WORD
        if place + len(request) > memory.data_len(store):
            raise WasmEnded(Ending.BROKEN, "gave by alloc a place outside of its memory")
        memory.write(store, request, place)
        packed = _function(store, instance, "call")(store, _signed(place), len(request))
        self._check_going_on()
        start, length = packed >> 32 & _WORD, packed & _WORD
        if start + length > memory.data_len(store):
            raise WasmEnded(Ending.BROKEN, "gave by call a place outside of its memory")
        # Before the bytes are copied out of the module.
        if length > self._bounds.output_bytes:
            raise WasmEnded(Ending.TOO_BIG, f"returned more than {self._bounds.output_bytes} bytes")
        return bytes(memory.read(store, start, start + length))


def _function(store: "Store", instance: "Instance", name: str) -> Any:
    return instance.exports(store)[name]


def _signed(word: int) -> int:
    """An address as wasmtime-py expects it."""
    return word - (1 << 32) if word >> 31 else word
