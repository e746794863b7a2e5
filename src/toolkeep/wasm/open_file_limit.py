"""Limits the open files of a WASM module: wasmtime does not, and they are the host's descriptors.

`path_open` and `fd_close` of the module are routed through a small counting module. It must be WASM itself:
WASI works on the memory that its caller exports, so ours re-exports the memory of the module. That exists
only after the module does, hence the table between the two: `gate` first, then the module, then `counter`.
"""

from typing import TYPE_CHECKING, Any, Final

from toolkeep.limits import MODULE_FILES
from toolkeep.wasm.c_api import OpenStore

if TYPE_CHECKING:
    from collections.abc import Mapping

    from wasmtime import Engine, Instance, Linker, Module
    from wasmtime._store import StoreContext

WASI: Final = "wasi_snapshot_preview1"
INSTANCES: Final = 3
"""Instances of one run that opens files."""

_OPEN: Final = "(func (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32))"
_CLOSE: Final = "(func (param i32) (result i32))"
_ALL: Final = " ".join(f"(local.get {n})" for n in range(9))
_TOO_MANY: Final = 33

_GATE: Final = f"""(module
  (type $open {_OPEN}) (type $close {_CLOSE})
  (table (export "table") 2 2 funcref)
  (func (export "path_open") (type $open) (call_indirect (type $open) {_ALL} (i32.const 0)))
  (func (export "fd_close") (type $close) (call_indirect (type $close) (local.get 0) (i32.const 1))))"""

_COUNTER: Final = f"""(module
  (type $open {_OPEN}) (type $close {_CLOSE})
  (import "{WASI}" "path_open" (func $path_open (type $open)))
  (import "{WASI}" "fd_close" (func $fd_close (type $close)))
  (import "ours" "memory" (memory 0))
  (import "ours" "table" (table 2 2 funcref))
  (export "memory" (memory 0))
  (global $held (mut i32) (i32.const 0))
  (func $open (type $open) (local $errno i32)
    (if (i32.ge_u (global.get $held) (i32.const {MODULE_FILES})) (then (return (i32.const {_TOO_MANY}))))
    (local.set $errno (call $path_open {_ALL}))
    (if (i32.eqz (local.get $errno)) (then (global.set $held (i32.add (global.get $held) (i32.const 1)))))
    (local.get $errno))
  (func $close (type $close) (local $errno i32)
    (local.set $errno (call $fd_close (local.get 0)))
    (if (i32.and (i32.eqz (local.get $errno)) (i32.ne (global.get $held) (i32.const 0)))
      (then (global.set $held (i32.sub (global.get $held) (i32.const 1)))))
    (local.get $errno))
  (elem (i32.const 0) func $open $close))"""


class OpenFileLimit:
    """Makes instances whose open files are counted."""

    def __init__(self, engine: "Engine", linker: "Linker") -> None:
        from wasmtime import Module

        self._linker = linker
        self._gate = Module(engine, _GATE)
        self._counter = Module(engine, _COUNTER)

    def instantiate(self, store: OpenStore, module: "Module") -> "Instance":
        """An instance of a module whose imports were checked before."""
        from wasmtime import Instance
        from wasmtime._store import StoreContext

        within = StoreContext(store.context)
        gate = Instance(within, self._gate, []).exports(within)
        made = Instance(within, module, self._imports(within, module, gate))
        count = {"memory": made.exports(within)["memory"], "table": gate["table"]}
        Instance(within, self._counter, self._imports(within, self._counter, count))
        return made

    def _imports(self, within: "StoreContext", module: "Module", ours: "Mapping[str, Any]") -> list[Any]:
        """Imports of a module in order: ours by name, WASI for the rest."""
        names = [one.name or "" for one in module.imports]
        return [ours.get(name) or self._linker.get(within, WASI, name) for name in names]
