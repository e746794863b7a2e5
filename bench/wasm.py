"""What does a fresh WASM instance for each call cost? Prints a table.

python bench/wasm.py [--quick]

Calls go through the public face of a keep in memory, interleaved with the same addition in other places: a
function in this process, a WASM instance that is made once and called again and again without a keep, and the
same with a fresh instance each time.
"""

import argparse
import asyncio
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wasmtime import Engine, Instance, Module, Store, wat2wasm

from measures.home import empty_home
from measures.statistics import median, median_ratio, percentile
from tables import print_notes, print_table
from toolkeep import Keep, ToolDefinition, WasmTool, tool

LIVE = "live instance, no keep"
FRESH = "fresh instance, no keep"
HERE = "function in this process"

ECHO = """(module (memory (export "memory") 1)
  (func (export "alloc") (param i32) (result i32) (i32.const 1024))
  (func (export "call") (param $at i32) (param $size i32) (result i64)
    (i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32))
      (i64.extend_i32_u (local.get $size)))))"""

COMMAND = """(module
  (import "wasi_snapshot_preview1" "fd_read" (func $read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 1024)) (i32.store (i32.const 4) (i32.const 4096))
    (drop (call $read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 4)))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))))"""

ARGUMENTS = {"a": 1, "b": 2}
PARAMETERS = {
    "type": "object",
    "properties": {
        "a": {"type": "integer"},
        "b": {"type": "integer"},
        "folder": {"type": "string", "x-touches": "fs.read"},
    },
}


@tool(side_effects=["None"])
def echo_here(a: int, b: int) -> dict[str, int]:
    """Give back.

    Args:
        a: One number.
        b: Another one.
    """
    return {"a": a, "b": b}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="What a fresh WASM instance for each call costs.")
    parser.add_argument("--quick", action="store_true", help="a short run, to see that everything works")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with empty_home():
        asyncio.run(_measure(rounds=50 if options.quick else 1000))


async def _measure(rounds: int) -> None:
    keep = Keep()
    keep.declare_agent("ada", capabilities=["fs.read:."])
    keep.register(echo_here, *(_tool(name, text) for name, text in (("library", ECHO), ("command", COMMAND))))
    keep.register(_tool("folder", COMMAND, capabilities=["fs.read"], side_effects=["FsRead"]))
    engine = Engine()
    module = Module(engine, ECHO)
    live = _instance(engine, module)
    lanes: dict[str, Callable[[], Any]] = {
        HERE: lambda: keep.call("echo_here", ARGUMENTS, agent="ada"),
        "functions, through a keep": lambda: keep.call("library", ARGUMENTS, agent="ada"),
        "command, through a keep": lambda: keep.call("command", ARGUMENTS, agent="ada"),
        "command with a folder, through a keep": lambda: keep.call(
            "folder", {**ARGUMENTS, "folder": "."}, agent="ada"
        ),
        LIVE: lambda: _echo(*live),
        FRESH: lambda: _echo(*_instance(engine, module)),
    }
    found: dict[str, list[float]] = {name: [] for name in lanes}
    names = list(lanes)
    async with keep:
        for number in range(-5, rounds):
            for place in range(len(names)):
                name = names[(place + number) % len(names)]
                start = time.perf_counter()
                result = lanes[name]()
                if asyncio.iscoroutine(result):
                    result = await result
                    if not result.ok:
                        raise RuntimeError(result.text)
                if number >= 0:
                    found[name].append(time.perf_counter() - start)
    rows = [
        [
            name,
            f"{median(one) * 1e3:.3f}",
            f"{percentile(one, 0.99) * 1e3:.3f}",
            f"{median_ratio(one, found[LIVE]):.1f}",
            f"{median_ratio(one, found[HERE]):.1f}",
        ]
        for name, one in found.items()
    ]
    print_table("One call, ms", ["", "median", "p99", "× live instance", "× function here"], rows)
    print_notes(["a call through a keep is checked, authorized, recorded in memory and hashed besides"])


def _tool(name: str, text: str, **fields: Any) -> WasmTool:
    path = Path.home() / f"{name}.wasm"
    path.write_bytes(wat2wasm(text))
    data = {"name": name, "description": "Give back.", "parameters": PARAMETERS, "side_effects": ["None"]}
    return WasmTool(ToolDefinition.from_dict({**data, **fields}), str(path))


def _instance(engine: Engine, module: Module) -> tuple[Store, Any]:
    store = Store(engine)
    return store, Instance(store, module, []).exports(store)


def _echo(store: Store, exports: Any) -> None:
    request = json.dumps(ARGUMENTS).encode()
    place = exports["alloc"](store, len(request))
    exports["memory"].write(store, request, place)
    packed = exports["call"](store, place, len(request))
    json.loads(bytes(exports["memory"].read(store, packed >> 32, (packed >> 32) + (packed & 0xFFFFFFFF))))


if __name__ == "__main__":
    main()
