"""Runs a WASM module once, in a fresh instance.

Input: a loaded module, the request bytes, the preopened folders. Output: the answer bytes, or `WasmEnded`.
The module can access its own memory, these folders, clocks and random numbers. It has no environment,
network, processes or other files.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from toolkeep.calls import Denied
from toolkeep.limits import STDERR_BYTES, TABLE_ELEMENTS, TABLES
from toolkeep.wasm.c_api import Guest, OpenStore
from toolkeep.wasm.errors import Ending, WasmEnded
from toolkeep.wasm.modules import Form, LoadedModule
from toolkeep.wasm.open_file_limit import INSTANCES
from toolkeep.wasm.run_watch import Watch, of_thread
from toolkeep.wasm.runtime import Runtime

_ERRNO_NO_SPACE: Final = 28
_WORD: Final = 0xFFFFFFFF
_WORDS: Final = ctypes.POINTER(ctypes.POINTER(ctypes.c_char))
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


class Run:
    """One run of one module."""

    def __init__(self, runtime: Runtime, module: LoadedModule, bounds: Bounds, watch: Watch) -> None:
        self._runtime = runtime
        self._module = module
        self._bounds = bounds
        self._watch = watch
        self._output = bytearray()
        self._errors = bytearray()
        self._is_full = False

    def answer(self, name: str, request: bytes, folders: Sequence[OpenFolder]) -> Answer:
        """The module's answer. Blocks; only its watch ends it early."""
        c = self._runtime.c
        store = OpenStore(c, self._runtime.engine)
        of_thread.watch = self._watch
        number = c.add(self)
        try:
            with self._runtime.ticking():
                self._limit(store, number)
                self._set_wasi(store, number, name, request, folders)
                body = self._guarded(store, request, has_folders=bool(folders))
        finally:
            of_thread.watch = None
            store.close()
            c.remove(number)
        return Answer(body, bytes(self._errors))

    @property
    def is_over(self) -> bool:
        """Whether the module must end now."""
        return self._watch.is_over

    def take_output(self, body: bytes) -> int:
        """Keep standard output; exceeding the limit ends the run."""
        if len(self._output) + len(body) > self._bounds.output_bytes:
            self._is_full = True
            # Ends the run: a module that ignores the write error would spin until its deadline.
            self._watch.stop()
            return -_ERRNO_NO_SPACE
        self._output += body
        return len(body)

    def take_errors(self, body: bytes) -> int:
        """Keep the tail of standard error."""
        # Cut before it is appended: one huge write must not be buffered whole.
        self._errors += body[-STDERR_BYTES:]
        del self._errors[:-STDERR_BYTES]
        return len(body)

    def _limit(self, store: OpenStore, number: int) -> None:
        c = self._runtime.c
        memory_bytes, one_memory = self._bounds.memory_bytes, 1  # so that memory_bytes bounds all of it
        c.wasmtime_store_limiter(store.ptr, memory_bytes, TABLE_ELEMENTS, INSTANCES, TABLES + 1, one_memory)
        # Fuel bounds CPU work deterministically; the epoch bounds wall-clock time and cancellation.
        c.check(c.wasmtime_context_set_fuel(store.context, self._bounds.fuel))
        c.wasmtime_context_set_epoch_deadline(store.context, 1)
        c.wasmtime_store_epoch_deadline_callback(store.ptr, c.tick, number, c.nothing_to_free)

    def _set_wasi(
        self, store: OpenStore, number: int, name: str, request: bytes, folders: Sequence[OpenFolder]
    ) -> None:
        c = self._runtime.c
        # No environment, no inherited streams: it starts empty, and nothing of the host is added.
        wasi = c.wasi_config_new()
        try:
            self._configure(wasi, number, name, request)
            self._open_folders(wasi, folders)
        except BaseException:
            c.wasi_config_delete(wasi)
            raise
        c.check(c.wasmtime_context_set_wasi(store.context, wasi))  # takes ownership

    def _configure(self, wasi: Any, number: int, name: str, request: bytes) -> None:
        c, words = self._runtime.c, (ctypes.c_char_p * 1)(name.encode())
        if not c.wasi_config_set_argv(wasi, 1, ctypes.cast(words, _WORDS)):
            raise WasmEnded(Ending.UNUSABLE, "its name cannot be given to it")
        if self._module.form is Form.COMMAND:
            c.wasi_config_set_stdin_bytes(wasi, ctypes.byref(c.types.bytes_to_capi(request)))
        c.wasi_config_set_stdout_custom(wasi, c.write_output, number, c.nothing_to_free)
        c.wasi_config_set_stderr_custom(wasi, c.write_errors, number, c.nothing_to_free)

    def _open_folders(self, wasi: Any, folders: Sequence[OpenFolder]) -> None:
        for folder in folders:
            path, guest = folder.path.encode(), folder.guest.encode()
            if not self._runtime.c.wasi_config_preopen_dir(wasi, path, guest, folder.is_writable):
                raise WasmEnded(Ending.UNUSABLE, "a folder that it was granted cannot be opened")

    def _guarded(self, store: OpenStore, request: bytes, *, has_folders: bool) -> bytes:
        """The answer; every way in which wasmtime ends a run becomes a `WasmEnded`."""
        from wasmtime import ExitTrap, Trap, WasmtimeError

        try:
            guest = self._guest(store, has_folders=has_folders)
            self._check_going_on()
            if self._module.form is Form.COMMAND:
                guest.call(b"_start")
                self._check_going_on()
                return bytes(self._output)
            return self._call(guest, request)
        except ExitTrap as ended:
            self._check_going_on()
            return self._left(ended.code)
        except (Trap, WasmtimeError) as error:
            self._check_going_on()
            raise self._died(error) from error

    def _guest(self, store: OpenStore, *, has_folders: bool) -> Guest:
        """A fresh instance; with folders, one whose open files are counted."""
        c = self._runtime.c
        if has_folders:
            made = self._runtime.gate.instantiate(store, self._module.module)
            return Guest(c, store, made._instance)  # noqa: SLF001 -- of the pinned version
        return c.instantiate(store, self._module.linked)

    def _check_going_on(self) -> None:
        """Report first why a run was ended, whatever error it ended with."""
        if self._is_full:
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
        return bytes(self._output)

    def _last_words(self) -> str:
        lines = bytes(self._errors).decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""

    def _died(self, error: Exception) -> WasmEnded:
        from wasmtime import Trap, TrapCode

        code = error.trap_code if isinstance(error, Trap) else None
        # A backtrace with names from the module, and what it wrote: for the operator.
        detail = f"{bytes(self._errors).decode(errors='replace')}\n{str(error)[:_TRAP_CHARS]}"
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

    def _call(self, guest: Guest, request: bytes) -> bytes:
        """Call a library; every address that it returns is checked against its memory."""
        if self._module.has_initialize:
            guest.call(b"_initialize")
        # The module chooses the address; masked to 32 bits and checked before the host writes there.
        place = guest.call(b"alloc", len(request)) & _WORD
        if not guest.write(place, request):
            raise WasmEnded(Ending.BROKEN, "gave by alloc a place outside of its memory")
        packed = guest.call(b"call", place, len(request))
        self._check_going_on()
        start, length = packed >> 32 & _WORD, packed & _WORD
        # Before the bytes are copied out of the module.
        if length > self._bounds.output_bytes:
            raise WasmEnded(Ending.TOO_BIG, f"returned more than {self._bounds.output_bytes} bytes")
        body = guest.read(start, length)
        if body is None:
            raise WasmEnded(Ending.BROKEN, "gave by call a place outside of its memory")
        return body
