"""Loads WASM modules: read once, validated, compiled, cached.

Input: the path of an untrusted file. Output: a `LoadedModule`, or `WasmEnded` with what the file is instead.
The bytes that are hashed are the bytes that are compiled: reading twice would let the file change in between.
"""

import hashlib
import logging
import os
import stat
import threading
from collections import OrderedDict
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from toolkeep.limits import CACHED_MODULES, LISTED_NAMES, MODULE_BYTES
from toolkeep.text.display import echo_name, listing
from toolkeep.wasm.compiled_cache import CompiledModules
from toolkeep.wasm.errors import Ending, WasmEnded
from toolkeep.wasm.open_file_limit import WASI
from toolkeep.wasm.runtime import Runtime

if TYPE_CHECKING:
    from wasmtime import InstancePre, Module

log = logging.getLogger("toolkeep.wasm")

_MAGIC: Final = b"\0asm"
_MODULE: Final = _MAGIC + b"\x01\0\0\0"
_LAYER: Final = slice(6, 8)
"""Layer field: non-zero for a component, zero for a module."""

_Identity = tuple[int, int, int, int, int]

_LIBRARY: Final = "memory, alloc(i32) -> i32 and call(i32, i32) -> i64"
_BUILD: Final = "build it for wasm32-wasip1"


class Form(StrEnum):
    """Calling convention of a module."""

    COMMAND = "command"
    """WASI command: arguments on standard input, result on standard output."""
    LIBRARY = "library"
    """Library: `alloc` reserves memory for the arguments, `call` returns the result."""


class LoadedModule(NamedTuple):
    """A compiled module with its metadata."""

    sha256: str
    form: Form
    has_initialize: bool
    module: "Module"
    linked: "InstancePre"


class Modules:
    """Modules of a keep, compiled once per file content."""

    def __init__(self, runtime: Runtime, compiled: CompiledModules | None) -> None:
        self._runtime = runtime
        self._compiled = compiled
        self._lock = threading.Lock()
        self._loading: dict[str, threading.Lock] = {}
        self._loaded: OrderedDict[str, tuple[_Identity, LoadedModule]] = OrderedDict()

    def load(self, path: str) -> LoadedModule:
        """The module in a file; compiled by one thread, however many ask."""
        return self._held(path) or self._compiled_once(path)

    def _held(self, path: str) -> LoadedModule | None:
        """The module, if it was loaded from the file as it is now. Takes no lock: most calls end here."""
        held = self._loaded.get(path)
        if held is None:
            return None
        try:
            return held[1] if held[0] == _identity(os.stat(path)) else None
        except (OSError, ValueError):
            return None  # to be told why

    def _compiled_once(self, path: str) -> LoadedModule:
        with self._lock:
            loading = self._loading.setdefault(path, threading.Lock())
        with loading:
            if (held := self._held(path)) is not None:  # by another thread meanwhile
                return held
            descriptor = _open(path)
            with open(descriptor, "rb") as file:
                # fstat of the descriptor that is read, not stat of the path: no TOCTOU between the two.
                identity = _identity(os.fstat(descriptor))
                # Bounded read: the file is untrusted, and compilation takes many times its size.
                body = file.read(MODULE_BYTES + 1)
            loaded = self._load(body)
            with self._lock:
                self._loaded[path] = (identity, loaded)
                self._loaded.move_to_end(path)
                while len(self._loaded) > CACHED_MODULES:
                    self._loading.pop(self._loaded.popitem(last=False)[0], None)
            return loaded

    def _load(self, body: bytes) -> LoadedModule:
        _check_bytes(body)
        sha256 = hashlib.sha256(body).hexdigest()
        module = self._from_cache(sha256) or self._compile(sha256, body)
        form = _form(module)
        has_initialize = any(export.name == "_initialize" for export in module.exports)
        return LoadedModule(sha256, form, has_initialize, module, self._linked(module))

    def _from_cache(self, sha256: str) -> "Module | None":
        from wasmtime import Module, WasmtimeError

        if self._compiled is None:
            return None
        compiled = self._compiled.get(sha256, self._runtime.fingerprint)
        if compiled is None:
            return None
        try:
            return Module.deserialize(self._runtime.engine, compiled)
        except WasmtimeError:  # Compiled for another CPU, in a home shared by several machines.
            return None

    def _compile(self, sha256: str, body: bytes) -> "Module":
        from wasmtime import Module, WasmtimeError

        try:
            module = Module(self._runtime.engine, body)
        except WasmtimeError as error:
            log.warning("a module does not compile", extra={"sha256": sha256, "reason": str(error)[:500]})
            raise _unusable(
                "its file holds a WASM module that is broken, or needs what is not supported"
            ) from error
        if self._compiled is not None:
            self._compiled.put(sha256, self._runtime.fingerprint, bytes(module.serialize()))
        return module

    def _linked(self, module: "Module") -> "InstancePre":
        from wasmtime import WasmtimeError

        # Also if wasmtime provides it: functions of an older WASI would bypass our limits.
        strange = [f"{one.module}.{one.name}" for one in module.imports if one.module != WASI]
        if strange:
            named = listing(map(echo_name, strange), len(strange), LISTED_NAMES)
            raise _unusable(f"its module imports {named}, which is not there; {_BUILD}")
        try:
            return self._runtime.linker.instantiate_pre(module)
        except WasmtimeError as error:
            raise _unusable(f"its module imports functions that are unknown to {WASI}; {_BUILD}") from error


def _unusable(text: str) -> WasmEnded:
    return WasmEnded(Ending.UNUSABLE, text)


def _open(path: str) -> int:
    try:
        # O_NONBLOCK: opening a FIFO would block the thread for good.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise _unusable("the file of its module does not exist; check the path under run.wasm") from error
    except (OSError, ValueError) as error:
        raise _unusable("the file of its module cannot be read; check its permissions") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise _unusable("run.wasm does not name a file")
    return descriptor


def _identity(status: os.stat_result) -> _Identity:
    """Identity with ctime, which only root can set back."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _check_bytes(body: bytes) -> None:
    if len(body) > MODULE_BYTES:
        raise _unusable(f"its module is larger than {MODULE_BYTES} bytes")
    if not body.startswith(_MAGIC):
        raise _unusable("its file is not a WASM module; name the .wasm file that your compiler wrote")
    if body.startswith(_MODULE):
        return
    if any(body[_LAYER]):
        raise _unusable(f"its file is a WASM component, and only modules are run; {_BUILD}")
    raise _unusable(f"its file is a WASM module of an unknown version; {_BUILD}")


def _form(module: "Module") -> Form:
    from wasmtime import FuncType, MemoryType

    exports = {export.name: export.type for export in module.exports}
    has_memory = isinstance(exports.get("memory"), MemoryType)
    shapes = {
        name: ([str(one) for one in form.params], [str(one) for one in form.results])
        for name, form in exports.items()
        if isinstance(form, FuncType)
    }
    if "_start" in exports:
        if not has_memory or shapes.get("_start") != ([], []):
            raise _unusable(
                "its module is not a WASI command: _start takes and gives nothing, beside a memory"
            )
        return Form.COMMAND
    is_library = has_memory and shapes.get("alloc") == (["i32"], ["i32"])
    if not is_library or shapes.get("call") != (["i32", "i32"], ["i64"]):
        raise _unusable(f"its module exports neither _start nor {_LIBRARY}")
    return Form.LIBRARY
