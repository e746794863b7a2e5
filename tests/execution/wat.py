"""WASM modules for tests, written as text."""

from pathlib import Path

from wasmtime import wat2wasm

IMPORTS = """
(import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
(import "wasi_snapshot_preview1" "fd_prestat_get" (func $fd_prestat_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "path_open"
  (func $path_open (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "sock_accept" (func $sock_accept (param i32 i32 i32) (result i32)))
(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
"""

HELPERS = """
(func $write (param $fd i32) (param $at i32) (param $size i32)
  (i32.store (i32.const 0) (local.get $at))
  (i32.store (i32.const 4) (local.get $size))
  (drop (call $fd_write (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8))))
(func $read (param $fd i32) (param $at i32) (param $room i32) (result i32)
  (i32.store (i32.const 0) (local.get $at))
  (i32.store (i32.const 4) (local.get $room))
  (if (call $fd_read (local.get $fd) (i32.const 0) (i32.const 1) (i32.const 8)) (then (return (i32.const 0))))
  (i32.load (i32.const 8)))
;; an errno of WASI as two digits
(func $say (param $errno i32)
  (i32.store8 (i32.const 16) (i32.add (i32.const 48) (i32.div_u (local.get $errno) (i32.const 10))))
  (i32.store8 (i32.const 17) (i32.add (i32.const 48) (i32.rem_u (local.get $errno) (i32.const 10))))
  (i32.store8 (i32.const 15) (i32.const 34))
  (i32.store8 (i32.const 18) (i32.const 34))
  (call $write (i32.const 1) (i32.const 15) (i32.const 4)))
"""


def command(body: str, *, data: str = "", pages: int = 1, more: str = "") -> bytes:
    """A command of WASI; `data` lies at 1024."""
    text = "".join(f"\\{byte:02x}" for byte in data.encode())
    return bytes(
        wat2wasm(
            f'(module {IMPORTS} (memory (export "memory") {pages}) (data (i32.const 1024) "{text}") {HELPERS} {more}'
            f' (func (export "_start") (local $n i32) {body}))'
        )
    )


def says(text: str, fd: int = 1) -> str:
    """Write the data, which has to be this text."""
    return f"(call $write (i32.const {fd}) (i32.const 1024) (i32.const {len(text.encode())}))"


def speaks(text: str) -> bytes:
    """A command that gives this text."""
    return command(says(text), data=text)


ECHO = command(
    """(loop $more
         (local.set $n (call $read (i32.const 0) (i32.const 4096) (i32.const 4096)))
         (if (local.get $n) (then (call $write (i32.const 1) (i32.const 4096) (local.get $n)) (br $more))))"""
)
"""Gives back its arguments."""

LOOP = command("(loop $on (br $on))")

SLEEP = command(
    """(i32.store8 (i32.const 2056) (i32.const 0))
       (i32.store (i32.const 2064) (i32.const 1))
       (i64.store (i32.const 2072) (i64.const 3600000000000))
       (call $say (call $poll_oneoff (i32.const 2048) (i32.const 3072) (i32.const 1) (i32.const 4096)))
       (loop $on (br $on))"""
)
"""Sleeps an hour inside of a host function."""


def opens(name: str, *, rights: int = 2, create: bool = False, folder: int = 3) -> bytes:
    """Opens a file of its first folder and gives what is in it; else the errno."""
    return command(
        f"""(local.set $n (call $path_open (i32.const {folder}) (i32.const 1) (i32.const 1024)
              (i32.const {len(name)}) (i32.const {int(create)}) (i64.const {rights}) (i64.const 0) (i32.const 0) (i32.const 2048)))
            (if (local.get $n) (then (call $say (local.get $n)) (return)))
            (if (i32.const {int(rights != 2)})
              (then (call $write (i32.load (i32.const 2048)) (i32.const 1024) (i32.const {len(name)}))))
            (local.set $n (call $read (i32.load (i32.const 2048)) (i32.const 4097) (i32.const 4096)))
            (i32.store8 (i32.const 4096) (i32.const 34))
            (i32.store8 (i32.add (i32.const 4097) (local.get $n)) (i32.const 34))
            (call $write (i32.const 1) (i32.const 4096) (i32.add (local.get $n) (i32.const 2)))""",
        data=name,
    )


def library(call: str, *, alloc: str = "(i32.const 1024)", more: str = "", data: str = "") -> bytes:
    """A module of functions."""
    text = "".join(f"\\{byte:02x}" for byte in data.encode())
    return bytes(
        wat2wasm(
            f'(module {more} (memory (export "memory") 1) (data (i32.const 8) "{text}")'
            f' (func (export "alloc") (param $size i32) (result i32) {alloc})'
            f' (func (export "call") (param $at i32) (param $size i32) (result i64) {call}))'
        )
    )


PACKED = "(i64.or (i64.shl (i64.extend_i32_u (local.get $at)) (i64.const 32)) (i64.extend_i32_u (local.get $size)))"
LIBRARY = library(PACKED)
"""Gives back its arguments."""


def write(folder: Path, body: bytes, name: str = "tool.wasm") -> Path:
    """A module as a file."""
    path = folder / name
    path.write_bytes(body)
    return path
